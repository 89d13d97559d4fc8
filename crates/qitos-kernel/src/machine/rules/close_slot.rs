//! A slot gets its one terminal (LOG-5, EXE-4, EXE-15).

use std::sync::Arc;

use qitos_contracts::error::ContractError;
use qitos_contracts::ids::EffectRef;
use qitos_contracts::log::{ItemBody, ToolResultItem};
use qitos_contracts::tool::result::{
    AttemptFacts, EffectState, End, Refusal, ReportedEffect, ResultIdentity, TerminalStatus,
    ToolResult,
};
use qitos_contracts::tool::{EffectClass, EffectReport, ErrorKind, Returned};

use super::super::limits::FailFast;
use super::super::state::{AfterBatch, Batch, EffectEntry, Phase, Slot, SlotState};
use super::super::{Fact, Machine};
use super::{end_run, loop_guard, steer};
use crate::outcome::{Failure, FailureCategory, StopReason};

/// The open turn's batch.
pub(super) fn batch(machine: &Machine) -> Option<&Batch> {
    match &machine.durable.phase {
        Phase::Acting(turn) => turn.batch.as_ref(),
        _ => None,
    }
}

/// The open turn's batch, to change it.
pub(super) fn batch_mut(machine: &mut Machine) -> Option<&mut Batch> {
    match &mut machine.durable.phase {
        Phase::Acting(turn) => turn.batch.as_mut(),
        _ => None,
    }
}

/// A slot of the open batch.
pub(super) fn slot(machine: &Machine, index: u32) -> Option<&Slot> {
    batch(machine)?.slots.get(index as usize)
}

/// A slot of the open batch, to change it.
pub(super) fn slot_mut(machine: &mut Machine, index: u32) -> Option<&mut Slot> {
    batch_mut(machine)?.slots.get_mut(index as usize)
}

/// Whose result a slot's terminal is.
pub(super) fn identity(machine: &Machine, slot: &Slot, tool: Arc<str>) -> ResultIdentity {
    ResultIdentity {
        tool_name: tool,
        call_id: slot.call_id.clone(),
        slot_id: slot.id.clone(),
        owner_generation: machine.durable.owner_generation,
    }
}

/// Closes a slot that never started (RES-7).
pub(super) fn refuse(
    machine: &mut Machine,
    index: u32,
    tool: Arc<str>,
    refusal: Refusal,
    class: &EffectClass,
    synthetic: bool,
) {
    let Some(slot) = slot(machine, index) else {
        return;
    };
    let id = identity(machine, slot, tool);
    let reason = synthetic.then(|| Arc::<str>::from(refusal.code.as_str()));
    let result = ToolResult::refused(id, refusal, class);
    close(machine, index, result, reason);
}

/// Closes a slot that never started because something else ended first (EXE-6, EXE-18).
pub(super) fn cancel_unstarted(machine: &mut Machine, index: u32, source: &str) {
    let Some(slot) = slot(machine, index) else {
        return;
    };
    let (tool, class) = match &slot.state {
        SlotState::Ready(admitted) => (Arc::clone(&admitted.tool), admitted.class.clone()),
        SlotState::Declared => (Arc::clone(&slot.name), EffectClass::Pure),
        SlotState::Started(_) | SlotState::Closed(_) => return,
    };
    let id = identity(machine, slot, tool);
    let result = ToolResult::cancelled_unstarted(id, source, &class);
    close(machine, index, result, Some(source.into()));
}

/// Gives a slot its terminal: the result enters the log in completion order; `reason` marks it synthetic (LOG-8).
pub(super) fn close(
    machine: &mut Machine,
    index: u32,
    result: ToolResult,
    reason: Option<Arc<str>>,
) {
    let Some(open) = slot(machine, index) else {
        return;
    };
    if matches!(open.state, SlotState::Closed(_)) {
        return;
    }
    let Some(batch_id) = batch(machine).map(|batch| batch.id.clone()) else {
        return;
    };
    let (slot_id, call_id, scope) = (
        open.id.clone(),
        open.call_id.clone(),
        Arc::clone(&open.scope),
    );
    let admitted = match &open.state {
        SlotState::Ready(admitted) => Some(admitted.clone()),
        SlotState::Started(intent) => Some(intent.admitted.clone()),
        _ => None,
    };
    let synthetic = reason.is_some();
    let append = |machine: &mut Machine, result: &Arc<ToolResult>| {
        machine.append(ItemBody::ToolResult(ToolResultItem {
            provider_scope: scope.clone(),
            call_id: call_id.clone(),
            batch_id: batch_id.clone(),
            result: Arc::clone(result),
            synthetic,
            closure_reason: reason.clone(),
        }))
    };
    let mut result = Arc::new(result);
    if let Err(error) = append(machine, &result) {
        // RES-6: a result that the log cannot hold is an error of its slot; the batch goes on.
        result = Arc::new(without_body(machine, index, &result, error.code()));
        if let Err(error) = append(machine, &result) {
            let step = machine.durable.step;
            let failure = Failure::of(&error, FailureCategory::ToolError, "ACT", step);
            return end_run::failed(machine, failure);
        }
    }
    machine.flight.waiting_retry.remove(&index);
    if let (true, Some(attempt)) = (result.worker_still_running(), result.attempt_id()) {
        let orphan = (slot_id.clone(), Arc::clone(&result));
        machine.flight.orphans.insert(attempt.clone(), orphan);
    }
    let deduplicated = result.provenance().contains_key("deduplicated_from");
    if let Some(admitted) = admitted.as_ref().filter(|_| !deduplicated) {
        loop_guard::remember(machine, &admitted.tool, admitted.args_digest, &result);
        if result.attempts() > 0 && !admitted.repeatable {
            machine.flight.unrepeatable_terminal = true;
        }
        note_effect(machine, &slot_id, admitted, &result);
    }
    let policy = &machine.fixed.policy;
    let (fail_fast, fail_closed) = (policy.fail_fast, policy.fail_closed);
    let Phase::Acting(turn) = &mut machine.durable.phase else {
        return;
    };
    let Some(batch) = turn.batch.as_mut() else {
        return;
    };
    let completion_index = u32::try_from(batch.completion.len()).unwrap_or(u32::MAX);
    batch.completion.push(index);
    if let Some(slot) = batch.slots.get_mut(index as usize) {
        slot.state = SlotState::Closed(Arc::clone(&result));
    }
    batch.fired |= fires(fail_fast, &result);
    if fail_closed && (fires(FailFast::Execution, &result) || result.outcome_unknown()) {
        turn.then = AfterBatch::Stop(StopReason::UnrecoverableError);
    }
    let closed = batch.is_closed();
    machine.delta.batch = true;
    machine.delta.tell(Fact::SlotTerminal {
        slot_id,
        call_id,
        completion_index,
        result,
        synthetic,
    });
    if closed {
        // LOG-7: queued steering follows the last result.
        steer::apply_queue(machine);
    }
}

/// The terminal of a call whose own result the log refused: what is known of its effect stays.
fn without_body(machine: &Machine, index: u32, refused: &ToolResult, code: &str) -> ToolResult {
    let failure = ToolResult::failure(ErrorKind::Execution, code, "the log cannot hold the result");
    let intent = slot(machine, index).and_then(|slot| match &slot.state {
        SlotState::Started(intent) => Some((slot, intent)),
        _ => None,
    });
    let Some((slot, intent)) = intent else {
        return failure;
    };
    let reported = match refused.effect_state() {
        EffectState::Committed => Some(ReportedEffect {
            state: EffectReport::Committed,
            receipt: serde_json::Value::Null,
        }),
        _ => slot.reported.clone(),
    };
    let attempt = AttemptFacts {
        attempt_id: intent.attempt_id.clone(),
        attempts: u64::from(slot.attempts.max(1)),
        latency_ms: refused.latency_ms().as_u64().unwrap_or_default(),
    };
    ToolResult::ended(
        identity(machine, slot, Arc::clone(&intent.admitted.tool)),
        &intent.admitted.class,
        End::Returned(Returned::Result(Box::new(failure))),
        reported,
        attempt,
    )
}

/// Whether a result ends its batch early (EXE-6).
fn fires(policy: FailFast, result: &ToolResult) -> bool {
    let execution = match result.status() {
        TerminalStatus::Error => {
            result.error_kind() == Some(qitos_contracts::tool::ErrorKind::Execution)
        }
        TerminalStatus::TimedOut => true,
        _ => false,
    };
    match policy {
        FailFast::Off => false,
        FailFast::Execution => execution,
        FailFast::Any => result.status() != TerminalStatus::Success,
    }
}

/// Keeps what is known of an effect that has a logical key or an unsettled outcome (TOL-8).
fn note_effect(
    machine: &mut Machine,
    slot_id: &qitos_contracts::ids::SlotId,
    admitted: &super::super::state::Admitted,
    result: &Arc<ToolResult>,
) {
    let (effect_ref, logical) = match &admitted.class {
        EffectClass::Pure => return,
        EffectClass::Undeclared => (EffectRef::undeclared(slot_id), false),
        EffectClass::Declared(declared) => (
            declared.effect_ref.clone(),
            matches!(declared.key, qitos_contracts::tool::EffectKey::Logical(_)),
        ),
    };
    if result.attempts() == 0 || (!logical && !result.outcome_unknown()) {
        return;
    }
    let key = admitted.key.clone().unwrap_or_default();
    let name = effect_name(effect_ref.as_str(), &key);
    let entry = EffectEntry {
        effect_ref,
        key,
        slot_id: slot_id.clone(),
        state: result.effect_state().as_str().into(),
        result: Some(Arc::clone(result)),
        resolution: None,
        evidence: None,
    };
    machine.durable.effects.insert(name.clone(), entry);
    machine.delta.effects.insert(name);
}

/// The key of the ledger.
pub(super) fn effect_name(effect_ref: &str, key: &str) -> String {
    format!("{effect_ref}\n{key}")
}
