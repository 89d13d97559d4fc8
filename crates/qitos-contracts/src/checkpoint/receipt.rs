//! What a store answers: receipts, heads, stored snapshots (sections 6 and 7).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DurabilityClass, Layer, StoreError};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{CheckpointId, RunId, SessionId, SnapshotId};
use crate::snapshot::{Lifecycle, Root};

/// The outcome word of a persistence operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceReceiptStatus {
    /// Taken note of, nothing promised.
    Accepted,
    /// Written and receipted.
    Persisted,
    /// Refused as malformed or not allowed; nothing was written.
    Rejected,
    /// The store could not; what holds, the error's code tells.
    Failed,
    /// Another commit came first; nothing was written.
    Conflict,
}

/// The single mutable pointer of a session (SES-28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The session.
    pub session_id: SessionId,
    /// The snapshot that is current.
    pub snapshot_id: SnapshotId,
    /// The commit that made it current.
    pub checkpoint_id: CheckpointId,
    /// 0 at creation, one more per commit.
    pub generation: u64,
    /// The run allowed to advance the head.
    pub owner_run_id: RunId,
    /// The lifecycle of the current snapshot.
    pub lifecycle: Lifecycle,
    /// Until when the owner's lease runs, by the store's clock in milliseconds since the epoch (SES-34); none without one.
    pub lease_until_ms: Option<i64>,
}

/// Proof that a commit is in the store (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The session.
    pub session_id: SessionId,
    /// The snapshot that was written.
    pub snapshot_id: SnapshotId,
    /// The commit.
    pub checkpoint_id: CheckpointId,
    /// The generation it created.
    pub generation: u64,
    /// The run that owns the head since.
    pub owner_run_id: RunId,
    /// The lifecycle it wrote.
    pub lifecycle: Lifecycle,
    /// Whether the commit survives at least the process (STO-8).
    pub durable: bool,
    /// The kind of store.
    pub store_kind: String,
    /// What exactly it survives.
    pub durability_class: DurabilityClass,
    /// The digest that identifies the whole snapshot.
    pub root_digest: Digest,
    /// True when the request had been committed before and this is its first receipt again (row 8).
    pub replayed: bool,
    /// Bytes of the root and of the chunks the store did not hold yet.
    pub bytes_written: u64,
    /// Chunks the store did not hold yet.
    pub chunks_written: u64,
}

/// What became of a commit whose outcome was unknown (STO-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It is in the store; this is its receipt, marked as replayed.
    Committed(Receipt),
    /// It is not, and never will be unless it is sent again.
    NotCommitted,
}

/// A snapshot as stored: the immutable record of one commit (STO-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// The session.
    pub session_id: SessionId,
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
    /// The commit before it in this session; none at creation and for a fork child.
    pub parent_checkpoint_id: Option<CheckpointId>,
    /// The canonical root record.
    pub root: Arc<[u8]>,
    /// Its digest.
    pub root_digest: Digest,
    /// When the store wrote it; evidence, never order (SES-6).
    pub captured_at: Timestamp,
}

impl StoredSnapshot {
    /// Verifies the stored bytes against the digest and the row, as every read must (STO-3, SES-20).
    ///
    /// # Errors
    /// `corrupt_snapshot` naming the root; `unsupported_snapshot_schema` for an envelope this build cannot read.
    pub fn verified(&self) -> Result<Root, StoreError> {
        let root = Root::parse(self.root.clone())
            .map_err(|error| StoreError::from(error).in_snapshot(&self.snapshot_id))?;
        let agrees = root.digest() == self.root_digest
            && *root.session_id() == self.session_id
            && *root.snapshot_id() == self.snapshot_id
            && root.head_generation() == self.generation
            && root.lifecycle() == self.lifecycle
            && root.parent().map(|parent| &parent.checkpoint_id)
                == self.parent_checkpoint_id.as_ref();
        if agrees {
            Ok(root)
        } else {
            Err(StoreError::CorruptSnapshot {
                snapshot: Some(self.snapshot_id.clone()),
                layer: Layer::Root,
                reason: "the row and the root record do not agree",
                digest: Some(self.root_digest),
            })
        }
    }
}
