//! Forking a session from one of its snapshots (section 9).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Commit, StoreError};
use crate::digest::Digest;
use crate::ids::{
    CheckpointId, ForkOperationId, IdentityObject, InvalidIdentity, RunId, SessionId, SnapshotId,
    WorkAttemptId, WorkItemId,
};
use crate::snapshot::Lifecycle;

/// From which boundary a child branches off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForkBoundary {
    /// A snapshot whose lifecycle allows a fork by the table of section 2.
    #[default]
    Resting,
    /// A running snapshot that the calling handle pinned as a quiescent boundary (SES-45).
    Pinned,
}

/// A fork as its caller asks for it.
#[derive(Clone, Debug)]
pub struct ForkRequest {
    /// The operation; the same id with the same source is the same fork (SES-41).
    pub operation_id: ForkOperationId,
    /// The session to branch off from.
    pub source_session_id: SessionId,
    /// The snapshot to branch off from.
    pub source_snapshot_id: SnapshotId,
    /// The commit that wrote that snapshot.
    pub source_checkpoint_id: CheckpointId,
    /// The work item of the source.
    pub source_work_item_id: WorkItemId,
    /// The work item of the child.
    pub child_work_item_id: WorkItemId,
    /// The first attempt of the child.
    pub child_attempt_id: WorkAttemptId,
    /// The child's first commit: a create with lifecycle `paused`; it may reference what the source's root references.
    pub child_commit: Commit,
    /// From which boundary; not part of the operation's identity.
    pub boundary: ForkBoundary,
}

impl ForkRequest {
    /// Checks what needs no store (SES-36).
    ///
    /// # Errors
    /// `invalid_identity_relationship` when the child's commit is no create or shares the source's session;
    /// `invalid_lifecycle_operation` when the child does not start `paused`.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.child_commit.expected().is_some() {
            return Err(StoreError::InvalidIdentityRelationship {
                what: "a fork child is created, not advanced",
            });
        }
        if *self.child_commit.session_id() == self.source_session_id {
            return Err(StoreError::InvalidIdentityRelationship {
                what: "a fork child is another session than its source",
            });
        }
        if self.child_commit.lifecycle() != Lifecycle::Paused {
            return Err(StoreError::OperationNotAllowed {
                lifecycle: self.child_commit.lifecycle(),
                operation: "fork",
            });
        }
        Ok(())
    }

    /// What makes two calls the same operation: operation id, source session, snapshot, checkpoint and work item.
    #[must_use]
    pub fn declaration_digest(&self) -> Digest {
        declaration_digest(
            &self.operation_id,
            &self.source_session_id,
            &self.source_snapshot_id,
            &self.source_checkpoint_id,
            &self.source_work_item_id,
        )
    }

    /// The receipt of this fork, once it is persisted.
    #[must_use]
    pub fn receipt(&self, durable: bool, store_kind: &str) -> ForkReceipt {
        ForkReceipt {
            operation_id: self.operation_id.clone(),
            source_session_id: self.source_session_id.clone(),
            source_snapshot_id: self.source_snapshot_id.clone(),
            source_checkpoint_id: self.source_checkpoint_id.clone(),
            source_work_item_id: self.source_work_item_id.clone(),
            child_session_id: self.child_commit.session_id().clone(),
            child_snapshot_id: self.child_commit.snapshot_id().clone(),
            child_checkpoint_id: self.child_commit.checkpoint_id().clone(),
            child_run_id: self.child_commit.owner_run_id().clone(),
            child_work_item_id: self.child_work_item_id.clone(),
            child_attempt_id: self.child_attempt_id.clone(),
            owner_generation: 0,
            durable,
            store_kind: store_kind.into(),
        }
    }
}

/// Identities are lower-case text without separators, so lines cannot run into each other.
fn declaration_digest(
    operation: &ForkOperationId,
    session: &SessionId,
    snapshot: &SnapshotId,
    checkpoint: &CheckpointId,
    work_item: &WorkItemId,
) -> Digest {
    let text = format!(
        "qitos.fork_declaration/v1\n{operation}\n{session}\n{snapshot}\n{checkpoint}\n{work_item}"
    );
    Digest::of(text.as_bytes())
}

/// The identities of a fork's child, derived from the operation so that a retry names the same child (SES-41).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkChild {
    /// The child session.
    pub session_id: SessionId,
    /// Its first run.
    pub run_id: RunId,
    /// Its first snapshot.
    pub snapshot_id: SnapshotId,
    /// Its first commit.
    pub checkpoint_id: CheckpointId,
    /// Its work item.
    pub work_item_id: WorkItemId,
    /// Its first attempt.
    pub attempt_id: WorkAttemptId,
}

impl ForkChild {
    /// Each id is the prefix and 32 hex digits of SHA-256(kind ‖ 0x00 ‖ operation id).
    #[must_use]
    pub fn of(operation: &ForkOperationId) -> Self {
        let facts =
            |kind: &str| Digest::of_parts(&[kind.as_bytes(), b"\0", operation.as_str().as_bytes()]);
        ForkChild {
            session_id: SessionId::derived(&facts(SessionId::KIND)),
            run_id: RunId::derived(&facts(RunId::KIND)),
            snapshot_id: SnapshotId::derived(&facts(SnapshotId::KIND)),
            checkpoint_id: CheckpointId::derived(&facts(CheckpointId::KIND)),
            work_item_id: WorkItemId::derived(&facts(WorkItemId::KIND)),
            attempt_id: WorkAttemptId::derived(&facts(WorkAttemptId::KIND)),
        }
    }
}

/// Proof of a fork; the first receipt is given again to whoever repeats the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RecordedForkReceipt", into = "RecordedForkReceipt")]
pub struct ForkReceipt {
    /// The operation.
    pub operation_id: ForkOperationId,
    /// The session it branched off from.
    pub source_session_id: SessionId,
    /// The snapshot it branched off from.
    pub source_snapshot_id: SnapshotId,
    /// The commit that wrote that snapshot.
    pub source_checkpoint_id: CheckpointId,
    /// The work item of the source.
    pub source_work_item_id: WorkItemId,
    /// The child.
    pub child_session_id: SessionId,
    /// Its first snapshot.
    pub child_snapshot_id: SnapshotId,
    /// Its first commit.
    pub child_checkpoint_id: CheckpointId,
    /// Its first run.
    pub child_run_id: RunId,
    /// Its work item.
    pub child_work_item_id: WorkItemId,
    /// Its first attempt.
    pub child_attempt_id: WorkAttemptId,
    /// Always 0 (SES-46).
    pub owner_generation: u64,
    /// Whether the fork survives at least the process.
    pub durable: bool,
    /// The kind of store.
    pub store_kind: String,
}

impl ForkReceipt {
    /// The digest of the declaration this receipt answers; equal to [`ForkRequest::declaration_digest`].
    #[must_use]
    pub fn declaration_digest(&self) -> Digest {
        declaration_digest(
            &self.operation_id,
            &self.source_session_id,
            &self.source_snapshot_id,
            &self.source_checkpoint_id,
            &self.source_work_item_id,
        )
    }
}

/// The written form of a fork receipt: identities as objects (decision 1 of the specification).
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedForkReceipt {
    child_attempt_id: IdentityObject,
    child_checkpoint_id: IdentityObject,
    child_run_id: IdentityObject,
    child_session_id: IdentityObject,
    child_snapshot_id: IdentityObject,
    child_work_item_id: IdentityObject,
    durable: bool,
    operation_id: ForkOperationId,
    owner_generation: u64,
    source_checkpoint_id: IdentityObject,
    source_session_id: IdentityObject,
    source_snapshot_id: IdentityObject,
    source_work_item_id: IdentityObject,
    store_kind: String,
}

impl From<ForkReceipt> for RecordedForkReceipt {
    fn from(receipt: ForkReceipt) -> Self {
        RecordedForkReceipt {
            child_attempt_id: receipt.child_attempt_id.to_object(),
            child_checkpoint_id: receipt.child_checkpoint_id.to_object(),
            child_run_id: receipt.child_run_id.to_object(),
            child_session_id: receipt.child_session_id.to_object(),
            child_snapshot_id: receipt.child_snapshot_id.to_object(),
            child_work_item_id: receipt.child_work_item_id.to_object(),
            durable: receipt.durable,
            operation_id: receipt.operation_id,
            owner_generation: receipt.owner_generation,
            source_checkpoint_id: receipt.source_checkpoint_id.to_object(),
            source_session_id: receipt.source_session_id.to_object(),
            source_snapshot_id: receipt.source_snapshot_id.to_object(),
            source_work_item_id: receipt.source_work_item_id.to_object(),
            store_kind: receipt.store_kind,
        }
    }
}

impl TryFrom<RecordedForkReceipt> for ForkReceipt {
    type Error = InvalidIdentity;

    fn try_from(recorded: RecordedForkReceipt) -> Result<Self, InvalidIdentity> {
        Ok(ForkReceipt {
            operation_id: recorded.operation_id,
            source_session_id: SessionId::from_object(&recorded.source_session_id)?,
            source_snapshot_id: SnapshotId::from_object(&recorded.source_snapshot_id)?,
            source_checkpoint_id: CheckpointId::from_object(&recorded.source_checkpoint_id)?,
            source_work_item_id: WorkItemId::from_object(&recorded.source_work_item_id)?,
            child_session_id: SessionId::from_object(&recorded.child_session_id)?,
            child_snapshot_id: SnapshotId::from_object(&recorded.child_snapshot_id)?,
            child_checkpoint_id: CheckpointId::from_object(&recorded.child_checkpoint_id)?,
            child_run_id: RunId::from_object(&recorded.child_run_id)?,
            child_work_item_id: WorkItemId::from_object(&recorded.child_work_item_id)?,
            child_attempt_id: WorkAttemptId::from_object(&recorded.child_attempt_id)?,
            owner_generation: recorded.owner_generation,
            durable: recorded.durable,
            store_kind: recorded.store_kind,
        })
    }
}

/// Capability `checkpoint.session.atomic_fork/v1`.
///
/// # Contract
/// A fork writes one root, one snapshot, one head, one fork record and the few chunks that differ, in one
/// transaction, whatever the length of the history (STO-53). The source's head and rows are untouched and no
/// ownership is claimed (SES-36). What only the content tells (pause safety, unresolved effects: SES-39, SES-40)
/// the caller has checked; identities, lifecycle, closure and repetition are the store's.
#[async_trait]
pub trait Fork: fmt::Debug + Send + Sync {
    /// Creates the child, or finds the child of the same operation.
    ///
    /// # Errors
    /// `duplicate_fork_operation`, `snapshot_not_found`, `snapshot_session_mismatch`, `checkpoint_conflict`,
    /// `invalid_lifecycle_operation`, `missing_chunk`, and those of a commit.
    ///
    /// # Cancel safety
    /// One child or none; repeating the call finds out (SES-41).
    async fn fork(&self, request: Arc<ForkRequest>) -> Result<ForkReceipt, StoreError>;

    /// The receipt of an operation; none when it never happened.
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`, `store_corrupt`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn get(&self, operation: &ForkOperationId) -> Result<Option<ForkReceipt>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_identities_follow_from_the_operation() {
        // SES-41
        let operation: ForkOperationId = "fork_0123456789abcdef".parse().unwrap();
        let child = ForkChild::of(&operation);
        assert_eq!(child, ForkChild::of(&operation));
        assert_ne!(
            child.session_id.as_str().rsplit('_').next(),
            child.run_id.as_str().rsplit('_').next()
        );
        let other: ForkOperationId = "fork_0123456789abcdee".parse().unwrap();
        assert_ne!(child, ForkChild::of(&other));
    }

    #[test]
    fn a_receipt_survives_its_written_form() {
        let child = ForkChild::of(&"fork_0123456789abcdef".parse().unwrap());
        let receipt = ForkReceipt {
            operation_id: "fork_0123456789abcdef".parse().unwrap(),
            source_session_id: "session_0123456789abcdef".parse().unwrap(),
            source_snapshot_id: "snapshot_0123456789abcdef".parse().unwrap(),
            source_checkpoint_id: "checkpoint_0123456789abcdef".parse().unwrap(),
            source_work_item_id: "work_item_0123456789abcdef".parse().unwrap(),
            child_session_id: child.session_id,
            child_snapshot_id: child.snapshot_id,
            child_checkpoint_id: child.checkpoint_id,
            child_run_id: child.run_id,
            child_work_item_id: child.work_item_id,
            child_attempt_id: child.attempt_id,
            owner_generation: 0,
            durable: true,
            store_kind: "sqlite".into(),
        };
        let written = serde_json::to_string(&receipt).unwrap();
        assert!(written.contains(
            r#""source_session_id":{"kind":"session","value":"session_0123456789abcdef"}"#
        ));
        assert_eq!(
            serde_json::from_str::<ForkReceipt>(&written).unwrap(),
            receipt
        );
    }
}
