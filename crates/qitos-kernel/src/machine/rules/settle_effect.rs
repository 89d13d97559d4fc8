//! A person or another process says what became of an effect that nobody knows (SES-53, RES-19).

use qitos_contracts::ids::SlotId;
use qitos_contracts::tool::Reconciled;

use super::super::input::Settlement;
use super::super::state::SlotState;
use super::super::{Fact, Machine};
use super::{close_slot, recover};

/// Takes the answer where one is missing; anything else changes nothing and is told.
///
/// The slot's terminal stays as it is: the answer stands beside it, in the ledger.
pub(super) fn accept(machine: &mut Machine, slot_id: SlotId, settlement: Settlement) {
    let disposition = settlement.disposition;
    let settled = open_slot(machine, &slot_id)
        .map(|index| recover::accept_reconciliation(machine, index, disposition.as_answer()))
        .is_some();
    let noted = note(machine, &slot_id, settlement);
    machine.delta.tell(Fact::EffectSettled {
        slot_id,
        disposition: disposition.as_str(),
        accepted: settled || noted,
    });
}

/// A slot that was begun by an owner that is gone and still has no terminal.
fn open_slot(machine: &Machine, slot_id: &SlotId) -> Option<u32> {
    let batch = close_slot::batch(machine)?;
    batch
        .slots
        .iter()
        .zip(0u32..)
        .find(|(slot, index)| {
            slot.id == *slot_id
                && matches!(slot.state, SlotState::Started(_))
                && !machine.flight.running.contains_key(index)
        })
        .map(|(_, index)| index)
}

/// Writes the answer beside the slot's effect; `false` if no effect of the slot waits for one.
fn note(machine: &mut Machine, slot_id: &SlotId, settlement: Settlement) -> bool {
    let Some((name, entry)) = machine
        .durable
        .effects
        .iter_mut()
        .find(|(_, entry)| entry.slot_id == *slot_id && entry.is_unresolved())
    else {
        return false;
    };
    entry.resolution = Some(settlement.disposition.as_str().to_owned());
    entry.evidence = Some(settlement.evidence);
    machine.delta.effects.insert(name.clone());
    machine.delta.dirty = true;
    true
}

impl super::super::input::Disposition {
    fn as_answer(self) -> Reconciled {
        match self {
            Self::Committed => Reconciled::Committed,
            Self::Rejected => Reconciled::Rejected,
        }
    }
}
