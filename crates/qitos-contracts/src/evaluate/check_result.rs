//! Rule: what a caller checks of every result, whoever made it (EVA-11 to EVA-14, EVA-16).

use super::error::EvaluationError;
use super::result::{EvaluationOutcome, EvaluationResult};
use super::view::EvaluationView;
use super::{TrajectoryEvaluator, VIEW_SCHEMA};

/// Most citations of one result; an evaluator with more says `evidence_truncated`.
const MAXIMUM_CITATIONS: usize = 256;
const MAXIMUM_REASONS: usize = 64;
const MAXIMUM_REASON_CHARACTERS: usize = 512;

/// Holds a result against its evaluator and its view.
///
/// # Errors
/// `evaluation_name_mismatch`, `evaluation_score_not_finite`, `evaluation_score_out_of_range`,
/// `evaluation_provenance_invalid`, `evaluation_loss_dropped`, `evidence_record_unknown`,
/// `evidence_digest_mismatch`, `evidence_missing`, `evaluation_reasons_invalid`.
pub fn check_result(
    evaluator: &dyn TrajectoryEvaluator,
    view: &EvaluationView,
    result: &EvaluationResult,
) -> Result<(), EvaluationError> {
    if result.name != evaluator.name() {
        return Err(EvaluationError::NameMismatch);
    }
    if !result.score.is_finite() {
        return Err(EvaluationError::ScoreNotFinite);
    }
    let scored = result.outcome() == EvaluationOutcome::Scored;
    if let Some((lowest, highest)) = evaluator.score_range()
        && scored
        && !(lowest..=highest).contains(&result.score)
    {
        return Err(EvaluationError::ScoreOutOfRange);
    }
    let provenance = &result.provenance;
    let provenance_fits = provenance.evaluator == evaluator.name()
        && provenance.config_digest == evaluator.config_digest()
        && provenance.input_schema == VIEW_SCHEMA
        && provenance.view_digest == view.view_digest()
        && provenance.selection == *view.selection();
    if !provenance_fits {
        return Err(EvaluationError::ProvenanceInvalid);
    }
    check_loss(view, result)?;
    check_evidence(view, result, scored)?;
    let reasons_fit = result.reasons.len() <= MAXIMUM_REASONS
        && result
            .reasons
            .iter()
            .all(|reason| reason.chars().count() <= MAXIMUM_REASON_CHARACTERS);
    if reasons_fit {
        Ok(())
    } else {
        Err(EvaluationError::ReasonsInvalid)
    }
}

/// Everything that the view declares missing is declared by the result, too (EVA-14).
fn check_loss(view: &EvaluationView, result: &EvaluationResult) -> Result<(), EvaluationError> {
    let kept = view.loss().entries().iter().all(|lost| {
        result.loss.entries().iter().any(|declared| {
            declared.code == lost.code
                && declared.scope == lost.scope
                && declared.consequence == lost.consequence
                && declared.count >= lost.count
        })
    });
    if kept {
        Ok(())
    } else {
        Err(EvaluationError::LossDropped)
    }
}

fn check_evidence(
    view: &EvaluationView,
    result: &EvaluationResult,
    scored: bool,
) -> Result<(), EvaluationError> {
    let evidence = &result.evidence;
    for citation in &evidence.record_refs {
        let Some(record) = view.record(&citation.record_id) else {
            return Err(EvaluationError::EvidenceRecordUnknown {
                record_id: citation.record_id.clone(),
            });
        };
        if record.digest() != citation.digest {
            return Err(EvaluationError::EvidenceDigestMismatch {
                record_id: citation.record_id.clone(),
            });
        }
    }
    let shown = |wanted: &str| {
        view.records().iter().any(|record| {
            record
                .record()
                .artifact_refs
                .iter()
                .any(|reference| reference.artifact_id == wanted)
        })
    };
    if let Some(unknown) = evidence
        .artifact_refs
        .iter()
        .find(|reference| !shown(&reference.artifact_id))
    {
        return Err(EvaluationError::EvidenceRecordUnknown {
            record_id: unknown.artifact_id.clone(),
        });
    }
    let rests_on_something = !evidence.record_refs.is_empty() || evidence.absence.is_some();
    if evidence.record_refs.len() > MAXIMUM_CITATIONS || (scored && !rests_on_something) {
        return Err(EvaluationError::EvidenceMissing);
    }
    Ok(())
}
