//! The error that leaves the session façade, and how store errors become one (STO-57).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::StoreError;
use crate::error::{ContractError, Performed, Retry};

macro_rules! session_codes {
    ($($variant:ident $code:literal $recoverable:literal $remediation:literal;)*) => {
        /// Every code a session operation can end with (section 21).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum SessionErrorCode {
            $(#[doc = concat!("`", $code, "`: ", $remediation, ".")] $variant,)*
        }

        impl SessionErrorCode {
            /// All codes.
            pub const ALL: &'static [SessionErrorCode] = &[$(SessionErrorCode::$variant,)*];

            /// The exact string.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(SessionErrorCode::$variant => $code,)* }
            }

            /// Whether the same call can succeed, unchanged or after the remedy, without losing data (STO-58).
            #[must_use]
            pub const fn recoverable(self) -> bool {
                match self { $(SessionErrorCode::$variant => $recoverable,)* }
            }

            /// What a person can do.
            #[must_use]
            pub const fn remediation(self) -> &'static str {
                match self { $(SessionErrorCode::$variant => $remediation,)* }
            }
        }
    };
}

session_codes! {
    UnsupportedCapability "unsupported_capability" true "use a store or a model that offers the named capability";
    GenerationConflict "generation_conflict" true "look at the head; restore the session again if nobody runs it";
    SupersededOwner "superseded_owner" false "another run owns the session; work with that one";
    SnapshotNotFound "snapshot_not_found" false "list the lineage and choose a snapshot in it";
    SessionNotFound "session_not_found" false "check the session id and the store";
    CorruptSnapshot "corrupt_snapshot" false "verify the store and fork from the newest intact snapshot";
    IncompatibleCheckpoint "incompatible_checkpoint" false "use a session that this framework wrote";
    PersistenceFailed "persistence_failed" true "mend the store and repeat the same call";
    SnapshotSessionMismatch "snapshot_session_mismatch" false "name a snapshot of this session";
    DuplicateForkOperation "duplicate_fork_operation" false "use a new operation id for another source";
    MissingResolver "missing_resolver" true "register a resolver for the named namespace";
    ResolverTypeMismatch "resolver_type_mismatch" true "register a resolver with the named capability";
    UnavailableSecret "unavailable_secret" true "make the secret available and repeat";
    UnsupportedSnapshotSchema "unsupported_snapshot_schema" true "use a build that reads this envelope";
    UnsupportedComponentSchema "unsupported_component_schema" true "use a build that reads this component";
    UnknownComponentOwner "unknown_component_owner" true "register the codec of this component";
    ComponentDigestMismatch "component_digest_mismatch" false "verify the store and fork from the newest intact snapshot";
    MissingRequiredComponent "missing_required_component" false "fork from a snapshot that has the component";
    UnsafePauseBoundary "unsafe_pause_boundary" true "wait for a safe boundary";
    UnresolvedEffect "unresolved_effect" true "settle the unknown effect first";
    InvalidIdentityRelationship "invalid_identity_relationship" false "use identities that belong together";
    InvalidLifecycleOperation "invalid_lifecycle_operation" false "the session's lifecycle does not allow this";
    PersistenceRejected "persistence_rejected" true "correct the request";
    ConfigDigestMismatch "config_digest_mismatch" true "use the recorded configuration or accept the change";
    ToolManifestMismatch "tool_manifest_mismatch" true "use the recorded tools or accept the change";
    StoreBusy "store_busy" true "repeat the same call later";
    StorageFull "storage_full" true "make space and repeat the same call";
    CommitOutcomeUnknown "commit_outcome_unknown" true "resolve the snapshot on a fresh connection";
    MissingChunk "missing_chunk" true "send the named chunks too";
    SizeLimitExceeded "size_limit_exceeded" true "store the content as an artifact and refer to it";
    SessionDeleted "session_deleted" false "the session is gone; start a new one";
    OwnerActive "owner_active" true "wait for the lease to end, or force";
    StoreForeign "store_foreign" false "name another file, or ask for a new store";
    StoreCorrupt "store_corrupt" false "restore the store from a backup";
    StoreSchemaNewer "store_schema_newer" true "use the newer build";
    StoreEngineUnsupported "store_engine_unsupported" true "link a supported version of the engine";
    UnsupportedFilesystem "unsupported_filesystem" true "put the store on a local file system";
}

impl SessionErrorCode {
    /// The code spelled like this, if there is one.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        SessionErrorCode::ALL
            .iter()
            .copied()
            .find(|candidate| candidate.as_str() == code)
    }

    /// STO-57: `checkpoint_conflict` becomes `generation_conflict`, `owner_conflict` becomes `superseded_owner`,
    /// all others keep their name.
    #[must_use]
    pub fn of_store(error: &StoreError) -> Self {
        match error.store_code() {
            "checkpoint_conflict" => SessionErrorCode::GenerationConflict,
            "owner_conflict" => SessionErrorCode::SupersededOwner,
            code => SessionErrorCode::from_code(code).unwrap_or(SessionErrorCode::CorruptSnapshot),
        }
    }
}

impl fmt::Display for SessionErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// What a session operation ended with; the one error that leaves the façade.
#[derive(Clone, Debug, PartialEq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// The code.
    pub error_code: SessionErrorCode,
    /// What happened, for a person.
    pub message: String,
    /// STO-58.
    pub recoverable: bool,
    /// What a person can do.
    pub remediation: String,
    /// Scalars only (SES-23).
    pub metadata: BTreeMap<String, Value>,
    /// Whether the operation may have happened.
    #[serde(skip)]
    performed: Performed,
    #[serde(skip)]
    retry: Retry,
}

impl SessionError {
    /// An error with the code's own remedy and no metadata.
    #[must_use]
    pub fn new(error_code: SessionErrorCode, message: impl Into<String>) -> Self {
        SessionError {
            error_code,
            message: message.into(),
            recoverable: error_code.recoverable(),
            remediation: error_code.remediation().into(),
            metadata: BTreeMap::new(),
            performed: Performed::No,
            retry: Retry::Never,
        }
    }

    /// Adds one scalar; keys are cut at 64, strings at 128 characters, anything else becomes null (SES-23).
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = match value.into() {
            Value::String(text) => Value::String(text.chars().take(128).collect()),
            Value::Array(_) | Value::Object(_) => Value::Null,
            scalar => scalar,
        };
        self.metadata.insert(key.chars().take(64).collect(), value);
        self
    }
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> Self {
        let mut mapped = SessionError::new(SessionErrorCode::of_store(&error), error.to_string());
        mapped.performed = error.performed();
        mapped.retry = error.retry();
        for (key, value) in error.metadata() {
            mapped = mapped.with(key, value);
        }
        mapped
    }
}

impl ContractError for SessionError {
    fn code(&self) -> &str {
        self.error_code.as_str()
    }

    fn retry(&self) -> Retry {
        self.retry
    }

    fn performed(&self) -> Performed {
        self.performed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_store_codes_are_renamed_and_no_other() {
        // STO-57
        let mapped = |error: StoreError| SessionError::from(error).error_code.as_str();
        assert_eq!(mapped(StoreError::OwnerConflict), "superseded_owner");
        assert_eq!(
            mapped(StoreError::CheckpointConflict {
                checkpoint: "checkpoint_0123456789abcdef".parse().unwrap()
            }),
            "generation_conflict"
        );
        assert_eq!(mapped(StoreError::StorageFull), "storage_full");
        assert_eq!(
            mapped(StoreError::Undecodable {
                code: "missing_required_component"
            }),
            "missing_required_component"
        );
    }

    #[test]
    fn the_named_codes_are_not_recoverable() {
        // STO-58
        for code in SessionErrorCode::ALL {
            let name = code.as_str();
            if name.starts_with("corrupt_")
                || [
                    "superseded_owner",
                    "duplicate_fork_operation",
                    "session_deleted",
                ]
                .contains(&name)
            {
                assert!(!code.recoverable(), "{name}");
            }
            assert_eq!(
                serde_json::to_value(code).unwrap(),
                Value::String(name.into())
            );
        }
    }

    #[test]
    fn metadata_is_bounded_scalars() {
        // SES-23
        let error = SessionError::new(SessionErrorCode::StoreBusy, "busy")
            .with(&"k".repeat(65), "v".repeat(129))
            .with("list", vec![1, 2]);
        assert_eq!(error.metadata["list"], Value::Null);
        assert_eq!(
            error.metadata[&"k".repeat(64)],
            Value::String("v".repeat(128))
        );
    }

    #[test]
    fn a_head_that_moved_backwards_is_told() {
        // SES-35
        let error = SessionError::from(StoreError::GenerationConflict {
            expected: Some(9),
            actual: Some(7),
        });
        assert_eq!(error.metadata["direction"], "behind");
    }
}
