//! Times as records carry them (TRJ-9, decision 6).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::clock::{InvalidTimestamp, Timestamp};

/// `occurred_at` or `recorded_at`: an RFC 3339 time, or `unknown` in imported history.
///
/// Evidence only: records are ordered by `sequence` (TRJ-7). A stored spelling other than ours is kept,
/// so that a record that was read is written with the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordTime(Spelling);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Spelling {
    Unknown,
    Ours(Timestamp),
    Stored(Arc<str>, Timestamp),
}

impl RecordTime {
    /// Nobody knows; legal for imported history only.
    pub const UNKNOWN: RecordTime = RecordTime(Spelling::Unknown);

    /// The time, unless it is unknown.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        match &self.0 {
            Spelling::Unknown => None,
            Spelling::Ours(time) | Spelling::Stored(_, time) => Some(*time),
        }
    }
}

impl From<Timestamp> for RecordTime {
    fn from(time: Timestamp) -> Self {
        RecordTime(Spelling::Ours(time))
    }
}

impl FromStr for RecordTime {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        if text == "unknown" {
            return Ok(RecordTime::UNKNOWN);
        }
        let time: Timestamp = text.parse()?;
        if time.to_string() == text {
            Ok(time.into())
        } else {
            Ok(RecordTime(Spelling::Stored(text.into(), time)))
        }
    }
}

impl fmt::Display for RecordTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Spelling::Unknown => formatter.write_str("unknown"),
            Spelling::Ours(time) => time.fmt(formatter),
            Spelling::Stored(text, _) => formatter.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_spellings_are_kept() {
        // TRJ-9
        for text in [
            "unknown",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01T00:00:00.5Z",
        ] {
            assert_eq!(
                text.parse::<RecordTime>()
                    .map(|time| time.to_string())
                    .as_deref(),
                Ok(text)
            );
        }
        assert!("yesterday".parse::<RecordTime>().is_err());
        assert_eq!(RecordTime::UNKNOWN.timestamp(), None);
    }
}
