//! TCK-15 and TCK-16: which calls run together, and in which order they count as done.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qitos_contracts::ids::EffectRef;
use qitos_contracts::log::ItemBody;
use qitos_contracts::tool::EffectKey;
use serde_json::json;

use super::bench_tool::{BenchTool, Gate, Ledger, value};
use super::expect::{closed_batch, result, run, succeeded};
use super::scenario::{Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    let limit = Duration::from_secs(20);
    vec![
        Check::new(
            "TCK-15.serial_and_barriers",
            "safe calls run together up to the bound, an unsafe call runs alone, serial mode overlaps nothing",
            &["EXE-1", "EXE-2", "EXE-3"],
            serial_and_barriers,
        )
        .within(limit),
        Check::new(
            "TCK-16.completion_order",
            "the log and the next request hold results in completion order, declaration order is derived",
            &["EXE-4", "LOG-4", "LOG-12"],
            completion_order,
        )
        .within(limit),
    ]
}

/// Lets calls through in groups of `size`.
#[derive(Clone)]
struct Meeting {
    size: usize,
    state: Arc<Mutex<(usize, Vec<Gate>)>>,
}

impl Meeting {
    fn of(size: usize) -> Self {
        Meeting {
            size,
            state: Arc::new(Mutex::new((0, Vec::new()))),
        }
    }

    async fn arrive(&self) {
        let gate = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let group = state.0 / self.size;
            state.0 += 1;
            while state.1.len() <= group {
                state.1.push(Gate::new());
            }
            let gate = state.1.get(group).cloned().unwrap_or_default();
            if state.0.is_multiple_of(self.size) {
                gate.open();
            }
            gate
        };
        gate.passed().await;
    }
}

fn meeting_tool(name: &str, ledger: &Ledger, meeting: &Meeting) -> BenchTool {
    let meeting = meeting.clone();
    BenchTool::new(name, ledger, move |_, _| {
        let meeting = meeting.clone();
        async move {
            meeting.arrive().await;
            value(json!(null))
        }
    })
    // An engine that never lets them meet fails the check instead of hanging it.
    .specified(|spec| spec.with_timeout(Duration::from_secs(5)))
}

async fn serial_and_barriers(stage: Stage<dyn ToolEngine>) -> Verdict {
    // safe, safe, exclusive, safe.
    let ledger = Ledger::new();
    let pair = Meeting::of(2);
    let scenario = Scenario::new(
        "TCK-15 barriers",
        vec![
            meeting_tool("a", &ledger, &pair).shared(),
            meeting_tool("b", &ledger, &pair).shared(),
            BenchTool::quick("exclusive", &ledger)
                .specified(|spec| spec.with_concurrency_safe(false))
                .shared(),
            BenchTool::quick("d", &ledger).shared(),
        ],
        vec![Turn::calls(
            0,
            &[("a", "{}"), ("b", "{}"), ("exclusive", "{}"), ("d", "{}")],
        )],
    )
    .parallel(4);
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for index in 0..4 {
        succeeded(&*result(&batch, index)?).map_err(|failure| {
            Failure::new(format!("slot {index}: {failure} (did a and b overlap?)"))
        })?;
    }
    let overlaps: Vec<(String, String)> = ledger.overlaps().into_iter().collect();
    ensure!(
        overlaps == [("a".to_owned(), "b".to_owned())],
        "expected a and b to overlap and nothing else: {overlaps:?}"
    );
    // Two calls that run together are started in order, but which body runs its first line first is the
    // scheduler's choice; the barrier between segments is the engine's.
    let mut order: Vec<String> = ledger
        .entries()
        .into_iter()
        .map(|entry| entry.tool)
        .collect();
    if let Some(together) = order.get_mut(..2) {
        together.sort_unstable();
    }
    ensure!(
        order == ["a", "b", "exclusive", "d"],
        "segments did not start in declaration order: {order:?}"
    );

    // The bound is kept and reached.
    let ledger = Ledger::new();
    let three = Meeting::of(3);
    let calls = vec![("many", "{}"); 6];
    let scenario = Scenario::new(
        "TCK-15 bound",
        vec![meeting_tool("many", &ledger, &three).shared()],
        vec![Turn::calls(0, &calls)],
    )
    .parallel(3);
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for index in 0..6 {
        succeeded(&*result(&batch, index)?)?;
    }
    ensure!(
        ledger.peak() == 3,
        "{} calls ran at once, the bound is 3 and can be reached",
        ledger.peak()
    );

    // Equal effects never overlap, even when the tool calls itself safe.
    let ledger = Ledger::new();
    let effect: EffectRef = "pay:order-1"
        .parse()
        .map_err(|error| Failure::new(format!("an effect reference: {error}")))?;
    let paying = BenchTool::quick("pay", &ledger).declaring(&effect, EffectKey::PerSlot);
    let scenario = Scenario::new(
        "TCK-15 duplicates",
        vec![paying.shared()],
        vec![Turn::calls(
            0,
            &[("pay", "{}"), ("pay", "{}"), ("pay", "{}")],
        )],
    )
    .parallel(4);
    run(&stage, scenario).await?;
    ensure!(
        ledger.entered("pay") == 3 && ledger.peak() == 1,
        "3 calls of one effect: entered {}, {} at once",
        ledger.entered("pay"),
        ledger.peak()
    );

    // Serial mode, though everything is safe.
    let ledger = Ledger::new();
    let scenario = Scenario::new(
        "TCK-15 serial",
        vec![
            BenchTool::quick("a", &ledger).shared(),
            BenchTool::quick("b", &ledger).shared(),
        ],
        vec![Turn::calls(0, &[("a", "{}"), ("b", "{}"), ("a", "{}")])],
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    ensure!(
        ledger.overlaps().is_empty() && ledger.peak() == 1 && batch.completion == [0, 1, 2],
        "serial mode overlapped {:?} and completed in order {:?}",
        ledger.overlaps(),
        batch.completion
    );
    Ok(())
}

async fn completion_order(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let second_is_done = Gate::new();
    let gate = second_is_done.clone();
    let slow = BenchTool::new("slow", &ledger, move |_, _| {
        let gate = gate.clone();
        async move {
            gate.passed().await;
            value(json!("slow"))
        }
    })
    .specified(|spec| spec.with_timeout(Duration::from_secs(5)));
    let mut scenario = Scenario::new(
        "TCK-16",
        vec![slow.shared(), BenchTool::quick("quick", &ledger).shared()],
        Vec::new(),
    )
    .parallel(4);
    let script = Script::new(vec![Turn::calls(0, &[("slow", "{}"), ("quick", "{}")])])
        .on_terminal(move |_| second_is_done.open());
    scenario.script = Arc::new(script);
    let script = Arc::clone(&scenario.script);
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for index in 0..2 {
        succeeded(&*result(&batch, index)?)?;
    }
    ensure!(
        batch.completion == [1, 0],
        "the log holds the results in order {:?} instead of [1, 0]",
        batch.completion
    );
    let requests = script.requests();
    let reread = requests
        .get(1)
        .ok_or_else(|| Failure::new("there was no request after the batch"))?;
    let answered: Vec<String> = reread
        .items
        .iter()
        .filter_map(|item| match &item.item().body {
            ItemBody::ToolResult(result) => Some(result.call_id.to_string()),
            _ => None,
        })
        .collect();
    let declared: Vec<String> = batch
        .calls
        .iter()
        .map(|call| call.call_id.to_string())
        .collect();
    let reversed: Vec<String> = declared.iter().rev().cloned().collect();
    ensure!(
        answered == reversed,
        "the re-read request lists the results as {answered:?}"
    );
    let facts = reread
        .batches
        .first()
        .ok_or_else(|| Failure::new("the re-read request has no batch facts"))?;
    ensure!(
        facts.declaration_order == declared && facts.completion_order == reversed,
        "the request tells the orders {facts:?}"
    );
    Ok(())
}
