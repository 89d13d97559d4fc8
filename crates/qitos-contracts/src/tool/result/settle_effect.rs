//! What becomes of the effect fields when a call ends (RES-7 to RES-15).

use super::fields::Fields;
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use crate::ids::{EffectRef, SlotId};
use crate::tool::call::EffectReport;
use crate::tool::effect::{EffectClass, EffectKey};

/// What the framework saw of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Never dispatched (RES-7).
    Unstarted,
    /// Returned a value in order (RES-8).
    Succeeded,
    /// Returned an error in order (RES-9).
    Failed,
    /// Cut off; the worker stopped (RES-10, RES-12, RES-13).
    Severed,
    /// Cut off; the worker runs on (RES-11).
    SeveredRunning,
    /// Lost with its transport, process or worker (RES-14).
    Lost,
}

/// Sets the effect fields and the retry disposition.
///
/// `fields.recoverable` is set already. A report that the table cannot hold – of a `Pure` call, or
/// `rejected` while the worker runs on and may yet do more – leaves the state as if there were none.
pub(super) fn settle(
    fields: &mut Fields,
    class: &EffectClass,
    slot: &SlotId,
    ending: Ending,
    report: Option<EffectReport>,
) {
    match class {
        EffectClass::Pure => settle_pure(fields, ending),
        EffectClass::Undeclared => settle_undeclared(fields, slot, ending, report),
        EffectClass::Declared(declared) => {
            fields.effect_ref = Some(declared.effect_ref.clone());
            if let EffectKey::Logical(key) = &declared.key {
                fields.idempotency_ref = Some(key.as_str().into());
            }
            settle_declared(fields, ending, report);
        }
    }
}

fn set(fields: &mut Fields, state: EffectState, disposition: RetryDisposition) {
    fields.effect_state = state;
    fields.retry_disposition = disposition;
    fields.outcome_unknown = matches!(
        state,
        EffectState::Started | EffectState::Unknown | EffectState::ReconciliationRequired
    );
    // Unknown is always to be reconciled when we set it; the reader accepts both.
    fields.reconciliation_required = matches!(
        state,
        EffectState::Unknown | EffectState::ReconciliationRequired
    );
    if fields.outcome_unknown {
        fields.recoverable = false;
        if fields.recovery_hint.is_none() {
            fields.recovery_hint = Some("check before repeating".into());
        }
    }
}

/// `retryable` exactly when the fields say that repeating may succeed.
fn by_recoverable(fields: &Fields) -> RetryDisposition {
    if fields.recoverable {
        RetryDisposition::Retryable
    } else {
        RetryDisposition::NonRetryable
    }
}

fn unstarted(fields: &Fields) -> RetryDisposition {
    if fields.status == TerminalStatus::Cancelled {
        RetryDisposition::NotEvaluated
    } else {
        by_recoverable(fields)
    }
}

fn settle_pure(fields: &mut Fields, ending: Ending) {
    let disposition = match ending {
        Ending::Unstarted => unstarted(fields),
        Ending::Succeeded => RetryDisposition::NonRetryable,
        Ending::Failed => by_recoverable(fields),
        Ending::Severed => RetryDisposition::NonRetryable,
        Ending::SeveredRunning => RetryDisposition::BlockedWorkerRunning,
        Ending::Lost => {
            fields.recoverable = true;
            RetryDisposition::Retryable
        }
    };
    set(fields, EffectState::NoEffectDeclared, disposition);
}

fn settle_undeclared(
    fields: &mut Fields,
    slot: &SlotId,
    ending: Ending,
    report: Option<EffectReport>,
) {
    match ending {
        Ending::Unstarted => {
            let disposition = unstarted(fields);
            set(fields, EffectState::NoEffectDeclared, disposition);
        }
        // Nothing was promised, so nothing is claimed; but a write without a contract is not repeated.
        Ending::Succeeded | Ending::Failed => set(
            fields,
            EffectState::NoEffectDeclared,
            RetryDisposition::NonRetryable,
        ),
        Ending::Severed | Ending::SeveredRunning | Ending::Lost => {
            fields.effect_ref = Some(EffectRef::undeclared(slot));
            match (ending, report) {
                (Ending::SeveredRunning, Some(EffectReport::Committed)) => set(
                    fields,
                    EffectState::Committed,
                    RetryDisposition::BlockedWorkerRunning,
                ),
                (Ending::SeveredRunning, _) => set(
                    fields,
                    EffectState::Unknown,
                    RetryDisposition::BlockedWorkerRunning,
                ),
                (_, Some(report)) => set_reported(fields, report),
                (_, None) => set(
                    fields,
                    EffectState::Unknown,
                    RetryDisposition::RequiresReconciliation,
                ),
            }
        }
    }
}

fn settle_declared(fields: &mut Fields, ending: Ending, report: Option<EffectReport>) {
    match (ending, report) {
        (Ending::Unstarted, _) => {
            let disposition = unstarted(fields);
            set(fields, EffectState::NotStarted, disposition);
        }
        (Ending::Succeeded, _) => set(
            fields,
            EffectState::Committed,
            RetryDisposition::NonRetryable,
        ),
        (Ending::SeveredRunning, Some(EffectReport::Committed)) => set(
            fields,
            EffectState::Committed,
            RetryDisposition::BlockedWorkerRunning,
        ),
        (Ending::SeveredRunning, _) => set(
            fields,
            EffectState::Unknown,
            RetryDisposition::BlockedWorkerRunning,
        ),
        (Ending::Failed | Ending::Severed | Ending::Lost, Some(report)) => {
            set_reported(fields, report);
        }
        (Ending::Failed | Ending::Severed | Ending::Lost, None) => set(
            fields,
            EffectState::ReconciliationRequired,
            RetryDisposition::RequiresReconciliation,
        ),
    }
}

/// The state that the tool itself made durable (RES-15).
pub(super) fn set_reported(fields: &mut Fields, report: EffectReport) {
    match report {
        EffectReport::Committed => set(
            fields,
            EffectState::Committed,
            RetryDisposition::NonRetryable,
        ),
        EffectReport::Rejected => {
            let disposition = by_recoverable(fields);
            set(fields, EffectState::Rejected, disposition);
        }
    }
}
