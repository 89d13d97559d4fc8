//! Expectations shared by the checks of engines.

use std::sync::Arc;

use qitos_contracts::tool::result::{TerminalStatus, ToolResult};

use super::observation::{Batch, Observation};
use super::scenario::{Scenario, ToolEngine};
use crate::check::{Failure, Stage, Verdict, ensure};

/// Runs a scenario.
pub(super) async fn run(
    stage: &Stage<dyn ToolEngine>,
    scenario: Scenario,
) -> Result<Observation, Failure> {
    let name = scenario.name.clone();
    stage
        .subject()
        .run(scenario)
        .await
        .map_err(|error| Failure::new(format!("scenario {name} could not be run: {error}")))
}

/// The batch with this number; every slot must have exactly one result.
pub(super) fn closed_batch(observation: &Observation, number: usize) -> Result<Batch, Failure> {
    let batches = observation.batches();
    let batch = batches.get(number).cloned().ok_or_else(|| {
        Failure::new(format!(
            "the log holds {} batches, number {number} is missing (run {}: {} {:?})",
            batches.len(),
            observation.outcome,
            observation.stop_reason,
            observation.error_code
        ))
    })?;
    for (index, results) in batch.results.iter().enumerate() {
        ensure!(
            results.len() == 1,
            "slot {index} of batch {number} has {} terminals",
            results.len()
        );
    }
    Ok(batch)
}

/// The only result of a slot.
pub(super) fn result(batch: &Batch, index: usize) -> Result<Arc<ToolResult>, Failure> {
    batch
        .result(index)
        .cloned()
        .ok_or_else(|| Failure::new(format!("slot {index} has no single result")))
}

/// Status, kind and code of a result, as one text.
pub(super) fn ending(result: &ToolResult) -> String {
    match (result.error_kind(), result.error_code()) {
        (Some(kind), Some(code)) => format!("{}/{}/{code}", result.status(), kind.as_str()),
        _ => result.status().to_string(),
    }
}

/// The result must have ended like this: `success`, or `status/kind/code`.
pub(super) fn ended(result: &ToolResult, expected: &str) -> Verdict {
    let seen = ending(result);
    ensure!(
        seen == expected,
        "expected {expected}, the result says {seen}"
    );
    Ok(())
}

/// The call must have been refused before its tool was entered.
pub(super) fn refused(result: &ToolResult, expected: &str) -> Verdict {
    ended(result, expected)?;
    ensure!(
        result.attempts() == 0,
        "a call that was never dispatched has {} attempts",
        result.attempts()
    );
    Ok(())
}

/// The slot must have succeeded.
pub(super) fn succeeded(result: &ToolResult) -> Verdict {
    ensure!(
        result.status() == TerminalStatus::Success && result.attempts() >= 1,
        "expected a success, the result says {}",
        ending(result)
    );
    Ok(())
}
