//! TCK-24 to TCK-26: what may have happened is not repeated and not forgotten.

use std::time::Duration;

use qitos_contracts::ids::EffectRef;
use qitos_contracts::log::ItemBody;
use qitos_contracts::tool::result::{EffectState, RetryDisposition, ToolResult};
use qitos_contracts::tool::{EffectKey, RetryPolicy, ToolError};
use serde_json::json;

use super::bench_tool::{BenchTool, Ledger};
use super::expect::{closed_batch, ended, result, run, succeeded};
use super::scenario::{Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    let limit = Duration::from_secs(40);
    vec![
        Check::new(
            "TCK-24.unknown_not_retried",
            "a declared effect that was cut off is dispatched once, and its outcome is said to be unknown",
            &["RES-5", "RES-10", "RES-12", "RES-16", "RES-17"],
            unknown_not_retried,
        )
        .within(limit),
        Check::new(
            "TCK-25.undeclared_write_unknown",
            "an undeclared write that was cut off is unknown and not repeated; an orderly error of one is neither",
            &["RES-9", "RES-10", "RES-16"],
            undeclared_write_unknown,
        )
        .within(limit),
        Check::new(
            "TCK-26.key_stable",
            "a call has its own key; a logical key makes later calls one effect",
            &["TOL-7", "TOL-8"],
            key_stable,
        )
        .within(limit),
    ]
}

pub(super) fn effect(text: &str) -> Result<EffectRef, Failure> {
    text.parse()
        .map_err(|error| Failure::new(format!("an effect reference: {error}")))
}

fn eager() -> RetryPolicy {
    RetryPolicy {
        max_attempts: 3,
        backoff_factor: 0.001,
        max_backoff: Duration::from_millis(2),
        jitter: 0.0,
        retryable_codes: vec!["try_again".into(), "timeout".into(), "tool_panicked".into()],
    }
}

fn hanging(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |_, _| std::future::pending()).specified(|spec| {
        spec.with_timeout(Duration::from_millis(30))
            .with_retry(eager())
    })
}

#[expect(clippy::panic, reason = "the tool under the check is one that panics")]
fn panicking(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |args, _| async move {
        if args.is_object() {
            panic!("as asked");
        }
        Err(ToolError::new("unreachable", ""))
    })
    .specified(|spec| spec.with_retry(eager()))
}

fn again(name: &str, ledger: &Ledger) -> BenchTool {
    BenchTool::new(name, ledger, |_, _| async {
        Err(ToolError::new("try_again", "busy").recoverable())
    })
    .specified(|spec| spec.with_retry(eager()))
}

fn is_unknown(result: &ToolResult, state: EffectState) -> Verdict {
    ensure!(
        result.effect_state() == state && result.outcome_unknown(),
        "the effect is {} with outcome_unknown {}",
        result.effect_state(),
        result.outcome_unknown()
    );
    ensure!(
        result.reconciliation_required()
            && result.retry_disposition() == RetryDisposition::RequiresReconciliation,
        "an unknown outcome is {} and needs no reconciliation",
        result.retry_disposition()
    );
    Ok(())
}

async fn unknown_not_retried(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let pay = effect("pay:1")?;
    let scenario = Scenario::new(
        "TCK-24",
        vec![
            hanging("hang", &ledger)
                .declaring(&pay, EffectKey::PerSlot)
                .shared(),
            panicking("panic", &ledger)
                .declaring(&effect("pay:2")?, EffectKey::PerSlot)
                .shared(),
        ],
        vec![Turn::calls(0, &[("hang", "{}"), ("panic", "{}")])],
    );
    let script = std::sync::Arc::clone(&scenario.script);
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    let hung = result(&batch, 0)?;
    ended(&hung, "timed_out/execution/timeout")?;
    is_unknown(&hung, EffectState::ReconciliationRequired)?;
    ensure!(
        hung.effect_ref() == Some(&pay),
        "the result names another effect"
    );
    let panicked = result(&batch, 1)?;
    ended(&panicked, "error/execution/tool_panicked")?;
    is_unknown(&panicked, EffectState::ReconciliationRequired)?;
    for tool in ["hang", "panic"] {
        ensure!(
            ledger.entered(tool) == 1,
            "{tool} was dispatched {} times although its outcome is unknown",
            ledger.entered(tool)
        );
    }
    // The model is told, in every request from then on.
    let requests = script.requests();
    let told = requests.get(1).is_some_and(|request| {
        request.items.iter().any(|item| match &item.item().body {
            ItemBody::ToolResult(result) => result.result.outcome_unknown(),
            _ => false,
        })
    });
    ensure!(told, "the next request does not carry the unknown outcome");
    Ok(())
}

async fn undeclared_write_unknown(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let scenario = Scenario::new(
        "TCK-25",
        vec![
            hanging("hang", &ledger).undeclared().shared(),
            panicking("panic", &ledger).undeclared().shared(),
            again("write", &ledger).undeclared().shared(),
            again("read", &ledger).shared(),
        ],
        vec![Turn::calls(
            0,
            &[
                ("hang", "{}"),
                ("panic", "{}"),
                ("write", "{}"),
                ("read", "{}"),
            ],
        )],
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for index in 0..2 {
        let cut_off = result(&batch, index)?;
        is_unknown(&cut_off, EffectState::Unknown)?;
        let synthetic = cut_off
            .effect_ref()
            .is_some_and(|effect| effect.as_str().starts_with("effect:undeclared:"));
        ensure!(
            synthetic,
            "an undeclared write is not named by its slot: {:?}",
            cut_off.effect_ref()
        );
    }
    let wrote = result(&batch, 2)?;
    ended(&wrote, "error/semantic/try_again")?;
    ensure!(
        !wrote.outcome_unknown() && wrote.effect_state() == EffectState::NoEffectDeclared,
        "an orderly error of an undeclared write is {}",
        wrote.effect_state()
    );
    let read = result(&batch, 3)?;
    ended(&read, "error/semantic/try_again")?;
    ensure!(
        read.attempts() == 3,
        "a read-only call was tried {} times, 3 are allowed",
        read.attempts()
    );
    for (tool, times) in [("hang", 1), ("panic", 1), ("write", 1), ("read", 3)] {
        ensure!(
            ledger.entered(tool) == times,
            "{tool} was dispatched {} times instead of {times}",
            ledger.entered(tool)
        );
    }
    Ok(())
}

async fn key_stable(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let own = BenchTool::quick("own", &ledger).declaring(&effect("pay:1")?, EffectKey::PerSlot);
    let order = BenchTool::quick("order", &ledger)
        .declaring(&effect("order:1")?, EffectKey::Logical("order-1".into()));
    let scenario = Scenario::new(
        "TCK-26",
        vec![own.shared(), order.shared()],
        vec![
            Turn::calls(0, &[("own", "{}"), ("order", "{}")]),
            Turn::calls(1, &[("own", "{}"), ("order", "{}")]),
        ],
    );
    let observation = run(&stage, scenario).await?;
    let keys: Vec<Option<String>> = ledger
        .entries()
        .into_iter()
        .filter(|entry| entry.tool == "own")
        .map(|entry| entry.key)
        .collect();
    let [Some(first), Some(second)] = keys.as_slice() else {
        return Err(Failure::new(format!("two calls had the keys {keys:?}")));
    };
    ensure!(
        first != second && first.starts_with("idem:"),
        "a new call has the key of the old one, or another form: {first} {second}"
    );
    ensure!(
        ledger.entered("order") == 1,
        "one logical effect was dispatched {} times",
        ledger.entered("order")
    );
    let (first, second) = (
        closed_batch(&observation, 0)?,
        closed_batch(&observation, 1)?,
    );
    succeeded(&*result(&first, 1)?)?;
    let copy = result(&second, 1)?;
    succeeded(&copy)?;
    ensure!(
        copy.provenance().get("deduplicated_from")
            == first
                .calls
                .get(1)
                .map(|call| json!(call.call_id.as_str()))
                .as_ref()
            && copy.action_id() == second.calls.get(1).map(|call| call.call_id.as_str()),
        "the copied result does not say whose it is: {:?}",
        copy.provenance()
    );
    Ok(())
}
