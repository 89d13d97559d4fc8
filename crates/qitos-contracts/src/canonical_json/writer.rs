//! Scalars, strings and whole values to canonical bytes.

use std::io::Write as _;

use serde_json::{Map, Number, Value};

use super::MAXIMUM_DEPTH;
use crate::digest::Digest;

/// Why a value has no canonical bytes.
///
/// The text names no content. What was appended to the buffer before the error is to be thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// NaN or an infinity.
    #[error("a number is not finite")]
    NotFinite,
    /// An integer outside −2^63…2^64−1.
    #[error("an integer is outside -2^63 to 2^64-1")]
    IntegerRange,
    /// More than [`MAXIMUM_DEPTH`] containers inside each other.
    #[error("a value is nested more than {MAXIMUM_DEPTH} deep")]
    TooDeep,
    /// A serialised map gave the same key twice.
    #[error("an object has the same key twice")]
    DuplicateKey,
    /// A serialised map has a key that is no string, character, integer or boolean.
    #[error("an object key is not a string")]
    KeyNotString,
    /// A `Serialize` implementation refused.
    #[error("a value refused to be serialised")]
    Custom,
}

impl CanonicalError {
    /// The stable lower-case word of this reason.
    ///
    /// The contracts that write JSON map it to a code of their own, such as `payload_not_json`
    /// (TRJ-11).
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            CanonicalError::NotFinite => "not_finite",
            CanonicalError::IntegerRange => "integer_range",
            CanonicalError::TooDeep => "too_deep",
            CanonicalError::DuplicateKey => "duplicate_key",
            CanonicalError::KeyNotString => "key_not_string",
            CanonicalError::Custom => "not_serialisable",
        }
    }
}

/// The canonical bytes of `value` (SES-17).
///
/// # Errors
/// `NotFinite`, `IntegerRange` (only possible when `serde_json/arbitrary_precision` is on) and `TooDeep`.
pub fn to_bytes(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    let mut buffer = Vec::with_capacity(128);
    write(value, &mut buffer)?;
    Ok(buffer)
}

/// The SHA-256 of the canonical bytes of `value` (SES-17).
///
/// # Errors
/// As [`to_bytes`].
pub fn digest(value: &Value) -> Result<Digest, CanonicalError> {
    to_bytes(value).map(|bytes| Digest::of(&bytes))
}

/// Whether `value` has canonical bytes and at most `depth` containers inside each other.
///
/// Costs a walk over the tree and writes nothing.
///
/// # Errors
/// As [`to_bytes`]; `TooDeep` beyond `depth`.
pub fn check(value: &Value, depth: usize) -> Result<(), CanonicalError> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
        Value::Number(number) => check_number(number),
        Value::Array(items) => {
            let inner = depth.checked_sub(1).ok_or(CanonicalError::TooDeep)?;
            items.iter().try_for_each(|item| check(item, inner))
        }
        Value::Object(members) => {
            let inner = depth.checked_sub(1).ok_or(CanonicalError::TooDeep)?;
            members.values().try_for_each(|item| check(item, inner))
        }
    }
}

fn check_number(number: &Number) -> Result<(), CanonicalError> {
    let integer = number.is_u64() || number.is_i64();
    if integer || (number.is_f64() && number.as_f64().is_some_and(f64::is_finite)) {
        Ok(())
    } else {
        Err(unwritable(number))
    }
}

/// Why a number has no canonical form; only `arbitrary_precision` lets such numbers exist.
fn unwritable(number: &Number) -> CanonicalError {
    if number.to_string().contains(['.', 'e', 'E']) {
        CanonicalError::NotFinite
    } else {
        CanonicalError::IntegerRange
    }
}

/// Appends the canonical bytes of `value` to `buffer` (SES-17).
///
/// # Errors
/// As [`to_bytes`]; `buffer` then ends in an incomplete value.
pub fn write(value: &Value, buffer: &mut Vec<u8>) -> Result<(), CanonicalError> {
    write_value(value, buffer, 0)
}

/// Writes `value`, which stands inside `depth` containers.
pub(super) fn write_value(
    value: &Value,
    buffer: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CanonicalError> {
    match value {
        Value::Null => buffer.extend_from_slice(b"null"),
        Value::Bool(true) => buffer.extend_from_slice(b"true"),
        Value::Bool(false) => buffer.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, buffer)?,
        Value::String(text) => write_str(text, buffer),
        Value::Array(items) => {
            let depth = deeper(depth)?;
            buffer.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    buffer.push(b',');
                }
                write_value(item, buffer, depth)?;
            }
            buffer.push(b']');
        }
        Value::Object(members) => write_map(members, buffer, depth)?,
    }
    Ok(())
}

/// Writes the object `members`, which stands inside `depth` containers.
pub(super) fn write_map(
    members: &Map<String, Value>,
    buffer: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CanonicalError> {
    let depth = deeper(depth)?;
    buffer.push(b'{');
    // The map is sorted unless another crate switched `preserve_order` on (SES-18).
    if members.keys().is_sorted() {
        write_members(members.iter(), buffer, depth)?;
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        write_members(sorted.into_iter(), buffer, depth)?;
    }
    buffer.push(b'}');
    Ok(())
}

fn write_members<'a>(
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    buffer: &mut Vec<u8>,
    depth: usize,
) -> Result<(), CanonicalError> {
    for (index, (key, value)) in members.enumerate() {
        if index > 0 {
            buffer.push(b',');
        }
        write_str(key, buffer);
        buffer.push(b':');
        write_value(value, buffer, depth)?;
    }
    Ok(())
}

/// One container deeper.
pub(super) fn deeper(depth: usize) -> Result<usize, CanonicalError> {
    if depth < MAXIMUM_DEPTH {
        Ok(depth + 1)
    } else {
        Err(CanonicalError::TooDeep)
    }
}

pub(super) fn write_number(number: &Number, buffer: &mut Vec<u8>) -> Result<(), CanonicalError> {
    if let Some(integer) = number.as_u64() {
        write_u64(integer, buffer);
        Ok(())
    } else if let Some(integer) = number.as_i64() {
        write_i64(integer, buffer);
        Ok(())
    } else if number.is_f64() {
        write_f64(number.as_f64().unwrap_or(f64::NAN), buffer)
    } else {
        Err(unwritable(number))
    }
}

/// Appends an unsigned integer as its shortest decimal form.
pub fn write_u64(mut value: u64, buffer: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut used = 0;
    // Filled from the end; 20 digits hold every u64.
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (value % 10) as u8;
        value /= 10;
        used += 1;
        if value == 0 {
            break;
        }
    }
    buffer.extend(digits.iter().skip(digits.len() - used));
}

/// Appends a signed integer as its shortest decimal form.
pub fn write_i64(value: i64, buffer: &mut Vec<u8>) {
    if value < 0 {
        buffer.push(b'-');
    }
    write_u64(value.unsigned_abs(), buffer);
}

/// Appends a float the way CPython's `repr` prints it (SES-17, TRJ-12).
///
/// Shortest round-trip digits; plain form with a fraction for 1e-4 ≤ |value| < 1e16, else an exponent
/// with its sign and at least two digits. `-0.0` keeps its sign.
///
/// # Errors
/// `NotFinite` for NaN and the infinities; nothing is appended then.
pub fn write_f64(value: f64, buffer: &mut Vec<u8>) -> Result<(), CanonicalError> {
    if !value.is_finite() {
        return Err(CanonicalError::NotFinite);
    }
    if value == 0.0 {
        let text: &[u8] = if value.is_sign_negative() {
            b"-0.0"
        } else {
            b"0.0"
        };
        buffer.extend_from_slice(text);
        return Ok(());
    }
    // `{:e}` gives the shortest digits that round-trip as `d.ddde±x`; only their layout is ours.
    // The longest is `-2.2250738585072014e-308`, 24 bytes.
    let mut scratch = [0u8; 40];
    let mut cursor = scratch.as_mut_slice();
    let complete = write!(cursor, "{value:e}").is_ok();
    let free = cursor.len();
    let text = scratch.get(..scratch.len() - free).unwrap_or_default();
    debug_assert!(complete, "40 bytes hold every f64");
    let mut digits = [0u8; 20];
    let mut count = 0;
    let mut exponent: i32 = 0;
    let mut exponent_negative = false;
    let mut in_exponent = false;
    for byte in text {
        match byte {
            b'e' => in_exponent = true,
            b'-' if in_exponent => exponent_negative = true,
            b'0'..=b'9' if in_exponent => exponent = exponent * 10 + i32::from(byte - b'0'),
            b'0'..=b'9' => {
                if let Some(slot) = digits.get_mut(count) {
                    *slot = *byte;
                    count += 1;
                }
            }
            _ => {}
        }
    }
    if exponent_negative {
        exponent = -exponent;
    }
    let digits = digits.get(..count).unwrap_or_default();
    if value < 0.0 {
        buffer.push(b'-');
    }
    lay_out(digits, exponent, buffer);
    Ok(())
}

/// Lays out significant `digits`, the first of which has the decimal exponent `exponent`.
fn lay_out(digits: &[u8], exponent: i32, buffer: &mut Vec<u8>) {
    match exponent {
        0..=15 => {
            let whole = usize::try_from(exponent).unwrap_or_default() + 1;
            let (head, tail) = digits.split_at(whole.min(digits.len()));
            buffer.extend_from_slice(head);
            buffer.extend(std::iter::repeat_n(b'0', whole - head.len()));
            buffer.push(b'.');
            buffer.extend_from_slice(if tail.is_empty() { b"0" } else { tail });
        }
        -4..=-1 => {
            buffer.extend_from_slice(b"0.");
            let zeros = usize::try_from(-exponent - 1).unwrap_or_default();
            buffer.extend(std::iter::repeat_n(b'0', zeros));
            buffer.extend_from_slice(digits);
        }
        _ => {
            let (head, tail) = digits.split_at(digits.len().min(1));
            buffer.extend_from_slice(head);
            if !tail.is_empty() {
                buffer.push(b'.');
                buffer.extend_from_slice(tail);
            }
            buffer.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            let magnitude = u64::from(exponent.unsigned_abs());
            if magnitude < 10 {
                buffer.push(b'0');
            }
            write_u64(magnitude, buffer);
        }
    }
}

/// Appends `text` in quotes, with the escapes of SES-17.
pub fn write_str(text: &str, buffer: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    buffer.reserve(bytes.len() + 2);
    buffer.push(b'"');
    let mut rest = bytes;
    while let Some(position) = first_escape(rest) {
        let (plain, tail) = rest.split_at(position);
        buffer.extend_from_slice(plain);
        let Some((byte, tail)) = tail.split_first() else {
            break;
        };
        write_escape(*byte, buffer);
        rest = tail;
    }
    buffer.extend_from_slice(rest);
    buffer.push(b'"');
}

/// Whether a byte of a string may not stand as it is.
const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Where the first byte stands that may not stand as it is.
///
/// Looks at blocks without an early exit, which the compiler turns into vector instructions.
pub(super) fn first_escape(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    let plain_blocks = bytes
        .chunks_exact(BLOCK)
        .take_while(|block| {
            !block
                .iter()
                .fold(false, |found, byte| found | needs_escape(*byte))
        })
        .count();
    let skipped = plain_blocks * BLOCK;
    let rest = bytes.get(skipped..).unwrap_or_default();
    let position = rest.iter().position(|byte| needs_escape(*byte))?;
    Some(skipped + position)
}

fn write_escape(byte: u8, buffer: &mut Vec<u8>) {
    let letter = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        0x08 => b'b',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let low = byte & 15;
            let digit = if low < 10 {
                b'0' + low
            } else {
                b'a' + low - 10
            };
            buffer.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), digit]);
            return;
        }
    };
    buffer.extend_from_slice(&[b'\\', letter]);
}
