//! Injected time and randomness.
//!
//! Nothing in a library reads the system clock or rolls dice: both come from here, so a test decides them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Wall-clock time in whole microseconds since 1970-01-01T00:00:00Z; evidence, never an order (SES-6).
///
/// Written as RFC 3339 with `+00:00` and six fraction digits, or none when they are zero (decision 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since the epoch, clamped to the years 0000 to 9999.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        const MIN: i64 = -62_167_219_200_000_000;
        const MAX: i64 = 253_402_300_799_999_999;
        if micros < MIN {
            Timestamp(MIN)
        } else if micros > MAX {
            Timestamp(MAX)
        } else {
            Timestamp(micros)
        }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }
}

/// Days since the epoch to (year, month, day), proleptic Gregorian.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day)
}

/// (year, month, day) to days since the epoch, proleptic Gregorian.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - (month <= 2) as i64;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000);
        let micros = self.0.rem_euclid(1_000_000);
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let rest = seconds.rem_euclid(86_400);
        write!(
            formatter,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}",
            rest / 3_600,
            rest / 60 % 60,
            rest % 60
        )?;
        if micros != 0 {
            write!(formatter, ".{micros:06}")?;
        }
        formatter.write_str("+00:00")
    }
}

/// The text is not an RFC 3339 date-time with an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a timestamp is RFC 3339 with an offset")]
pub struct InvalidTimestamp;

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Reads any RFC 3339 date-time; digits beyond microseconds are cut, a leap second counts as :59.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse_rfc3339(text.as_bytes()).ok_or(InvalidTimestamp)
    }
}

fn parse_rfc3339(text: &[u8]) -> Option<Timestamp> {
    let digits = |from: usize, count: usize| -> Option<i64> {
        let part = text.get(from..from + count)?;
        part.iter().try_fold(0i64, |value, byte| {
            byte.is_ascii_digit()
                .then(|| value * 10 + i64::from(byte - b'0'))
        })
    };
    let is = |at: usize, allowed: &[u8]| text.get(at).is_some_and(|byte| allowed.contains(byte));
    let (year, month, day) = (digits(0, 4)?, digits(5, 2)?, digits(8, 2)?);
    let (hour, minute, second) = (digits(11, 2)?, digits(14, 2)?, digits(17, 2)?.min(59));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":"))
        || digits(17, 2)? > 60
    {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if day < 1 || day > last_day || hour > 23 || minute > 59 {
        return None;
    }
    let mut at = 19;
    let mut micros = 0i64;
    if is(at, b".") {
        at += 1;
        let start = at;
        while let Some(byte) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            if at - start < 6 {
                micros = micros * 10 + i64::from(byte - b'0');
            }
            at += 1;
        }
        if at == start {
            return None;
        }
        for _ in (at - start)..6 {
            micros *= 10;
        }
    }
    let offset = match text.get(at)? {
        b'Z' | b'z' if text.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if text.len() == at + 6 && is(at + 3, b":") => {
            let (hours, minutes) = (digits(at + 1, 2)?, digits(at + 4, 2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 3_600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let seconds =
        days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
    Some(Timestamp::from_micros(seconds * 1_000_000 + micros))
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Where time comes from.
///
/// # Contract
/// `monotonic_ns` never decreases within one process; `now` may jump in either direction.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;
    /// Nanoseconds since an arbitrary point of this process.
    fn monotonic_ns(&self) -> u64;
}

/// Where randomness for new identities comes from (decision 8 of the design).
pub trait IdSource: fmt::Debug + Send + Sync + 'static {
    /// 128 bits that no other call returned.
    fn next_id(&self) -> u128;
}

/// A clock that stands still until told otherwise; for tests and replay.
#[derive(Debug)]
pub struct ManualClock {
    micros: std::sync::atomic::AtomicI64,
    monotonic_ns: std::sync::atomic::AtomicU64,
}

impl ManualClock {
    /// A clock showing `now`, monotonic zero.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        ManualClock {
            micros: now.as_micros().into(),
            monotonic_ns: 0.into(),
        }
    }

    /// Moves both readings forward.
    pub fn advance(&self, by: std::time::Duration) {
        let order = std::sync::atomic::Ordering::SeqCst;
        self.micros
            .fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), order);
        self.monotonic_ns
            .fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), order);
    }

    /// Sets the wall clock alone, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.micros
            .store(now.as_micros(), std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(std::sync::atomic::Ordering::SeqCst)
    }
}

/// Identities 1, 2, 3 … mixed with a seed; for tests: the same seed gives the same ids.
#[derive(Debug)]
pub struct CountingIds {
    seed: u64,
    next: std::sync::atomic::AtomicU64,
}

impl CountingIds {
    /// A source whose ids start with the 64 bits of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        CountingIds {
            seed,
            next: 1.into(),
        }
    }
}

impl IdSource for CountingIds {
    fn next_id(&self) -> u128 {
        let count = self.next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        (u128::from(self.seed) << 64) | u128::from(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_as_decision_6_says() {
        assert_eq!(
            Timestamp::from_micros(1_767_225_600_000_000).to_string(),
            "2026-01-01T00:00:00+00:00"
        );
        assert_eq!(
            Timestamp::from_micros(1_767_225_600_000_010).to_string(),
            "2026-01-01T00:00:00.000010+00:00"
        );
        assert_eq!(
            Timestamp::from_micros(-1).to_string(),
            "1969-12-31T23:59:59.999999+00:00"
        );
    }

    #[test]
    fn any_rfc3339_is_read() {
        for (text, micros) in [
            ("2026-01-01T00:00:00Z", 1_767_225_600_000_000),
            ("2026-01-01t02:00:00.5+02:00", 1_767_225_600_500_000),
            ("2025-12-31 19:00:00.0000019-05:00", 1_767_225_600_000_001),
            ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
        ] {
            assert_eq!(
                text.parse::<Timestamp>().map(Timestamp::as_micros),
                Ok(micros),
                "{text}"
            );
        }
        for text in [
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2025-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:61Z",
            "é026-01-01T00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }
}
