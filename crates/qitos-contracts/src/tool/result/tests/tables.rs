//! The tables of section 4, read a second time.

use super::*;

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
