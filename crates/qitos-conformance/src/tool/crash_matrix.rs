//! TCK-31, and the part of TCK-26 that needs a death: the process dies at every commit (section 10).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use qitos_contracts::tool::EffectKey;
use qitos_contracts::tool::result::{EffectState, TerminalStatus};

use super::bench_tool::{BenchTool, Ledger};
use super::effects::effect;
use super::expect::{closed_batch, ending, result, run};
use super::observation::Observation;
use super::scenario::{Fault, Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-31.crash_matrix",
            "killed before and after every commit: no effect more often than allowed, no unknown effect hidden",
            &[
                "DUR-1", "DUR-2", "DUR-3", "DUR-4", "DUR-5", "DUR-6", "DUR-7", "DUR-8", "DUR-9",
                "DUR-10", "TOL-7", "LOG-13",
            ],
            crash_matrix,
        )
        .needing(&[Need::Claim("kills")])
        .within(Duration::from_secs(300)),
    ]
}

/// More commits than a scenario can need, recovery included.
const COMMITS: u64 = 64;

const CALLS: [&str; 3] = ["read", "write", "pay"];

fn scenario(name: &str, ledger: &Ledger, parallel: bool) -> Result<Scenario, Failure> {
    let tools = vec![
        BenchTool::quick("read", ledger).shared(),
        BenchTool::quick("write", ledger).undeclared().shared(),
        BenchTool::quick("pay", ledger)
            .declaring(&effect("pay:1")?, EffectKey::PerSlot)
            .shared(),
    ];
    let calls: Vec<(&str, &str)> = CALLS.iter().map(|name| (*name, "{}")).collect();
    let scenario = Scenario::new(
        name,
        tools,
        vec![Turn::calls(0, &calls), Turn::calls(1, &[("read", "{}")])],
    );
    Ok(if parallel {
        scenario.parallel(4)
    } else {
        scenario
    })
}

async fn crash_matrix(stage: Stage<dyn ToolEngine>) -> Verdict {
    for parallel in [false, true] {
        for after in [false, true] {
            let mut fired = 0u32;
            // Commit 0 creates the session: before it there is nothing to recover.
            for number in 1..=COMMITS {
                ensure!(
                    number < COMMITS,
                    "the run never came to its end within {COMMITS} commits"
                );
                let fault = if after {
                    Fault::KillAfterCommit(number)
                } else {
                    Fault::KillBeforeCommit(number)
                };
                let ledger = Ledger::new();
                let scenario =
                    scenario(&format!("TCK-31 {fault:?} {parallel}"), &ledger, parallel)?
                        .with_fault(fault);
                let script = std::sync::Arc::clone(&scenario.script);
                let observation = run(&stage, scenario).await?;
                let named = |failure| {
                    let mode = if parallel { "parallel" } else { "serial" };
                    Failure::new(format!("{fault:?}, {mode}: {failure}"))
                };
                survived(&observation, &ledger).map_err(named)?;
                asked_once(
                    &script
                        .requests()
                        .iter()
                        .map(|request| request.items.len())
                        .collect::<Vec<_>>(),
                )
                .map_err(named)?;
                if !observation.fault_fired {
                    break;
                }
                fired += 1;
            }
            ensure!(fired >= 3, "only {fired} deaths could be caused");
        }
    }
    Ok(())
}

/// A request may be lost and asked again, once for the one death there was.
fn asked_once(lengths: &[usize]) -> Verdict {
    let mut asked: BTreeMap<usize, u32> = BTreeMap::new();
    for length in lengths {
        *asked.entry(*length).or_default() += 1;
    }
    let repeated: u32 = asked.values().map(|times| times - 1).sum();
    ensure!(
        repeated <= 1,
        "the model was asked the same thing again {repeated} times after one death"
    );
    Ok(())
}

fn survived(observation: &Observation, ledger: &Ledger) -> Verdict {
    ensure!(
        observation.stop_reason == "final",
        "the recovered run ended with {} {:?}",
        observation.stop_reason,
        observation.error_code
    );
    let batch = closed_batch(observation, 0)?;
    closed_batch(observation, 1)?;
    let entries = ledger.entries();
    for (index, tool) in CALLS.iter().enumerate() {
        let result = result(&batch, index)?;
        let slot_entries: Vec<_> = entries
            .iter()
            .filter(|entry| {
                entry.tool == *tool && entry.slot.as_str().ends_with(&format!(":{index}"))
            })
            .filter(|entry| {
                batch
                    .calls
                    .iter()
                    .any(|call| entry.slot.as_str().starts_with(call.batch_id.as_str()))
            })
            .collect();
        // `max_attempts + 1` for what may be repeated, once for everything else.
        let allowed = if *tool == "read" { 2 } else { 1 };
        ensure!(
            slot_entries.len() <= allowed,
            "{tool} was entered {} times, {allowed} are allowed",
            slot_entries.len()
        );
        let attempts: BTreeSet<&str> = slot_entries
            .iter()
            .map(|entry| entry.attempt.as_str())
            .collect();
        ensure!(
            attempts.len() == slot_entries.len(),
            "{tool}: two dispatches share one attempt id"
        );
        let keys: BTreeSet<&Option<String>> = slot_entries.iter().map(|entry| &entry.key).collect();
        ensure!(keys.len() <= 1, "{tool}: its key changed over the death");
        match result.status() {
            TerminalStatus::Success => ensure!(
                !slot_entries.is_empty(),
                "{tool} is said to have succeeded and was never entered"
            ),
            _ => {
                ensure!(
                    ending(&result) == "error/execution/process_lost",
                    "{tool} ended as {}",
                    ending(&result)
                );
                ensure!(*tool != "read", "a call that may be repeated was given up");
                let state = if *tool == "pay" {
                    EffectState::ReconciliationRequired
                } else {
                    EffectState::Unknown
                };
                ensure!(
                    result.effect_state() == state && result.outcome_unknown(),
                    "{tool} was cut off and its effect is said to be {}",
                    result.effect_state()
                );
            }
        }
    }
    Ok(())
}
