//! What each event makes of a call.

use super::*;

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

/// The rows of RES-8 to RES-15: class (Declared, Undeclared, Pure), event, stored report; then what it gives.
const EVENTS: &str = "
D ok             -         success   -                    committed               non_retryable
D ok             committed success   -                    committed               non_retryable
U ok             -         success   -                    no_effect_declared      non_retryable
P ok             -         success   -                    no_effect_declared      non_retryable
D err            -         error     no_such_row          reconciliation_required requires_reconciliation
D err            committed error     no_such_row          committed               non_retryable
D err_again      rejected  error     no_such_row          rejected                retryable
D err            rejected  error     no_such_row          rejected                non_retryable
U err_again      -         error     no_such_row          no_effect_declared      non_retryable
P err_again      -         error     no_such_row          no_effect_declared      retryable
P err            -         error     no_such_row          no_effect_declared      non_retryable
D deadline       -         timed_out timeout              reconciliation_required requires_reconciliation
U deadline       -         timed_out timeout              unknown                 requires_reconciliation
P deadline       -         timed_out timeout              no_effect_declared      non_retryable
D deadline_runs  -         timed_out timeout              unknown                 blocked_worker_running
U deadline_runs  -         timed_out timeout              unknown                 blocked_worker_running
P deadline_runs  -         timed_out timeout              no_effect_declared      blocked_worker_running
D cancel_runs    -         cancelled cancelled            unknown                 blocked_worker_running
U cancel_runs    -         cancelled cancelled            unknown                 blocked_worker_running
P cancel_runs    -         cancelled cancelled            no_effect_declared      blocked_worker_running
D panic          -         error     tool_panicked        reconciliation_required requires_reconciliation
U panic          -         error     tool_panicked        unknown                 requires_reconciliation
P panic          -         error     tool_panicked        no_effect_declared      non_retryable
D cancel         -         cancelled cancelled            reconciliation_required requires_reconciliation
D cancel         committed cancelled cancelled            committed               non_retryable
U cancel         -         cancelled cancelled            unknown                 requires_reconciliation
P cancel         -         cancelled cancelled            no_effect_declared      non_retryable
D transport      -         error     transport_lost       reconciliation_required requires_reconciliation
U process        -         error     process_lost         unknown                 requires_reconciliation
P worker         -         error     missing_worker       no_effect_declared      retryable
D deadline       committed timed_out timeout              committed               non_retryable
D deadline       rejected  timed_out timeout              rejected                non_retryable
D deadline_runs  committed timed_out timeout              committed               blocked_worker_running
D deadline_runs  rejected  timed_out timeout              unknown                 blocked_worker_running
U worker         committed error     missing_worker       committed               non_retryable
D panic          committed error     tool_panicked        committed               non_retryable
P deadline       committed timed_out timeout              no_effect_declared      non_retryable
D ok             rejected  error     contradictory_effect rejected                non_retryable
U ok             rejected  error     contradictory_effect rejected                non_retryable
";

fn event(name: &str) -> End {
    match name {
        "ok" => ok(),
        "err" => err(false),
        "err_again" => err(true),
        "deadline" | "deadline_runs" => End::TimedOut {
            worker_running: name == "deadline_runs",
        },
        "cancel" | "cancel_runs" => End::Cancelled {
            worker_running: name == "cancel_runs",
        },
        "panic" => End::Panicked("boom".into()),
        "transport" => End::Lost(LostKind::Transport),
        "process" => End::Lost(LostKind::Process),
        "worker" => End::Lost(LostKind::Worker),
        _ => panic!("no event {name}"),
    }
}

#[test]
fn res_7_to_res_15_each_event_gives_its_row() {
    for row in EVENTS.lines().filter(|row| !row.is_empty()) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let class = match words[0] {
            "D" => declared(),
            "U" => EffectClass::Undeclared,
            _ => EffectClass::Pure,
        };
        let reported = match words[2] {
            "committed" => report(EffectReport::Committed),
            "rejected" => report(EffectReport::Rejected),
            _ => None,
        };
        let reported_at_all = reported.is_some();
        let result = ToolResult::ended(identity(), &class, event(words[1]), reported, attempt());
        assert_eq!(line(&result), words[3..7], "{row}");
        assert_eq!(result.attempts(), 1);
        assert_eq!(result.owner_generation(), Some(3));
        assert_eq!(result.action_id(), Some("call_7"));
        assert_eq!(
            result.provenance().contains_key("effect_report"),
            reported_at_all
        );
        if result.effect_state() == EffectState::Unknown {
            assert!(result.reconciliation_required(), "{row}");
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

#[test]
fn prj_5_an_output_that_no_log_item_can_hold_is_counted_when_the_store_refused_it() {
    let limit = log_form::REFUSED_OUTPUT_BYTES;
    let refused = |length: usize| {
        let output = Value::from("x".repeat(length));
        let result = ToolResult::success(output).unwrap();
        line(&result);
        result.without_refused_output()
    };
    for length in [limit - 3, limit - 2] {
        assert_eq!(refused(length).output().as_str().unwrap().len(), length);
    }
    let gone = refused(limit - 1);
    assert!(gone.output().is_null() && !gone.complete() && gone.truncated());
    assert_eq!(gone.omitted()["output_bytes"], limit as u64 + 1);
}
