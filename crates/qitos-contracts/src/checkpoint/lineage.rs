//! A session's own history, page by page (section 8).

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{CheckpointId, RunId, SnapshotId};
use crate::limits::LINEAGE_PAGE;
use crate::snapshot::Lifecycle;

/// Which part of a lineage to list.
///
/// The default is the newest 100 entries. The cursor is a generation, so pages are stable under concurrent commits
/// (STO-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    limit: u32,
    before_generation: Option<u64>,
}

impl Default for Page {
    fn default() -> Self {
        Page {
            limit: 100,
            before_generation: None,
        }
    }
}

impl Page {
    /// The newest `limit` entries; more than 1,000 is clamped, 0 gives an empty page.
    #[must_use]
    pub fn newest(limit: u32) -> Self {
        Page {
            limit: limit.min(LINEAGE_PAGE as u32),
            before_generation: None,
        }
    }

    /// Only generations below `generation`.
    #[must_use]
    pub const fn before(mut self, generation: u64) -> Self {
        self.before_generation = Some(generation);
        self
    }

    /// At most this many entries.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The cursor.
    #[must_use]
    pub const fn before_generation(&self) -> Option<u64> {
        self.before_generation
    }
}

/// One snapshot of a lineage: metadata, never the payload (STO-11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineageEntry {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The commit that wrote it.
    pub checkpoint_id: CheckpointId,
    /// The generation it created.
    pub generation: u64,
    /// The owner at that commit (STO-12).
    pub owner_run_id: RunId,
    /// The lifecycle at that commit (STO-12).
    pub lifecycle: Lifecycle,
    /// The commit before it in this session.
    pub parent_checkpoint_id: Option<CheckpointId>,
    /// The digest that identifies the whole snapshot.
    pub root_digest: Digest,
    /// When the store wrote it; evidence, never order (SES-6).
    pub captured_at: Timestamp,
    /// Bytes this commit added: its root and its new chunks.
    pub bytes: u64,
}

/// One page of a lineage, newest generation first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineagePage {
    /// The entries.
    pub entries: Vec<LineageEntry>,
    /// The cursor of the next page; none when this page reached the oldest entry or was asked with limit 0.
    pub next_before_generation: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_clamped_at_their_limit() {
        // STO-11, section 17
        assert_eq!(Page::newest(999).limit(), 999);
        assert_eq!(Page::newest(1_000).limit(), 1_000);
        assert_eq!(Page::newest(1_001).limit(), 1_000);
        assert_eq!(Page::newest(0).limit(), 0);
        assert_eq!(Page::default().limit(), 100);
        assert_eq!(Page::newest(5).before(7).before_generation(), Some(7));
    }
}
