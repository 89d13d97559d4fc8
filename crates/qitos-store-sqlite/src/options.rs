//! How a store is opened.

use std::time::Duration;

use qitos_contracts::checkpoint::DurabilityClass;

/// Options of [`SqliteStore::open`](crate::SqliteStore::open).
///
/// The default opens an existing file, demands class `power_loss` and waits at most 30 s for other writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    pub(crate) create: bool,
    pub(crate) read_only: bool,
    pub(crate) class: DurabilityClass,
    pub(crate) busy_bound: Duration,
    pub(crate) local_filesystem_asserted: bool,
    pub(crate) reader_threads: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            create: false,
            read_only: false,
            class: DurabilityClass::PowerLoss,
            busy_bound: Duration::from_secs(30),
            local_filesystem_asserted: false,
            reader_threads: 2,
        }
    }
}

impl OpenOptions {
    /// Makes a new store where there is no file, or an empty one.
    #[must_use]
    pub const fn create(mut self) -> Self {
        self.create = true;
        self
    }

    /// Opens an existing store for reading alone: every commit is refused, nothing is migrated, and the database and
    /// its write-ahead log stay as they are, also when whoever wrote last was killed.
    ///
    /// Only the `-shm` file beside them, where connections keep their locks, may change.
    #[must_use]
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The class that the store must prove: `power_loss` syncs every commit, `process_crash` does not.
    #[must_use]
    pub const fn with_class(mut self, class: DurabilityClass) -> Self {
        self.class = class;
        self
    }

    /// How long to wait for other writers before `store_busy`, at least the engine's own 5 s.
    #[must_use]
    pub const fn with_busy_bound(mut self, bound: Duration) -> Self {
        self.busy_bound = bound;
        self
    }

    /// Asserts that a file system of a refused kind has local semantics; the class is then at most `process_crash`
    /// (STO-28).
    #[must_use]
    pub const fn assert_local_filesystem(mut self) -> Self {
        self.local_filesystem_asserted = true;
        self
    }

    /// How many threads read, 1 to 16.
    #[must_use]
    pub const fn with_reader_threads(mut self, threads: u32) -> Self {
        self.reader_threads = if threads == 0 {
            1
        } else if threads > 16 {
            16
        } else {
            threads
        };
        self
    }
}
