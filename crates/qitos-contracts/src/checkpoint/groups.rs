//! Optional capabilities: one object-safe trait per group, all returned by one required method (STO-59).

use std::fmt;

use async_trait::async_trait;

use super::{Capability, Fork, Inbox, StoreError};
use crate::digest::Digest;
use crate::ids::{RunId, SessionId, SnapshotId};
use crate::snapshot::Chunk;

/// The groups that an opened store offers; what is absent is `unsupported_capability` to the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Groups<'store> {
    /// Chunks of incremental snapshots.
    pub chunk_access: Option<&'store dyn ChunkAccess>,
    /// Entries from other writers than the owner.
    pub inbox: Option<&'store dyn Inbox>,
    /// Leases of owners.
    pub leases: Option<&'store dyn Leases>,
    /// Forks.
    pub fork: Option<&'store dyn Fork>,
    /// Pruning, collection and deletion.
    pub retention: Option<&'store dyn Retention>,
}

fn present<T>(group: Option<T>, capability: Capability) -> Result<T, StoreError> {
    group.ok_or(StoreError::UnsupportedCapability {
        capability: capability.name(),
    })
}

impl<'store> Groups<'store> {
    /// The chunk group.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn chunk_access(&self) -> Result<&'store dyn ChunkAccess, StoreError> {
        present(self.chunk_access, Capability::Incremental)
    }

    /// The inbox group.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn inbox(&self) -> Result<&'store dyn Inbox, StoreError> {
        present(self.inbox, Capability::Inbox)
    }

    /// The lease group.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn leases(&self) -> Result<&'store dyn Leases, StoreError> {
        present(self.leases, Capability::Lease)
    }

    /// The fork group.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn fork(&self) -> Result<&'store dyn Fork, StoreError> {
        present(self.fork, Capability::AtomicFork)
    }

    /// The retention group.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn retention(&self) -> Result<&'store dyn Retention, StoreError> {
        present(self.retention, Capability::Retention)
    }
}

/// How much of a snapshot is verified (STO-51).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyDepth {
    /// The root record and its row: O(1).
    Root,
    /// Every chunk below it: linear in the content, memory bounded by the shape.
    Deep,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// Its root digest.
    pub root_digest: Digest,
    /// Chunks that were read and hashed.
    pub chunks: u64,
    /// Bytes that were read and hashed, the root included.
    pub bytes: u64,
    /// The first damage found; none for an intact snapshot.
    pub damage: Option<StoreError>,
    /// After damage: the newest older snapshot of the session that is intact at this depth, to fork from (STO-22).
    pub newest_intact: Option<SnapshotId>,
}

impl Verification {
    /// Whether no damage was found.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.damage.is_none()
    }
}

/// Capability `checkpoint.session.incremental/v1`: reading what roots reference.
#[async_trait]
pub trait ChunkAccess: fmt::Debug + Send + Sync {
    /// Chunks that a snapshot's family holds, in the order of `digests`, each hashed before it is returned (STO-51).
    ///
    /// # Errors
    /// `snapshot_not_found`; `corrupt_snapshot` naming the digest when a chunk is missing or does not have its digest
    /// (F17, F18); `size_limit_exceeded` above 1,024 digests.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn get_chunks(
        &self,
        snapshot: &SnapshotId,
        digests: &[Digest],
    ) -> Result<Vec<Chunk>, StoreError>;

    /// Verifies a snapshot against its root digest; damage is a finding, not an error.
    ///
    /// # Errors
    /// `snapshot_not_found`, `store_busy`, `persistence_failed`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn verify(
        &self,
        snapshot: &SnapshotId,
        depth: VerifyDepth,
    ) -> Result<Verification, StoreError>;
}

/// Whose lease is renewed, and for how long (SES-34).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// The session.
    pub session_id: SessionId,
    /// The owner, which must be the head's.
    pub owner_run_id: RunId,
    /// The generation, which must be the head's.
    pub generation: u64,
    /// From now, by the store's clock, in milliseconds; 60,000 is usual.
    pub duration_ms: u64,
}

/// Capability `checkpoint.session.lease/v1`: gates `recover` and `delete_session`, fences nothing (SES-32).
#[async_trait]
pub trait Leases: fmt::Debug + Send + Sync {
    /// Extends the lease without changing the generation; returns its new end in milliseconds since the epoch.
    ///
    /// # Errors
    /// `owner_conflict`, `generation_conflict`, `session_not_found`, `session_deleted`.
    ///
    /// # Cancel safety
    /// Renewed or not; renewing again is harmless.
    async fn renew(&self, terms: &LeaseTerms) -> Result<i64, StoreError>;
}

/// Which snapshots of a session may go (STO-42).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// The session.
    pub session_id: SessionId,
    /// How many of its newest snapshots stay at least.
    pub keep_newest: u32,
}

/// What a pruning or a collection removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Snapshot rows.
    pub snapshots: u64,
    /// Chunks.
    pub chunks: u64,
    /// Stored bytes of both.
    pub bytes: u64,
}

/// What a deletion removed (STO-45).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Snapshot rows.
    pub snapshots: u64,
    /// Inbox entries.
    pub inbox_entries: u64,
}

/// Capabilities `checkpoint.session.retention/v1` and `checkpoint.session.delete/v1` (section 17).
#[async_trait]
pub trait Retention: fmt::Debug + Send + Sync {
    /// Deletes snapshot rows; never the head, the newest resting, a pinned one, or a waiting fork's source (STO-42).
    ///
    /// # Errors
    /// `session_not_found`, `store_busy`, `persistence_failed`.
    ///
    /// # Cancel safety
    /// Resumable: rows go in batches.
    async fn prune(&self, policy: &RetentionPolicy) -> Result<Pruned, StoreError>;

    /// Removes chunks that no retained snapshot reaches (STO-44, STO-55).
    ///
    /// # Errors
    /// `store_busy`, also when another collector works.
    ///
    /// # Cancel safety
    /// Resumable.
    async fn collect(&self) -> Result<Pruned, StoreError>;

    /// Deletes a session and leaves a tombstone (STO-45).
    ///
    /// # Errors
    /// `generation_conflict`, `session_not_found`, `owner_active`.
    ///
    /// # Cancel safety
    /// Deleted or not; repeating finds out.
    async fn delete_session(
        &self,
        session: &SessionId,
        expected_generation: u64,
    ) -> Result<Deletion, StoreError>;
}
