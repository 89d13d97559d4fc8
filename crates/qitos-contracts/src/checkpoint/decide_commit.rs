//! Rule: is a commit persisted, replayed or refused? Rows 1 to 16 of section 7, in the order of STO-2.
//!
//! Pure: the store reads [`CommitFacts`] inside its transaction, asks [`decide_commit`], then
//! [`decide_closure`], and does what the verdict says. So the rules live here once, whatever the store.

use super::{Commit, Expected, Head, Layer, Receipt, StoreError};
use crate::digest::Digest;
use crate::ids::CheckpointId;
use crate::snapshot::{Chunk, Closure, KnownReferences, check_closure_with};

/// What the store holds about the session of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionFact {
    /// Nothing, not even a tombstone.
    Unknown,
    /// A tombstone (STO-45).
    Deleted,
    /// A head, and the digest of the root it points to.
    Known {
        /// The head.
        head: Head,
        /// The root digest of the head's snapshot.
        root_digest: Digest,
    },
}

/// An earlier commit of the same snapshot id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The digest of the request that wrote it.
    pub request_digest: Digest,
    /// Its receipt.
    pub receipt: Receipt,
}

/// What a store read inside the transaction of one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFacts {
    /// The stored snapshot with the snapshot id of the request, of whatever session.
    pub by_snapshot: Option<Recorded>,
    /// Whether a stored snapshot has the checkpoint id of the request.
    pub checkpoint_id_taken: bool,
    /// The session.
    pub session: SessionFact,
    /// How many entries the session's inbox ever had; none when the store has no inbox.
    pub inbox_length: Option<u64>,
}

/// What to do with a commit that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write nothing, answer with the first receipt, marked as replayed (row 8).
    Replay(Receipt),
    /// Insert the chunks and the snapshot, move the head (rows 1 and 3).
    Persist(Placement),
}

/// Where a persisted snapshot goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its generation.
    pub generation: u64,
    /// The checkpoint before it; none at creation.
    pub parent_checkpoint_id: Option<CheckpointId>,
}

/// Decides everything but closure; the first failing check names the error (STO-2).
///
/// # Errors
/// `checkpoint_conflict` (rows 6, 9), `session_deleted` (16), `generation_conflict` (2, 4, 5), `owner_conflict` (7),
/// `invalid_lifecycle_operation` (11), `corrupt_snapshot` (10: the root names another parent than the head, or an
/// inbox entry is consumed that was never appended), `unsupported_capability` (12).
pub fn decide_commit(commit: &Commit, facts: &CommitFacts) -> Result<Verdict, StoreError> {
    let checkpoint_conflict = || StoreError::CheckpointConflict {
        checkpoint: commit.checkpoint_id().clone(),
    };
    match &facts.by_snapshot {
        Some(recorded) if recorded.request_digest == commit.request_digest() => {
            let mut receipt = recorded.receipt.clone();
            receipt.replayed = true;
            return Ok(Verdict::Replay(receipt));
        }
        Some(_) => return Err(checkpoint_conflict()),
        None if facts.checkpoint_id_taken => return Err(checkpoint_conflict()),
        None => {}
    }
    let parent_checkpoint_id = match (&facts.session, commit.expected()) {
        (SessionFact::Deleted, _) => {
            return Err(StoreError::SessionDeleted {
                session: commit.session_id().clone(),
            });
        }
        (SessionFact::Unknown, None) => None,
        (SessionFact::Unknown, Some(expected)) => {
            return Err(StoreError::GenerationConflict {
                expected: Some(expected.generation),
                actual: None,
            });
        }
        (SessionFact::Known { head, .. }, None) => {
            return Err(StoreError::GenerationConflict {
                expected: None,
                actual: Some(head.generation),
            });
        }
        (SessionFact::Known { head, root_digest }, Some(expected)) => {
            compare_head(commit, head, expected)?;
            let claims = *commit.owner_run_id() != expected.owner_run_id;
            let legal = if claims {
                head.lifecycle.may_be_claimed_as(commit.lifecycle())
            } else {
                head.lifecycle.may_become_in_store(commit.lifecycle())
            };
            if !legal {
                return Err(StoreError::InvalidLifecycleOperation {
                    from: head.lifecycle,
                    to: commit.lifecycle(),
                });
            }
            let follows = commit.root().parent().is_some_and(|parent| {
                parent.snapshot_id == head.snapshot_id
                    && parent.checkpoint_id == head.checkpoint_id
                    && parent.root_digest == *root_digest
            });
            if !follows {
                return Err(malformed(commit, "its parent is not the head"));
            }
            Some(head.checkpoint_id.clone())
        }
    };
    match (commit.consumed_inbox(), facts.inbox_length) {
        (None, _) => {}
        (Some(_), None) => {
            return Err(StoreError::UnsupportedCapability {
                capability: super::Capability::Inbox.name(),
            });
        }
        (Some(consumed), Some(length)) if consumed >= length => {
            return Err(malformed(
                commit,
                "it consumes an inbox entry that was never appended",
            ));
        }
        (Some(_), Some(_)) => {}
    }
    Ok(Verdict::Persist(Placement {
        generation: commit.generation(),
        parent_checkpoint_id,
    }))
}

/// Rows 5, 6 and 7, in this order.
fn compare_head(commit: &Commit, head: &Head, expected: &Expected) -> Result<(), StoreError> {
    if head.generation != expected.generation {
        return Err(StoreError::GenerationConflict {
            expected: Some(expected.generation),
            actual: Some(head.generation),
        });
    }
    if head.checkpoint_id != expected.checkpoint_id {
        return Err(StoreError::CheckpointConflict {
            checkpoint: commit.checkpoint_id().clone(),
        });
    }
    if head.owner_run_id != expected.owner_run_id {
        return Err(StoreError::OwnerConflict);
    }
    Ok(())
}

fn malformed(commit: &Commit, reason: &'static str) -> StoreError {
    StoreError::CorruptSnapshot {
        snapshot: Some(commit.snapshot_id().clone()),
        layer: Layer::Root,
        reason,
        digest: Some(commit.root().digest()),
    }
}

/// Row 15: every digest that the root and the sent chunks reference is sent too, or is one of the parent's (STO-50).
///
/// `parent` holds what the parent's root, maps and logs reference: nothing for a create, the source's for a fork.
/// `read` fetches a chunk of the family; it is called only for a commit that cut a log, once per level at most
/// (STO-48). On success the references of the new root are returned: what its own child may build upon.
///
/// # Errors
/// `missing_chunk` with at most 1,000 digests; `corrupt_snapshot` when a sent chunk is not what references to it say
/// or not canonical; those of `read`.
pub fn decide_closure(
    commit: &Commit,
    parent: &KnownReferences,
    mut read: impl FnMut(&Digest) -> Result<Chunk, StoreError>,
) -> Result<KnownReferences, StoreError> {
    let of_commit = |error: crate::snapshot::SnapshotError| {
        StoreError::from(error).in_snapshot(commit.snapshot_id())
    };
    let mut path: Vec<Chunk> = Vec::new();
    loop {
        let closure = check_closure_with(commit.root(), commit.chunks(), parent, &path);
        let needed = match closure.map_err(of_commit)? {
            Closure::Closed(known) => return Ok(known),
            Closure::Need(needed) => needed,
        };
        let before = path.len();
        for (_, digest) in needed {
            if !path.iter().any(|held| held.digest() == digest) {
                path.push(read(&digest)?);
            }
        }
        if path.len() == before {
            // What was read and is asked for again is not of the kind that the log says.
            return Err(malformed(commit, "a node of its parent is not a node"));
        }
    }
}
