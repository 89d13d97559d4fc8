//! Durable facts as snapshot components, and back (section 4 of the session specification).
//!
//! Writing goes straight to canonical bytes; reading is strict. One file per direction.

mod read;
mod write;

pub(crate) use read::{Payloads, Restored, read_durable};
pub(crate) use write::{Capture, CaptureError, capture, seconds};
