//! TCK-28: what the model does not see of a result can be read in full.

use std::time::Duration;

use qitos_contracts::limits::MODEL_VIEW_CHARS;
use qitos_contracts::tool::model_view::{project, result_limit};
use serde_json::{Value, json};

use super::bench_tool::{BenchTool, Ledger, value};
use super::expect::{closed_batch, result, run, succeeded};
use super::scenario::{Scenario, ToolEngine, Turn};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ToolEngine>> {
    vec![
        Check::new(
            "TCK-28.projection_bounds",
            "around the limit and far above it: the view is bounded, an artifact holds all bytes, counts are exact",
            &["PRJ-1", "PRJ-2", "PRJ-4", "PRJ-5"],
            projection_bounds,
        )
        .needing(&[Need::Claim("artifacts")])
        .within(Duration::from_secs(180)),
    ]
}

async fn projection_bounds(stage: Stage<dyn ToolEngine>) -> Verdict {
    let around = [MODEL_VIEW_CHARS - 1, MODEL_VIEW_CHARS, MODEL_VIEW_CHARS + 1];
    let far_above = [1, 10 * MODEL_VIEW_CHARS];
    for (letter, sizes) in [
        ("~", &around[..]),
        ("~", &far_above),
        ("\u{1F600}", &around),
    ] {
        let ledger = Ledger::new();
        let tools = sizes
            .iter()
            .enumerate()
            .map(|(number, size)| {
                let text = letter.repeat(*size);
                BenchTool::new(&format!("say{number}"), &ledger, move |_, _| {
                    let text = text.clone();
                    async move { value(json!(text)) }
                })
                .shared()
            })
            .collect();
        let turns = (0..sizes.len())
            .map(|number| Turn::calls(number, &[(&format!("say{number}"), "{}")]))
            .collect();
        let observation = run(&stage, Scenario::new("TCK-28", tools, turns)).await?;
        for (number, size) in sizes.iter().copied().enumerate() {
            let named = |what: String| Failure::new(format!("{size} times {letter:?}: {what}"));
            let result = result(&closed_batch(&observation, number)?, 0)?;
            succeeded(&result).map_err(|failure| named(failure.to_string()))?;
            let limit = result_limit(1, 0, &[]);
            let view = project(&result, limit);
            let Value::String(shown) = &view.model_output else {
                return Err(named("a text is not shown as text".into()));
            };
            let characters = shown.chars().count();
            if characters > limit {
                return Err(named(format!("{characters} characters are shown")));
            }
            if size <= limit {
                if *shown != letter.repeat(size) || view.omissions.is_some() {
                    return Err(named("a result within the limit was cut".into()));
                }
                continue;
            }
            let Some(omissions) = &view.omissions else {
                return Err(named("nothing says that the result was cut".into()));
            };
            let kept = shown.matches(letter).count();
            if omissions.characters != (size - kept) as u64 {
                return Err(named(format!(
                    "{} characters are said to be missing, {} are",
                    omissions.characters,
                    size - kept
                )));
            }
            let Some(body) = omissions
                .artifact_id
                .as_deref()
                .and_then(|id| observation.artifacts.get(id))
            else {
                return Err(named(format!(
                    "what is not shown cannot be read ({})",
                    omissions.reason
                )));
            };
            let whole = letter.repeat(size);
            let as_json = json!(whole).to_string();
            if body[..] != *whole.as_bytes() && body[..] != *as_json.as_bytes() {
                return Err(named(format!(
                    "the artifact holds {} bytes instead of all {}",
                    body.len(),
                    whole.len()
                )));
            }
        }
        ensure!(
            ledger.entries().len() == sizes.len(),
            "{} calls ran instead of {}",
            ledger.entries().len(),
            sizes.len()
        );
    }
    Ok(())
}
