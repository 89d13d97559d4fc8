//! Why a record could not be made, read or projected.

use crate::error::{ContractError, Performed, Retry};

/// Why a record was refused.
///
/// No variant carries a value, a key or matched text (TRJ-25): field names below are those of the
/// specification, never those of a payload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// `unsupported_trajectory_schema`: another schema id (TRJ-1).
    #[error("the schema id is not one this version reads")]
    UnsupportedSchema,
    /// `unknown_record_field`: a key that a record does not have (TRJ-3).
    #[error("the record has a key that is not one of its 40")]
    UnknownField,
    /// `invalid_record_field`: a field has another type or range than specified (TRJ-2, TRJ-4, TRJ-15).
    #[error("the record field {field} does not have its specified form")]
    InvalidField {
        /// The wire key of the field.
        field: &'static str,
    },
    /// `record_identity_invalid`: an id-like string outside its alphabet, or one that discloses (TRJ-5).
    #[error("the record field {field} is no admissible identity")]
    IdentityInvalid {
        /// The wire key of the field.
        field: &'static str,
    },
    /// `record_identity_missing`: the identity that pairs records of this kind is absent (TRJ-18).
    #[error("a {kind} record needs {field}")]
    IdentityMissing {
        /// The kind of the record.
        kind: &'static str,
        /// The wire key of the missing field.
        field: &'static str,
    },
    /// `missing_event_identity`: a work graph fact without session, run, operation or authority (TRJ-16).
    #[error("a work_graph record needs {field}")]
    EventIdentityMissing {
        /// The wire key of the missing field.
        field: &'static str,
    },
    /// `record_integrity_mismatch`: the digest is not that of the bytes (TRJ-10).
    #[error("the digest of the record does not match its bytes")]
    IntegrityMismatch,
    /// `payload_not_json`: not the JSON that records consist of (TRJ-11, TRJ-12).
    #[error("the record is not well-formed JSON ({reason})")]
    PayloadNotJson {
        /// A stable word of the JSON layer.
        reason: &'static str,
    },
    /// `loss_inconsistent`: `is_lossless` contradicts `entries` (TRJ-13).
    #[error("is_lossless contradicts the loss entries")]
    LossInconsistent,
    /// `view_widening_refused`: the wanted view shows more than the record's own (TRJ-22).
    #[error("a record in the view {from} cannot be shown as {to}")]
    ViewWideningRefused {
        /// The view of the record.
        from: &'static str,
        /// The wanted view.
        to: &'static str,
    },
}

impl ContractError for RecordError {
    fn code(&self) -> &str {
        match self {
            RecordError::UnsupportedSchema => "unsupported_trajectory_schema",
            RecordError::UnknownField => "unknown_record_field",
            RecordError::InvalidField { .. } => "invalid_record_field",
            RecordError::IdentityInvalid { .. } => "record_identity_invalid",
            RecordError::IdentityMissing { .. } => "record_identity_missing",
            RecordError::EventIdentityMissing { .. } => "missing_event_identity",
            RecordError::IntegrityMismatch => "record_integrity_mismatch",
            RecordError::PayloadNotJson { .. } => "payload_not_json",
            RecordError::LossInconsistent => "loss_inconsistent",
            RecordError::ViewWideningRefused { .. } => "view_widening_refused",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}
