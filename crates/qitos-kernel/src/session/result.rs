//! What a run gives back (ENG-10).

use qitos_contracts::checkpoint::SessionError;
use serde_json::Value;

use crate::components::seconds;
use crate::machine::{Machine, open_attempts};
use crate::outcome::{EngineResult, Failure, FailureCategory, RunOutcome, StopReason, Usage};

pub(super) fn result_of(
    machine: &Machine,
    store_failure: Option<&SessionError>,
    trajectory_complete: bool,
) -> EngineResult {
    let durable = machine.durable();
    let ended = machine.ended();
    let (outcome, stop_reason, final_result, failure) = match (store_failure, ended) {
        (Some(error), _) => (
            RunOutcome::Failed,
            StopReason::UnrecoverableError,
            None,
            Some(Failure {
                remediation: error.remediation.clone(),
                ..Failure::of(
                    error,
                    FailureCategory::SystemError,
                    machine.phase_name(),
                    durable.step,
                )
            }),
        ),
        (None, Some(end)) => (
            end.outcome,
            end.stop_reason,
            end.final_result.clone(),
            end.failure.clone(),
        ),
        (None, None) => (
            RunOutcome::Failed,
            StopReason::InfrastructureInvalid,
            None,
            None,
        ),
    };
    let counters = &durable.counters;
    EngineResult {
        run_id: durable.run.clone(),
        session_id: durable.session.clone(),
        outcome,
        stop_reason,
        lifecycle: durable.lifecycle,
        final_result,
        state: qitos_contracts::canonical_json::read_canonical(&durable.state)
            .unwrap_or(Value::Null),
        step_count: counters.steps_begun,
        usage: Usage {
            requests: counters.requests,
            tokens: counters.tokens,
            usage_unknown: counters.usage_unknown,
            tool_calls: counters.tool_calls,
            active_seconds: seconds(counters.active_ms),
        },
        failure,
        unresolved_attempts: open_attempts(machine),
        trajectory_complete,
        store_failure: store_failure.map(|error| error.error_code.as_str().to_owned()),
    }
}
