//! TCK-19 to TCK-22: deadlines, workers that run on, dropped runs, late returns.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::tool::result::RetryDisposition;
use serde_json::json;

use super::bench_tool::{BenchTool, Gate, Ledger, value};
use super::expect::{closed_batch, ended, result, run};
use super::scenario::{Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    let limit = Duration::from_secs(40);
    vec![
        Check::new(
            "TCK-19.timeout_async",
            "at its deadline an asynchronous call is dropped: nothing after its await point runs",
            &["EXE-7", "EXE-8", "RES-10"],
            timeout_async,
        )
        .within(limit),
        Check::new(
            "TCK-20.timeout_blocking",
            "a blocking call past its deadline is said to run on and belongs to the engine until it ends",
            &["EXE-8", "EXE-9", "RES-11"],
            timeout_blocking,
        )
        .within(limit),
        Check::new(
            "TCK-21.drop_run_future",
            "dropping the run's future detaches nothing and dispatches nothing twice",
            &["EXE-9", "EXE-18"],
            drop_run_future,
        )
        .needing(&[Need::Claim("drop_run")])
        .within(limit),
        Check::new(
            "TCK-22.late_content",
            "a late return with other content is rejected and kept as late; the terminal stays",
            &["EXE-11"],
            late_content,
        )
        .needing(&[Need::Claim("late_records")])
        .within(limit),
    ]
}

const SHORT: Duration = Duration::from_millis(30);

async fn timeout_async(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let gate = Gate::new();
    let (inner, marks) = (gate.clone(), ledger.clone());
    let slow = BenchTool::new("slow", &ledger, move |_, _| {
        let (gate, marks) = (inner.clone(), marks.clone());
        async move {
            gate.passed().await;
            marks.mark("after the await");
            value(json!("too late"))
        }
    })
    .specified(|spec| spec.with_timeout(SHORT));
    let scenario = Scenario::new(
        "TCK-19",
        vec![slow.shared()],
        vec![Turn::calls(0, &[("slow", "{}")])],
    );
    let observation = run(&stage, scenario).await?;
    let result = result(&closed_batch(&observation, 0)?, 0)?;
    ended(&result, "timed_out/execution/timeout")?;
    ensure!(
        !result.worker_still_running() && observation.unresolved.is_empty(),
        "a dropped future is said to run on"
    );
    ensure!(
        result.retry_disposition() == RetryDisposition::NonRetryable && !result.outcome_unknown(),
        "a read-only call that timed out is {} with outcome_unknown {}",
        result.retry_disposition(),
        result.outcome_unknown()
    );
    gate.open();
    ensure!(
        ledger.entered("slow") == 1 && ledger.marked("after the await") == 0,
        "the call went on after its deadline, or was repeated"
    );
    Ok(())
}

fn worker(gate: &Gate, ledger: &Ledger) -> BenchTool {
    let (gate, marks) = (gate.clone(), ledger.clone());
    BenchTool::blocking("stubborn", ledger, move |_, _| {
        gate.block_until_passed();
        marks.mark("returned");
        value(json!("too late"))
    })
    .specified(|spec| spec.with_timeout(SHORT))
}

async fn timeout_blocking(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let gate = Gate::new();
    let scenario = Scenario::new(
        "TCK-20",
        vec![
            worker(&gate, &ledger).shared(),
            BenchTool::quick("fine", &ledger).shared(),
        ],
        vec![
            Turn::calls(0, &[("stubborn", "{}")]),
            Turn::calls(1, &[("fine", "{}")]),
        ],
    );
    let observation = run(&stage, scenario).await;
    gate.open();
    let observation = observation?;
    let batch = closed_batch(&observation, 0)?;
    let result = result(&batch, 0)?;
    ended(&result, "timed_out/execution/timeout")?;
    ensure!(
        result.worker_still_running()
            && result.retry_disposition() == RetryDisposition::BlockedWorkerRunning,
        "a worker that runs on is said to have stopped ({})",
        result.retry_disposition()
    );
    ensure!(
        observation.unresolved.len() == 1,
        "the engine's worker table names {:?} instead of the one worker that runs on",
        observation.unresolved
    );
    ensure!(
        ledger.entered("stubborn") == 1 && ledger.entered("fine") == 1,
        "calls were repeated, or others did not go on"
    );
    Ok(())
}

async fn drop_run_future(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let mut scenario = Scenario::new(
        "TCK-21",
        Vec::new(),
        vec![Turn::calls(0, &[("leave", "{}"), ("next", "{}")])],
    );
    let script = Arc::clone(&scenario.script);
    let leave = BenchTool::new("leave", &ledger, move |_, ctx| {
        let control = script.control();
        async move {
            if let Some(control) = control {
                control.drop_run();
            }
            ctx.cancelled().await;
            value(json!("noticed"))
        }
    })
    .specified(|spec| spec.with_timeout(Duration::from_secs(10)));
    scenario.tools = vec![leave.shared(), BenchTool::quick("next", &ledger).shared()];
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    let first = result(&batch, 0)?;
    ensure!(
        ledger.entered("leave") == 1,
        "the call was dispatched {} times",
        ledger.entered("leave")
    );
    ensure!(
        first.attempts() == 1 && first.output() == &json!("noticed"),
        "the result that the tool gave during the cancel was lost: {}",
        super::expect::ending(&first)
    );
    ensure!(
        ledger.entered("next") <= 1 && observation.unresolved.is_empty(),
        "something was dispatched twice or left running"
    );
    Ok(())
}

async fn late_content(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let gate = Gate::new();
    let opener = gate.clone();
    let mut scenario = Scenario::new("TCK-22", vec![worker(&gate, &ledger).shared()], Vec::new());
    scenario.script = Arc::new(
        Script::new(vec![Turn::calls(0, &[("stubborn", "{}")])]).on_request(move |ordinal, _| {
            if ordinal == 1 {
                opener.open();
            }
        }),
    );
    let observation = run(&stage, scenario).await;
    gate.open();
    let observation = observation?;
    let batch = closed_batch(&observation, 0)?;
    ended(&*result(&batch, 0)?, "timed_out/execution/timeout")?;
    ensure!(
        ledger.marked("returned") == 1,
        "the worker never returned, so nothing could be late"
    );
    let dispositions: Vec<&str> = observation
        .late
        .iter()
        .map(|late| late.disposition.as_str())
        .collect();
    ensure!(
        dispositions == ["late_terminal_rejected"],
        "the late return was recorded as {dispositions:?}"
    );
    Ok(())
}
