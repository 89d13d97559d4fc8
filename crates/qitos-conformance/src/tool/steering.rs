//! TCK-29 for an engine: steering waits for request and batch.

use std::sync::Arc;

use qitos_contracts::log::{ContentBlock, ItemBody};
use serde_json::json;

use super::bench_tool::{BenchTool, Ledger, value};
use super::expect::{closed_batch, run};
use super::scenario::{Scenario, Script, ToolEngine, Turn};
use crate::check::{Check, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-29.steering_waits",
            "steering during a request or batch follows the last result, once, and never precedes what did not see it",
            &["LOG-6", "LOG-7", "SES-60"],
            steering_waits,
        )
        .needing(&[Need::Claim("steer")]),
    ]
}

/// The log as short words, texts of steering included.
fn words(items: &[qitos_contracts::log::ItemRef]) -> Vec<String> {
    items
        .iter()
        .map(|item| match &item.item().body {
            ItemBody::Steering(steering) => {
                let text: String = steering
                    .content
                    .iter()
                    .filter_map(|block: &ContentBlock| block.text.as_deref())
                    .collect();
                format!("steering {text}")
            }
            body => body.kind().to_owned(),
        })
        .collect()
}

async fn steering_waits(stage: Stage<dyn ToolEngine>) -> Verdict {
    let ledger = Ledger::new();
    let mut scenario = Scenario::new("TCK-29", Vec::new(), Vec::new());
    scenario.script = Arc::new(
        Script::new(vec![Turn::calls(0, &[("steer", "{}"), ("fine", "{}")])]).on_request(
            |ordinal, control| {
                if ordinal == 0 {
                    control.steer("during the request");
                }
            },
        ),
    );
    let script = Arc::clone(&scenario.script);
    let inner = Arc::clone(&script);
    let steer = BenchTool::new("steer", &ledger, move |_, _| {
        if let Some(control) = inner.control() {
            control.steer("during the batch");
        }
        async { value(json!("steered")) }
    });
    scenario.tools = vec![steer.shared(), BenchTool::quick("fine", &ledger).shared()];
    let observation = run(&stage, scenario).await?;
    closed_batch(&observation, 0)?;
    let seen = words(&observation.items);
    let expected = [
        "user",
        "assistant",
        "tool_result",
        "tool_result",
        "steering during the request",
        "steering during the batch",
        "assistant",
    ];
    ensure!(seen == expected, "the log is {seen:?}");
    let requests = script.requests();
    let second = requests.get(1).map(|request| words(&request.items));
    ensure!(
        second.as_deref()
            == expected
                .get(..6)
                .map(|part| part.iter().map(ToString::to_string).collect::<Vec<_>>())
                .as_deref(),
        "the request after the batch shows {second:?}"
    );
    Ok(())
}
