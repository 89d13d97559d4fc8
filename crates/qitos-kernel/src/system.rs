//! The clock and the identities of a real process; everything else in the kernel takes them injected.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Instant;

use qitos_contracts::clock::{Clock, IdSource, Timestamp};

/// The system's clock.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic reading starts now.
    #[must_use]
    pub fn new() -> Self {
        SystemClock {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Random identities, seeded by the operating system once per call.
#[derive(Debug, Default)]
pub struct SystemIds;

impl IdSource for SystemIds {
    fn next_id(&self) -> u128 {
        // Each `RandomState` starts from keys that the operating system gave to this thread, then counts on; the
        // process id and an address keep forked processes apart.
        let mut id = 0u128;
        for half in 0..2u64 {
            let mut hasher = RandomState::new().build_hasher();
            hasher.write_u64(half);
            hasher.write_u32(std::process::id());
            hasher.write_usize(std::ptr::from_ref(&hasher).addr());
            id = (id << 64) | u128::from(hasher.finish());
        }
        id
    }
}
