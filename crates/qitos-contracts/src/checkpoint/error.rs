//! What can go wrong at a checkpoint store (sections 7, 14 and 21).

use std::collections::BTreeMap;

use serde_json::Value;

use super::PersistenceReceiptStatus;
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};
use crate::ids::{CheckpointId, ForkOperationId, SessionId, SnapshotId};
use crate::snapshot::{Layer, Lifecycle, SnapshotError};

/// Why a store refused or failed.
///
/// A variant is a situation that a caller treats differently. Metadata is scalar and holds neither payload nor path
/// (SES-23).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store does not offer this.
    #[error("the store does not offer {capability}")]
    UnsupportedCapability {
        /// The capability, or the durability class that was demanded.
        capability: &'static str,
    },
    /// The head is at another generation, absent, or present where none was expected (rows 2, 4, 5).
    #[error("the head is not at the expected generation")]
    GenerationConflict {
        /// What the writer expected; none for a create.
        expected: Option<u64>,
        /// What the head holds; none without a head.
        actual: Option<u64>,
    },
    /// Generation equal, checkpoint different (row 6), or an id that stands for other content (row 9).
    #[error("checkpoint {checkpoint} does not fit the stored one")]
    CheckpointConflict {
        /// The checkpoint of the request.
        checkpoint: CheckpointId,
    },
    /// Another run owns the head (row 7).
    #[error("another run owns the head")]
    OwnerConflict,
    /// No such snapshot.
    #[error("snapshot {snapshot} is not in the store")]
    SnapshotNotFound {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// No such session.
    #[error("session {session} is not in the store")]
    SessionNotFound {
        /// The session.
        session: SessionId,
    },
    /// The session was deleted (row 16).
    #[error("session {session} was deleted")]
    SessionDeleted {
        /// The session.
        session: SessionId,
    },
    /// The snapshot belongs to another session (SES-38).
    #[error("snapshot {snapshot} belongs to another session")]
    SnapshotSessionMismatch {
        /// The snapshot.
        snapshot: SnapshotId,
    },
    /// Stored or sent bytes do not hold together (section 14).
    #[error("the {layer} of a snapshot is corrupt: {reason}")]
    CorruptSnapshot {
        /// The snapshot, where known.
        snapshot: Option<SnapshotId>,
        /// Where the damage is.
        layer: Layer,
        /// What is wrong, in fixed words.
        reason: &'static str,
        /// The digest of the damaged part, where known.
        digest: Option<Digest>,
    },
    /// An envelope schema this build does not know (SES-16).
    #[error("snapshot schema {found} is not supported")]
    UnsupportedSnapshotSchema {
        /// The number found.
        found: u64,
    },
    /// A strict decoding error of section 4 that has its own code.
    #[error("the snapshot is refused: {code}")]
    Undecodable {
        /// One of the codes of SES-16.
        code: &'static str,
    },
    /// A state-only or older checkpoint.
    #[error("the checkpoint is of an older kind")]
    IncompatibleCheckpoint,
    /// A step outside the lifecycle table (row 11, SES-12).
    #[error("a session may not go from {from} to {to}", from = .from.as_str(), to = .to.as_str())]
    InvalidLifecycleOperation {
        /// The lifecycle in the store.
        from: Lifecycle,
        /// The lifecycle asked for.
        to: Lifecycle,
    },
    /// An operation that the lifecycle of its subject forbids (SES-7).
    #[error("a {lifecycle} session does not allow {operation}", lifecycle = .lifecycle.as_str())]
    OperationNotAllowed {
        /// The lifecycle found.
        lifecycle: Lifecycle,
        /// What was asked.
        operation: &'static str,
    },
    /// Identities of one request do not belong together (SES-1).
    #[error("identities do not belong together: {what}")]
    InvalidIdentityRelationship {
        /// Which.
        what: &'static str,
    },
    /// The fork operation id stands for another source (SES-41).
    #[error("fork operation {operation} stands for another source")]
    DuplicateForkOperation {
        /// The operation.
        operation: ForkOperationId,
    },
    /// Chunks are referenced that were neither sent nor held (row 15, STO-50).
    #[error("{} referenced chunks are neither sent nor held", .digests.len())]
    MissingChunk {
        /// At most 1,000 of them.
        digests: Vec<Digest>,
    },
    /// A bound of section 17.
    #[error("{what} of {actual} exceeds the limit of {limit}")]
    SizeLimitExceeded {
        /// What is too large.
        what: &'static str,
        /// The bound.
        limit: u64,
        /// What was given.
        actual: u64,
    },
    /// A live owner holds the lease (SES-52).
    #[error("the owner's lease runs for another {remaining_ms} ms")]
    OwnerActive {
        /// How long, in milliseconds.
        remaining_ms: u64,
    },
    /// The store was busy past its bound; nothing was written (row 13).
    #[error("the store was busy for {waited_ms} ms")]
    StoreBusy {
        /// How long was waited, in milliseconds.
        waited_ms: u64,
    },
    /// No space; nothing was written (row 13).
    #[error("the store has no space left")]
    StorageFull,
    /// The store could not, and nothing was written (row 13).
    #[error("the store failed to {operation}")]
    PersistenceFailed {
        /// What it was doing.
        operation: &'static str,
        /// What the engine below said, without content or path.
        detail: String,
    },
    /// An error at COMMIT: old head or new head, never torn (row 14).
    #[error("the outcome of the commit is unknown")]
    CommitOutcomeUnknown {
        /// The snapshot to resolve.
        snapshot: SnapshotId,
    },
    /// The file is not this kind of store.
    #[error("the file is not a store of this kind")]
    StoreForeign {
        /// What was found instead.
        found: String,
    },
    /// The engine below reports corruption.
    #[error("the store is corrupt")]
    StoreCorrupt {
        /// What the engine said.
        detail: String,
    },
    /// The store was written by a newer build.
    #[error("the store needs schema {needed}, this build knows {known}")]
    StoreSchemaNewer {
        /// What the store demands.
        needed: u64,
        /// What this build knows.
        known: u64,
    },
    /// The engine below is too old or has a setting that would lose data (STO-27).
    #[error("the storage engine is not supported: {detail}")]
    StoreEngineUnsupported {
        /// Which engine, which version.
        detail: String,
    },
    /// The file system has no shared memory or locks (STO-28).
    #[error("the file system is not supported: {found}")]
    UnsupportedFilesystem {
        /// The kind of file system.
        found: String,
    },
}

impl StoreError {
    /// The stable code (section 21).
    #[must_use]
    pub const fn store_code(&self) -> &'static str {
        match self {
            StoreError::UnsupportedCapability { .. } => "unsupported_capability",
            StoreError::GenerationConflict { .. } => "generation_conflict",
            StoreError::CheckpointConflict { .. } => "checkpoint_conflict",
            StoreError::OwnerConflict => "owner_conflict",
            StoreError::SnapshotNotFound { .. } => "snapshot_not_found",
            StoreError::SessionNotFound { .. } => "session_not_found",
            StoreError::SessionDeleted { .. } => "session_deleted",
            StoreError::SnapshotSessionMismatch { .. } => "snapshot_session_mismatch",
            StoreError::CorruptSnapshot { .. } => "corrupt_snapshot",
            StoreError::UnsupportedSnapshotSchema { .. } => "unsupported_snapshot_schema",
            StoreError::Undecodable { code } => code,
            StoreError::IncompatibleCheckpoint => "incompatible_checkpoint",
            StoreError::InvalidLifecycleOperation { .. }
            | StoreError::OperationNotAllowed { .. } => "invalid_lifecycle_operation",
            StoreError::InvalidIdentityRelationship { .. } => "invalid_identity_relationship",
            StoreError::DuplicateForkOperation { .. } => "duplicate_fork_operation",
            StoreError::MissingChunk { .. } => "missing_chunk",
            StoreError::SizeLimitExceeded { .. } => "size_limit_exceeded",
            StoreError::OwnerActive { .. } => "owner_active",
            StoreError::StoreBusy { .. } => "store_busy",
            StoreError::StorageFull => "storage_full",
            StoreError::PersistenceFailed { .. } => "persistence_failed",
            StoreError::CommitOutcomeUnknown { .. } => "commit_outcome_unknown",
            StoreError::StoreForeign { .. } => "store_foreign",
            StoreError::StoreCorrupt { .. } => "store_corrupt",
            StoreError::StoreSchemaNewer { .. } => "store_schema_newer",
            StoreError::StoreEngineUnsupported { .. } => "store_engine_unsupported",
            StoreError::UnsupportedFilesystem { .. } => "unsupported_filesystem",
        }
    }

    /// Whether this same call, unchanged or after the named remedy, can succeed without losing data (STO-58).
    #[must_use]
    pub const fn recoverable(&self) -> bool {
        matches!(
            self,
            StoreError::UnsupportedCapability { .. }
                | StoreError::GenerationConflict { .. }
                | StoreError::MissingChunk { .. }
                | StoreError::SizeLimitExceeded { .. }
                | StoreError::OwnerActive { .. }
                | StoreError::StoreBusy { .. }
                | StoreError::StorageFull
                | StoreError::PersistenceFailed { .. }
                | StoreError::CommitOutcomeUnknown { .. }
                | StoreError::StoreSchemaNewer { .. }
                | StoreError::StoreEngineUnsupported { .. }
                | StoreError::UnsupportedFilesystem { .. }
        )
    }

    /// The outcome word of section 7.
    #[must_use]
    pub const fn outcome(&self) -> PersistenceReceiptStatus {
        match self {
            StoreError::GenerationConflict { .. }
            | StoreError::CheckpointConflict { .. }
            | StoreError::OwnerConflict
            | StoreError::DuplicateForkOperation { .. } => PersistenceReceiptStatus::Conflict,
            StoreError::StoreBusy { .. }
            | StoreError::StorageFull
            | StoreError::PersistenceFailed { .. }
            | StoreError::CommitOutcomeUnknown { .. }
            | StoreError::StoreForeign { .. }
            | StoreError::StoreCorrupt { .. }
            | StoreError::StoreSchemaNewer { .. }
            | StoreError::StoreEngineUnsupported { .. }
            | StoreError::UnsupportedFilesystem { .. } => PersistenceReceiptStatus::Failed,
            _ => PersistenceReceiptStatus::Rejected,
        }
    }

    /// The capability concerned, if one is.
    #[must_use]
    pub const fn capability(&self) -> Option<&'static str> {
        match self {
            StoreError::UnsupportedCapability { capability } => Some(capability),
            _ => None,
        }
    }

    /// Scalars that help to understand the error: keys of at most 64, strings of at most 128 characters (SES-23).
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<&'static str, Value> {
        let mut metadata = BTreeMap::new();
        let mut put = |key: &'static str, value: Value| {
            metadata.insert(key, value);
        };
        match self {
            StoreError::UnsupportedCapability { capability } => {
                put("capability", (*capability).into());
            }
            StoreError::GenerationConflict { expected, actual } => {
                put("expected", (*expected).into());
                put("actual", (*actual).into());
                // SES-35: an old backup or a lagging replica moved the head backwards.
                if let (Some(expected), Some(actual)) = (expected, actual)
                    && actual < expected
                {
                    put("direction", "behind".into());
                }
            }
            StoreError::CheckpointConflict { checkpoint } => {
                put("checkpoint_id", checkpoint.as_str().into());
            }
            StoreError::SnapshotNotFound { snapshot }
            | StoreError::SnapshotSessionMismatch { snapshot }
            | StoreError::CommitOutcomeUnknown { snapshot } => {
                put("snapshot_id", snapshot.as_str().into());
            }
            StoreError::SessionNotFound { session } | StoreError::SessionDeleted { session } => {
                put("session_id", session.as_str().into());
            }
            StoreError::CorruptSnapshot {
                snapshot,
                layer,
                digest,
                ..
            } => {
                if let Some(snapshot) = snapshot {
                    put("snapshot_id", snapshot.as_str().into());
                }
                put("layer", layer.as_str().into());
                if let Some(digest) = digest {
                    put("digest", digest.short_hex(12).into());
                }
            }
            StoreError::UnsupportedSnapshotSchema { found } => put("schema", (*found).into()),
            StoreError::InvalidLifecycleOperation { from, to } => {
                put("lifecycle", from.as_str().into());
                put("operation", format!("commit {}", to.as_str()).into());
            }
            StoreError::OperationNotAllowed {
                lifecycle,
                operation,
            } => {
                put("lifecycle", lifecycle.as_str().into());
                put("operation", (*operation).into());
            }
            StoreError::DuplicateForkOperation { operation } => {
                put("operation_id", operation.as_str().into());
            }
            StoreError::MissingChunk { digests } => {
                put("missing", (digests.len() as u64).into());
                if let Some(first) = digests.first() {
                    put("digest", first.short_hex(12).into());
                }
            }
            StoreError::SizeLimitExceeded {
                what,
                limit,
                actual,
            } => {
                put("what", (*what).into());
                put("limit", (*limit).into());
                put("actual", (*actual).into());
            }
            StoreError::OwnerActive { remaining_ms } => {
                put("remaining_ms", (*remaining_ms).into());
            }
            StoreError::StoreBusy { waited_ms } => put("waited_ms", (*waited_ms).into()),
            StoreError::PersistenceFailed { operation, detail } => {
                put("operation", (*operation).into());
                put("detail", scalar(detail));
            }
            StoreError::StoreForeign { found } | StoreError::UnsupportedFilesystem { found } => {
                put("found", scalar(found));
            }
            StoreError::StoreCorrupt { detail } | StoreError::StoreEngineUnsupported { detail } => {
                put("detail", scalar(detail));
            }
            StoreError::StoreSchemaNewer { needed, known } => {
                put("needed", (*needed).into());
                put("known", (*known).into());
            }
            StoreError::InvalidIdentityRelationship { what } => put("what", (*what).into()),
            StoreError::OwnerConflict
            | StoreError::Undecodable { .. }
            | StoreError::IncompatibleCheckpoint
            | StoreError::StorageFull => {}
        }
        metadata
    }
}

impl From<SnapshotError> for StoreError {
    /// Keeps the code; who knows the snapshot's id adds it with [`StoreError::in_snapshot`].
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Corrupt {
                layer,
                reason,
                digest,
            } => StoreError::CorruptSnapshot {
                snapshot: None,
                layer,
                reason,
                digest,
            },
            SnapshotError::UnsupportedSnapshotSchema { schema_version } => {
                StoreError::UnsupportedSnapshotSchema {
                    found: schema_version,
                }
            }
            SnapshotError::SizeLimitExceeded {
                what,
                limit,
                actual,
            } => StoreError::SizeLimitExceeded {
                what,
                limit,
                actual,
            },
            SnapshotError::MissingChunk { digests } => StoreError::MissingChunk { digests },
            SnapshotError::InvalidIdentity { field } => {
                StoreError::InvalidIdentityRelationship { what: field }
            }
            SnapshotError::ComponentDigestMismatch { .. } => StoreError::Undecodable {
                code: "component_digest_mismatch",
            },
            SnapshotError::UnknownComponentOwner { .. } => StoreError::Undecodable {
                code: "unknown_component_owner",
            },
            SnapshotError::UnsupportedComponentSchema { .. } => StoreError::Undecodable {
                code: "unsupported_component_schema",
            },
            SnapshotError::MissingRequiredComponent { .. } => StoreError::Undecodable {
                code: "missing_required_component",
            },
        }
    }
}

impl StoreError {
    /// Names the snapshot in which the damage was found.
    #[must_use]
    pub fn in_snapshot(mut self, id: &SnapshotId) -> Self {
        if let StoreError::CorruptSnapshot { snapshot, .. } = &mut self {
            snapshot.get_or_insert_with(|| id.clone());
        }
        self
    }
}

fn scalar(text: &str) -> Value {
    text.chars().take(128).collect::<String>().into()
}

impl ContractError for StoreError {
    fn code(&self) -> &str {
        self.store_code()
    }

    fn retry(&self) -> Retry {
        match self {
            StoreError::StoreBusy { .. }
            | StoreError::StorageFull
            | StoreError::PersistenceFailed { .. }
            | StoreError::OwnerActive { .. } => Retry::AfterDelay,
            StoreError::CommitOutcomeUnknown { .. } => Retry::Unknown,
            _ => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        match self {
            StoreError::CommitOutcomeUnknown { .. } => Performed::Unknown,
            _ => Performed::No,
        }
    }
}
