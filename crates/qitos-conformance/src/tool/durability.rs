//! TCK-27: nothing is dispatched before its intent is durable, and nothing after a terminal was refused.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::tool::EffectKey;
use serde_json::json;

use super::bench_tool::{BenchTool, Ledger, value};
use super::effects::effect;
use super::expect::run;
use super::scenario::{Fault, Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-27.intent_before_dispatch",
            "whichever commit is refused: a tool is entered only after its durable intent, and none after the refusal",
            &["EXE-16", "SES-11"],
            intent_before_dispatch,
        )
        .needing(&[Need::Claim("refused_commits")])
        .within(Duration::from_secs(120)),
    ]
}

/// More commits than the scenario can need.
const COMMITS: u64 = 64;

fn watched(name: &str, ledger: &Ledger, script: &Arc<Script>) -> BenchTool {
    let (marks, script) = (ledger.clone(), Arc::clone(script));
    BenchTool::new(name, ledger, move |_, ctx| {
        let control = script.control();
        if !control.is_some_and(|control| control.intent_is_durable(&ctx.call.slot_id)) {
            marks.mark("entered without a durable intent");
        }
        if script.was_refused() {
            marks.mark("entered after a refused commit");
        }
        async { value(json!("done")) }
    })
}

async fn intent_before_dispatch(stage: Stage<dyn ToolEngine>) -> Verdict {
    for refused in 0..COMMITS {
        let ledger = Ledger::new();
        let mut scenario = Scenario::new(
            &format!("TCK-27 commit {refused}"),
            Vec::new(),
            vec![
                Turn::calls(0, &[("read", "{}"), ("write", "{}"), ("pay", "{}")]),
                Turn::calls(1, &[("read", "{}")]),
            ],
        )
        .with_fault(Fault::RefuseCommit(refused));
        let script = Arc::clone(&scenario.script);
        scenario.tools = vec![
            watched("read", &ledger, &script).shared(),
            watched("write", &ledger, &script).undeclared().shared(),
            watched("pay", &ledger, &script)
                .declaring(&effect("pay:1")?, EffectKey::PerSlot)
                .shared(),
        ];
        let ran = run(&stage, scenario).await;
        for mark in [
            "entered without a durable intent",
            "entered after a refused commit",
        ] {
            ensure!(
                ledger.marked(mark) == 0,
                "commit {refused} refused: a tool was {mark}"
            );
        }
        for tool in ["write", "pay"] {
            ensure!(
                ledger.entered(tool) <= 1,
                "commit {refused} refused: {tool} was entered {} times",
                ledger.entered(tool)
            );
        }
        // A session that could not even be created has no run to observe.
        let observation = match ran {
            Err(_) if script.was_refused() && refused == 0 => continue,
            ran => ran?,
        };
        if !observation.fault_fired {
            ensure!(
                refused >= 3 && observation.stop_reason == "final",
                "only {refused} commits were made, and the run ended with {}",
                observation.stop_reason
            );
            ensure!(
                ledger.entries().len() == 4,
                "without a refusal {} of 4 calls ran",
                ledger.entries().len()
            );
            return Ok(());
        }
        ensure!(
            observation.stop_reason == "unrecoverable_error" && observation.error_code.is_some(),
            "commit {refused} refused: the run ended with {} {:?}",
            observation.stop_reason,
            observation.error_code
        );
    }
    Err(Failure::new(format!(
        "the run never came to its end within {COMMITS} commits"
    )))
}
