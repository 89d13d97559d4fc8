//! The verdict: success, score, reasons, evidence, provenance and loss, in one strict form.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::EvaluationError;
use super::view::{EvaluationSelection, EvaluationView, present};
use super::{RESULT_SCHEMA, TrajectoryEvaluator};
use crate::artifact::ArtifactRef;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::error::ContractError;
use crate::record::Loss;

/// The tag that keeps old readers from taking an unscored result for a pass or a judged failure (EVA-15).
pub const TAG_UNSCORED: &str = "unscored";

/// Whether the evaluator could judge (EVA-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvaluationOutcome {
    /// It judged.
    Scored,
    /// It failed, or panicked.
    Errored,
    /// It did not finish in time.
    TimedOut,
    /// There was nothing to judge.
    Skipped,
}

impl EvaluationOutcome {
    fn as_str(self) -> &'static str {
        match self {
            EvaluationOutcome::Scored => "scored",
            EvaluationOutcome::Errored => "errored",
            EvaluationOutcome::TimedOut => "timed_out",
            EvaluationOutcome::Skipped => "skipped",
        }
    }
}

/// A citation of a viewed record (EVA-12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordCitation {
    /// The record.
    pub record_id: String,
    /// Its digest as the view shows it.
    pub digest: Digest,
    /// What it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What was searched in vain (EVA-12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// Kinds of records that were looked at.
    pub kinds: Vec<String>,
    /// How many records were looked at.
    pub searched_records: u64,
}

/// What the verdict rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Cited records, at most 256.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub record_refs: Vec<RecordCitation>,
    /// Artifacts of cited records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifact_refs: Vec<ArtifactRef>,
    /// Set by a verdict about something that did not happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absence: Option<Absence>,
    /// Everything else.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

/// How a result came to be (EVA-13).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationProvenance {
    /// Name of the evaluator.
    pub evaluator: String,
    /// Its version.
    pub evaluator_version: String,
    /// Digest of its settings.
    pub config_digest: Digest,
    /// Schema id of the view.
    pub input_schema: String,
    /// Digest of the view.
    pub view_digest: Digest,
    /// What was selected.
    pub selection: EvaluationSelection,
    /// When it was judged, by the caller's clock; not part of what must be equal between two evaluations.
    #[serde(deserialize_with = "present")]
    pub evaluated_at: Option<Timestamp>,
    /// The grader's run in the evaluation journal, of model-graded evaluators.
    #[serde(deserialize_with = "present")]
    pub grader_run_id: Option<String>,
}

/// One verdict (`qitos.evaluation/1`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct EvaluationResult {
    /// Name of the evaluator.
    pub name: String,
    /// The verdict; never derived from the score, or the score from it (EVA-11).
    pub success: bool,
    /// The score; 0.0 when not scored.
    pub score: f64,
    /// `code` or `code:detail`, at most 64 of at most 512 characters (EVA-16).
    pub reasons: Vec<String>,
    /// What the verdict rests on.
    pub evidence: Evidence,
    /// Free labels.
    pub tags: Vec<String>,
    /// Free facts; `outcome` and `code` are those of EVA-15.
    pub metadata: Map<String, Value>,
    /// How it came to be.
    pub provenance: EvaluationProvenance,
    /// What is missing, that of the view included.
    pub loss: Loss,
}

impl EvaluationResult {
    /// A verdict of `evaluator` over `view`, without reasons and evidence yet.
    #[must_use]
    pub fn scored(
        evaluator: &dyn TrajectoryEvaluator,
        view: &EvaluationView,
        success: bool,
        score: f64,
    ) -> Self {
        let mut metadata = Map::new();
        metadata.insert("outcome".into(), EvaluationOutcome::Scored.as_str().into());
        EvaluationResult {
            name: evaluator.name().into(),
            success,
            // −0.0 is stored as 0.0 (EVA-11).
            score: if score == 0.0 { 0.0 } else { score },
            reasons: Vec::new(),
            evidence: Evidence::default(),
            tags: Vec::new(),
            metadata,
            provenance: EvaluationProvenance {
                evaluator: evaluator.name().into(),
                evaluator_version: env!("CARGO_PKG_VERSION").into(),
                config_digest: evaluator.config_digest(),
                input_schema: super::VIEW_SCHEMA.into(),
                view_digest: view.view_digest(),
                selection: view.selection().clone(),
                evaluated_at: None,
                grader_run_id: None,
            },
            loss: view.loss().clone(),
        }
    }

    /// What stands for an evaluator that could not judge: no pass, no score, tag `unscored` (EVA-15).
    #[must_use]
    pub fn unscored(
        evaluator: &dyn TrajectoryEvaluator,
        view: &EvaluationView,
        outcome: EvaluationOutcome,
        error: &EvaluationError,
    ) -> Self {
        let mut result = EvaluationResult::scored(evaluator, view, false, 0.0);
        result.tags.push(TAG_UNSCORED.into());
        result.reasons.push(error.code().into());
        result
            .metadata
            .insert("outcome".into(), outcome.as_str().into());
        result.metadata.insert("code".into(), error.code().into());
        result
    }

    /// Whether the evaluator could judge; a result without the word was scored, as older ones are.
    #[must_use]
    pub fn outcome(&self) -> EvaluationOutcome {
        match self.metadata.get("outcome").and_then(Value::as_str) {
            Some("errored") => EvaluationOutcome::Errored,
            Some("timed_out") => EvaluationOutcome::TimedOut,
            Some("skipped") => EvaluationOutcome::Skipped,
            _ if self.tags.iter().any(|tag| tag == TAG_UNSCORED) => EvaluationOutcome::Errored,
            _ => EvaluationOutcome::Scored,
        }
    }
}

/// The written form, closed (EVA-18).
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    name: String,
    success: bool,
    score: f64,
    reasons: Vec<String>,
    evidence: Evidence,
    tags: Vec<String>,
    metadata: Map<String, Value>,
    schema_version: String,
    provenance: EvaluationProvenance,
    loss: WireLoss,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLoss {
    policy_id: String,
    is_lossless: bool,
    entries: Vec<WireLossEntry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLossEntry {
    code: String,
    scope: String,
    count: u64,
    consequence: String,
}

impl From<EvaluationResult> for Wire {
    fn from(result: EvaluationResult) -> Wire {
        Wire {
            name: result.name,
            success: result.success,
            score: result.score,
            reasons: result.reasons,
            evidence: result.evidence,
            tags: result.tags,
            metadata: result.metadata,
            schema_version: RESULT_SCHEMA.into(),
            provenance: result.provenance,
            loss: WireLoss {
                policy_id: result.loss.policy_id().into(),
                is_lossless: result.loss.is_lossless(),
                entries: result
                    .loss
                    .entries()
                    .iter()
                    .map(|entry| WireLossEntry {
                        code: entry.code.clone().into_owned(),
                        scope: entry.scope.clone().into_owned(),
                        count: entry.count,
                        consequence: entry.consequence.clone().into_owned(),
                    })
                    .collect(),
            },
        }
    }
}

impl TryFrom<Wire> for EvaluationResult {
    type Error = EvaluationError;

    fn try_from(wire: Wire) -> Result<Self, EvaluationError> {
        if wire.schema_version != RESULT_SCHEMA {
            return Err(EvaluationError::SchemaUnsupported);
        }
        if wire.loss.is_lossless != wire.loss.entries.is_empty() {
            return Err(EvaluationError::Unscored {
                code: "loss_inconsistent".into(),
                message: "is_lossless contradicts the entries".into(),
            });
        }
        let mut loss = Loss::under(wire.loss.policy_id);
        for entry in wire.loss.entries {
            loss.add(
                Cow::Owned(entry.code),
                Cow::Owned(entry.scope),
                Cow::Owned(entry.consequence),
                entry.count,
            );
        }
        Ok(EvaluationResult {
            name: wire.name,
            success: wire.success,
            score: wire.score,
            reasons: wire.reasons,
            evidence: wire.evidence,
            tags: wire.tags,
            metadata: wire.metadata,
            provenance: wire.provenance,
            loss,
        })
    }
}
