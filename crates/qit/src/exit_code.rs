//! What the exit status of `qit` means (section 4 of the composition specification).

use qitos::kernel::FailureCategory;
use qitos::{EngineResult, RunOutcome, StopReason};

/// The exit statuses; a script may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// Done; for `run`: the session reached a final result.
    Done,
    /// The run ended without a final result, or a claimed conformance check failed.
    NoResult,
    /// Wrong usage or configuration; nothing was run.
    Usage,
    /// A credential.
    Credential,
    /// The sandbox is unavailable or not attested.
    Sandbox,
    /// Session or store: not found, conflict, digest mismatch, integrity.
    Session,
    /// The provider, after the runtime's own handling; the session can be restored.
    Provider,
    /// A budget is exhausted; the session can be restored with a larger one.
    Budget,
    /// Paused or waiting for input.
    Paused,
    /// Finished, but cleanup or a complete trajectory could not be proven.
    Unproven,
    /// An effect of unknown outcome.
    UnknownEffect,
    /// Stopped by SIGINT.
    Interrupted,
    /// Stopped by SIGTERM.
    Terminated,
}

impl ExitCode {
    /// The number.
    pub(crate) const fn number(self) -> u8 {
        match self {
            ExitCode::Done => 0,
            ExitCode::NoResult => 1,
            ExitCode::Usage => 2,
            ExitCode::Credential => 3,
            ExitCode::Sandbox => 4,
            ExitCode::Session => 5,
            ExitCode::Provider => 6,
            ExitCode::Budget => 7,
            ExitCode::Paused => 8,
            ExitCode::Unproven => 9,
            ExitCode::UnknownEffect => 10,
            ExitCode::Interrupted => 130,
            ExitCode::Terminated => 143,
        }
    }

    /// The status of a run that gave a result (CLI-3); `cleaned` tells whether closing succeeded.
    pub(crate) fn of_run(result: &EngineResult, cleaned: bool) -> Self {
        match Self::of_outcome(result) {
            ExitCode::Done if !cleaned || !result.trajectory_complete => ExitCode::Unproven,
            code => code,
        }
    }

    fn of_outcome(result: &EngineResult) -> Self {
        if result.store_failure.is_some() {
            return ExitCode::Session;
        }
        match (result.outcome, result.stop_reason) {
            (RunOutcome::Completed, _) => ExitCode::Done,
            (
                _,
                StopReason::BudgetSteps
                | StopReason::BudgetTime
                | StopReason::BudgetTokens
                | StopReason::BudgetRequests
                | StopReason::BudgetToolCalls,
            ) => ExitCode::Budget,
            _ if !result.unresolved_attempts.is_empty() => ExitCode::UnknownEffect,
            (RunOutcome::Paused | RunOutcome::Waiting, StopReason::UnrecoverableError)
            | (RunOutcome::Failed | RunOutcome::Stopped, _) => Self::of_failure(result),
            (RunOutcome::Paused | RunOutcome::Waiting, _) => ExitCode::Paused,
            (RunOutcome::Cancelled, _) => ExitCode::NoResult,
        }
    }

    fn of_failure(result: &EngineResult) -> Self {
        match result.failure.as_ref().map(|failure| failure.category) {
            Some(FailureCategory::ModelError) => ExitCode::Provider,
            Some(FailureCategory::EnvError) => ExitCode::Sandbox,
            _ => ExitCode::NoResult,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        std::process::ExitCode::from(code.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_table() {
        let table = [
            (ExitCode::Done, 0),
            (ExitCode::NoResult, 1),
            (ExitCode::Usage, 2),
            (ExitCode::Credential, 3),
            (ExitCode::Sandbox, 4),
            (ExitCode::Session, 5),
            (ExitCode::Provider, 6),
            (ExitCode::Budget, 7),
            (ExitCode::Paused, 8),
            (ExitCode::Unproven, 9),
            (ExitCode::UnknownEffect, 10),
            (ExitCode::Interrupted, 130),
            (ExitCode::Terminated, 143),
        ];
        for (code, number) in table {
            assert_eq!(code.number(), number);
        }
    }

    fn result(outcome: RunOutcome, stop_reason: StopReason) -> EngineResult {
        EngineResult {
            run_id: "run_00000000000000000000000000000001".parse().unwrap(),
            session_id: "session_00000000000000000000000000000001".parse().unwrap(),
            outcome,
            stop_reason,
            lifecycle: qitos::contracts::snapshot::Lifecycle::Paused,
            final_result: None,
            state: serde_json::Value::Null,
            step_count: 1,
            usage: qitos::kernel::Usage::default(),
            failure: None,
            unresolved_attempts: Vec::new(),
            trajectory_complete: true,
            store_failure: None,
        }
    }

    #[test]
    fn an_effect_of_unknown_outcome_is_told_unless_the_session_reached_its_result() {
        // Table of section 4: 10
        let unresolved = |outcome, stop_reason| {
            let attempt = "attempt_00112233445566778899aabbccddeeff";
            let mut result = result(outcome, stop_reason);
            result.unresolved_attempts = vec![attempt.parse().unwrap()];
            ExitCode::of_run(&result, true)
        };
        for (outcome, stop_reason, wanted) in [
            (RunOutcome::Completed, StopReason::Final, ExitCode::Done),
            (
                RunOutcome::Failed,
                StopReason::UnrecoverableError,
                ExitCode::UnknownEffect,
            ),
            (
                RunOutcome::Cancelled,
                StopReason::CancelledImmediate,
                ExitCode::UnknownEffect,
            ),
            (
                RunOutcome::Waiting,
                StopReason::Wait,
                ExitCode::UnknownEffect,
            ),
            (
                RunOutcome::Stopped,
                StopReason::BudgetSteps,
                ExitCode::Budget,
            ),
        ] {
            assert_eq!(unresolved(outcome, stop_reason), wanted, "{stop_reason:?}");
        }
    }

    #[test]
    fn what_could_not_be_proven_wins_over_done_and_over_nothing_else() {
        // CLI-3
        let done = result(RunOutcome::Completed, StopReason::Final);
        assert_eq!(ExitCode::of_run(&done, true), ExitCode::Done);
        assert_eq!(ExitCode::of_run(&done, false), ExitCode::Unproven);
        let mut partial = done.clone();
        partial.trajectory_complete = false;
        assert_eq!(ExitCode::of_run(&partial, true), ExitCode::Unproven);
        for (outcome, stop_reason, wanted) in [
            (
                RunOutcome::Stopped,
                StopReason::BudgetRequests,
                ExitCode::Budget,
            ),
            (
                RunOutcome::Failed,
                StopReason::UnrecoverableError,
                ExitCode::NoResult,
            ),
            (RunOutcome::Paused, StopReason::Interrupt, ExitCode::Paused),
        ] {
            let ended = result(outcome, stop_reason);
            assert_eq!(ExitCode::of_run(&ended, false), wanted, "{stop_reason:?}");
        }
        let mut refused = done;
        refused.store_failure = Some("generation_conflict".into());
        assert_eq!(ExitCode::of_run(&refused, false), ExitCode::Session);
    }
}
