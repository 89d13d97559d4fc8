//! Rule: is a fork done, found again or refused? Section 9, in one order for every store.

use super::decide_commit::{CommitFacts, Placement, Verdict, decide_commit};
use super::{ForkBoundary, ForkReceipt, ForkRequest, StoreError, StoredSnapshot};
use crate::snapshot::Lifecycle;

/// What a store read inside the transaction of one fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkFacts {
    /// The receipt stored under the operation id.
    pub recorded: Option<ForkReceipt>,
    /// The source snapshot, of whatever session; none when it is unknown, pruned or its session is deleted.
    pub source: Option<StoredSnapshot>,
    /// The facts of the child's commit.
    pub child: CommitFacts,
}

/// What to do with a fork that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkVerdict {
    /// The operation happened before: answer with its receipt (SES-41).
    Found(ForkReceipt),
    /// Insert the child and the fork record.
    Create(Placement),
}

/// Decides everything but closure against the source's references.
///
/// # Errors
/// `duplicate_fork_operation` (SES-41), `snapshot_not_found`, `snapshot_session_mismatch`, `checkpoint_conflict`
/// (SES-38), `invalid_lifecycle_operation` by the *snapshot's* lifecycle (SES-37), and those of a commit.
pub fn decide_fork(request: &ForkRequest, facts: &ForkFacts) -> Result<ForkVerdict, StoreError> {
    request.check()?;
    if let Some(receipt) = &facts.recorded {
        return if receipt.declaration_digest() == request.declaration_digest() {
            Ok(ForkVerdict::Found(receipt.clone()))
        } else {
            Err(StoreError::DuplicateForkOperation {
                operation: request.operation_id.clone(),
            })
        };
    }
    let Some(source) = &facts.source else {
        return Err(StoreError::SnapshotNotFound {
            snapshot: request.source_snapshot_id.clone(),
        });
    };
    if source.session_id != request.source_session_id {
        return Err(StoreError::SnapshotSessionMismatch {
            snapshot: request.source_snapshot_id.clone(),
        });
    }
    if source.checkpoint_id != request.source_checkpoint_id {
        return Err(StoreError::CheckpointConflict {
            checkpoint: request.source_checkpoint_id.clone(),
        });
    }
    if !may_fork_from(source.lifecycle, request.boundary) {
        return Err(StoreError::OperationNotAllowed {
            lifecycle: source.lifecycle,
            operation: "fork",
        });
    }
    match decide_commit(&request.child_commit, &facts.child)? {
        Verdict::Persist(placement) => Ok(ForkVerdict::Create(placement)),
        // The child's snapshot exists, but not through this operation.
        Verdict::Replay(_) => Err(StoreError::CheckpointConflict {
            checkpoint: request.child_commit.checkpoint_id().clone(),
        }),
    }
}

/// The column "fork from a snapshot in this state" of section 2, and SES-45.
#[must_use]
pub const fn may_fork_from(lifecycle: Lifecycle, boundary: ForkBoundary) -> bool {
    match lifecycle {
        Lifecycle::Paused
        | Lifecycle::WaitingInput
        | Lifecycle::Completed
        | Lifecycle::Failed
        | Lifecycle::Cancelled => true,
        Lifecycle::Running => matches!(boundary, ForkBoundary::Pinned),
        _ => false,
    }
}
