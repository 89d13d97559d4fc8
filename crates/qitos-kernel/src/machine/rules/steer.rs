//! Steering: queued while a request or batch is open, applied once, after what did not see it (LOG-7, SES-60).

use qitos_contracts::ids::ItemId;
use qitos_contracts::log::{ContentBlock, ItemBody, LogError, QueuedSteering, SteeringItem};
use serde_json::{Map, Value};

use super::super::state::{Phase, SteeringDisposition, SteeringReceipt};
use super::super::{Effect, Fact, Machine};
use super::end_run;
use crate::outcome::{Failure, FailureCategory};

/// Takes a message: into the log at once, or into the queue.
pub(super) fn accept(
    machine: &mut Machine,
    item_id: Option<ItemId>,
    content: Vec<ContentBlock>,
    effects: &mut Vec<Effect>,
) {
    let sequence = machine.durable.counters.steering;
    machine.durable.counters.steering += 1;
    let item_id = item_id.unwrap_or_else(|| machine.next_item_id());
    let steering = SteeringItem {
        content,
        metadata: Map::new(),
    };
    let queued = QueuedSteering {
        item_id: item_id.clone(),
        steering,
    };
    let outcome = match machine.durable.log.enqueue(queued) {
        Ok(()) if is_open(machine) => Ok(SteeringDisposition::Queued),
        Ok(()) => append_queue(machine).map(|()| SteeringDisposition::Applied),
        Err(error) => Err(error),
    };
    machine.delta.queue = true;
    let (disposition, reason_code) = match outcome {
        Ok(disposition) => (disposition, None),
        Err(error) => (
            SteeringDisposition::Rejected,
            Some(qitos_contracts::error::ContractError::code(&error).to_owned()),
        ),
    };
    let receipt = SteeringReceipt {
        receipt_id: format!("steering-{sequence}"),
        sequence,
        item_id,
        disposition,
        boundary_id: boundary(machine, disposition),
        reason_code,
        applied_once: disposition == SteeringDisposition::Applied,
    };
    machine.delta.receipts.push(receipt.clone());
    machine.delta.tell(Fact::Steering {
        receipt: receipt.clone(),
    });
    effects.push(Effect::Reply {
        receipt: Box::new(receipt),
    });
}

fn boundary(machine: &Machine, disposition: SteeringDisposition) -> Option<String> {
    (disposition == SteeringDisposition::Applied).then(|| format!("step-{}", machine.durable.step))
}

fn is_open(machine: &Machine) -> bool {
    !matches!(machine.durable.phase, Phase::Ready)
}

/// Appends what waits; `false` if that ended the run.
pub(super) fn apply_queue(machine: &mut Machine) -> bool {
    if machine.durable.log.queue().is_empty() {
        return true;
    }
    let waiting: Vec<ItemId> = machine
        .durable
        .log
        .queue()
        .iter()
        .map(|queued| queued.item_id.clone())
        .collect();
    if let Err(error) = append_queue(machine) {
        let failure = Failure::of(
            &error,
            FailureCategory::SystemError,
            "DECIDE",
            machine.durable.step,
        );
        end_run::failed(machine, failure);
        return false;
    }
    machine.delta.queue = true;
    for item_id in waiting {
        let receipt = SteeringReceipt {
            receipt_id: format!("steering-applied-{item_id}"),
            sequence: machine.durable.counters.steering,
            item_id,
            disposition: SteeringDisposition::Applied,
            boundary_id: boundary(machine, SteeringDisposition::Applied),
            reason_code: None,
            applied_once: true,
        };
        machine.durable.counters.steering += 1;
        machine.delta.receipts.push(receipt.clone());
        machine.delta.tell(Fact::Steering { receipt });
    }
    true
}

fn append_queue(machine: &mut Machine) -> Result<(), LogError> {
    loop {
        let start = machine.delta.canonical.len();
        match machine
            .durable
            .log
            .append_queued(&mut machine.delta.canonical)
        {
            None => return Ok(()),
            Some(Ok(_)) => machine.delta.note_item(),
            Some(Err(error)) => {
                machine.delta.canonical.truncate(start);
                return Err(error);
            }
        }
    }
}

/// Appends the engine's own words (TXT-7).
pub(super) fn append(
    machine: &mut Machine,
    content: Vec<ContentBlock>,
    metadata: Map<String, Value>,
) -> Result<u64, LogError> {
    machine.append(ItemBody::Steering(SteeringItem { content, metadata }))
}
