//! Canonical JSON: one writer and one strict reader (SES-17, SES-18).
//!
//! Every digest of the project is taken over the bytes defined here:
//!
//! - UTF-8, no insignificant space, object keys in Unicode code-point order, which is the order of
//!   their UTF-8 bytes and not that of UTF-16;
//! - strings escape `"`, `\` and the controls below U+0020 (`\b \f \n \r \t`, else `\u00xx` in lower
//!   case); everything else stands as it is;
//! - integers from −2^63 to 2^64−1 as their shortest decimal form, others are refused;
//! - floats with their shortest round-trip digits: plain form with at least one fraction digit for
//!   decimal exponents −4 to 15, else `1e+16`, `1e-05`; `-0.0` is kept, `1` and `1.0` are two values,
//!   NaN and the infinities are refused.
//!
//! Neither `serde_json::to_vec` nor RFC 8785 gives these bytes. The writer sorts and formats by itself,
//! so other crates that switch `serde_json/preserve_order` or `arbitrary_precision` on change nothing.
//!
//! | to write | use | cost |
//! |---|---|---|
//! | a record whose keys are known | [`ObjectWriter`] | one pass, no tree, no allocation but the buffer |
//! | a `Serialize` type | [`to_canonical`] | one pass, plus a copy of each object whose fields are not declared in order |
//! | a `serde_json::Value` | [`write()`], [`to_bytes`], [`digest`](fn@digest) | one pass |
//!
//! `serde_json`'s own parser keeps the last of two equal keys, rounds large integers, and without its
//! feature `float_roundtrip` may miss the nearest double by one unit: read with [`read`] and turn the
//! value into a type with `serde_json::from_value`.
//!
//! Stored bytes are verified as they stand and never written again for that (SES-20); [`read_canonical`]
//! finds bytes that parse without being canonical while it reads them.

mod reader;
mod serialize;
mod structure;
mod writer;

pub use reader::{
    ReadError, ReadLimits, ReadReason, is_canonical, read, read_canonical, read_canonical_within,
};
pub use serialize::{append_canonical, to_canonical};
pub use structure::{ArrayWriter, ObjectWriter, ValueWriter};
pub use writer::{
    CanonicalError, check, digest, to_bytes, write, write_f64, write_i64, write_str, write_u64,
};

/// How many objects and arrays may stand inside each other: 128 (session.md section 17).
///
/// A scalar has depth 0, `[]` depth 1, `[[]]` depth 2.
pub const MAXIMUM_DEPTH: usize = 128;

#[cfg(test)]
pub(crate) use tests::any_json as any_json_for_tests;

#[cfg(test)]
mod tests;
