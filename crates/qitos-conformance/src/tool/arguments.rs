//! TCK-6 and TCK-7: bad arguments never reach a tool (section 2).

use qitos_contracts::limits::ARGUMENTS_BYTES;
use qitos_contracts::tool::{ToolError, ToolSpec};
use serde_json::{Value, json};

use super::bench_tool::{BenchTool, Ledger};
use super::expect::{closed_batch, refused, result, run, succeeded};
use super::scenario::{Rewrite, Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-6.args_never_dispatched",
            "each kind of bad argument ends its slot with its code before the tool is entered; siblings run",
            &["ARG-2", "ARG-3", "ARG-4", "TXT-10"],
            args_never_dispatched,
        ),
        Check::new(
            "TCK-7.rewrite_revalidated",
            "arguments rewritten on the way go through the argument gates again",
            &["ARG-5"],
            rewrite_revalidated,
        )
        .needing(&[Need::Claim("rewrite")]),
    ]
}

fn strict(spec: ToolSpec) -> ToolSpec {
    ToolSpec {
        input_schema: schema(),
        ..spec
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": false,
    })
}

async fn args_never_dispatched(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let counted = BenchTool::quick("count", &ledger).specified(strict);
    let picky = BenchTool::quick("picky", &ledger)
        .validating(|_| Err(ToolError::new("", "never in the mood")));
    let coded = BenchTool::quick("coded", &ledger)
        .validating(|_| Err(ToolError::new("wrong_moon", "not tonight")));
    let large = format!("{{\"n\":1,\"s\":\"{}\"}}", "x".repeat(ARGUMENTS_BYTES));
    let cases: Vec<(&str, &str, &str)> = vec![
        ("count", "{}", "missing_required_argument"),
        ("count", "{\"n\":1,\"x\":2}", "unexpected_argument"),
        ("count", "{\"n\":\"5\"}", "invalid_argument_type"),
        ("count", "{\"n\":true}", "invalid_argument_type"),
        ("count", "{\"n\":1.5}", "invalid_argument_type"),
        ("count", "{\"n\":0}", "invalid_argument_value"),
        ("count", "[1]", "invalid_arguments_shape"),
        ("count", "\"n\"", "invalid_arguments_shape"),
        ("count", "{\"n\":", "malformed_arguments_json"),
        ("count", "{\"n\":1,}", "malformed_arguments_json"),
        ("count", "{\"n\":1,\"n\":2}", "duplicate_argument_key"),
        ("count", &large, "arguments_too_large"),
        ("count", "", "missing_required_argument"),
        ("picky", "{}", "validation_failed"),
        ("coded", "{}", "wrong_moon"),
    ];
    let good = [
        ("count", "{\"n\":1}"),
        ("count", "{\"n\":2.0}"),
        ("plain", ""),
    ];
    let mut calls: Vec<(&str, &str)> = cases.iter().map(|(tool, raw, _)| (*tool, *raw)).collect();
    calls.extend(good);
    let plain = BenchTool::quick("plain", &ledger);
    let scenario = Scenario::new(
        "TCK-6",
        vec![
            counted.shared(),
            picky.shared(),
            coded.shared(),
            plain.shared(),
        ],
        vec![Turn::calls(0, &calls)],
    );
    let observation = run(&stage, scenario).await?;
    let batch = closed_batch(&observation, 0)?;
    for (index, (tool, raw, code)) in cases.iter().enumerate() {
        let shown: String = raw.chars().take(40).collect();
        refused(&*result(&batch, index)?, &format!("error/execution/{code}"))
            .map_err(|failure| Failure::new(format!("{tool} with {shown}: {failure}")))?;
    }
    for index in cases.len()..calls.len() {
        succeeded(&*result(&batch, index)?)
            .map_err(|failure| Failure::new(format!("good call {index}: {failure}")))?;
    }
    ensure!(
        ledger.entered("count") == 2
            && ledger.entered("plain") == 1
            && ledger.entered("picky") == 0
            && ledger.entered("coded") == 0,
        "tools were entered {} times for 3 good calls",
        ledger.entries().len()
    );
    ensure!(
        ledger
            .entries()
            .iter()
            .filter(|entry| entry.tool == "plain")
            .all(|entry| entry.args == json!({})),
        "an empty argument text is not an empty object"
    );
    Ok(())
}

async fn rewrite_revalidated(stage: Stage<dyn ToolEngine>) -> Verdict {
    let bad = json!({"n": "bad"});
    for rewrite in [
        Rewrite::Interceptor(bad.clone()),
        Rewrite::Policy(bad.clone()),
        Rewrite::Approver(bad.clone()),
    ] {
        let ledger = Ledger::new();
        let tool = BenchTool::quick("count", &ledger).specified(strict);
        let mut scenario = Scenario::new(
            "TCK-7",
            vec![tool.shared()],
            vec![Turn::calls(0, &[("count", "{\"n\":1}")])],
        );
        scenario.settings.rewrite = Some(rewrite.clone());
        let observation = run(&stage, scenario).await?;
        refused(
            &*result(&closed_batch(&observation, 0)?, 0)?,
            "error/execution/invalid_argument_type",
        )
        .map_err(|failure| Failure::new(format!("{rewrite:?}: {failure}")))?;
        ensure!(
            ledger.entered("count") == 0,
            "{rewrite:?}: the tool was entered with bad arguments"
        );
    }
    Ok(())
}
