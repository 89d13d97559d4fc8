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
}
