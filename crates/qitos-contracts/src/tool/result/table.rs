//! The tables of section 4: which facts of a result go together (RES-2, RES-3).

use super::error::ResultError;
use super::fields::Fields;
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use crate::tool::call::ErrorKind;

/// Refuses every combination that the tables do not list.
pub(super) fn check(fields: &Fields) -> Result<(), ResultError> {
    check_status(fields)?;
    check_effect(fields)?;
    check_disposition(fields)
}

fn outcome(holds: bool, key: &'static str) -> Result<(), ResultError> {
    if holds {
        Ok(())
    } else {
        Err(ResultError::ContradictoryOutcome(key))
    }
}

fn check_status(fields: &Fields) -> Result<(), ResultError> {
    let status = fields.status;
    let success = status == TerminalStatus::Success;
    outcome(fields.error_kind.is_none() == success, "error_kind")?;
    outcome(
        fields.error_code.as_deref().is_none_or(str::is_empty) == success,
        "error_code",
    )?;
    outcome(!success || fields.error_code.is_none(), "error_code")?;
    outcome(!success || fields.error.is_none(), "error")?;
    let kind_fits = match status {
        TerminalStatus::Success | TerminalStatus::Error => true,
        TerminalStatus::Skipped => fields.error_kind == Some(ErrorKind::Policy),
        TerminalStatus::TimedOut | TerminalStatus::Cancelled => {
            fields.error_kind == Some(ErrorKind::Execution)
        }
    };
    outcome(kind_fits, "error_kind")?;
    let attempts_fit = match status {
        TerminalStatus::Success | TerminalStatus::TimedOut => fields.attempts >= 1,
        TerminalStatus::Skipped => fields.attempts == 0,
        TerminalStatus::Error | TerminalStatus::Cancelled => true,
    };
    outcome(attempts_fit, "attempts")?;
    let worker_fits = !fields.worker_still_running
        || match status {
            TerminalStatus::TimedOut => true,
            TerminalStatus::Cancelled => fields.attempts >= 1,
            _ => false,
        };
    outcome(worker_fits, "worker_still_running")
}

/// One row of the table of effect states.
struct EffectRow {
    has_ref: bool,
    outcome_unknown: bool,
    /// `None` where either value is legal.
    reconciliation_required: Option<bool>,
    statuses: &'static [TerminalStatus],
    dispositions: &'static [RetryDisposition],
}

fn row(state: EffectState) -> EffectRow {
    use RetryDisposition as Retry;
    use TerminalStatus as Status;
    let plain = EffectRow {
        has_ref: true,
        outcome_unknown: false,
        reconciliation_required: Some(false),
        statuses: &[],
        dispositions: &[],
    };
    match state {
        EffectState::NoEffectDeclared => EffectRow {
            has_ref: false,
            statuses: Status::ALL,
            dispositions: &[
                Retry::NotEvaluated,
                Retry::Retryable,
                Retry::NonRetryable,
                Retry::BlockedWorkerRunning,
            ],
            ..plain
        },
        EffectState::NotStarted => EffectRow {
            statuses: &[Status::Error, Status::Skipped, Status::Cancelled],
            dispositions: &[Retry::NotEvaluated, Retry::Retryable, Retry::NonRetryable],
            ..plain
        },
        EffectState::Started => EffectRow {
            outcome_unknown: true,
            statuses: &[Status::TimedOut, Status::Cancelled],
            dispositions: &[Retry::BlockedWorkerRunning],
            ..plain
        },
        EffectState::Committed => EffectRow {
            statuses: &[
                Status::Success,
                Status::Error,
                Status::TimedOut,
                Status::Cancelled,
            ],
            dispositions: &[Retry::NonRetryable, Retry::BlockedWorkerRunning],
            ..plain
        },
        EffectState::Rejected => EffectRow {
            statuses: &[Status::Error, Status::TimedOut, Status::Cancelled],
            dispositions: &[Retry::Retryable, Retry::NonRetryable],
            ..plain
        },
        EffectState::Unknown => EffectRow {
            outcome_unknown: true,
            reconciliation_required: None,
            statuses: &[Status::Error, Status::TimedOut, Status::Cancelled],
            dispositions: &[
                Retry::RequiresReconciliation,
                Retry::BlockedWorkerRunning,
                Retry::NonRetryable,
            ],
            ..plain
        },
        EffectState::ReconciliationRequired => EffectRow {
            outcome_unknown: true,
            reconciliation_required: Some(true),
            statuses: &[Status::Error, Status::TimedOut, Status::Cancelled],
            dispositions: &[Retry::RequiresReconciliation, Retry::BlockedWorkerRunning],
            ..plain
        },
    }
}

fn effect(holds: bool, key: &'static str) -> Result<(), ResultError> {
    if holds {
        Ok(())
    } else {
        Err(ResultError::ContradictoryEffect(key))
    }
}

fn check_effect(fields: &Fields) -> Result<(), ResultError> {
    let row = row(fields.effect_state);
    effect(fields.effect_ref.is_some() == row.has_ref, "effect_ref")?;
    effect(
        fields.outcome_unknown == row.outcome_unknown,
        "outcome_unknown",
    )?;
    effect(
        row.reconciliation_required
            .is_none_or(|required| fields.reconciliation_required == required),
        "reconciliation_required",
    )?;
    effect(row.statuses.contains(&fields.status), "status")?;
    match fields.effect_state {
        EffectState::NotStarted => effect(fields.attempts == 0, "attempts"),
        EffectState::Started => effect(fields.worker_still_running, "worker_still_running"),
        _ => Ok(()),
    }
}

fn check_disposition(fields: &Fields) -> Result<(), ResultError> {
    let disposition = fields.retry_disposition;
    let blocked = disposition == RetryDisposition::BlockedWorkerRunning;
    let retryable_is_safe = disposition != RetryDisposition::Retryable
        || (fields.recoverable
            && !fields.worker_still_running
            && !fields.outcome_unknown
            && fields.effect_state != EffectState::Committed
            && fields.status != TerminalStatus::Success);
    let listed = row(fields.effect_state).dispositions.contains(&disposition);
    if listed && blocked == fields.worker_still_running && retryable_is_safe {
        Ok(())
    } else {
        Err(ResultError::UnsafeRetryDisposition)
    }
}
