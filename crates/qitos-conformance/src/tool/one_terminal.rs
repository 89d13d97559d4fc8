//! TCK-30: however a batch goes, every declared call has exactly one terminal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::tool::ToolError;
use serde_json::json;

use super::bench_tool::{BenchTool, Ledger, value};
use super::expect::{closed_batch, run};
use super::scenario::{FailFast, Feature, Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-30.one_terminal_each",
            "random batches under random failures and cancels: declared calls and terminals are the same",
            &["LOG-5", "EXE-15"],
            one_terminal_each,
        )
        .within(Duration::from_secs(120)),
    ]
}

/// Small, repeatable, and not meant to be good (the seed is printed with every failure).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn of(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const NAMES: [&str; 7] = ["fine", "fail", "panic", "hang", "work", "cancel", "nobody"];

#[expect(
    clippy::panic,
    reason = "one of the tools under the check is one that panics"
)]
fn tools(ledger: &Ledger, script: &Arc<Script>) -> Vec<Arc<dyn qitos_contracts::tool::Tool>> {
    let script = Arc::clone(script);
    vec![
        BenchTool::quick("fine", ledger).shared(),
        BenchTool::new("fail", ledger, |_, _| async {
            Err(ToolError::new("no", "no"))
        })
        .shared(),
        BenchTool::new("panic", ledger, |args, _| async move {
            if args.is_object() {
                panic!("as asked");
            }
            value(json!(null))
        })
        .shared(),
        BenchTool::new("hang", ledger, |_, _| std::future::pending())
            .undeclared()
            .specified(|spec| spec.with_timeout(Duration::from_millis(20)))
            .shared(),
        BenchTool::blocking("work", ledger, |_, _| value(json!("worked"))).shared(),
        BenchTool::new("cancel", ledger, move |_, _| {
            if let Some(control) = script.control() {
                control.cancel();
            }
            async { value(json!("cancelled")) }
        })
        .shared(),
    ]
}

async fn one_terminal_each(stage: Stage<dyn ToolEngine>) -> Verdict {
    let may_cancel = stage.subject().offers(Feature::Cancel);
    for seed in 1..=40u64 {
        let mut dice = Dice::of(seed);
        let mut turns = Vec::new();
        let mut declared: Vec<Vec<&str>> = Vec::new();
        for turn in 0..=dice.roll(2) {
            let mut names = Vec::new();
            for _ in 0..=dice.roll(5) {
                let sides = NAMES.len() as u64;
                let name = usize::try_from(dice.roll(sides))
                    .ok()
                    .and_then(|at| NAMES.get(at).copied())
                    .unwrap_or("fine");
                // Cancelling ends the run, so at most one call in four does.
                if name != "cancel" || (may_cancel && dice.roll(4) == 0) {
                    names.push(name);
                }
            }
            if names.is_empty() {
                names.push("fine");
            }
            let calls: Vec<(&str, &str)> = names.iter().map(|name| (*name, "{}")).collect();
            turns.push(Turn::calls(usize::try_from(turn).unwrap_or(0), &calls));
            declared.push(names);
        }
        let ledger = Ledger::new();
        let mut scenario = Scenario::new(&format!("TCK-30 {seed}"), Vec::new(), turns);
        scenario.tools = tools(&ledger, &scenario.script);
        if dice.roll(2) == 0 {
            scenario = scenario.parallel(1 + u32::try_from(dice.roll(4)).unwrap_or(0));
        }
        scenario.settings.fail_fast = match dice.roll(3) {
            0 => FailFast::Any,
            1 => FailFast::Execution,
            _ => FailFast::Off,
        };
        let observation = run(&stage, scenario).await?;
        let named = |failure| Failure::new(format!("seed {seed} {declared:?}: {failure}"));
        let batches = observation.batches();
        ensure!(
            !batches.is_empty(),
            "seed {seed}: the log holds no batch at all"
        );
        let mut seen = BTreeSet::new();
        for number in 0..batches.len() {
            let batch = closed_batch(&observation, number).map_err(named)?;
            for (call, results) in batch.calls.iter().zip(&batch.results) {
                ensure!(
                    seen.insert(call.call_id.to_string()),
                    "seed {seed}: call id {} occurs twice",
                    call.call_id
                );
                ensure!(
                    results
                        .iter()
                        .all(|result| result.result.action_id() == Some(call.call_id.as_str())),
                    "seed {seed}: a terminal belongs to another call"
                );
            }
        }
        let mut slots = BTreeSet::new();
        for entry in ledger.entries() {
            ensure!(
                slots.insert((entry.slot.to_string(), entry.attempt.clone())),
                "seed {seed}: attempt {} of {} was entered twice",
                entry.attempt,
                entry.tool
            );
        }
    }
    Ok(())
}
