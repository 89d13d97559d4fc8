//! Which calls start now (EXE-2, EXE-3, EXE-6): serial, or runs of safe calls with every other call as a barrier.

use std::sync::Arc;

use qitos_contracts::ids::AttemptId;

use super::super::limits::ExecutorMode;
use super::super::state::{Admitted, Batch, Intent, SlotState};
use super::super::{Effect, Fact, Machine};
use super::{close_slot, pass_gates};

/// Starts what may start. `true` if something was closed instead, so that the question is to be asked again.
pub(super) fn dispatch(machine: &mut Machine, effects: &mut Vec<Effect>) -> bool {
    let Some(batch) = close_slot::batch(machine) else {
        return false;
    };
    if batch.fired {
        return close_rest(machine);
    }
    let due = due(batch, machine);
    let mut closed = false;
    for index in due {
        // A sibling may have settled the same effect since the gates looked (TOL-8).
        if pass_gates::settled_meanwhile(machine, index) {
            closed = true;
        } else {
            start(machine, index, effects);
        }
    }
    closed
}

/// Closes what never started, once fail-fast fired; running calls finish and keep their results (EXE-6).
fn close_rest(machine: &mut Machine) -> bool {
    let Some(batch) = close_slot::batch(machine) else {
        return false;
    };
    let unstarted: Vec<u32> = unstarted(batch).collect();
    for index in &unstarted {
        close_slot::cancel_unstarted(machine, *index, "fail_fast");
    }
    !unstarted.is_empty()
}

/// Slots that were declared or admitted and not started.
pub(super) fn unstarted(batch: &Batch) -> impl Iterator<Item = u32> + '_ {
    batch
        .slots
        .iter()
        .zip(0u32..)
        .filter(|(slot, _)| matches!(slot.state, SlotState::Declared | SlotState::Ready(_)))
        .map(|(_, index)| index)
}

/// The slots that may start now, in declaration order.
fn due(batch: &Batch, machine: &Machine) -> Vec<u32> {
    let policy = &machine.fixed.policy;
    let (parallel, most) = match policy.mode {
        ExecutorMode::Serial => (false, 1),
        ExecutorMode::Parallel => (true, policy.max_concurrency.max(1) as usize),
    };
    let busy = machine.flight.running.len() + machine.flight.waiting_retry.len();
    let mut free = most.saturating_sub(busy);
    let mut held: Vec<&Admitted> = Vec::new();
    let mut due = Vec::new();
    let mut exclusive_open = false;
    for (slot, index) in batch.slots.iter().zip(0u32..) {
        let admitted = match &slot.state {
            SlotState::Closed(_) => continue,
            SlotState::Declared => return due,
            SlotState::Started(intent) => &intent.admitted,
            SlotState::Ready(admitted) => admitted,
        };
        let alone = !parallel || !admitted.concurrent;
        if exclusive_open || (alone && (!held.is_empty() || !due.is_empty())) {
            // A barrier: what stands behind it waits until it is passed (EXE-3).
            return due;
        }
        exclusive_open = alone;
        let ready = matches!(slot.state, SlotState::Ready(_))
            && !machine.flight.waiting_retry.contains_key(&index);
        if ready && free > 0 && !held.iter().any(|other| collide(other, admitted)) {
            free -= 1;
            due.push(index);
        }
        held.push(admitted);
    }
    due
}

/// Two calls with equal effect or equal key never overlap (EXE-2).
fn collide(left: &Admitted, right: &Admitted) -> bool {
    let same_effect =
        left.class.effect_ref().is_some() && left.class.effect_ref() == right.class.effect_ref();
    same_effect || (left.key.is_some() && left.key == right.key)
}

/// Makes the intent of an attempt part of the next commit and asks for its dispatch (D3, EXE-16).
fn start(machine: &mut Machine, index: u32, effects: &mut Vec<Effect>) {
    let generation = machine.durable.owner_generation;
    let Some(slot) = close_slot::slot_mut(machine, index) else {
        return;
    };
    let SlotState::Ready(admitted) = &slot.state else {
        return;
    };
    slot.attempts += 1;
    let attempt = AttemptId::of_slot(&slot.id, slot.attempts, generation);
    let intent = Intent {
        admitted: admitted.clone(),
        attempt_id: attempt.clone(),
        generation,
    };
    let fact = Fact::SlotStarted {
        slot_id: slot.id.clone(),
        call_id: slot.call_id.clone(),
        attempt_id: attempt.clone(),
        attempt: slot.attempts,
        tool: Arc::clone(&intent.admitted.tool),
    };
    let first = slot.attempts == 1;
    slot.state = SlotState::Started(intent);
    machine.durable.counters.tool_calls += u64::from(first);
    machine.durable.counters.tool_used = true;
    machine.flight.running.insert(index, attempt.clone());
    machine.delta.batch = true;
    machine.delta.tell(fact);
    effects.push(Effect::Dispatch {
        slot: index,
        attempt,
    });
}
