//! TCK-17, TCK-18 and TCK-23: one slot's failure is its own.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::tool::{ErrorKind, ToolError};
use serde_json::json;

use super::bench_tool::{BenchTool, Gate, Ledger, value};
use super::expect::{closed_batch, ended, ending, refused, result, run, succeeded};
use super::scenario::{FailFast, Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    let limit = Duration::from_secs(30);
    vec![
        Check::new(
            "TCK-17.sibling_isolation",
            "an error, a panic, a timeout and a success in one batch: four terminals with their own codes",
            &["EXE-5", "EXE-17"],
            sibling_isolation,
        )
        .within(limit),
        Check::new(
            "TCK-18.fail_fast",
            "fail-fast on execution ignores semantic errors and cancels only what did not start",
            &["EXE-6"],
            fail_fast,
        )
        .within(limit),
        Check::new(
            "TCK-23.panic_named",
            "a panic is named as one, wherever it happens, and the next batch works",
            &["RES-12", "EXE-17"],
            panic_named,
        )
        .within(limit),
    ]
}

fn failing(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |_, _| async {
        Err(ToolError::new("no_such_thing", "none"))
    })
}

#[expect(clippy::panic, reason = "the tool under the check is one that panics")]
fn panicking(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |args, _| async move {
        // Depends on the argument so that it is no constant.
        if args.is_object() {
            panic!("as asked");
        }
        value(json!(null))
    })
}

fn hanging(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |_, _| std::future::pending())
        .specified(|spec| spec.with_timeout(Duration::from_millis(30)))
}

async fn sibling_isolation(stage: Stage<dyn ToolEngine>) -> Verdict {
    for parallel in [false, true] {
        let ledger = Ledger::new();
        let mut scenario = Scenario::new(
            "TCK-17",
            vec![
                failing("fail", &ledger).shared(),
                panicking("panic", &ledger).shared(),
                hanging("hang", &ledger).shared(),
                BenchTool::quick("fine", &ledger).shared(),
            ],
            vec![
                Turn::calls(
                    0,
                    &[
                        ("fail", "{}"),
                        ("panic", "{}"),
                        ("hang", "{}"),
                        ("fine", "{}"),
                    ],
                ),
                Turn::calls(1, &[("fine", "{}")]),
            ],
        );
        if parallel {
            scenario = scenario.parallel(4);
        }
        let observation = run(&stage, scenario).await?;
        let batch = closed_batch(&observation, 0)?;
        ended(&*result(&batch, 0)?, "error/semantic/no_such_thing")?;
        ended(&*result(&batch, 1)?, "error/execution/tool_panicked")?;
        ended(&*result(&batch, 2)?, "timed_out/execution/timeout")?;
        succeeded(&*result(&batch, 3)?)?;
        succeeded(&*result(&closed_batch(&observation, 1)?, 0)?)?;
    }
    Ok(())
}

async fn fail_fast(stage: Stage<dyn ToolEngine>) -> Verdict {
    // Serial: the semantic error passes, the panic stops what is left.
    let ledger = Ledger::new();
    let broken = BenchTool::new("broken", &ledger, |_, _| async {
        Err(ToolError::new("pipe_burst", "gone").with_kind(ErrorKind::Execution))
    });
    let mut scenario = Scenario::new(
        "TCK-18 serial",
        vec![
            failing("fail", &ledger).shared(),
            broken.shared(),
            BenchTool::quick("never", &ledger).shared(),
        ],
        vec![
            Turn::calls(
                0,
                &[
                    ("fail", "{}"),
                    ("never", "{}"),
                    ("broken", "{}"),
                    ("never", "{}"),
                ],
            ),
            Turn::calls(1, &[("never", "{}")]),
        ],
    );
    scenario.settings.fail_fast = FailFast::Execution;
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    ended(&*result(&batch, 0)?, "error/semantic/no_such_thing")?;
    succeeded(&*result(&batch, 1)?)?;
    ended(&*result(&batch, 2)?, "error/execution/pipe_burst")?;
    let last = result(&batch, 3)?;
    refused(&last, "cancelled/execution/cancelled")?;
    ensure!(
        last.provenance().get("cancel_source") == Some(&json!("fail_fast")),
        "the cancelled slot does not say that fail-fast did it"
    );
    succeeded(&*result(&closed_batch(&observation, 1)?, 0)?)?;
    ensure!(
        ledger.entered("never") == 2,
        "a tool was entered {} times instead of twice",
        ledger.entered("never")
    );

    // Parallel: who runs already keeps its result.
    let ledger = Ledger::new();
    let one_is_done = Gate::new();
    let gate = one_is_done.clone();
    let slow = BenchTool::new("slow", &ledger, move |_, _| {
        let gate = gate.clone();
        async move {
            gate.passed().await;
            value(json!("kept"))
        }
    })
    .specified(|spec| spec.with_timeout(Duration::from_secs(5)));
    let broken = BenchTool::new("broken", &ledger, |_, _| async {
        Err(ToolError::new("pipe_burst", "gone").with_kind(ErrorKind::Execution))
    });
    let mut scenario = Scenario::new(
        "TCK-18 parallel",
        vec![
            slow.shared(),
            broken.shared(),
            BenchTool::quick("never", &ledger).shared(),
        ],
        Vec::new(),
    )
    .parallel(2);
    scenario.settings.fail_fast = FailFast::Execution;
    scenario.script = Arc::new(
        Script::new(vec![Turn::calls(
            0,
            &[("slow", "{}"), ("broken", "{}"), ("never", "{}")],
        )])
        .on_terminal(move |_| one_is_done.open()),
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    let kept = result(&batch, 0)?;
    succeeded(&kept)?;
    ensure!(
        kept.output() == &json!("kept"),
        "a running call lost its result"
    );
    ended(&*result(&batch, 1)?, "error/execution/pipe_burst")?;
    refused(&*result(&batch, 2)?, "cancelled/execution/cancelled")?;
    ensure!(
        ledger.entered("never") == 0,
        "a call started after fail-fast fired"
    );
    Ok(())
}

#[expect(
    clippy::panic,
    reason = "the validation and the job under the check are ones that panic"
)]
async fn panic_named(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let blocking = BenchTool::blocking("blocking", &ledger, |args, _| {
        if args.is_object() {
            panic!("as asked");
        }
        value(json!(null))
    });
    let validating = BenchTool::quick("validating", &ledger).validating(|args| {
        if args.is_object() {
            panic!("as asked");
        }
        Ok(())
    });
    let scenario = Scenario::new(
        "TCK-23",
        vec![
            panicking("async", &ledger).shared(),
            blocking.shared(),
            validating.shared(),
            BenchTool::quick("fine", &ledger).shared(),
            BenchTool::blocking("worker", &ledger, |_, _| value(json!("ok"))).shared(),
        ],
        vec![
            Turn::calls(
                0,
                &[("async", "{}"), ("blocking", "{}"), ("validating", "{}")],
            ),
            Turn::calls(1, &[("fine", "{}"), ("worker", "{}")]),
        ],
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    ended(&*result(&batch, 0)?, "error/execution/tool_panicked")?;
    ended(&*result(&batch, 1)?, "error/execution/tool_panicked")?;
    let third = result(&batch, 2)?;
    let seen = ending(&third);
    ensure!(
        (seen.ends_with("/tool_panicked") || seen.ends_with("/policy_error"))
            && third.attempts() == 0,
        "a panic in validate ended as {seen}"
    );
    ensure!(
        ledger.entered("validating") == 0,
        "a tool was entered although its validation panicked"
    );
    let next = closed_batch(&observation, 1)?;
    succeeded(&*result(&next, 0)?)?;
    succeeded(&*result(&next, 1)?)
}
