//! Section 10: the process dies at every commit, and runs of everything at random.

use std::collections::BTreeMap;

use qitos_contracts::log::ItemBody;
use qitos_contracts::model::RequestSent;
use qitos_contracts::tool::result::{EffectState, End};
use qitos_contracts::tool::{Reconciled, ToolError};

use super::bench::*;
use crate::machine::state::{CancelMode, Phase};
use crate::machine::*;

/// Brings a run to its end: what is out comes back, newest first.
fn finish(bench: &mut Bench, reconciled: Reconciled) {
    for _ in 0..200 {
        if bench.dead || bench.machine.ended().is_some() && bench.running().is_empty() {
            return;
        }
        if let Some(slot) = bench.out.reconcile.pop() {
            bench.give(Input::Reconciled {
                slot,
                answer: reconciled,
            });
        } else if let Some((slot, attempt)) = bench.out.retries.pop() {
            bench.give(Input::RetryDue { slot, attempt });
        } else if bench.out.sleeps > 0 {
            bench.out.sleeps -= 1;
            bench.give(Input::Woke);
        } else if let Some(slot) = bench.running().last().copied() {
            bench.end(slot, ok());
        } else if !bench.out.requests.is_empty() {
            // The answer follows from the log, as a model's does.
            let turn = bench
                .log()
                .iter()
                .filter(|word| *word == "assistant")
                .count();
            let outcome = match turn {
                0 => calls(0, &["read", "write", "pay", "ask", "keyed"]),
                1 => calls(1, &["read"]),
                _ => done(),
            };
            bench.respond(outcome);
        } else {
            panic!(
                "nothing is out and the run goes on: {:?}",
                bench.machine.durable().phase
            );
        }
    }
    panic!("the run does not end");
}

fn entered(bench: &Bench, index: u32) -> u32 {
    let slots = bench.entered.iter();
    slots
        .filter(|(slot, _)| slot.ends_with(&format!(":{index}")))
        .map(|(_, times)| *times)
        .max()
        .unwrap_or(0)
}

#[test]
fn whichever_commit_the_process_dies_at_no_effect_happens_twice_and_none_is_hidden() {
    // DUR-1 to DUR-10, LOG-13, TOL-7
    for policy in [EnginePolicy::default(), parallel()] {
        for reconciled in [Reconciled::Committed, Reconciled::Unknown] {
            for counts in [false, true] {
                let mut number = 1;
                loop {
                    let mut bench = Bench::new(policy.clone(), wide());
                    bench.death = Some((bench.commits + number, counts));
                    finish(&mut bench, reconciled);
                    let died = bench.dead;
                    if died {
                        bench.resume();
                        finish(&mut bench, reconciled);
                    }
                    let named = format!("{:?} {reconciled:?} {counts} {number}", policy.mode);
                    survived(&bench, reconciled, &named);
                    if !died {
                        assert!(number > 3, "{named}");
                        break;
                    }
                    number += 1;
                }
            }
        }
    }
}

fn survived(bench: &Bench, reconciled: Reconciled, named: &str) {
    assert_eq!(bench.stop_reason(), "final", "{named}");
    for (index, allowed) in [(0, 2), (1, 1), (2, 1), (3, 1), (4, 2)] {
        assert!(entered(bench, index) <= allowed, "{named}: slot {index}");
    }
    let results = bench.results();
    assert_eq!(results.len(), 6, "{named}");
    for (call, result) in &results {
        let lost = match ending(result).as_str() {
            "success" => continue,
            "error/process_lost" => result,
            other => panic!("{named}: {call} ended as {other}"),
        };
        let expected = match (call.as_str(), reconciled) {
            ("c0-1", _) => EffectState::Unknown,
            ("c0-3", Reconciled::Committed) => EffectState::Committed,
            ("c0-2" | "c0-3", _) => EffectState::ReconciliationRequired,
            _ => panic!("{named}: {call} may be repeated and was given up"),
        };
        assert_eq!(lost.effect_state(), expected, "{named}: {call}");
    }
    // DUR-2: at most the one request that was out is asked again.
    assert!(bench.sent <= 4, "{named}: {} requests", bench.sent);
}

#[test]
fn a_stored_result_keeps_its_place_and_is_not_run_again() {
    // DUR-9
    let mut bench = Bench::new(parallel(), wide());
    bench.respond(calls(0, &["read", "read", "read"]));
    bench.end(2, ok());
    bench.resume();
    assert_eq!(bench.running(), [0, 1]);
    bench.end(1, ok()).end(0, ok());
    assert_eq!(
        bench.log()[2..5],
        ["c0-2=success", "c0-1=success", "c0-0=success"]
    );
    assert_eq!(entered(&bench, 2), 1);
}

#[test]
fn a_lost_effect_that_its_backend_rejected_is_dispatched_again() {
    // DUR-6, RES-19
    let mut bench = Bench::new(EnginePolicy::default(), wide());
    bench.respond(calls(0, &["ask"]));
    bench.resume();
    assert_eq!(bench.out.reconcile, [0]);
    bench.give(Input::Reconciled {
        slot: 0,
        answer: Reconciled::Rejected,
    });
    assert_eq!(bench.running(), [0]);
    bench.end(0, ok());
    assert_eq!(bench.ending_of("c0-0"), "success");
}

#[test]
fn a_recovery_that_is_interrupted_is_the_same_recovery() {
    // LOG-13
    let mut bench = Bench::new(parallel(), wide());
    bench.respond(calls(0, &["write", "read"]));
    bench.resume().resume().resume();
    assert_eq!(bench.ending_of("c0-0"), "error/process_lost");
    finish(&mut bench, Reconciled::Unknown);
    assert_eq!(bench.results().len(), 3);
    assert_eq!(entered(&bench, 0), 1);
}

#[test]
fn a_cancel_is_finished_after_a_death() {
    // DUR-12: unstarted calls are cancelled, started ones end by their own row, also those that are asked about.
    for tool in ["read", "write", "pay", "ask", "keyed"] {
        let mut bench = Bench::new(EnginePolicy::default(), wide());
        bench.respond(calls(0, &[tool, "read"]));
        bench.give(Input::Cancel(CancelMode::Immediate));
        bench.resume();
        finish(&mut bench, Reconciled::Unknown);
        assert_eq!(bench.stop_reason(), "cancelled_immediate", "{tool}");
        assert_eq!(bench.ending_of("c0-1"), "cancelled/cancelled", "{tool}");
        assert_eq!(bench.results().len(), 2, "{tool}");
        assert_eq!(bench.sent, 1, "{tool}");
    }
}

/// Small and repeatable; the seed is in every failure.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const NAMES: [&str; 8] = [
    "read", "write", "pay", "ask", "keyed", "retry", "alone", "nobody",
];

fn some_end(dice: &mut Dice) -> End {
    match dice.roll(6) {
        0 => End::Failed(ToolError::new("again", "x").recoverable()),
        1 => End::TimedOut {
            worker_running: dice.roll(2) == 0,
        },
        2 => End::Panicked("x".into()),
        _ => ok(),
    }
}

fn some_answer(dice: &mut Dice, turn: u64) -> ResponseOutcome {
    match dice.roll(10) {
        0 => failed(true, false, RequestSent::Yes),
        1 => text("…", Plan::Paused),
        2 => answer(Vec::new(), Plan::Empty),
        3 => answer(vec![call(&format!("c{turn}-0"), "read")], Plan::Incomplete),
        _ => {
            let names: Vec<&str> = (0..=dice.roll(4))
                .map(|_| NAMES[dice.roll(8) as usize])
                .collect();
            calls(turn, &names)
        }
    }
}

fn random_run(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let policy = EnginePolicy {
        fail_fast: [FailFast::Off, FailFast::Execution, FailFast::Any][dice.roll(3) as usize],
        loop_max_repeats: 0,
        max_recoveries: 100,
        max_repairs: 100,
        max_concurrency: 1 + dice.roll(4) as u32,
        ..if dice.roll(2) == 0 {
            parallel()
        } else {
            EnginePolicy::default()
        }
    };
    let mut bench = Bench::new(policy, wide());
    let mut crashes = 0;
    for turn in 0..120 {
        if bench.machine.ended().is_some() {
            break;
        }
        let slot = dice.roll(6) as u32;
        match dice.roll(24) {
            0 => drop(bench.steer("x")),
            1 => {
                crashes += 1;
                bench.resume();
            }
            2 if dice.roll(8) == 0 => drop(bench.give(Input::Cancel(CancelMode::Immediate))),
            3 if dice.roll(8) == 0 => drop(bench.give(Input::Pause)),
            4 => {
                // What nobody waits for: stale attempts, ordinals, timers, answers.
                let attempt = "attempt_00112233445566778899aabbccddeeff".parse().unwrap();
                let stale = match dice.roll(4) {
                    0 => ended(slot, &attempt, ok()),
                    1 => Input::RetryDue { slot, attempt },
                    2 => Input::Woke,
                    _ => Input::Responded {
                        ordinal: 10_000,
                        outcome: Box::new(done()),
                    },
                };
                // A wait that nobody started may not be ended by chance.
                if bench.out.sleeps == 0 {
                    bench.give(stale);
                }
            }
            _ => {
                if let Some(slot) = bench.out.reconcile.pop() {
                    let answer =
                        [Reconciled::Committed, Reconciled::Unknown][dice.roll(2) as usize];
                    bench.give(Input::Reconciled { slot, answer });
                } else if let Some((slot, attempt)) = bench.out.retries.pop() {
                    bench.give(Input::RetryDue { slot, attempt });
                } else if bench.out.sleeps > 0 {
                    bench.out.sleeps -= 1;
                    bench.give(Input::Woke);
                } else if !bench.running().is_empty() {
                    let running = bench.running();
                    let slot = running[dice.roll(running.len() as u64) as usize];
                    bench.end(slot, some_end(&mut dice));
                } else if !bench.out.requests.is_empty() {
                    bench.respond(some_answer(&mut dice, turn));
                }
            }
        }
    }
    for _ in 0..400 {
        if bench.machine.ended().is_some() && bench.running().is_empty() {
            break;
        }
        if let Some(slot) = bench.out.reconcile.pop() {
            let answer = Reconciled::Unknown;
            bench.give(Input::Reconciled { slot, answer });
        } else if let Some((slot, attempt)) = bench.out.retries.pop() {
            bench.give(Input::RetryDue { slot, attempt });
        } else if bench.out.sleeps > 0 {
            bench.out.sleeps -= 1;
            bench.give(Input::Woke);
        } else if let Some(slot) = bench.running().first().copied() {
            bench.end(slot, ok());
        } else if !bench.out.requests.is_empty() {
            bench.respond(done());
        } else {
            panic!("seed {seed}: stuck in {:?}", bench.machine.durable().phase);
        }
    }
    assert!(bench.machine.ended().is_some(), "seed {seed}: no end");
    one_terminal_each(&bench, seed);
    let mut declared: BTreeMap<String, String> = BTreeMap::new();
    for item in bench.machine.durable().log.items().iter() {
        if let ItemBody::Assistant(assistant) = &item.item().body {
            for (index, call) in assistant.calls().enumerate() {
                declared.insert(format!("{}:{index}", call.batch_id), call.name.to_string());
            }
        }
    }
    for (slot, times) in &bench.entered {
        let allowed = match declared[slot].as_str() {
            "write" | "pay" | "ask" => 1,
            "retry" => 4,
            _ => 2,
        };
        assert!(
            *times <= allowed,
            "seed {seed}: {} entered {times} times after {crashes} deaths",
            declared[slot]
        );
    }
}

fn one_terminal_each(bench: &Bench, seed: u64) {
    // LOG-5, EXE-15; `results` refuses a second terminal.
    let results = bench.results();
    let mut calls = 0;
    for item in bench.machine.durable().log.items().iter() {
        if let ItemBody::Assistant(assistant) = &item.item().body {
            for call in assistant.calls() {
                calls += 1;
                assert!(
                    results.contains_key(call.call_id.as_str()),
                    "seed {seed}: {} has no terminal",
                    call.call_id
                );
            }
        }
    }
    assert_eq!(results.len(), calls, "seed {seed}");
    assert!(
        !matches!(bench.machine.durable().phase, Phase::Asked(_)),
        "seed {seed}: the run ended with a request out"
    );
}

#[test]
fn however_inputs_come_every_call_has_one_terminal_and_no_effect_happens_more_often_than_allowed() {
    // EXE-15, LOG-5, LOG-6, DUR-5 to DUR-9
    for seed in 1..=60 {
        random_run(seed);
    }
}
