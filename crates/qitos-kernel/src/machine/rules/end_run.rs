//! How a run ends and where that leaves the session (table after ENG-8, decision 71).
//!
//! A run ends, a session rarely dies: what repeating may mend leaves it `paused` at its last safe boundary.

use qitos_contracts::snapshot::Lifecycle;

use super::super::state::{CancelMode, End, LastStop, Phase, SlotState};
use super::super::{Fact, Machine};
use crate::outcome::{Failure, FailureCategory, RunOutcome, StopReason};

fn end(machine: &mut Machine, lifecycle: Lifecycle, end: End) {
    machine.durable.lifecycle = lifecycle;
    machine.durable.last_stop = Some(LastStop {
        outcome: end.outcome,
        stop_reason: end.stop_reason,
        final_result: end.final_result.clone(),
        failure: end.failure.clone(),
    });
    machine.delta.tell(Fact::Stopped {
        outcome: end.outcome,
        stop_reason: end.stop_reason,
        final_result: end.final_result.clone(),
        failure: end.failure.clone(),
    });
    machine.delta.tell(Fact::LifecycleChanged { lifecycle });
    machine.flight.ended = Some(end);
}

fn plain(outcome: RunOutcome, stop_reason: StopReason) -> End {
    End {
        outcome,
        stop_reason,
        final_result: None,
        failure: None,
    }
}

fn with_failure(
    machine: &mut Machine,
    lifecycle: Lifecycle,
    stop_reason: StopReason,
    failure: Failure,
) {
    let ended = End {
        failure: Some(failure),
        ..plain(RunOutcome::Failed, stop_reason)
    };
    end(machine, lifecycle, ended);
}

/// An answer is there.
pub(super) fn completed(machine: &mut Machine, answer: String) {
    let ended = End {
        final_result: Some(answer),
        ..plain(RunOutcome::Completed, StopReason::Final)
    };
    end(machine, Lifecycle::Completed, ended);
}

/// Ended in order without an answer; the agent's own condition completes the session, the rest leaves it paused.
pub(super) fn stopped(machine: &mut Machine, reason: StopReason) {
    let lifecycle = match reason {
        StopReason::AgentCondition | StopReason::EnvTerminal => Lifecycle::Completed,
        _ => Lifecycle::Paused,
    };
    end(machine, lifecycle, plain(RunOutcome::Stopped, reason));
}

/// A budget refused (CFG-31): a normal end; with a larger budget the session goes on.
pub(super) fn budget(machine: &mut Machine, reason: StopReason) {
    machine.durable.step_begun = false;
    end(
        machine,
        Lifecycle::Paused,
        plain(RunOutcome::Stopped, reason),
    );
}

/// What a batch decided about the run (ENG-13, CFG-32).
pub(super) fn after_batch(machine: &mut Machine, reason: StopReason) {
    if reason == StopReason::UnrecoverableError {
        let failure = machine.failure(
            "tool_failed_closed",
            FailureCategory::ToolError,
            "a tool failed or its outcome is unknown, and the failure policy is fail_closed",
        );
        return with_failure(machine, Lifecycle::Paused, reason, failure);
    }
    stopped(machine, reason);
}

/// The agent's own code or state failed, or the decision is invalid after its repairs: repeating cannot mend it.
pub(super) fn failed(machine: &mut Machine, failure: Failure) {
    with_failure(
        machine,
        Lifecycle::Failed,
        StopReason::UnrecoverableError,
        failure,
    );
}

/// A critic ended the run.
pub(super) fn critic_stop(machine: &mut Machine, failure: Failure) {
    let ended = End {
        failure: Some(failure),
        ..plain(RunOutcome::Stopped, StopReason::CriticStop)
    };
    end(machine, Lifecycle::Failed, ended);
}

/// The provider failed: the session rests and goes on once the cause is gone (decision 71).
pub(super) fn request_failed(machine: &mut Machine, failure: Failure) {
    machine.durable.step_begun = false;
    machine.durable.phase = Phase::Ready;
    with_failure(
        machine,
        Lifecycle::Paused,
        StopReason::UnrecoverableError,
        failure,
    );
}

/// The view could not be built; nothing was sent.
pub(super) fn view_failed(machine: &mut Machine, failure: Failure) {
    machine.durable.step_begun = false;
    let overflow = matches!(
        failure.error_code.as_str(),
        "context_budget_exceeded"
            | "unsafe_request_boundary"
            | "context_compaction_required"
            | "context_compaction_ineffective"
    );
    let (lifecycle, reason) = match (overflow, failure.category) {
        (true, _) => (Lifecycle::Paused, StopReason::ContextOverflow),
        (false, FailureCategory::StateError) => (Lifecycle::Failed, StopReason::UnrecoverableError),
        (false, _) => (Lifecycle::Paused, StopReason::UnrecoverableError),
    };
    with_failure(machine, lifecycle, reason, failure);
}

/// Somebody asked for a pause; with an unknown effect the pause misses and the run goes on (SES-58).
pub(super) fn paused(machine: &mut Machine) {
    machine.durable.step_begun = false;
    end(
        machine,
        Lifecycle::Paused,
        plain(RunOutcome::Paused, StopReason::Interrupt),
    );
}

/// The agent waits (ENG-3): the step is committed, the run ends.
pub(super) fn waiting(machine: &mut Machine) {
    super::finish_step(machine);
    end(
        machine,
        Lifecycle::WaitingInput,
        plain(RunOutcome::Waiting, StopReason::Wait),
    );
}

/// A required sink failed: the session rests where it is.
pub(super) fn sink_failed(machine: &mut Machine) {
    end(
        machine,
        Lifecycle::Paused,
        plain(RunOutcome::Paused, StopReason::TrajectorySinkFailed),
    );
}

/// A cancel is complete.
pub(super) fn cancelled(machine: &mut Machine, mode: CancelMode) {
    let reason = match mode {
        CancelMode::Immediate => StopReason::CancelledImmediate,
        CancelMode::AfterStep => StopReason::CancelledAfterStep,
    };
    end(
        machine,
        Lifecycle::Cancelled,
        plain(RunOutcome::Cancelled, reason),
    );
}

/// Effects of the session whose outcome nobody knows (SES-39, SES-58).
pub(in crate::machine) fn unresolved_effects(machine: &Machine) -> u64 {
    let ledger = machine
        .durable
        .effects
        .values()
        .filter(|entry| entry.is_unresolved());
    let open = match &machine.durable.phase {
        Phase::Acting(turn) => turn.batch.as_ref().map_or(0, |batch| {
            batch
                .slots
                .iter()
                .filter(|slot| matches!(slot.state, SlotState::Started(_)))
                .count()
        }),
        _ => 0,
    };
    ledger.count() as u64 + open as u64
}
