//! A running attempt ended: its terminal, another attempt, or a late return (RES-8 to RES-17, EXE-11).

use std::sync::Arc;

use qitos_contracts::ids::AttemptId;
use qitos_contracts::tool::result::{AttemptFacts, End, ReportedEffect, ToolResult};
use qitos_contracts::tool::{EffectClass, EffectReport, ToolError};

use super::super::input::AttemptEnd;
use super::super::state::{Intent, Slot, SlotState};
use super::super::{Effect, Fact, Machine};
use super::close_slot;

/// Takes the end of an attempt; only the attempt that the slot knows counts.
pub(super) fn accept(
    machine: &mut Machine,
    index: u32,
    attempt: &AttemptId,
    end: AttemptEnd,
    effects: &mut Vec<Effect>,
) {
    if let Some((slot_id, stored)) = machine.flight.orphans.remove(attempt) {
        let fact = Fact::LateResult {
            slot_id,
            attempt_id: attempt.clone(),
            disposition: late_disposition(&stored, end),
        };
        return machine.delta.tell(fact);
    }
    let Some(slot) = close_slot::slot(machine, index) else {
        return;
    };
    let intent = match &slot.state {
        SlotState::Started(intent) if intent.attempt_id == *attempt => intent.clone(),
        _ => return,
    };
    let repeats = matches!(&end.end, End::Failed(error) if may_repeat(slot, &intent, error));
    let attempts = slot.attempts;
    machine.flight.running.remove(&index);
    if repeats {
        let admitted = intent.admitted;
        let delay_ms = admitted
            .backoff_ms
            .saturating_mul(1 << (attempts - 1).min(16))
            .min(admitted.max_backoff_ms);
        if let Some(slot) = close_slot::slot_mut(machine, index) {
            slot.state = SlotState::Ready(admitted);
            // A report belongs to the attempt that made it.
            slot.reported = None;
        }
        machine.delta.batch = true;
        machine.delta.dirty = true;
        if delay_ms > 0 {
            machine.flight.waiting_retry.insert(index, attempt.clone());
            effects.push(Effect::RetryLater {
                slot: index,
                attempt: attempt.clone(),
                delay_ms,
            });
        }
        return;
    }
    let Some(slot) = close_slot::slot(machine, index) else {
        return;
    };
    let result = result_of(machine, slot, &intent, end);
    close_slot::close(machine, index, result, None);
}

/// The terminal of an attempt by the table of section 4.
pub(super) fn result_of(
    machine: &Machine,
    slot: &Slot,
    intent: &Intent,
    end: AttemptEnd,
) -> ToolResult {
    let id = close_slot::identity(machine, slot, Arc::clone(&intent.admitted.tool));
    let attempt = AttemptFacts {
        attempt_id: intent.attempt_id.clone(),
        attempts: u64::from(slot.attempts.max(1)),
        latency_ms: end.latency_ms,
    };
    let result = ToolResult::ended(
        id,
        &intent.admitted.class,
        end.end,
        slot.reported.clone(),
        attempt,
    );
    match &intent.admitted.key {
        Some(key) => result.with_idempotency_ref(key),
        None => result,
    }
}

/// Another attempt in the slot: only after an orderly, recoverable, listed error of a call that may repeat (RES-16).
fn may_repeat(slot: &Slot, intent: &Intent, error: &ToolError) -> bool {
    let admitted = &intent.admitted;
    let dedupes = matches!(&admitted.class, EffectClass::Declared(declared) if declared.dedupe);
    let rejected = error.effect == Some(EffectReport::Rejected)
        || slot
            .reported
            .as_ref()
            .is_some_and(|reported| reported.state == EffectReport::Rejected);
    error.recoverable
        && slot.attempts < admitted.max_attempts
        && admitted.retryable_codes.contains(&error.code)
        && (admitted.repeatable || dedupes || rejected)
}

/// A late return never replaces a terminal (EXE-11). A machine hears only of attempts of its own ownership.
fn late_disposition(stored: &ToolResult, end: AttemptEnd) -> &'static str {
    let same = match end.end {
        End::Returned(qitos_contracts::tool::Returned::Value(value)) => {
            stored.success_flag() && *stored.output() == value
        }
        _ => false,
    };
    if same {
        "duplicate_ignored"
    } else {
        "late_terminal_rejected"
    }
}

/// A report is stored at once, in a commit of its own, before the tool goes on (RES-15).
pub(super) fn accept_report(
    machine: &mut Machine,
    index: u32,
    attempt: &AttemptId,
    effect: ReportedEffect,
    effects: &mut Vec<Effect>,
) {
    let Some(slot) = close_slot::slot_mut(machine, index) else {
        return;
    };
    let current =
        matches!(&slot.state, SlotState::Started(intent) if intent.attempt_id == *attempt);
    if !current {
        return;
    }
    let state = match effect.state {
        EffectReport::Committed => "committed",
        EffectReport::Rejected => "rejected",
    };
    let slot_id = slot.id.clone();
    slot.reported = Some(effect);
    machine.delta.batch = true;
    machine.delta.tell(Fact::EffectReported {
        slot_id,
        attempt_id: attempt.clone(),
        state,
    });
    effects.push(Effect::Acknowledge {
        attempt: attempt.clone(),
    });
}
