//! How a journal is opened.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::clock::{Clock, IdSource};

/// When appended records are made durable (TRJ-45).
///
/// A receipt says `persisted` only after a successful sync of the data and of the directory entry of every
/// file involved; otherwise it says `accepted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncPolicy {
    /// Each append; the default without a durable store.
    #[default]
    Always,
    /// On flush, seal and close, and whenever 1 MiB is unsynced; the default beside a durable store, from which
    /// the records of a commit can be derived again. Until then receipts say `accepted`. Who wants a commit to be a
    /// boundary flushes after it.
    Group,
    /// An append syncs if the last sync is at least so long ago, else it shares the next.
    GroupWithin(Duration),
    /// On flush and close.
    OnFlush,
    /// Never for records; also flush and close say `accepted`. Segments are still synced when they are
    /// sealed, so that a power cut costs the newest records and not the journal.
    Never,
}

/// Smallest and largest size at which a segment is sealed (TRJ-52).
pub const SEGMENT_BYTES_RANGE: std::ops::RangeInclusive<u64> = 1024 * 1024..=4 * 1024 * 1024 * 1024;

/// How a journal is opened for writing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) sync: SyncPolicy,
    pub(crate) segment_bytes: u64,
    pub(crate) maximum_record_bytes: u64,
    pub(crate) maximum_frame_bytes: u64,
}

impl JournalOptions {
    /// Sync always, segments of 64 MiB, records up to 16 MiB, frames up to 64 MiB (TRJ-43, TRJ-45, TRJ-52).
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        JournalOptions {
            clock,
            ids,
            sync: SyncPolicy::Always,
            segment_bytes: 64 * 1024 * 1024,
            maximum_record_bytes: 16 * 1024 * 1024,
            maximum_frame_bytes: crate::frame::MAXIMUM_FRAME_BYTES,
        }
    }

    /// With another sync policy.
    #[must_use]
    pub fn with_sync(mut self, sync: SyncPolicy) -> Self {
        self.sync = sync;
        self
    }

    /// With another size at which a segment is sealed, clamped to [`SEGMENT_BYTES_RANGE`].
    #[must_use]
    pub fn with_segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes.clamp(*SEGMENT_BYTES_RANGE.start(), *SEGMENT_BYTES_RANGE.end());
        self
    }

    /// With another largest record; never above the largest frame.
    #[must_use]
    pub fn with_maximum_record_bytes(mut self, bytes: u64) -> Self {
        self.maximum_record_bytes = bytes.min(crate::frame::MAXIMUM_FRAME_BYTES);
        self
    }
}
