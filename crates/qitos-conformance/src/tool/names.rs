//! TCK-3 and TCK-4 for an engine: what the model calls, and what can change while it runs.

use serde_json::json;

use super::bench_tool::{BenchTool, Ledger, value};
use super::expect::{closed_batch, refused, result, run, succeeded};
use super::scenario::{Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-3.unknown_name_not_repaired",
            "a name that was not shown enters no tool",
            &["REG-4", "REG-5"],
            unknown_name_not_repaired,
        ),
        Check::new(
            "TCK-4.frozen",
            "registering during a run is refused and the tools shown do not change",
            &["REG-6"],
            frozen,
        )
        .needing(&[Need::Claim("register_during_run")]),
    ]
}

async fn unknown_name_not_repaired(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let names = [
        "Read_file",
        "read_fil",
        "READ_FILE",
        "read-file",
        "readfile",
    ];
    let calls: Vec<(&str, &str)> = names.iter().map(|name| (*name, "{}")).collect();
    let scenario = Scenario::new(
        "TCK-3",
        vec![BenchTool::quick("read_file", &ledger).shared()],
        vec![
            Turn::calls(0, &calls),
            Turn::calls(1, &[("read_file", "{}")]),
        ],
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for (index, name) in names.iter().enumerate() {
        refused(&*result(&batch, index)?, "error/execution/tool_not_found")
            .map_err(|failure| Failure::new(format!("{name}: {failure}")))?;
    }
    succeeded(&*result(&closed_batch(&observation, 1)?, 0)?)?;
    ensure!(
        ledger.entered("read_file") == 1,
        "the tool was entered {} times for 1 call of its name",
        ledger.entered("read_file")
    );
    Ok(())
}

async fn frozen(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let late = BenchTool::quick("late", &ledger).shared();
    let scenario = Scenario::new(
        "TCK-4",
        vec![],
        vec![
            Turn::calls(0, &[("meddle", "{}")]),
            Turn::calls(1, &[("late", "{}")]),
        ],
    );
    let script = std::sync::Arc::clone(&scenario.script);
    let meddle = BenchTool::new("meddle", &ledger, move |_, _| {
        let refusal = script
            .control()
            .map(|control| control.register(std::sync::Arc::clone(&late)));
        async move {
            value(json!({"refusal": match refusal {
                Some(Err(code)) => code,
                Some(Ok(())) => "registered".into(),
                None => "no control".into(),
            }}))
        }
    });
    let scenario = Scenario {
        tools: vec![meddle.shared()],
        ..scenario
    };
    let script = std::sync::Arc::clone(&scenario.script);
    let observation = run(&stage, scenario).await?;
    let first = result(&closed_batch(&observation, 0)?, 0)?;
    ensure!(
        first.output() == &json!({"refusal": "registry_frozen"}),
        "registering during a run gave {}",
        first.output()
    );
    refused(
        &*result(&closed_batch(&observation, 1)?, 0)?,
        "error/execution/tool_not_found",
    )?;
    ensure!(
        ledger.entered("late") == 0,
        "a tool registered during the run was entered"
    );
    let shown: Vec<Vec<String>> = script
        .requests()
        .into_iter()
        .map(|request| request.tool_names)
        .collect();
    ensure!(
        shown.len() >= 2 && shown.iter().all(|names| *names == ["meddle"]),
        "the tools shown changed: {shown:?}"
    );
    Ok(())
}
