//! Main rules, one by one.

use qitos_contracts::decision::{ParseCode, ParseDiagnostics, Severity};
use qitos_contracts::model::RequestSent;
use qitos_contracts::snapshot::Lifecycle;
use qitos_contracts::tool::result::{EffectState, End, ReportedEffect};
use qitos_contracts::tool::{EffectReport, Returned, ToolError};
use serde_json::json;

use super::bench::*;
use crate::machine::state::{CancelMode, SlotState};
use crate::machine::*;

fn again() -> End {
    End::Failed(ToolError::new("again", "not yet").recoverable())
}

fn acting(policy: EnginePolicy, names: &[&str]) -> Bench {
    let mut bench = Bench::new(policy, wide());
    bench.respond(calls(0, names));
    bench
}

#[test]
fn a_read_only_step_costs_two_commits_and_an_effectful_one_three() {
    // Section 8: [D2 + batch + D3] · [D4 + D5 + next D1], and [D4] alone before user code sees it
    for (tool, cost) in [("read", 2), ("write", 3), ("pay", 3)] {
        let mut bench = Bench::new(EnginePolicy::default(), wide());
        let before = bench.commits;
        bench.respond(calls(0, &[tool])).end(0, ok());
        assert_eq!(bench.out.requests.len(), 1, "{tool}");
        assert_eq!(bench.commits - before, cost, "{tool}");
        let before = bench.commits;
        bench.respond(done());
        assert_eq!((bench.commits - before, bench.stop_reason()), (1, "final"));
    }
}

#[test]
fn eight_reads_that_end_one_by_one_cost_nine_commits() {
    // Section 8, n parallel tools
    let policy = EnginePolicy {
        max_concurrency: 8,
        ..parallel()
    };
    let mut bench = Bench::new(policy, wide());
    let before = bench.commits;
    bench.respond(calls(0, &["read"; 8]));
    for slot in (0..8).rev() {
        bench.end(slot, ok());
    }
    assert_eq!(bench.commits - before, 9);
    // EXE-4, LOG-4: completion order is kept.
    assert_eq!(bench.log()[2..4], ["c0-7=success", "c0-6=success"]);
}

#[test]
fn serial_mode_runs_one_by_one_and_barriers_cut_a_parallel_batch() {
    // EXE-2, EXE-3
    let mut serial = acting(EnginePolicy::default(), &["read", "read"]);
    assert_eq!(serial.running(), [0]);
    serial.end(0, ok());
    assert_eq!(serial.running(), [1]);

    let mut bench = acting(parallel(), &["read", "read", "alone", "read"]);
    assert_eq!(bench.running(), [0, 1]);
    bench.end(1, ok());
    assert_eq!(bench.running(), [0]);
    bench.end(0, ok());
    assert_eq!(bench.running(), [2]);
    bench.end(2, ok());
    assert_eq!(bench.running(), [3]);

    let two = EnginePolicy {
        max_concurrency: 2,
        ..parallel()
    };
    let mut bounded = acting(two, &["read", "read", "read"]);
    assert_eq!(bounded.running(), [0, 1]);
    bounded.end(0, ok());
    assert_eq!(bounded.running(), [1, 2]);
}

#[test]
fn calls_with_one_effect_or_one_key_never_overlap() {
    // EXE-2: what both declare keeps them apart, not their names, and others go on beside them.
    for (first, second) in [("upsert", "upsert"), ("insert", "replace")] {
        let mut bench = acting(parallel(), &[first, "read", second]);
        assert_eq!(bench.running(), [0, 1], "{first} {second}");
        bench.end(1, ok());
        assert_eq!(bench.running(), [0], "{first} {second}");
        bench.end(0, ok());
        assert_eq!(bench.running(), [2], "{first} {second}");
    }
    let apart = acting(parallel(), &["upsert", "insert"]);
    assert_eq!(apart.running(), [0, 1]);
}

#[test]
fn a_failing_sibling_changes_nothing_unless_fail_fast_says_so() {
    // EXE-5, EXE-6
    let mut off = acting(EnginePolicy::default(), &["read", "read"]);
    off.end(0, End::Panicked("no".into())).end(1, ok());
    assert_eq!(off.ending_of("c0-0"), "error/tool_panicked");
    assert_eq!(off.ending_of("c0-1"), "success");

    let fast = |fail_fast| EnginePolicy {
        fail_fast,
        ..EnginePolicy::default()
    };
    let mut semantic = acting(fast(FailFast::Execution), &["read", "read"]);
    semantic.end(0, End::Failed(ToolError::new("no", "no")));
    assert_eq!(semantic.running(), [1]);
    let mut execution = acting(fast(FailFast::Execution), &["read", "read"]);
    execution.end(
        0,
        End::TimedOut {
            worker_running: false,
        },
    );
    let results = execution.results();
    let cancelled = &results["c0-1"];
    assert_eq!(
        (ending(cancelled).as_str(), cancelled.attempts()),
        ("cancelled/cancelled", 0)
    );
    assert_eq!(cancelled.provenance()["cancel_source"], "fail_fast");
}

#[test]
fn attempts_repeat_only_after_an_orderly_listed_error_of_a_repeatable_call() {
    // RES-16, RES-17
    let mut bench = acting(EnginePolicy::default(), &["retry"]);
    for _ in 0..2 {
        bench.end(0, again());
        let (slot, attempt) = bench.out.retries.pop().unwrap();
        assert!(bench.running().is_empty());
        bench.give(Input::RetryDue { slot, attempt });
        assert_eq!(bench.running(), [0]);
    }
    bench.end(0, again());
    assert_eq!(bench.results()["c0-0"].attempts(), 3);
    let unlisted = End::Failed(ToolError::new("other", "not listed").recoverable());
    let final_word = End::Failed(ToolError::new("again", "not recoverable"));
    for (tool, end) in [
        ("write", again()),
        ("retry", End::Panicked("x".into())),
        ("retry", unlisted),
        ("retry", final_word),
    ] {
        let mut once = acting(EnginePolicy::default(), &[tool]);
        once.end(0, end);
        assert_eq!(once.results()["c0-0"].attempts(), 1, "{tool}");
    }
}

#[test]
fn a_wait_that_outlives_its_slot_holds_up_nothing() {
    // EXE-6, RES-16: the timer of a closed slot must not block the next batch or wake the wrong attempt.
    let policy = EnginePolicy {
        fail_fast: FailFast::Execution,
        ..parallel()
    };
    let mut bench = acting(policy, &["retry", "read"]);
    bench.end(0, again()).end(1, End::Panicked("x".into()));
    assert_eq!(bench.ending_of("c0-0"), "cancelled/cancelled");
    let (slot, stale) = bench.out.retries.pop().unwrap();
    bench.respond(calls(1, &["retry"]));
    assert_eq!(bench.running(), [0]);
    bench.end(0, again());
    bench.give(Input::RetryDue {
        slot,
        attempt: stale,
    });
    assert!(bench.running().is_empty(), "a stale timer woke the slot");
}

#[test]
fn a_report_is_acknowledged_after_its_commit_and_belongs_to_its_attempt() {
    // RES-15
    let mut bench = acting(EnginePolicy::default(), &["pay"]);
    let attempt = bench.out.attempts[0].1.clone();
    let before = bench.commits;
    bench.give(Input::Reported {
        slot: 0,
        attempt: attempt.clone(),
        effect: ReportedEffect {
            state: EffectReport::Committed,
            receipt: json!({"id": 7}),
        },
    });
    assert_eq!(bench.commits - before, 1);
    assert!(bench.out.effects.contains(&Effect::Acknowledge { attempt }));
    bench.end(
        0,
        End::TimedOut {
            worker_running: false,
        },
    );
    let result = &bench.results()["c0-0"];
    assert_eq!(result.effect_state(), EffectState::Committed);
    assert!(!result.outcome_unknown());
}

#[test]
fn a_rejected_report_of_a_lost_attempt_does_not_speak_for_the_next() {
    // RES-15, DUR-5
    let mut bench = acting(EnginePolicy::default(), &["read"]);
    let attempt = bench.out.attempts[0].1.clone();
    bench.give(Input::Reported {
        slot: 0,
        attempt,
        effect: ReportedEffect {
            state: EffectReport::Rejected,
            receipt: json!(null),
        },
    });
    bench.resume();
    assert_eq!(bench.running(), [0]);
    assert!(bench.slots()[0].reported.is_none());
    bench.end(0, ok());
    let result = &bench.results()["c0-0"];
    assert_eq!((ending(result).as_str(), result.attempts()), ("success", 2));
    assert_eq!(result.effect_state(), EffectState::NoEffectDeclared);
}

#[test]
fn an_effect_that_was_rejected_may_be_tried_again_and_is_then_committed() {
    // RES-15, RES-17
    let mut bench = acting(EnginePolicy::default(), &["charge"]);
    let attempt = bench.out.attempts[0].1.clone();
    bench.give(Input::Reported {
        slot: 0,
        attempt,
        effect: ReportedEffect {
            state: EffectReport::Rejected,
            receipt: json!(null),
        },
    });
    bench.end(0, again());
    let (slot, attempt) = bench.out.retries.pop().unwrap();
    bench.give(Input::RetryDue { slot, attempt });
    bench.end(0, ok());
    let result = &bench.results()["c0-0"];
    assert_eq!((ending(result).as_str(), result.attempts()), ("success", 2));
    assert_eq!(result.effect_state(), EffectState::Committed);
}

#[test]
fn a_late_return_never_replaces_a_terminal_even_in_a_later_step() {
    // EXE-11
    let mut bench = acting(EnginePolicy::default(), &["read"]);
    let attempt = bench.out.attempts[0].1.clone();
    bench.end(
        0,
        End::TimedOut {
            worker_running: true,
        },
    );
    assert_eq!(bench.out.requests.len(), 1);
    bench.machine.step(
        ended(0, &attempt, End::Returned(Returned::Value(json!(null)))),
        now(),
    );
    let facts = bench.machine.take_delta().unwrap().facts;
    assert!(matches!(
        &facts[..],
        [Fact::LateResult {
            disposition: "late_terminal_rejected",
            ..
        }]
    ));
    bench.give(ended(0, &attempt, ok()));
    assert_eq!(bench.ending_of("c0-0"), "timed_out/timeout");
}

#[test]
fn a_result_that_the_log_cannot_hold_is_an_error_of_its_slot() {
    // RES-6, EXE-5
    let mut bench = acting(EnginePolicy::default(), &["pay", "read"]);
    let large = json!("x".repeat(9 * 1024 * 1024));
    bench.end(0, End::Returned(Returned::Value(large)));
    bench.end(1, ok());
    let result = &bench.results()["c0-0"];
    assert_eq!(ending(result), "error/size_limit_exceeded");
    assert_eq!(result.effect_state(), EffectState::Committed);
    assert_eq!(bench.stop_reason(), "running");
    assert!(value(result).is_null());
}

#[test]
fn a_logical_key_is_dispatched_once_also_within_one_batch() {
    // TOL-8
    let mut bench = acting(EnginePolicy::default(), &["invoice", "invoice"]);
    bench.end(0, ok());
    let copied = &bench.results()["c0-1"];
    assert_eq!(ending(copied), "success");
    assert_eq!(copied.provenance()["deduplicated_from"], "c0-0");
    bench.respond(calls(1, &["invoice"]));
    assert_eq!(bench.ending_of("c1-0"), "success");
    assert_eq!(bench.entered.values().sum::<u32>(), 1);

    let mut unknown = acting(EnginePolicy::default(), &["invoice"]);
    unknown.end(0, End::Panicked("x".into()));
    unknown.respond(calls(1, &["invoice"]));
    assert_eq!(unknown.ending_of("c1-0"), "error/effect_unresolved");
    assert_eq!(unknown.entered.values().sum::<u32>(), 1);
}

#[test]
fn the_fourth_equal_call_is_blocked_and_polling_is_not() {
    // ENG-22
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    for turn in 0..3 {
        bench.respond(calls(turn, &["read"])).end(0, ok());
    }
    bench.respond(calls(3, &["read"]));
    let result = &bench.results()["c3-0"];
    assert_eq!(ending(result), "error/tool_call_loop_detected");
    assert_eq!(result.attempts(), 0);
    let mut polling = Bench::new(EnginePolicy::default(), wide());
    for turn in 0..10 {
        polling.respond(calls(turn, &["read"]));
        polling.end(0, End::Returned(Returned::Value(json!(turn))));
        assert_eq!(polling.ending_of(&format!("c{turn}-0")), "success");
    }
}

#[test]
fn the_last_admissible_request_is_sent_and_the_next_never() {
    // ENG-12 at limit and limit + 1
    let budget = Budget {
        max_requests: Some(2),
        ..wide()
    };
    let mut bench = Bench::new(EnginePolicy::default(), budget);
    bench.respond(calls(0, &["read"])).end(0, ok());
    bench.respond(calls(1, &["read"])).end(0, ok());
    assert_eq!((bench.sent, bench.stop_reason()), (2, "budget_requests"));
    assert_eq!(bench.machine.durable().lifecycle, Lifecycle::Paused);
    for (limit, sent) in [(14, 0), (15, 1), (16, 1)] {
        let budget = Budget {
            max_tokens: Some(limit),
            ..wide()
        };
        let bench = Bench::new(EnginePolicy::default(), budget);
        assert_eq!(bench.sent, sent, "{limit}");
    }
}

#[test]
fn a_batch_over_the_call_budget_runs_none_of_its_calls() {
    // ENG-13 at limit - 1, limit, limit + 1
    for (count, runs) in [(1, true), (2, true), (3, false)] {
        let budget = Budget {
            max_tool_calls: Some(2),
            ..wide()
        };
        let mut bench = Bench::new(parallel(), budget);
        bench.respond(calls(0, &vec!["read"; count]));
        assert_eq!(!bench.running().is_empty(), runs, "{count}");
        if !runs {
            assert_eq!(bench.ending_of("c0-2"), "skipped/budget_tool_calls");
            assert_eq!(bench.stop_reason(), "budget_tool_calls");
        }
    }
}

#[test]
fn a_request_that_provably_did_not_leave_gives_its_reservation_back() {
    // ENG-12, ENG-15, decision 71
    for (sent, requests) in [
        (RequestSent::No, 0),
        (RequestSent::Maybe, 1),
        (RequestSent::Yes, 1),
    ] {
        let mut bench = Bench::new(EnginePolicy::default(), wide());
        bench.respond(failed(false, false, sent));
        let durable = bench.machine.durable();
        assert_eq!(durable.counters.requests, requests);
        assert_eq!(durable.counters.requests_reserved, 0);
        assert_eq!(
            (durable.lifecycle, bench.stop_reason()),
            (Lifecycle::Paused, "unrecoverable_error")
        );
    }
}

#[test]
fn three_recoveries_are_made_and_each_has_an_ordinal_of_its_own() {
    // ENG-15, ENG-17
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    for _ in 0..3 {
        bench.respond(failed(true, false, RequestSent::Yes));
        assert_eq!(bench.out.sleeps, 1);
        bench.out.sleeps = 0;
        bench.give(Input::Woke);
    }
    bench.respond(failed(true, false, RequestSent::Yes));
    assert_eq!(
        (bench.sent, bench.stop_reason()),
        (4, "unrecoverable_error")
    );
    assert_eq!(bench.machine.durable().counters.next_ordinal, 4);
}

#[test]
fn a_violated_stream_ends_the_run_unless_the_policy_retries() {
    // Decision 72
    let mut stop = Bench::new(EnginePolicy::default(), wide());
    stop.respond(failed(true, true, RequestSent::Yes));
    assert_eq!(stop.stop_reason(), "unrecoverable_error");
    let policy = EnginePolicy {
        provider_stream: StreamFailurePolicy::Retry,
        ..EnginePolicy::default()
    };
    let mut retry = Bench::new(policy, wide());
    retry.respond(failed(false, true, RequestSent::Yes));
    assert_eq!((retry.stop_reason(), retry.out.sleeps), ("running", 1));
}

fn unreadable() -> Plan {
    Plan::Repair(Box::new(ParseDiagnostics {
        code: ParseCode::NoDecision,
        severity: Severity::Error,
        summary: "nothing in it".into(),
        repair_instruction: "Say something.".into(),
        expected_shape: "a decision".into(),
        parser: "test".into(),
        protocol: "test".into(),
        attempts: Vec::new(),
    }))
}

#[test]
fn two_repairs_in_a_row_are_made_and_a_success_resets_the_count() {
    // TXT-7, TXT-8
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    for _ in 0..2 {
        bench.respond(text("?", unreadable()));
    }
    bench.respond(calls(0, &["read"])).end(0, ok());
    for _ in 0..2 {
        bench.respond(text("?", unreadable()));
    }
    assert_eq!(bench.stop_reason(), "running");
    bench.respond(text("?", unreadable()));
    assert_eq!(
        bench
            .machine
            .ended()
            .unwrap()
            .failure
            .as_ref()
            .unwrap()
            .error_code,
        "parse_failed"
    );
}

#[test]
fn a_turn_without_a_normal_end_runs_none_of_its_calls() {
    // TXT-9
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    bench.respond(answer(vec![call("c", "read")], Plan::Incomplete));
    assert_eq!(bench.ending_of("c"), "error/incomplete_model_turn");
    assert!(bench.entered.is_empty());
    let mut paused = Bench::new(EnginePolicy::default(), wide());
    for _ in 0..8 {
        paused.respond(text("…", Plan::Paused));
        assert_eq!(paused.stop_reason(), "running");
    }
    paused.respond(text("…", Plan::Paused));
    let end = paused.machine.ended().unwrap();
    assert_eq!(
        end.failure.as_ref().unwrap().error_code,
        "incomplete_model_turn"
    );
}

#[test]
fn steering_never_precedes_what_did_not_see_it() {
    // LOG-7
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    bench.steer("one").respond(calls(0, &["read"])).steer("two");
    assert_eq!(bench.log(), ["user", "assistant"]);
    bench.end(0, ok());
    assert_eq!(
        bench.log(),
        ["user", "assistant", "c0-0=success", "steering", "steering"]
    );
    assert!(bench.machine.durable().log.queue().is_empty());

    // It follows the last result also if nothing is asked any more.
    let budget = Budget {
        max_steps: 1,
        ..wide()
    };
    let mut last = Bench::new(EnginePolicy::default(), budget);
    last.respond(calls(0, &["read"])).steer("late").end(0, ok());
    assert_eq!(last.stop_reason(), "budget_steps");
    assert_eq!(
        last.log(),
        ["user", "assistant", "c0-0=success", "steering"]
    );
}

#[test]
fn queued_steering_goes_before_a_final_answer_as_long_as_the_budget_admits_it() {
    // Decision 63
    let mut goes_on = Bench::new(EnginePolicy::default(), wide());
    goes_on.steer("wait").respond(done());
    assert_eq!(goes_on.stop_reason(), "running");
    assert_eq!(goes_on.log(), ["user", "assistant", "steering"]);
    let budget = Budget {
        max_requests: Some(1),
        ..wide()
    };
    let mut ends = Bench::new(EnginePolicy::default(), budget);
    ends.steer("wait").respond(done());
    assert_eq!(ends.stop_reason(), "final");
    assert_eq!(ends.machine.durable().log.queue().len(), 1);
}

#[test]
fn a_cancel_closes_what_did_not_start_and_keeps_what_really_returned() {
    // EXE-15, EXE-18
    let mut bench = acting(EnginePolicy::default(), &["read", "read"]);
    bench.give(Input::Cancel(CancelMode::Immediate));
    assert_eq!(bench.out.stop, [0]);
    assert_eq!(bench.ending_of("c0-1"), "cancelled/cancelled");
    bench.end(0, ok());
    assert_eq!(bench.ending_of("c0-0"), "success");
    assert_eq!(bench.stop_reason(), "cancelled_immediate");

    let mut later = acting(EnginePolicy::default(), &["read", "read"]);
    later.give(Input::Cancel(CancelMode::AfterStep));
    later.end(0, ok()).end(1, ok());
    assert_eq!(later.stop_reason(), "cancelled_after_step");
    assert_eq!(later.ending_of("c0-1"), "success");
}

#[test]
fn a_cancel_before_or_during_a_request_sends_nothing_more() {
    // EXE-18, SES-66
    let mut first = Bench::new(EnginePolicy::default(), wide());
    first.give(Input::Cancel(CancelMode::Immediate));
    assert_eq!(
        (first.sent, first.stop_reason()),
        (1, "cancelled_immediate")
    );
    let mut machine = create(EnginePolicy::default(), wide());
    machine.cancel_first(CancelMode::Immediate);
    assert!(machine.step(Input::Start, now()).is_empty());
    assert_eq!(machine.durable().lifecycle, Lifecycle::Cancelled);
}

#[test]
fn a_withheld_effect_was_not_performed_and_is_taken_back() {
    // ENG-12, trajectory section 3
    let mut machine = create(EnginePolicy::default(), wide());
    machine.step(Input::Start, now());
    machine.step(Input::Decided(Ok(None)), now());
    let facts = ViewFacts {
        request_id: "request_0123456789abcdef01234567".parse().unwrap(),
        view_digest: qitos_contracts::digest::Digest::of(b"x"),
        first_item: 0,
        input_tokens: 1,
        output_tokens: 1,
    };
    let effects = machine.step(Input::Viewed(Ok(facts)), now());
    assert_eq!(effects, [Effect::Request { ordinal: 0 }]);
    machine.step(Input::Withheld(effects), now());
    let counters = &machine.durable().counters;
    assert_eq!(
        (
            counters.requests,
            counters.requests_reserved,
            counters.next_ordinal
        ),
        (0, 0, 1)
    );
    assert_eq!(machine.durable().lifecycle, Lifecycle::Paused);
}

#[test]
fn a_withheld_call_is_open_and_not_started_and_runs_once_when_the_run_goes_on() {
    // Trajectory section 3: `Withheld` takes the intent of a call back.
    let mut bench = acting(EnginePolicy::default(), &["write"]);
    let (slot, attempt) = bench.out.attempts.pop().unwrap();
    assert_eq!(bench.machine.durable().counters.tool_calls, 1);
    bench.give(Input::Withheld(vec![Effect::Dispatch { slot, attempt }]));
    assert_eq!(bench.stop_reason(), "trajectory_sink_failed");
    assert_eq!(bench.machine.durable().counters.tool_calls, 0);
    assert!(matches!(bench.slots()[0].state, SlotState::Ready(_)));
    bench.give(Input::Start);
    assert_eq!(bench.running(), [0]);
    bench.end(0, ok());
    assert_eq!(bench.results()["c0-0"].attempts(), 1);
    assert_eq!(bench.machine.durable().counters.tool_calls, 1);
}

#[test]
fn a_sink_that_fails_during_a_request_does_not_strand_the_next_run() {
    // Trajectory section 3: the session rests and goes on, also with the same handle.
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    bench.give(Input::Withheld(Vec::new()));
    assert_eq!(bench.stop_reason(), "trajectory_sink_failed");
    bench.out.requests.clear();
    bench.give(Input::Start);
    assert_eq!(bench.out.requests, [1]);
    assert_eq!(bench.machine.durable().counters.requests_reserved, 1);
}

#[test]
fn inputs_that_nobody_waits_for_change_nothing() {
    let mut bench = acting(EnginePolicy::default(), &["read"]);
    let before = bench.log();
    bench
        .give(Input::Woke)
        .give(Input::Decided(Ok(None)))
        .give(Input::Reduced(Ok(Reduction {
            state: Vec::new().into(),
            finish: Some("no".into()),
            should_stop: true,
        })))
        .give(Input::Responded {
            ordinal: 0,
            outcome: Box::new(done()),
        });
    assert_eq!((bench.log(), bench.stop_reason()), (before, "running"));
}
