//! The three constructors that are the table of RES-7 to RES-14.

use std::sync::Arc;

use serde_json::{Map, Number, Value, json};

use super::error::ResultError;
use super::fields::Fields;
use super::reader::read_next_action;
use super::settle_effect::{Ending, set_reported, settle};
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use super::{ToolResult, VALUE_DEPTH, insert_checked};
use crate::canonical_json;
use crate::error::ContractError;
use crate::ids::{AttemptId, CallId, EffectRef, SlotId};
use crate::tool::call::{EffectReport, ErrorKind, Returned, ToolError};
use crate::tool::effect::EffectClass;

/// Whose result it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultIdentity {
    /// Canonical tool name, or the name that the model gave when no tool has it.
    pub tool_name: Arc<str>,
    /// The call's id.
    pub call_id: CallId,
    /// The call's slot.
    pub slot_id: SlotId,
    /// Owner generation of the session.
    pub owner_generation: u64,
}

/// The status of a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalStatus {
    /// The call is wrong or forbidden.
    Error,
    /// A rule kept it from starting; its kind is always `policy`.
    Skipped,
}

/// Why a gate stopped a call before it was dispatched (RES-7).
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// `error` or `skipped`.
    pub status: RefusalStatus,
    /// Where the error belongs; `skipped` makes it `policy`.
    pub kind: ErrorKind,
    /// Stable code.
    pub code: String,
    /// Text for the model and for people.
    pub message: String,
    /// Whether another call of the same kind may succeed.
    pub recoverable: bool,
    /// What could be done about it.
    pub hint: Option<String>,
    /// Free facts, such as `validation` (ARG-7).
    pub metadata: Map<String, Value>,
}

/// How a dispatched attempt ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The tool returned in order (RES-8).
    Returned(Returned),
    /// The tool returned an error in order (RES-9).
    Failed(ToolError),
    /// Its deadline passed (RES-10, RES-11).
    TimedOut {
        /// The worker could not be stopped.
        worker_running: bool,
    },
    /// A cancel was observed (RES-11, RES-13).
    Cancelled {
        /// The worker could not be stopped.
        worker_running: bool,
    },
    /// It panicked; the text is the payload (RES-12).
    Panicked(String),
    /// Nobody returned (RES-14).
    Lost(LostKind),
}

/// What was lost (RES-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostKind {
    /// The connection to the tool.
    Transport,
    /// The process that ran it.
    Process,
    /// The worker that ran it.
    Worker,
}

impl LostKind {
    const fn code(self) -> &'static str {
        match self {
            LostKind::Transport => "transport_lost",
            LostKind::Process => "process_lost",
            LostKind::Worker => "missing_worker",
        }
    }
}

/// A report that the tool made durable before it ended (RES-15).
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedEffect {
    /// What the outside world did.
    pub state: EffectReport,
    /// What it said.
    pub receipt: Value,
}

/// The attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFacts {
    /// Its id.
    pub attempt_id: AttemptId,
    /// Attempts of the slot so far, this one included; at least 1.
    pub attempts: u64,
    /// Milliseconds from its dispatch to its end.
    pub latency_ms: u64,
}

/// Bytes of a panic's text that are kept.
const PANIC_TEXT_BYTES: usize = 2_000;

impl ToolResult {
    /// A call stopped by a gate before dispatch: 0 attempts, effect `not_started` if declared (RES-7).
    ///
    /// A code outside `[a-z][a-z0-9_]{0,63}` is recorded as `tool_failed`.
    #[must_use]
    pub fn refused(id: ResultIdentity, refusal: Refusal, class: &EffectClass) -> Self {
        let (status, kind) = match refusal.status {
            RefusalStatus::Error => (TerminalStatus::Error, refusal.kind),
            RefusalStatus::Skipped => (TerminalStatus::Skipped, ErrorKind::Policy),
        };
        let mut fields = Fields::blank(status);
        fail(&mut fields, kind, &refusal.code, &refusal.message);
        fields.recoverable = refusal.recoverable;
        fields.recovery_hint = refusal.hint.map(Into::into);
        for (key, value) in refusal.metadata {
            insert_checked(&mut fields.metadata, &key, value);
        }
        settle(&mut fields, class, &id.slot_id, Ending::Unstarted, None);
        identify(&mut fields, id);
        ToolResult::of(fields)
    }

    /// A call cancelled before dispatch; `source` says by what, such as `fail_fast` (EXE-6, EXE-18).
    #[must_use]
    pub fn cancelled_unstarted(id: ResultIdentity, source: &str, class: &EffectClass) -> Self {
        let mut fields = Fields::blank(TerminalStatus::Cancelled);
        let message = "cancelled before it started";
        fail(&mut fields, ErrorKind::Execution, "cancelled", message);
        insert_checked(&mut fields.provenance, "cancel_source", source.into());
        settle(&mut fields, class, &id.slot_id, Ending::Unstarted, None);
        identify(&mut fields, id);
        ToolResult::of(fields)
    }

    /// A dispatched call that ended, by the table of RES-8 to RES-15.
    ///
    /// A value that cannot be written becomes `error/execution/non_serializable_value`, a tool's own result
    /// that contradicts what happened `error/execution/<contract code>` (RES-6).
    #[must_use]
    pub fn ended(
        id: ResultIdentity,
        class: &EffectClass,
        end: End,
        reported: Option<ReportedEffect>,
        attempt: AttemptFacts,
    ) -> Self {
        let report = reported.as_ref().map(|reported| reported.state);
        let slot = &id.slot_id;
        let mut fields = match end {
            End::Returned(Returned::Value(value)) => returned_value(value, class, slot, report),
            End::Returned(Returned::Result(own)) => adopted(*own, class, slot, report, &attempt),
            End::Failed(error) => failed(error, class, slot, report),
            End::TimedOut { worker_running } => {
                let mut fields = Fields::blank(TerminalStatus::TimedOut);
                fail(
                    &mut fields,
                    ErrorKind::Execution,
                    "timeout",
                    "the deadline passed",
                );
                cut_off(&mut fields, class, slot, report, worker_running);
                fields
            }
            End::Cancelled { worker_running } => {
                let mut fields = Fields::blank(TerminalStatus::Cancelled);
                fail(
                    &mut fields,
                    ErrorKind::Execution,
                    "cancelled",
                    "cancelled while it ran",
                );
                cut_off(&mut fields, class, slot, report, worker_running);
                fields
            }
            End::Panicked(text) => {
                let mut fields = Fields::blank(TerminalStatus::Error);
                let message = format!("the tool panicked: {}", bounded(&text, PANIC_TEXT_BYTES));
                fail(&mut fields, ErrorKind::Execution, "tool_panicked", &message);
                cut_off(&mut fields, class, slot, report, false);
                fields
            }
            End::Lost(kind) => {
                let mut fields = Fields::blank(TerminalStatus::Error);
                let message = match kind {
                    LostKind::Transport => "the connection to the tool was lost",
                    LostKind::Process => "the process that ran the tool was lost",
                    LostKind::Worker => "the tool gave no result",
                };
                fail(&mut fields, ErrorKind::Execution, kind.code(), message);
                settle(&mut fields, class, slot, Ending::Lost, report);
                fields
            }
        };
        if let Some(reported) = reported {
            let state = match reported.state {
                EffectReport::Committed => "committed",
                EffectReport::Rejected => "rejected",
            };
            let receipt = if canonical_json::check(&reported.receipt, VALUE_DEPTH - 1).is_ok() {
                reported.receipt
            } else {
                Value::Null
            };
            let report = json!({ "receipt": receipt, "state": state });
            insert_checked(&mut fields.provenance, "effect_report", report);
        }
        fields.attempt_id = Some(attempt.attempt_id);
        fields.attempts = attempt.attempts.max(1);
        fields.latency_ms = Number::from(attempt.latency_ms);
        identify(&mut fields, id);
        ToolResult::of(fields)
    }

    /// This stored result for another call with the same effect and key, which is not dispatched (TOL-8).
    ///
    /// Attempts, effect and output stay; `provenance.deduplicated_from` names the call that ran.
    #[must_use]
    pub fn deduplicated(&self, id: ResultIdentity) -> Self {
        let mut fields = self.fields.clone();
        let from = fields.action_id.as_deref().unwrap_or_default().to_owned();
        insert_checked(&mut fields.provenance, "deduplicated_from", from.into());
        fields.batch_closure = None;
        identify(&mut fields, id);
        ToolResult::of(fields)
    }
}

fn identify(fields: &mut Fields, id: ResultIdentity) {
    fields.tool_name = Some(id.tool_name);
    fields.action_id = Some(id.call_id.as_str().into());
    fields.owner_generation = Some(id.owner_generation);
}

/// Bytes of `error`; a longer message stands whole in `output`, from where it can spill like any other.
const ERROR_TEXT_BYTES: usize = 16 * 1024;

/// Fills in what went wrong.
pub(super) fn fail(fields: &mut Fields, kind: ErrorKind, code: &str, message: &str) {
    let short = bounded(message, ERROR_TEXT_BYTES);
    if short.len() < message.len() {
        fields.output = Value::from(message);
    }
    fields.error_kind = Some(kind);
    fields.error_code = Some(if is_code(code) { code } else { "tool_failed" }.into());
    fields.error = Some(short.into());
}

/// `[a-z][a-z0-9_]{0,63}`.
fn is_code(code: &str) -> bool {
    code.len() <= 64
        && code
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_lowercase())
        && code
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The longest beginning of `text` within `limit` bytes.
fn bounded(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn returned_value(
    value: Value,
    class: &EffectClass,
    slot: &SlotId,
    report: Option<EffectReport>,
) -> Fields {
    if report == Some(EffectReport::Rejected) && !class.is_pure() {
        return contradicted(class, slot);
    }
    if canonical_json::check(&value, VALUE_DEPTH).is_err() {
        return unusable(ResultError::NotSerializable, class, slot, report);
    }
    let mut fields = Fields::blank(TerminalStatus::Success);
    fields.output = value;
    settle(&mut fields, class, slot, Ending::Succeeded, report);
    fields
}

/// `rejected` followed by `Ok` (RES-15).
fn contradicted(class: &EffectClass, slot: &SlotId) -> Fields {
    let mut fields = Fields::blank(TerminalStatus::Error);
    let message = "the tool reported its effect as rejected and then succeeded";
    fail(
        &mut fields,
        ErrorKind::Execution,
        "contradictory_effect",
        message,
    );
    let rejected = Some(EffectReport::Rejected);
    settle(&mut fields, class, slot, Ending::Failed, rejected);
    if matches!(class, EffectClass::Undeclared) {
        fields.effect_ref = Some(EffectRef::undeclared(slot));
        set_reported(&mut fields, EffectReport::Rejected);
    }
    fields
}

/// The tool ended in order, so its effect happened, but what it gave cannot be used (RES-6).
fn unusable(
    error: ResultError,
    class: &EffectClass,
    slot: &SlotId,
    report: Option<EffectReport>,
) -> Fields {
    let mut fields = Fields::blank(TerminalStatus::Error);
    let message = format!("the tool's result breaks its contract: {error}");
    fail(&mut fields, ErrorKind::Execution, error.code(), &message);
    let report = report.or(Some(EffectReport::Committed));
    settle(&mut fields, class, slot, Ending::Failed, report);
    fields
}

fn failed(
    error: ToolError,
    class: &EffectClass,
    slot: &SlotId,
    report: Option<EffectReport>,
) -> Fields {
    let mut fields = Fields::blank(TerminalStatus::Error);
    fail(&mut fields, error.kind, &error.code, &error.message);
    fields.recoverable = error.recoverable;
    fields.recovery_hint = error.hint.map(Into::into);
    // Advice that is not well formed is no advice.
    fields.next_action = error
        .next_action
        .filter(|action| canonical_json::check(action, VALUE_DEPTH).is_ok())
        .and_then(|action| read_next_action(action).ok());
    // Where two reports differ, the one that forbids a repeat holds.
    let report = match (report, error.effect) {
        (Some(EffectReport::Committed), _) | (_, Some(EffectReport::Committed)) => {
            Some(EffectReport::Committed)
        }
        (stored, returned) => stored.or(returned),
    };
    settle(&mut fields, class, slot, Ending::Failed, report);
    fields
}

fn cut_off(
    fields: &mut Fields,
    class: &EffectClass,
    slot: &SlotId,
    report: Option<EffectReport>,
    worker_running: bool,
) {
    fields.worker_still_running = worker_running;
    let ending = if worker_running {
        Ending::SeveredRunning
    } else {
        Ending::Severed
    };
    settle(fields, class, slot, ending, report);
}

/// A tool's own result: authoritative but for identity, attempts and the effect fields (RES-6).
fn adopted(
    own: ToolResult,
    class: &EffectClass,
    slot: &SlotId,
    report: Option<EffectReport>,
    attempt: &AttemptFacts,
) -> Fields {
    let mut fields = own.fields;
    fields.batch_closure = None;
    let rejected = report == Some(EffectReport::Rejected);
    match fields.status {
        // The tool was entered, so nothing kept it from starting.
        TerminalStatus::Skipped => {
            let error = ResultError::ContradictoryOutcome("attempts");
            return unusable(error, class, slot, report);
        }
        TerminalStatus::Success if rejected && !class.is_pure() => {
            return contradicted(class, slot);
        }
        _ => {}
    }
    // The tool's own word about its effect counts as a report.
    let report = report.or(match fields.effect_state {
        EffectState::Committed => Some(EffectReport::Committed),
        EffectState::Rejected => Some(EffectReport::Rejected),
        _ => None,
    });
    let own_unknown = fields.outcome_unknown;
    let own_effect = fields.effect_state;
    fields.attempts = attempt.attempts.max(1);
    let keeps_own_effect = !matches!(class, EffectClass::Declared(_))
        && !matches!(
            own_effect,
            EffectState::NoEffectDeclared | EffectState::NotStarted
        );
    if keeps_own_effect {
        // A call without a declared effect that passes on what it knows of one, such as a nested agent:
        // an unknown outcome stays unknown (RES-5).
        return fields;
    }
    fields.effect_ref = None;
    let ending = match fields.status {
        TerminalStatus::Success => Ending::Succeeded,
        TerminalStatus::Error if own_unknown => Ending::Severed,
        TerminalStatus::Error | TerminalStatus::Skipped => Ending::Failed,
        TerminalStatus::TimedOut | TerminalStatus::Cancelled if fields.worker_still_running => {
            Ending::SeveredRunning
        }
        TerminalStatus::TimedOut | TerminalStatus::Cancelled => Ending::Severed,
    };
    settle(&mut fields, class, slot, ending, report);
    debug_assert!(
        fields.retry_disposition != RetryDisposition::BlockedWorkerRunning
            || fields.worker_still_running
    );
    fields
}
