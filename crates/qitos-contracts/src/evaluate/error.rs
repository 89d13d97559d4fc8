//! Why a trajectory could not be judged, or a result not be accepted.

use crate::error::{ContractError, Performed, Retry};

/// What went wrong in an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// `selection_not_exactly_one` (EVA-1).
    #[error("a selection names exactly one run, session or work item")]
    SelectionNotExactlyOne,
    /// `selection_empty` (EVA-4).
    #[error("no record matches the selection")]
    SelectionEmpty,
    /// `session_query_unavailable` (EVA-4).
    #[error("the reader cannot query by session")]
    SessionQueryUnavailable,
    /// `evaluation_limit_invalid` (EVA-3).
    #[error("the limit of a view is above zero")]
    LimitInvalid,
    /// `evaluation_schema_unsupported` (EVA-11).
    #[error("the result has another schema")]
    SchemaUnsupported,
    /// `evaluation_name_mismatch` (EVA-11).
    #[error("the result has another name than its evaluator")]
    NameMismatch,
    /// `evaluation_score_not_finite` (EVA-11).
    #[error("the score is not a finite number")]
    ScoreNotFinite,
    /// `evaluation_score_out_of_range` (EVA-11).
    #[error("the score is outside the declared range")]
    ScoreOutOfRange,
    /// `evidence_record_unknown` (EVA-12).
    #[error("evidence cites record {record_id}, which the view does not hold")]
    EvidenceRecordUnknown {
        /// The cited id.
        record_id: String,
    },
    /// `evidence_digest_mismatch` (EVA-12).
    #[error("evidence cites another version of record {record_id}")]
    EvidenceDigestMismatch {
        /// The cited id.
        record_id: String,
    },
    /// `evidence_missing`: a verdict without citation and without absence (EVA-12).
    #[error("a verdict cites a record or says what was searched")]
    EvidenceMissing,
    /// `evaluation_loss_dropped` (EVA-14).
    #[error("the result drops loss of its view")]
    LossDropped,
    /// `evaluation_provenance_invalid` (EVA-13).
    #[error("the result's provenance is not that of its evaluation")]
    ProvenanceInvalid,
    /// `evaluation_reasons_invalid` (EVA-16).
    #[error("a result has at most 64 reasons of at most 512 characters")]
    ReasonsInvalid,
    /// `artifact_unavailable`.
    #[error("the body of an artifact is not available")]
    ArtifactUnavailable,
    /// The grader gave no usable verdict; the code is one of section 4 of the specification.
    #[error("the grader gave no verdict ({code})")]
    Grader {
        /// `grader_unparseable`, `grader_unsure`, `grader_nonce_mismatch`, `grader_recording_missing`, or the
        /// provider's own code.
        code: String,
    },
    /// The evaluator's own reason, with its own stable code (`[a-z][a-z0-9_]*`).
    #[error("{message}")]
    Unscored {
        /// The code.
        code: String,
        /// What is missing, without trajectory content.
        message: String,
    },
}

impl ContractError for EvaluationError {
    fn code(&self) -> &str {
        match self {
            EvaluationError::SelectionNotExactlyOne => "selection_not_exactly_one",
            EvaluationError::SelectionEmpty => "selection_empty",
            EvaluationError::SessionQueryUnavailable => "session_query_unavailable",
            EvaluationError::LimitInvalid => "evaluation_limit_invalid",
            EvaluationError::SchemaUnsupported => "evaluation_schema_unsupported",
            EvaluationError::NameMismatch => "evaluation_name_mismatch",
            EvaluationError::ScoreNotFinite => "evaluation_score_not_finite",
            EvaluationError::ScoreOutOfRange => "evaluation_score_out_of_range",
            EvaluationError::EvidenceRecordUnknown { .. } => "evidence_record_unknown",
            EvaluationError::EvidenceDigestMismatch { .. } => "evidence_digest_mismatch",
            EvaluationError::EvidenceMissing => "evidence_missing",
            EvaluationError::LossDropped => "evaluation_loss_dropped",
            EvaluationError::ProvenanceInvalid => "evaluation_provenance_invalid",
            EvaluationError::ReasonsInvalid => "evaluation_reasons_invalid",
            EvaluationError::ArtifactUnavailable => "artifact_unavailable",
            EvaluationError::Grader { code } | EvaluationError::Unscored { code, .. } => code,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            EvaluationError::Grader { .. } => Retry::AfterDelay,
            _ => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}
