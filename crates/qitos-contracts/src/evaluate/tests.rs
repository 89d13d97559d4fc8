use serde_json::{Value, json};

use super::*;
use crate::clock::Timestamp;
use crate::error::ContractError;
use crate::record::privacy::project_record;
use crate::record::{Loss, PrivacyView, ProjectedRecord, Record, RecordKind};

#[derive(Debug)]
struct Named;

impl TrajectoryEvaluator for Named {
    fn name(&self) -> &str {
        "named"
    }

    fn config_digest(&self) -> Digest {
        Digest::of(b"settings")
    }

    fn score_range(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }

    fn evaluate(
        &self,
        context: &EvaluationContext<'_>,
    ) -> Result<EvaluationResult, EvaluationError> {
        Ok(result(context.view))
    }
}

fn record(number: u64) -> ProjectedRecord {
    let mut record = Record::new(
        RecordKind::Stop,
        format!("record-{number}"),
        Timestamp::from_micros(0),
    );
    record.privacy_view = PrivacyView::RawPrivate;
    let sealed = record.seal(number, Timestamp::from_micros(1)).unwrap();
    project_record(&sealed, PrivacyView::RedactedPublic).unwrap()
}

fn view(records: u64, limit: usize) -> Result<EvaluationView, EvaluationError> {
    EvaluationView::new(
        (0..records).map(record).collect(),
        EvaluationSelection::exactly_one(Some("run_0123456789abcdef"), None, None).unwrap(),
        ViewProvenance {
            reader_id: "test".into(),
            source_kind: "journal".into(),
            source_schema: "qitos.trajectory/candidate-1".into(),
            watermark: Some(records),
        },
        PrivacyView::RedactedPublic,
        Loss::none(),
        limit,
    )
}

fn result(view: &EvaluationView) -> EvaluationResult {
    let mut result = EvaluationResult::scored(&Named, view, true, 1.0);
    let cited = &view.records()[0];
    result.evidence.record_refs.push(RecordCitation {
        record_id: cited.record().record_id.to_string(),
        digest: cited.digest(),
        note: None,
    });
    result
}

fn code(view: &EvaluationView, change: impl FnOnce(&mut EvaluationResult)) -> String {
    let mut result = result(view);
    change(&mut result);
    match check_result(&Named, view, &result) {
        Ok(()) => "ok".into(),
        Err(error) => error.code().into(),
    }
}

#[test]
fn a_selection_names_exactly_one() {
    // EVA-1
    let run = Some("run_0123456789abcdef");
    let session = Some("session_0123456789abcdef");
    let item = Some("work_item_0123456789abcdef");
    assert!(EvaluationSelection::exactly_one(run, None, None).is_ok());
    assert!(EvaluationSelection::exactly_one(None, session, Some(" ")).is_ok());
    assert!(EvaluationSelection::exactly_one(None, None, item).is_ok());
    for (run_id, session_id, item_id) in [
        (None, None, None),
        (run, session, None),
        (run, session, item),
        (Some("  "), None, None),
        (session, None, None),
    ] {
        assert_eq!(
            EvaluationSelection::exactly_one(run_id, session_id, item_id),
            Err(EvaluationError::SelectionNotExactlyOne)
        );
    }
    let written =
        serde_json::to_value(EvaluationSelection::exactly_one(run, None, None).unwrap()).unwrap();
    assert_eq!(
        written,
        json!({"run_id": "run_0123456789abcdef", "session_id": null, "work_item_id": null})
    );
    assert!(
        serde_json::from_value::<EvaluationSelection>(json!({"run_id": "run_0123456789abcdef"}))
            .is_err()
    );
}

#[test]
fn a_view_is_complete_or_says_what_is_missing() {
    // EVA-3, EVA-4
    let truncated = view(10, 3).unwrap();
    assert_eq!(truncated.records().len(), 3);
    let entry = &truncated.loss().entries()[0];
    assert_eq!(
        (&*entry.code, entry.count),
        ("evaluation_view_truncated", 7)
    );
    assert!(view(3, 3).unwrap().loss().is_lossless());
    assert_eq!(view(0, 3).unwrap_err(), EvaluationError::SelectionEmpty);
    assert_eq!(view(1, 0).unwrap_err(), EvaluationError::LimitInvalid);
    assert_eq!(view(3, 3).unwrap().view_digest(), truncated.view_digest());
}

#[test]
fn every_result_is_held_against_its_evaluator_and_view() {
    // EVA-11 to EVA-14, EVA-16
    let view = view(2, 10).unwrap();
    assert_eq!(code(&view, |_| ()), "ok");
    assert_eq!(
        code(&view, |r| r.name = "other".into()),
        "evaluation_name_mismatch"
    );
    for score in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(
            code(&view, |r| r.score = score),
            "evaluation_score_not_finite"
        );
    }
    assert_eq!(
        code(&view, |r| r.score = 1.1),
        "evaluation_score_out_of_range"
    );
    assert_eq!(
        code(&view, |r| r.evidence.record_refs[0].record_id =
            "none".into()),
        "evidence_record_unknown"
    );
    assert_eq!(
        code(&view, |r| r.evidence.record_refs[0].digest = Digest::ZERO),
        "evidence_digest_mismatch"
    );
    assert_eq!(
        code(&view, |r| r.evidence.record_refs.clear()),
        "evidence_missing"
    );
    assert_eq!(
        code(&view, |r| {
            r.evidence.record_refs.clear();
            r.evidence.absence = Some(Absence {
                kinds: vec!["error".into()],
                searched_records: 2,
            });
        }),
        "ok"
    );
    assert_eq!(
        code(&view, |r| r.provenance.view_digest = Digest::ZERO),
        "evaluation_provenance_invalid"
    );
    for (count, expected) in [(63, "ok"), (64, "ok"), (65, "evaluation_reasons_invalid")] {
        assert_eq!(
            code(&view, |r| r.reasons = vec!["a".into(); count]),
            expected
        );
    }
    for (length, expected) in [
        (511, "ok"),
        (512, "ok"),
        (513, "evaluation_reasons_invalid"),
    ] {
        assert_eq!(
            code(&view, |r| r.reasons = vec!["é".repeat(length)]),
            expected
        );
    }
    let lossy = super::tests::view(10, 3).unwrap();
    assert_eq!(
        code(&lossy, |r| r.loss = Loss::none()),
        "evaluation_loss_dropped"
    );
}

#[test]
fn an_unscored_result_is_no_pass_and_no_judged_failure() {
    // EVA-15
    let view = view(1, 10).unwrap();
    let error = EvaluationError::Grader {
        code: "grader_unsure".into(),
    };
    let result = EvaluationResult::unscored(&Named, &view, EvaluationOutcome::Skipped, &error);
    assert!(!result.success && result.score == 0.0);
    assert_eq!(result.outcome(), EvaluationOutcome::Skipped);
    assert_eq!(result.tags, [TAG_UNSCORED]);
    assert!(check_result(&Named, &view, &result).is_ok());
}

#[test]
fn the_written_form_is_closed_and_reads_back() {
    // EVA-10, EVA-18
    let view = view(10, 3).unwrap();
    let mut minus_zero = result(&view);
    minus_zero.score = -0.0;
    let written = serde_json::to_value(result(&view)).unwrap();
    assert_eq!(
        serde_json::from_value::<EvaluationResult>(written.clone()).unwrap(),
        result(&view)
    );
    assert_eq!(written["schema_version"], RESULT_SCHEMA);
    assert_eq!(written["loss"]["is_lossless"], false);
    for key in [
        "name",
        "evidence",
        "schema_version",
        "provenance",
        "loss",
        "metadata",
    ] {
        let mut changed = written.clone();
        changed.as_object_mut().unwrap().remove(key);
        assert!(
            serde_json::from_value::<EvaluationResult>(changed).is_err(),
            "{key}"
        );
    }
    for (pointer, value) in [
        ("/more", json!(1)),
        ("/provenance/more", json!(1)),
        ("/evidence/more", json!(1)),
        ("/loss/is_lossless", json!(true)),
        ("/schema_version", json!("qitos.evaluation/2")),
    ] {
        let mut changed = written.clone();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        changed
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .insert(key.into(), value);
        assert!(
            serde_json::from_value::<EvaluationResult>(changed).is_err(),
            "{pointer}"
        );
    }
    let _: &Value = &written;
}

#[test]
fn names_of_evaluators_are_bounded() {
    assert!(is_evaluator_name(&"a".repeat(127)) && is_evaluator_name(&"a".repeat(128)));
    assert!(!is_evaluator_name(&"a".repeat(129)));
    for name in ["", "A", "-a", "a b", "é"] {
        assert!(!is_evaluator_name(name), "{name}");
    }
}
