//! A decision to act becomes a batch of slots (ENG-13, EXE-15).

use qitos_contracts::ids::{BatchId, SlotId};
use qitos_contracts::log::ToolCallPart;
use qitos_contracts::tool::EffectClass;
use qitos_contracts::tool::ErrorKind;
use qitos_contracts::tool::result::{Refusal, RefusalStatus};

use super::super::state::{AfterBatch, Batch, Phase, Slot, SlotState, Turn, TurnDecision};
use super::super::{Fact, Machine};
use super::close_slot;
use crate::outcome::StopReason;

/// Opens a batch; if the budget does not admit all of its calls, none runs (ENG-13).
pub(super) fn open(
    machine: &mut Machine,
    id: BatchId,
    calls: Vec<ToolCallPart>,
    assistant_at: u64,
) {
    let count = calls.len() as u64;
    let limit = machine.durable.budget.max_tool_calls;
    let over = limit
        .is_some_and(|limit| machine.durable.counters.tool_calls.saturating_add(count) > limit);
    let then = if over {
        AfterBatch::Stop(StopReason::BudgetToolCalls)
    } else {
        AfterBatch::Reduce
    };
    declare(machine, id, calls, assistant_at, then);
    if over {
        refuse_all(machine, |_| Refusal {
            status: RefusalStatus::Skipped,
            kind: ErrorKind::Policy,
            code: "budget_tool_calls".into(),
            message: "the budget does not admit all calls of this batch, so none of them ran"
                .into(),
            recoverable: false,
            hint: None,
            metadata: serde_json::Map::new(),
        });
    }
}

/// A turn that was cut off: its calls are logged and closed, none is executed (TXT-9).
pub(super) fn open_incomplete(
    machine: &mut Machine,
    id: BatchId,
    calls: Vec<ToolCallPart>,
    assistant_at: u64,
) {
    declare(machine, id, calls, assistant_at, AfterBatch::AskAgain);
    refuse_all(machine, |_| Refusal {
        status: RefusalStatus::Error,
        kind: ErrorKind::Execution,
        code: "incomplete_model_turn".into(),
        message: "the answer that declared this call was cut off, so the call was not made".into(),
        recoverable: true,
        hint: None,
        metadata: serde_json::Map::new(),
    });
}

fn declare(
    machine: &mut Machine,
    id: BatchId,
    calls: Vec<ToolCallPart>,
    assistant_at: u64,
    then: AfterBatch,
) {
    let declared = calls
        .iter()
        .map(|call| (call.call_id.clone(), call.name.clone()))
        .collect();
    machine.delta.tell(Fact::BatchDeclared {
        batch_id: id.clone(),
        calls: declared,
    });
    let slots = calls
        .into_iter()
        .enumerate()
        .map(|(index, call)| Slot {
            id: SlotId::new(&id, u32::try_from(index).unwrap_or(u32::MAX)),
            scope: call.provider_scope,
            call_id: call.call_id,
            name: call.name,
            raw_arguments: call.raw_arguments,
            args: call.parsed_arguments,
            state: SlotState::Declared,
            attempts: 0,
            reported: None,
        })
        .collect();
    let batch = Batch {
        id,
        slots,
        completion: Vec::new(),
        fired: false,
    };
    machine.durable.phase = Phase::Acting(Turn {
        decision: TurnDecision::Act,
        batch: Some(batch),
        assistant_at: Some(assistant_at),
        then,
    });
    machine.delta.batch = true;
}

fn refuse_all(machine: &mut Machine, refusal: impl Fn(&Slot) -> Refusal) {
    let Some(count) = close_slot::batch(machine).map(|batch| batch.slots.len()) else {
        return;
    };
    for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        if let Some(slot) = close_slot::slot(machine, index) {
            let (name, refusal) = (slot.name.clone(), refusal(slot));
            close_slot::refuse(machine, index, name, refusal, &EffectClass::Pure, true);
        }
    }
}
