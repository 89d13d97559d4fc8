//! Cancelling a run (EXE-18): at once, or after the step.

use super::super::state::{AfterBatch, Awaiting, CancelMode, Phase};
use super::super::{Effect, Machine};
use super::{close_slot, dispatch};

/// Takes the request; the stronger of two wins, a second equal one changes nothing.
pub(super) fn accept(machine: &mut Machine, mode: CancelMode) {
    if machine.durable.cancel != Some(CancelMode::Immediate) {
        machine.durable.cancel = Some(mode);
        machine.delta.dirty = true;
    }
}

/// Asks a running request to stop, once.
pub(super) fn stop_request(machine: &mut Machine, effects: &mut Vec<Effect>) {
    let due = machine.durable.cancel == Some(CancelMode::Immediate)
        && machine.flight.awaiting == Awaiting::Response
        && !machine.flight.stopping;
    if due {
        machine.flight.stopping = true;
        effects.push(Effect::StopRequest);
    }
}

/// Closes what did not start, asks what runs to stop; `true` once the batch is closed.
pub(super) fn close_unstarted(machine: &mut Machine, effects: &mut Vec<Effect>) -> bool {
    let Some(batch) = close_slot::batch(machine) else {
        return false;
    };
    let unstarted: Vec<u32> = dispatch::unstarted(batch).collect();
    let first = !unstarted.is_empty() || !machine.flight.stopping;
    for index in unstarted {
        machine.flight.waiting_retry.remove(&index);
        close_slot::cancel_unstarted(machine, index, "cancel_token");
    }
    if first {
        machine.flight.stopping = true;
        effects.extend(
            machine
                .flight
                .running
                .keys()
                .map(|slot| Effect::StopAttempt { slot: *slot }),
        );
    }
    let closed = close_slot::batch(machine).is_none_or(|batch| batch.is_closed());
    if closed {
        machine.flight.stopping = false;
        if let Phase::Acting(turn) = &mut machine.durable.phase {
            turn.then = AfterBatch::AskAgain;
        }
    }
    closed
}
