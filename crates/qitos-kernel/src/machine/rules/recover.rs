//! If the process died: what had begun and has no durable outcome is unknown, or may begin again (section 10).

use qitos_contracts::ids::AttemptId;
use qitos_contracts::model::RequestSent;
use qitos_contracts::tool::result::{End, LostKind, ReportedEffect};
use qitos_contracts::tool::{EffectClass, EffectReport, Reconciled};

use super::super::Machine;
use super::super::input::AttemptEnd;
use super::super::state::{Awaiting, Intent, Phase, SlotState};
use super::{accept_response, close_slot, record_outcome};

/// One explicit step, idempotent if interrupted (LOG-13). Never appends by merely opening.
pub(in super::super) fn recover(machine: &mut Machine) {
    match &machine.durable.phase {
        Phase::Ready => {}
        Phase::Asked(_) => {
            // DUR-2, DUR-3: spent, outcome unknown; a new ordinal, admission again, ask again.
            accept_response::settle_request(machine, None, RequestSent::Maybe);
            machine.durable.phase = Phase::Ready;
            machine.delta.dirty = true;
        }
        Phase::Acting(_) => recover_batch(machine),
    }
}

fn recover_batch(machine: &mut Machine) {
    let Some(batch) = close_slot::batch(machine) else {
        return;
    };
    let started: Vec<(u32, Intent)> = batch
        .slots
        .iter()
        .zip(0u32..)
        .filter_map(|(slot, index)| match &slot.state {
            SlotState::Started(intent) => Some((index, intent.clone())),
            _ => None,
        })
        .collect();
    let admitted: Vec<u32> = batch
        .slots
        .iter()
        .zip(0u32..)
        .filter(|(slot, _)| matches!(slot.state, SlotState::Ready(_)))
        .map(|(_, index)| index)
        .collect();
    for (index, intent) in started {
        recover_slot(machine, index, intent);
    }
    for index in admitted {
        // DUR-4: open and not started; the gates look again before it is dispatched (ARG-5).
        redeclare(machine, index);
    }
}

fn redeclare(machine: &mut Machine, index: u32) {
    if let Some(slot) = close_slot::slot_mut(machine, index) {
        slot.state = SlotState::Declared;
        if slot
            .reported
            .as_ref()
            .is_some_and(|reported| reported.state == EffectReport::Rejected)
        {
            // It belongs to the attempt that made it; what was committed stays true.
            slot.reported = None;
        }
        machine.delta.batch = true;
        machine.delta.dirty = true;
    }
}

fn recover_slot(machine: &mut Machine, index: u32, intent: Intent) {
    let Some(slot) = close_slot::slot(machine, index) else {
        return;
    };
    let admitted = &intent.admitted;
    if admitted.repeatable && slot.attempts <= admitted.max_attempts {
        // DUR-5: within max_attempts + 1.
        return redeclare(machine, index);
    }
    match &admitted.class {
        // DUR-6: with the key of the intent, if backend and policy say so.
        EffectClass::Declared(declared)
            if declared.dedupe
                && admitted.resume_with_key
                && slot.reported.is_none()
                && slot.attempts <= admitted.max_attempts =>
        {
            redeclare(machine, index);
        }
        EffectClass::Declared(declared) if declared.reconcile && slot.reported.is_none() => {
            // Asked once the run goes on: the slot stays started until the backend answered.
        }
        _ => close_lost(machine, index, &intent),
    }
}

/// Slots that wait for their backend's word.
pub(super) fn due_reconciliation(machine: &Machine) -> Option<u32> {
    let batch = close_slot::batch(machine)?;
    batch
        .slots
        .iter()
        .zip(0u32..)
        .find_map(|(slot, index)| match &slot.state {
            SlotState::Started(_) if !machine.flight.running.contains_key(&index) => Some(index),
            _ => None,
        })
}

/// DUR-6, RES-19: committed and rejected settle the effect; unknown stays unknown.
pub(super) fn accept_reconciliation(machine: &mut Machine, index: u32, answer: Reconciled) {
    machine.flight.awaiting = Awaiting::Nothing;
    let Some(slot) = close_slot::slot_mut(machine, index) else {
        return;
    };
    let SlotState::Started(intent) = slot.state.clone() else {
        return;
    };
    match answer {
        Reconciled::Rejected if slot.attempts <= intent.admitted.max_attempts => {
            redeclare(machine, index)
        }
        Reconciled::Committed | Reconciled::Rejected => {
            let state = if answer == Reconciled::Committed {
                EffectReport::Committed
            } else {
                EffectReport::Rejected
            };
            let receipt = serde_json::json!({"source": "reconcile"});
            slot.reported = Some(ReportedEffect { state, receipt });
            close_lost(machine, index, &intent);
        }
        Reconciled::Unknown => close_lost(machine, index, &intent),
    }
}

fn close_lost(machine: &mut Machine, index: u32, intent: &Intent) {
    let Some(slot) = close_slot::slot(machine, index) else {
        return;
    };
    let end = AttemptEnd {
        end: End::Lost(LostKind::Process),
        latency_ms: 0,
    };
    let result = record_outcome::result_of(machine, slot, intent, end);
    close_slot::close(machine, index, result, Some("process_lost".into()));
}

/// The attempts that are open, for receipts and results.
pub(in crate::machine) fn open_attempts(machine: &Machine) -> Vec<AttemptId> {
    let Some(batch) = close_slot::batch(machine) else {
        return Vec::new();
    };
    batch
        .slots
        .iter()
        .filter_map(|slot| match &slot.state {
            SlotState::Started(intent) => Some(intent.attempt_id.clone()),
            _ => None,
        })
        .collect()
}
