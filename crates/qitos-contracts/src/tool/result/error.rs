//! Why a written result is refused.

use crate::error::{ContractError, Performed, Retry};

/// A result that the strict reader refused (RES-1, RES-2).
///
/// The text names keys of the format, never content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// `invalid_canonical_payload`: not one JSON object.
    #[error("not a JSON object")]
    InvalidPayload,
    /// `unknown_schema_version`.
    #[error("not of version {}", super::SCHEMA)]
    UnknownVersion,
    /// `unknown_canonical_field`.
    #[error("a key is not one of the format")]
    UnknownField,
    /// `missing_canonical_field`.
    #[error("key `{0}` is missing")]
    MissingField(&'static str),
    /// `invalid_canonical_field`: wrong type or range.
    #[error("key `{0}` has a wrong type or range")]
    InvalidField(&'static str),
    /// `non_serializable_value`: a number that is not finite, or too deep a value.
    #[error("a value cannot be written as JSON")]
    NotSerializable,
    /// `invalid_terminal_status`.
    #[error("the status is none of the format")]
    InvalidStatus,
    /// `invalid_error_kind`.
    #[error("the error kind is none of the format")]
    InvalidErrorKind,
    /// `invalid_effect_state`.
    #[error("the effect state is none of the format")]
    InvalidEffectState,
    /// `invalid_retry_disposition`.
    #[error("the retry disposition is none of the format")]
    InvalidRetryDisposition,
    /// `invalid_artifact_ref`.
    #[error("an artifact reference is not well formed, or occurs twice")]
    InvalidArtifactRef,
    /// `invalid_attempt_identity`.
    #[error("the attempt id is not well formed")]
    InvalidAttemptIdentity,
    /// `invalid_batch_closure`.
    #[error("the batch closure is not well formed")]
    InvalidBatchClosure,
    /// `contradictory_outcome`: outside the table of statuses.
    #[error("status and `{0}` contradict each other")]
    ContradictoryOutcome(&'static str),
    /// `contradictory_effect`: outside the table of effect states.
    #[error("effect state and `{0}` contradict each other")]
    ContradictoryEffect(&'static str),
    /// `unsafe_retry_disposition`.
    #[error("the retry disposition is not safe")]
    UnsafeRetryDisposition,
}

impl ContractError for ResultError {
    fn code(&self) -> &str {
        match self {
            ResultError::InvalidPayload => "invalid_canonical_payload",
            ResultError::UnknownVersion => "unknown_schema_version",
            ResultError::UnknownField => "unknown_canonical_field",
            ResultError::MissingField(_) => "missing_canonical_field",
            ResultError::InvalidField(_) => "invalid_canonical_field",
            ResultError::NotSerializable => "non_serializable_value",
            ResultError::InvalidStatus => "invalid_terminal_status",
            ResultError::InvalidErrorKind => "invalid_error_kind",
            ResultError::InvalidEffectState => "invalid_effect_state",
            ResultError::InvalidRetryDisposition => "invalid_retry_disposition",
            ResultError::InvalidArtifactRef => "invalid_artifact_ref",
            ResultError::InvalidAttemptIdentity => "invalid_attempt_identity",
            ResultError::InvalidBatchClosure => "invalid_batch_closure",
            ResultError::ContradictoryOutcome(_) => "contradictory_outcome",
            ResultError::ContradictoryEffect(_) => "contradictory_effect",
            ResultError::UnsafeRetryDisposition => "unsafe_retry_disposition",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::Unknown
    }
}
