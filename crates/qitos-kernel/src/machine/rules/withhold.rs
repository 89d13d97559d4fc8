//! A required sink failed before effects: they were not performed, and the intent is taken back (section 3, SNK).

use super::super::state::{Awaiting, Phase, SlotState};
use super::super::{Effect, Fact, Machine};
use super::{close_slot, end_run};

/// Takes back intents and reservations, then rests the session.
pub(super) fn accept(machine: &mut Machine, withheld: &[Effect]) {
    for effect in withheld {
        match effect {
            Effect::Request { ordinal } => {
                if matches!(&machine.durable.phase, Phase::Asked(asked) if asked.ordinal == *ordinal)
                {
                    // The reservation is refunded; its ordinal is not used again.
                    let counters = &mut machine.durable.counters;
                    counters.requests_reserved = counters.requests_reserved.saturating_sub(1);
                    machine.durable.phase = Phase::Ready;
                    machine.durable.step_begun = false;
                    machine.flight.awaiting = Awaiting::Nothing;
                }
            }
            Effect::Dispatch {
                slot: index,
                attempt,
            } => {
                machine.flight.running.remove(index);
                let Some(slot) = close_slot::slot_mut(machine, *index) else {
                    continue;
                };
                if let SlotState::Started(intent) = &slot.state
                    && intent.attempt_id == *attempt
                {
                    slot.state = SlotState::Ready(intent.admitted.clone());
                    slot.attempts = slot.attempts.saturating_sub(1);
                    let first = slot.attempts == 0;
                    let counters = &mut machine.durable.counters;
                    counters.tool_calls = counters.tool_calls.saturating_sub(u64::from(first));
                }
            }
            _ => {}
        }
    }
    machine.delta.batch = true;
    machine.delta.tell(Fact::Withheld {
        effects: withheld.len() as u64,
    });
    end_run::sink_failed(machine);
}
