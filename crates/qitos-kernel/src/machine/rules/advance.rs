//! The one question: given what is durable and what is in flight, what happens next?

use super::super::state::{AfterBatch, Awaiting, CancelMode, Phase, SlotState, TurnDecision};
use super::super::{Effect, Fact, Machine};
use super::{cancel, decide_stop, dispatch, end_run, finish_step, recover, steer};

/// Emits what is due now; does nothing while something is awaited.
pub(in super::super) fn advance(machine: &mut Machine, effects: &mut Vec<Effect>) {
    loop {
        if machine.flight.ended.is_some() {
            return;
        }
        let moved = match &machine.durable.phase {
            Phase::Ready => ready(machine, effects),
            Phase::Asked(_) => {
                cancel::stop_request(machine, effects);
                false
            }
            Phase::Acting(_) => acting(machine, effects),
        };
        if !moved {
            return;
        }
    }
}

/// Between decisions: the safe boundary of every run.
fn ready(machine: &mut Machine, effects: &mut Vec<Effect>) -> bool {
    if machine.flight.awaiting != Awaiting::Nothing {
        if machine.durable.cancel.is_some() && machine.flight.awaiting == Awaiting::Timer {
            machine.flight.awaiting = Awaiting::Nothing;
        } else {
            return false;
        }
    }
    if let Some(mode) = machine.durable.cancel {
        end_run::cancelled(machine, mode);
        return false;
    }
    // SES-58: with an unknown effect a pause misses, stays asked for, and the run goes on.
    if machine.flight.pause && end_run::unresolved_effects(machine) == 0 {
        end_run::paused(machine);
        return false;
    }
    if !machine.durable.step_begun {
        if let Some(reason) = decide_stop::budget_for_a_step(machine) {
            end_run::budget(machine, reason);
            return false;
        }
        machine.durable.step_begun = true;
        machine.durable.counters.steps_begun += 1;
        let step = machine.durable.step;
        machine.delta.facts.push(Fact::StepBegun { step });
    }
    if !steer::apply_queue(machine) {
        return false;
    }
    machine.flight.awaiting = Awaiting::Decision;
    effects.push(Effect::Decide);
    false
}

/// A decision is on its way.
fn acting(machine: &mut Machine, effects: &mut Vec<Effect>) -> bool {
    if machine.flight.awaiting != Awaiting::Nothing {
        return false;
    }
    let Phase::Acting(turn) = &machine.durable.phase else {
        return false;
    };
    if let Some(batch) = turn.batch.as_ref().filter(|batch| !batch.is_closed()) {
        // DUR-12: also during a cancel what was started ends by its own row.
        if let Some(slot) = recover::due_reconciliation(machine) {
            machine.flight.awaiting = Awaiting::Reconciliation;
            effects.push(Effect::Reconcile { slot });
            return false;
        }
        if machine.durable.cancel == Some(CancelMode::Immediate) {
            return cancel::close_unstarted(machine, effects);
        }
        if batch
            .slots
            .iter()
            .any(|slot| matches!(slot.state, SlotState::Declared))
        {
            machine.flight.awaiting = Awaiting::Gates;
            effects.push(Effect::Gate);
            return false;
        }
        return dispatch::dispatch(machine, effects);
    }
    if machine.flight.unrepeatable_terminal && machine.delta.dirty {
        // An outcome that cannot be had again is durable before user code sees it (section 8, D4 and D5).
        if !machine.flight.continuing {
            machine.flight.continuing = true;
            effects.push(Effect::Continue);
        }
        return false;
    }
    if machine.flight.continuing {
        return false;
    }
    match (&turn.decision, &turn.then) {
        (TurnDecision::Wait { .. }, _) => {
            end_run::waiting(machine);
            false
        }
        (_, AfterBatch::AskAgain) => {
            finish_step(machine);
            true
        }
        _ => {
            machine.flight.awaiting = Awaiting::Reduction;
            effects.push(Effect::Reduce);
            false
        }
    }
}
