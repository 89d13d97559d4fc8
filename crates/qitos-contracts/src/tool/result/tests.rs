use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::*;
use crate::artifact::ArtifactRef;
use crate::error::ContractError;
use crate::ids::{AttemptId, SlotId};
use crate::tool::call::{EffectReport, Returned, ToolError};
use crate::tool::effect::EffectClass;

/// The table of statuses, as section 4 prints it:
/// status, error kinds, error code, worker_still_running, attempts.
const STATUS_TABLE: &[(&str, &str, bool, &str, &str)] = &[
    ("success", "-", false, "false", ">=1"),
    ("error", "semantic execution policy", true, "false", ">=0"),
    ("skipped", "policy", true, "false", "0"),
    ("timed_out", "execution", true, "either", ">=1"),
    ("cancelled", "execution", true, "either-if-attempted", ">=0"),
];

/// The table of effect states, as section 4 prints it:
/// state, ref set, outcome_unknown, reconciliation_required, statuses, dispositions.
const EFFECT_TABLE: &[(&str, bool, bool, &str, &str, &str)] = &[
    (
        "no_effect_declared",
        false,
        false,
        "false",
        "success error skipped timed_out cancelled",
        "not_evaluated retryable non_retryable blocked_worker_running",
    ),
    (
        "not_started",
        true,
        false,
        "false",
        "error skipped cancelled",
        "not_evaluated retryable non_retryable",
    ),
    (
        "started",
        true,
        true,
        "false",
        "timed_out cancelled",
        "blocked_worker_running",
    ),
    (
        "committed",
        true,
        false,
        "false",
        "success error timed_out cancelled",
        "non_retryable blocked_worker_running",
    ),
    (
        "rejected",
        true,
        false,
        "false",
        "error timed_out cancelled",
        "retryable non_retryable",
    ),
    (
        "unknown",
        true,
        true,
        "either",
        "error timed_out cancelled",
        "requires_reconciliation blocked_worker_running non_retryable",
    ),
    (
        "reconciliation_required",
        true,
        true,
        "true",
        "error timed_out cancelled",
        "requires_reconciliation blocked_worker_running",
    ),
];

fn has_word(list: &str, word: &str) -> bool {
    list.split(' ').any(|entry| entry == word)
}

/// What the printed tables say of a combination, read anew and by other code than the product's.
fn oracle(fields: &Fields) -> Result<(), &'static str> {
    let status = fields.status.as_str();
    let (_, kinds, has_code, worker, attempts) = STATUS_TABLE
        .iter()
        .find(|row| row.0 == status)
        .expect("every status has a row");
    let kind = fields.error_kind.map_or("-", |kind| kind.as_str());
    let attempts_fit = match *attempts {
        ">=1" => fields.attempts > 0,
        "0" => fields.attempts == 0,
        _ => true,
    };
    let worker_fits = match *worker {
        "false" => !fields.worker_still_running,
        "either-if-attempted" => !fields.worker_still_running || fields.attempts > 0,
        _ => true,
    };
    if !has_word(kinds, kind)
        || fields.error_code.is_some() != *has_code
        || (status == "success" && fields.error.is_some())
        || !attempts_fit
        || !worker_fits
    {
        return Err("contradictory_outcome");
    }
    let (state, has_ref, unknown, reconcile, statuses, dispositions) = EFFECT_TABLE
        .iter()
        .find(|row| row.0 == fields.effect_state.as_str())
        .expect("every state has a row");
    let extra = match *state {
        "not_started" => fields.attempts == 0,
        "started" => fields.worker_still_running,
        _ => true,
    };
    if fields.effect_ref.is_some() != *has_ref
        || fields.outcome_unknown != *unknown
        || (*reconcile != "either" && fields.reconciliation_required != (*reconcile == "true"))
        || !has_word(statuses, status)
        || !extra
    {
        return Err("contradictory_effect");
    }
    let disposition = fields.retry_disposition.as_str();
    let safe = disposition != "retryable"
        || (fields.recoverable
            && !fields.worker_still_running
            && !fields.outcome_unknown
            && *state != "committed"
            && status != "success");
    let blocked = (disposition == "blocked_worker_running") == fields.worker_still_running;
    let reconciles = disposition != "requires_reconciliation" || fields.outcome_unknown;
    if !has_word(dispositions, disposition) || !safe || !blocked || !reconciles {
        return Err("unsafe_retry_disposition");
    }
    Ok(())
}

fn attempt_id() -> AttemptId {
    "attempt_00112233445566778899aabbccddeeff".parse().unwrap()
}

fn slot_id() -> SlotId {
    "batch_request_0123456789abcdef01234567:0".parse().unwrap()
}

fn identity() -> ResultIdentity {
    ResultIdentity {
        tool_name: "shell".into(),
        call_id: "call_7".parse().unwrap(),
        slot_id: slot_id(),
        owner_generation: 3,
    }
}

fn attempt() -> AttemptFacts {
    AttemptFacts {
        attempt_id: attempt_id(),
        attempts: 1,
        latency_ms: 7003,
    }
}

fn bools() -> [bool; 2] {
    [false, true]
}

/// Every combination of the facts that the tables speak of.
fn every_combination(mut visit: impl FnMut(&Fields)) {
    let kinds = [
        None,
        Some(ErrorKind::Semantic),
        Some(ErrorKind::Execution),
        Some(ErrorKind::Policy),
    ];
    for status in TerminalStatus::ALL {
        let mut fields = Fields::blank(*status);
        for kind in kinds {
            fields.error_kind = kind;
            for failed in bools() {
                fields.error_code = failed.then(|| "some_code".into());
                for described in bools() {
                    fields.error = described.then(|| "in words".into());
                    for attempts in [0, 1, 2] {
                        fields.attempts = attempts;
                        for running in bools() {
                            fields.worker_still_running = running;
                            visit_effects(&mut fields, &mut visit);
                        }
                    }
                }
            }
        }
    }
}

fn visit_effects(fields: &mut Fields, visit: &mut impl FnMut(&Fields)) {
    for state in EffectState::ALL {
        fields.effect_state = *state;
        for named in bools() {
            fields.effect_ref = named.then(|| "pay:1".parse().unwrap());
            for unknown in bools() {
                fields.outcome_unknown = unknown;
                for reconcile in bools() {
                    fields.reconciliation_required = reconcile;
                    for disposition in RetryDisposition::ALL {
                        fields.retry_disposition = *disposition;
                        for recoverable in bools() {
                            fields.recoverable = recoverable;
                            visit(fields);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn tck_13_the_tables_admit_exactly_what_is_printed() {
    let (mut legal, mut refused) = (0, 0);
    every_combination(|fields| {
        let found = table::check(fields);
        match oracle(fields) {
            Ok(()) => {
                legal += 1;
                assert_eq!(found, Ok(()), "{fields:?}");
            }
            Err(code) => {
                refused += 1;
                let error = found.expect_err("not in the tables");
                assert_eq!(error.code(), code, "{fields:?}");
            }
        }
    });
    assert_eq!(legal + refused, 268_800);
    assert!(legal > 300, "{legal}");
}

#[test]
fn tck_13_every_legal_combination_round_trips_and_every_single_change_is_named() {
    let mut seen = 0;
    every_combination(|fields| {
        if oracle(fields).is_err() || fields.attempts == 2 {
            return;
        }
        seen += 1;
        let result = ToolResult::of(fields.clone());
        let bytes = result.canonical_bytes().to_vec();
        let again = ToolResult::from_bytes(&bytes).unwrap();
        assert_eq!(again, result);
        assert_eq!(again.canonical_bytes(), bytes);
        if seen % 7 != 0 {
            return;
        }
        // Each fact changed alone, through the reader.
        let written: Value = canonical_json::read_canonical(&bytes).unwrap();
        let changes: Vec<(&str, Vec<Value>)> = vec![
            ("success", vec![json!(true), json!(false)]),
            (
                "status",
                words(TerminalStatus::ALL.iter().map(|word| word.as_str())),
            ),
            (
                "error_kind",
                vec![
                    Value::Null,
                    json!("semantic"),
                    json!("execution"),
                    json!("policy"),
                ],
            ),
            ("error_code", vec![Value::Null, json!("other")]),
            ("error", vec![Value::Null, json!("other")]),
            ("attempts", vec![json!(0), json!(1)]),
            ("worker_still_running", vec![json!(true), json!(false)]),
            (
                "effect_state",
                words(EffectState::ALL.iter().map(|word| word.as_str())),
            ),
            ("effect_ref", vec![Value::Null, json!("pay:2")]),
            ("outcome_unknown", vec![json!(true), json!(false)]),
            ("reconciliation_required", vec![json!(true), json!(false)]),
            (
                "retry_disposition",
                words(RetryDisposition::ALL.iter().map(|word| word.as_str())),
            ),
            ("recoverable", vec![json!(true), json!(false)]),
        ];
        for (key, values) in changes {
            for value in values {
                let mut changed = written.clone();
                changed[key] = value;
                check_changed(&changed, key);
            }
        }
    });
    assert!(seen > 200, "{seen}");
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Value> {
    words.map(Value::from).collect()
}

/// Reads a changed result and holds its code against the oracle.
fn check_changed(changed: &Value, key: &str) {
    let mut fields =
        Fields::blank(TerminalStatus::parse(changed["status"].as_str().unwrap()).unwrap());
    fields.error_kind = match changed["error_kind"].as_str() {
        None => None,
        Some("semantic") => Some(ErrorKind::Semantic),
        Some("execution") => Some(ErrorKind::Execution),
        _ => Some(ErrorKind::Policy),
    };
    fields.error_code = changed["error_code"].as_str().map(Into::into);
    fields.error = changed["error"].as_str().map(Into::into);
    fields.attempts = changed["attempts"].as_u64().unwrap();
    fields.worker_still_running = changed["worker_still_running"].as_bool().unwrap();
    fields.effect_state = EffectState::parse(changed["effect_state"].as_str().unwrap()).unwrap();
    fields.effect_ref = changed["effect_ref"]
        .as_str()
        .map(|text| text.parse().unwrap());
    fields.outcome_unknown = changed["outcome_unknown"].as_bool().unwrap();
    fields.reconciliation_required = changed["reconciliation_required"].as_bool().unwrap();
    fields.retry_disposition =
        RetryDisposition::parse(changed["retry_disposition"].as_str().unwrap()).unwrap();
    fields.recoverable = changed["recoverable"].as_bool().unwrap();
    let success_fits =
        changed["success"].as_bool().unwrap() == (fields.status == TerminalStatus::Success);
    let expected = if success_fits {
        oracle(&fields)
    } else {
        Err("contradictory_outcome")
    };
    match (ToolResult::from_value(changed.clone()), expected) {
        (Ok(_), Ok(())) => {}
        (Err(error), Err(code)) => assert_eq!(error.code(), code, "{key}: {changed}"),
        (found, expected) => panic!("{key}: {expected:?} but {found:?} for {changed}"),
    }
}

/// The example of section 4: an undeclared call whose worker ran past its deadline.
const EXAMPLE: &str = r#"{"schema_version":"qitos.tool_result/v2","status":"timed_out","success":false,"tool_name":"shell","action_id":"call_7","output":null,"model_output":null,
 "error":"deadline of 5 s passed","error_kind":"execution","error_code":"timeout","recoverable":false,"recovery_hint":"check before repeating","next_action":null,
 "complete":false,"truncated":false,"omitted":{},"attempts":1,"latency_ms":7003,"declared_effects":[],"filesystem_changes":[],"artifact_refs":[],
 "normalized_request":{},"provenance":{},"worker_still_running":true,"attempt_id":"attempt_00112233445566778899aabbccddeeff",
 "effect_ref":"effect:undeclared:batch_request_0123456789abcdef01234567:0","effect_state":"unknown","idempotency_ref":null,
 "retry_disposition":"blocked_worker_running","reconciliation_required":true,"outcome_unknown":true,"late_result":false,"owner_generation":3,
 "stale_owner":false,"batch_closure":{},"metadata":{}}"#;

#[test]
fn the_example_of_the_specification_is_what_the_constructor_makes() {
    let example = ToolResult::from_bytes(EXAMPLE.as_bytes()).unwrap();
    let made = ToolResult::ended(
        identity(),
        &EffectClass::Undeclared,
        End::TimedOut {
            worker_running: true,
        },
        None,
        attempt(),
    );
    let mut expected: Value = serde_json::from_str(EXAMPLE).unwrap();
    assert_eq!(expected.as_object().unwrap().len(), 36);
    assert_eq!(
        canonical_json::to_bytes(&expected).unwrap(),
        example.canonical_bytes()
    );
    expected["error"] = json!("the deadline passed");
    assert_eq!(
        canonical_json::to_bytes(&expected).unwrap(),
        made.canonical_bytes()
    );
}

#[test]
fn res_1_the_reader_names_each_fault() {
    let good: Value = serde_json::from_str(EXAMPLE).unwrap();
    let code = |value: Value| ToolResult::from_value(value).unwrap_err().code().to_owned();
    for key in good.as_object().unwrap().keys() {
        let mut missing = good.clone();
        missing.as_object_mut().unwrap().remove(key);
        assert_eq!(code(missing), "missing_canonical_field", "{key}");
    }
    for (key, value, expected) in [
        ("extra", json!(1), "unknown_canonical_field"),
        (
            "schema_version",
            json!("qitos.tool_result/v1"),
            "unknown_schema_version",
        ),
        ("schema_version", json!(2), "unknown_schema_version"),
        ("status", json!("failed"), "invalid_terminal_status"),
        ("status", json!(1), "invalid_canonical_field"),
        ("error_kind", json!("network"), "invalid_error_kind"),
        ("effect_state", json!("maybe"), "invalid_effect_state"),
        (
            "retry_disposition",
            json!("later"),
            "invalid_retry_disposition",
        ),
        ("attempt_id", json!("attempt-1"), "invalid_attempt_identity"),
        ("attempt_id", json!(1), "invalid_attempt_identity"),
        ("batch_closure", json!([]), "invalid_batch_closure"),
        (
            "batch_closure",
            json!({"slots": []}),
            "invalid_batch_closure",
        ),
        ("artifact_refs", json!([{}]), "invalid_artifact_ref"),
        ("artifact_refs", json!({}), "invalid_canonical_field"),
        ("attempts", json!(-1), "invalid_canonical_field"),
        ("attempts", json!(1.0), "invalid_canonical_field"),
        ("latency_ms", json!(-0.5), "invalid_canonical_field"),
        ("latency_ms", json!("7"), "invalid_canonical_field"),
        ("omitted", json!({"rows": -1}), "invalid_canonical_field"),
        (
            "next_action",
            json!({"args": {}}),
            "invalid_canonical_field",
        ),
        (
            "next_action",
            json!({"name": "a", "more": 1}),
            "invalid_canonical_field",
        ),
        (
            "filesystem_changes",
            json!(["a"]),
            "invalid_canonical_field",
        ),
        ("metadata", Value::Null, "invalid_canonical_field"),
        ("owner_generation", json!("3"), "invalid_canonical_field"),
        ("effect_ref", json!("a b"), "invalid_canonical_field"),
        ("tool_name", json!(1), "invalid_canonical_field"),
        ("success", Value::Null, "invalid_canonical_field"),
    ] {
        let mut changed = good.clone();
        changed[key] = value;
        assert_eq!(code(changed), expected, "{key}");
    }
    assert_eq!(code(json!([])), "invalid_canonical_payload");
    let bytes = |text: &str| ToolResult::from_bytes(text.as_bytes()).unwrap_err();
    assert_eq!(bytes("").code(), "invalid_canonical_payload");
    let infinite = EXAMPLE.replace("7003", "1e999");
    assert_eq!(bytes(&infinite).code(), "non_serializable_value");
    let mut deep = json!(1);
    for _ in 0..RESULT_DEPTH {
        deep = json!([deep]);
    }
    let mut changed = good.clone();
    changed["output"] = deep;
    assert_eq!(code(changed), "non_serializable_value");
}

#[test]
fn res_1_artifact_references_are_exact_and_unique() {
    let reference = ArtifactRef::of_body("tool-result-output", "text/plain", b"body");
    let made = ToolResult::success(json!({"big": true}))
        .unwrap()
        .with_artifact_output(reference.clone())
        .unwrap();
    assert_eq!(made.artifact_refs(), std::slice::from_ref(&reference));
    assert_eq!(made.output()["artifact"]["sha256"], json!(reference.sha256));
    let twice = made.clone().with_artifact(reference.clone()).unwrap();
    assert_eq!(twice, made);
    let value = canonical_json::read_canonical(made.canonical_bytes()).unwrap();
    assert_eq!(ToolResult::from_value(value.clone()), Ok(made));
    let code = |change: &dyn Fn(&mut Value)| {
        let mut changed = value.clone();
        change(&mut changed["artifact_refs"]);
        ToolResult::from_value(changed)
            .unwrap_err()
            .code()
            .to_owned()
    };
    let first = value["artifact_refs"][0].clone();
    let changes: [&dyn Fn(&mut Value); 6] = [
        &|refs| refs.as_array_mut().unwrap().push(first.clone()),
        &|refs| {
            refs[0].as_object_mut().unwrap().remove("model_summary");
        },
        &|refs| refs[0]["extra"] = json!(1),
        &|refs| refs[0]["artifact_id"] = json!("/etc/passwd"),
        &|refs| refs[0]["model_summary"] = json!("x".repeat(1025)),
        &|refs| refs[0]["encoding"] = json!("text"),
    ];
    for change in changes {
        assert_eq!(code(change), "invalid_artifact_ref");
    }
}

#[test]
fn exe_14_a_closure_round_trips_and_a_reference_leaves_it_out() {
    let result = ToolResult::success(json!(1)).unwrap();
    let plain = result.result_ref();
    let closure = BatchClosure {
        batch_id: "batch_1".parse().unwrap(),
        slots: vec![
            result.closed_slot(),
            ClosedSlot {
                action_id: "call_8".into(),
                state: SlotClosure::Open,
                attempt_id: None,
                result_ref: None,
            },
        ],
    };
    // An anonymous result has no line of its own in a closure that is read back.
    let mut named = closure.clone();
    named.slots[0].action_id = "call_7".into();
    let closed = result.with_batch_closure(named.clone());
    assert_eq!(closed.result_ref(), plain);
    assert_eq!(plain.len(), "result:".len() + 64);
    let again = ToolResult::from_bytes(closed.canonical_bytes()).unwrap();
    assert_eq!(again.batch_closure(), Some(&named));
    assert_eq!(again.canonical_bytes(), closed.canonical_bytes());
}

fn declared() -> EffectClass {
    EffectClass::declared("pay:1".parse().unwrap())
}

fn report(state: EffectReport) -> Option<ReportedEffect> {
    Some(ReportedEffect {
        state,
        receipt: json!({"id": 1}),
    })
}

fn ok() -> End {
    End::Returned(Returned::Value(json!({"status": "failed"})))
}

fn err(recoverable: bool) -> End {
    let error = ToolError::new("no_such_row", "not there");
    End::Failed(if recoverable {
        error.recoverable()
    } else {
        error
    })
}

/// Status, code, effect state, disposition.
fn line(result: &ToolResult) -> [String; 4] {
    let again = ToolResult::from_bytes(result.canonical_bytes()).unwrap();
    assert_eq!(&again, result);
    [
        result.status().to_string(),
        result.error_code().unwrap_or("-").to_owned(),
        result.effect_state().to_string(),
        result.retry_disposition().to_string(),
    ]
}

/// Name, class, event, stored report, and the line that it gives.
type EventRow = (
    &'static str,
    EffectClass,
    End,
    Option<ReportedEffect>,
    [&'static str; 4],
);

#[test]
fn res_7_to_res_15_each_event_gives_its_row() {
    use EffectReport::{Committed, Rejected};
    let severed = |worker_running| End::TimedOut { worker_running };
    let cancelled = |worker_running| End::Cancelled { worker_running };
    let panicked = || End::Panicked("boom".into());
    let rows: Vec<EventRow> = vec![
        // RES-8
        (
            "D ok",
            declared(),
            ok(),
            None,
            ["success", "-", "committed", "non_retryable"],
        ),
        (
            "U ok",
            EffectClass::Undeclared,
            ok(),
            None,
            ["success", "-", "no_effect_declared", "non_retryable"],
        ),
        (
            "P ok",
            EffectClass::Pure,
            ok(),
            None,
            ["success", "-", "no_effect_declared", "non_retryable"],
        ),
        (
            "D ok committed",
            declared(),
            ok(),
            report(Committed),
            ["success", "-", "committed", "non_retryable"],
        ),
        // RES-9
        (
            "D err",
            declared(),
            err(true),
            None,
            [
                "error",
                "no_such_row",
                "reconciliation_required",
                "requires_reconciliation",
            ],
        ),
        (
            "D err committed",
            declared(),
            err(true),
            report(Committed),
            ["error", "no_such_row", "committed", "non_retryable"],
        ),
        (
            "D err rejected",
            declared(),
            err(true),
            report(Rejected),
            ["error", "no_such_row", "rejected", "retryable"],
        ),
        (
            "D err rejected for good",
            declared(),
            err(false),
            report(Rejected),
            ["error", "no_such_row", "rejected", "non_retryable"],
        ),
        (
            "U err",
            EffectClass::Undeclared,
            err(true),
            None,
            [
                "error",
                "no_such_row",
                "no_effect_declared",
                "non_retryable",
            ],
        ),
        (
            "P err",
            EffectClass::Pure,
            err(true),
            None,
            ["error", "no_such_row", "no_effect_declared", "retryable"],
        ),
        (
            "P err for good",
            EffectClass::Pure,
            err(false),
            None,
            [
                "error",
                "no_such_row",
                "no_effect_declared",
                "non_retryable",
            ],
        ),
        // RES-10
        (
            "D deadline",
            declared(),
            severed(false),
            None,
            [
                "timed_out",
                "timeout",
                "reconciliation_required",
                "requires_reconciliation",
            ],
        ),
        (
            "U deadline",
            EffectClass::Undeclared,
            severed(false),
            None,
            ["timed_out", "timeout", "unknown", "requires_reconciliation"],
        ),
        (
            "P deadline",
            EffectClass::Pure,
            severed(false),
            None,
            [
                "timed_out",
                "timeout",
                "no_effect_declared",
                "non_retryable",
            ],
        ),
        // RES-11
        (
            "D runs on",
            declared(),
            severed(true),
            None,
            ["timed_out", "timeout", "unknown", "blocked_worker_running"],
        ),
        (
            "U runs on",
            EffectClass::Undeclared,
            cancelled(true),
            None,
            [
                "cancelled",
                "cancelled",
                "unknown",
                "blocked_worker_running",
            ],
        ),
        (
            "P runs on",
            EffectClass::Pure,
            cancelled(true),
            None,
            [
                "cancelled",
                "cancelled",
                "no_effect_declared",
                "blocked_worker_running",
            ],
        ),
        // RES-12
        (
            "D panic",
            declared(),
            panicked(),
            None,
            [
                "error",
                "tool_panicked",
                "reconciliation_required",
                "requires_reconciliation",
            ],
        ),
        (
            "U panic",
            EffectClass::Undeclared,
            panicked(),
            None,
            [
                "error",
                "tool_panicked",
                "unknown",
                "requires_reconciliation",
            ],
        ),
        (
            "P panic",
            EffectClass::Pure,
            panicked(),
            None,
            [
                "error",
                "tool_panicked",
                "no_effect_declared",
                "non_retryable",
            ],
        ),
        // RES-13
        (
            "D cancel",
            declared(),
            cancelled(false),
            None,
            [
                "cancelled",
                "cancelled",
                "reconciliation_required",
                "requires_reconciliation",
            ],
        ),
        (
            "U cancel",
            EffectClass::Undeclared,
            cancelled(false),
            None,
            [
                "cancelled",
                "cancelled",
                "unknown",
                "requires_reconciliation",
            ],
        ),
        (
            "P cancel",
            EffectClass::Pure,
            cancelled(false),
            None,
            [
                "cancelled",
                "cancelled",
                "no_effect_declared",
                "non_retryable",
            ],
        ),
        // RES-14
        (
            "D lost",
            declared(),
            End::Lost(LostKind::Transport),
            None,
            [
                "error",
                "transport_lost",
                "reconciliation_required",
                "requires_reconciliation",
            ],
        ),
        (
            "U lost",
            EffectClass::Undeclared,
            End::Lost(LostKind::Process),
            None,
            [
                "error",
                "process_lost",
                "unknown",
                "requires_reconciliation",
            ],
        ),
        (
            "P lost",
            EffectClass::Pure,
            End::Lost(LostKind::Worker),
            None,
            ["error", "missing_worker", "no_effect_declared", "retryable"],
        ),
        // RES-15
        (
            "D deadline committed",
            declared(),
            severed(false),
            report(Committed),
            ["timed_out", "timeout", "committed", "non_retryable"],
        ),
        (
            "D deadline rejected",
            declared(),
            severed(false),
            report(Rejected),
            ["timed_out", "timeout", "rejected", "non_retryable"],
        ),
        (
            "D runs on committed",
            declared(),
            severed(true),
            report(Committed),
            [
                "timed_out",
                "timeout",
                "committed",
                "blocked_worker_running",
            ],
        ),
        (
            "D runs on rejected",
            declared(),
            severed(true),
            report(Rejected),
            ["timed_out", "timeout", "unknown", "blocked_worker_running"],
        ),
        (
            "U lost committed",
            EffectClass::Undeclared,
            End::Lost(LostKind::Worker),
            report(Committed),
            ["error", "missing_worker", "committed", "non_retryable"],
        ),
        (
            "D panic committed",
            declared(),
            panicked(),
            report(Committed),
            ["error", "tool_panicked", "committed", "non_retryable"],
        ),
        (
            "D ok rejected",
            declared(),
            ok(),
            report(Rejected),
            ["error", "contradictory_effect", "rejected", "non_retryable"],
        ),
        (
            "U ok rejected",
            EffectClass::Undeclared,
            ok(),
            report(Rejected),
            ["error", "contradictory_effect", "rejected", "non_retryable"],
        ),
    ];
    for (name, class, end, reported, expected) in rows {
        let reported_at_all = reported.is_some();
        let result = ToolResult::ended(identity(), &class, end, reported, attempt());
        assert_eq!(line(&result), expected, "{name}");
        assert_eq!(result.attempts(), 1);
        assert_eq!(result.owner_generation(), Some(3));
        assert_eq!(result.action_id(), Some("call_7"));
        assert_eq!(
            result.provenance().contains_key("effect_report"),
            reported_at_all
        );
        if result.effect_state() == EffectState::Unknown {
            assert!(result.reconciliation_required(), "{name}");
        }
    }
}

#[test]
fn res_7_a_refused_call_never_started() {
    let refusal = |status, recoverable| Refusal {
        status,
        kind: ErrorKind::Execution,
        code: "invalid_argument_type".into(),
        message: "argument /path: expected a string".into(),
        recoverable,
        hint: Some("send a string".into()),
        metadata: Map::from_iter([("validation".to_owned(), json!([]))]),
    };
    let refused = |status, recoverable, class: &EffectClass| {
        let result = ToolResult::refused(identity(), refusal(status, recoverable), class);
        assert_eq!(result.attempts(), 0);
        assert!(result.metadata().contains_key("validation"));
        line(&result)
    };
    let code = "invalid_argument_type";
    assert_eq!(
        refused(RefusalStatus::Error, true, &declared()),
        ["error", code, "not_started", "retryable"]
    );
    assert_eq!(
        refused(RefusalStatus::Skipped, false, &declared()),
        ["skipped", code, "not_started", "non_retryable"]
    );
    for class in [EffectClass::Undeclared, EffectClass::Pure] {
        assert_eq!(
            refused(RefusalStatus::Skipped, false, &class),
            ["skipped", code, "no_effect_declared", "non_retryable"]
        );
    }
    let unstarted = ToolResult::cancelled_unstarted(identity(), "fail_fast", &declared());
    assert_eq!(
        line(&unstarted),
        ["cancelled", "cancelled", "not_started", "not_evaluated"]
    );
    assert_eq!(unstarted.provenance()["cancel_source"], "fail_fast");
    let unnamed = Refusal {
        code: "Not A Code".into(),
        ..refusal(RefusalStatus::Error, false)
    };
    let result = ToolResult::refused(identity(), unnamed, &EffectClass::Pure);
    assert_eq!(result.error_code(), Some("tool_failed"));
}

#[test]
fn tol_11_a_status_word_in_the_output_changes_nothing() {
    let result = ToolResult::ended(identity(), &EffectClass::Pure, ok(), None, attempt());
    assert!(result.success_flag());
    assert_eq!(result.output(), &json!({"status": "failed"}));
}

#[test]
fn res_6_a_tools_own_result_keeps_its_words_and_gets_identity_and_effect() {
    let adopt = |own: ToolResult, class: &EffectClass, reported| {
        let end = End::Returned(Returned::Result(Box::new(own)));
        ToolResult::ended(identity(), class, end, reported, attempt())
    };
    let own = ToolResult::success(json!({"rows": 2}))
        .unwrap()
        .with_model_output(json!("two rows"))
        .unwrap()
        .with_omitted("rows", 3);
    let result = adopt(own, &declared(), None);
    assert_eq!(
        line(&result),
        ["success", "-", "committed", "non_retryable"]
    );
    assert_eq!(result.model_output(), &json!("two rows"));
    assert_eq!(result.omitted()["rows"], 3);
    assert_eq!(result.tool_name(), Some("shell"));
    assert_eq!(result.attempt_id(), Some(&attempt_id()));

    let failure = ToolResult::failure(ErrorKind::Policy, "quota", "no more today")
        .with_recovery(true, Some("wait"));
    let result = adopt(failure.clone(), &EffectClass::Pure, None);
    assert_eq!(
        line(&result),
        ["error", "quota", "no_effect_declared", "retryable"]
    );
    assert_eq!(result.error_kind(), Some(ErrorKind::Policy));
    let result = adopt(failure.clone(), &EffectClass::Undeclared, None);
    assert_eq!(line(&result)[3], "non_retryable");
    let result = adopt(failure, &declared(), report(EffectReport::Rejected));
    assert_eq!(line(&result), ["error", "quota", "rejected", "retryable"]);

    let success = ToolResult::success(json!(1)).unwrap();
    let result = adopt(success, &declared(), report(EffectReport::Rejected));
    assert_eq!(line(&result)[1], "contradictory_effect");

    // A skipped result of a tool that was entered contradicts itself.
    let refusal = Refusal {
        status: RefusalStatus::Skipped,
        kind: ErrorKind::Policy,
        code: "denied".into(),
        message: String::new(),
        recoverable: false,
        hint: None,
        metadata: Map::new(),
    };
    let skipped = ToolResult::refused(identity(), refusal, &EffectClass::Pure);
    let result = adopt(skipped, &EffectClass::Pure, None);
    assert_eq!(line(&result)[1], "contradictory_outcome");

    // RES-5: an outcome that a nested call left unknown stays unknown, whatever the class.
    let nested = ToolResult::ended(
        identity(),
        &EffectClass::Undeclared,
        End::TimedOut {
            worker_running: false,
        },
        None,
        attempt(),
    );
    for class in [EffectClass::Pure, EffectClass::Undeclared, declared()] {
        assert!(adopt(nested.clone(), &class, None).outcome_unknown());
    }
}

#[test]
fn res_6_a_value_that_cannot_be_written_is_an_error_and_its_effect_happened() {
    let mut deep = json!(1);
    for _ in 0..=VALUE_DEPTH {
        deep = json!([deep]);
    }
    let end = End::Returned(Returned::Value(deep));
    let result = ToolResult::ended(identity(), &declared(), end, None, attempt());
    assert_eq!(
        line(&result),
        [
            "error",
            "non_serializable_value",
            "committed",
            "non_retryable"
        ]
    );
}

#[test]
fn tol_8_a_deduplicated_result_keeps_attempts_and_names_its_source() {
    let first = ToolResult::ended(identity(), &declared(), ok(), None, attempt());
    let other = ResultIdentity {
        call_id: "call_9".parse().unwrap(),
        owner_generation: 4,
        ..identity()
    };
    let copy = first.deduplicated(other);
    assert_eq!(copy.provenance()["deduplicated_from"], "call_7");
    assert_eq!((copy.action_id(), copy.attempts()), (Some("call_9"), 1));
    assert_eq!(line(&copy), line(&first));
}

#[test]
fn prj_1_large_deep_and_wide_outputs_must_leave_the_log() {
    let must = |value| ToolResult::success(value).unwrap().must_spill_output();
    let text = |length: usize| Value::from("x".repeat(length));
    let limit = crate::limits::INLINE_OUTPUT_BYTES;
    // A string costs its quotes too.
    assert!(!must(text(limit - 3)));
    assert!(!must(text(limit - 2)));
    assert!(must(text(limit - 1)));
    assert!(must(json!(vec![0; log_form::INLINE_NODES])));
    assert!(!must(json!(vec![0; log_form::INLINE_NODES - 1])));
    let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
    assert!(!must(nested(log_form::INLINE_DEPTH)));
    assert!(must(nested(log_form::INLINE_DEPTH + 1)));
}

#[test]
fn res_12_the_text_of_a_panic_is_cut_between_characters() {
    let end = End::Panicked("é".repeat(3_000));
    let result = ToolResult::ended(identity(), &EffectClass::Pure, end, None, attempt());
    let text = result.error().unwrap();
    assert!(text.len() < 2_100 && text.ends_with('é'));
}
