//! The gates looked at a batch; what passed may run, what did not is closed (section 3, TOL-8, ENG-22).

use std::sync::Arc;

use qitos_contracts::tool::result::{Refusal, RefusalStatus};
use qitos_contracts::tool::{EffectClass, EffectKey, ErrorKind};

use super::super::Machine;
use super::super::input::GateVerdict;
use super::super::state::{Admitted, SlotState};
use super::{close_slot, end_run, loop_guard};

/// Takes the verdicts in declaration order.
pub(super) fn accept(machine: &mut Machine, verdicts: Vec<(u32, GateVerdict)>) {
    for (index, verdict) in verdicts {
        match verdict {
            GateVerdict::Pass { admitted, args } => pass(machine, index, *admitted, args),
            GateVerdict::Refuse {
                tool,
                class,
                refusal,
            } => {
                close_slot::refuse(machine, index, tool, *refusal, &class, false);
            }
            GateVerdict::Fatal(failure) => return end_run::failed(machine, failure),
        }
    }
}

fn pass(machine: &mut Machine, index: u32, admitted: Admitted, args: Arc<serde_json::Value>) {
    let refusal = if loop_guard::blocks(machine, &admitted.tool, admitted.args_digest) {
        Some(policy_error(
            "tool_call_loop_detected",
            "the same call gave the same result several times in a row; do something else",
        ))
    } else {
        None
    };
    if refusal.is_none() && settle_known_effect(machine, index, &admitted) {
        return;
    }
    if let Some(refusal) = refusal {
        return close_slot::refuse(
            machine,
            index,
            admitted.tool,
            refusal,
            &admitted.class,
            false,
        );
    }
    if let Some(slot) = close_slot::slot_mut(machine, index) {
        slot.args = Some(args);
        slot.state = SlotState::Ready(admitted);
    }
    machine.delta.batch = true;
    machine.delta.dirty = true;
}

/// Closes a slot that passed the gates and whose effect has a word in the ledger by now.
pub(super) fn settled_meanwhile(machine: &mut Machine, index: u32) -> bool {
    let admitted = match close_slot::slot(machine, index).map(|slot| &slot.state) {
        Some(SlotState::Ready(admitted)) if admitted.class.effect_ref().is_some() => {
            admitted.clone()
        }
        _ => return false,
    };
    settle_known_effect(machine, index, &admitted)
}

/// Closes a slot by what the ledger knows of its effect; `false` if it knows nothing that matters.
fn settle_known_effect(machine: &mut Machine, index: u32, admitted: &Admitted) -> bool {
    match known_effect(machine, admitted) {
        Known::Nothing => false,
        Known::Unresolved => {
            let refusal = policy_error(
                "effect_unresolved",
                "an earlier call of this effect has an unknown outcome that must be settled first",
            );
            let tool = Arc::clone(&admitted.tool);
            close_slot::refuse(machine, index, tool, refusal, &admitted.class, false);
            true
        }
        Known::Done(result) => {
            let Some(slot) = close_slot::slot(machine, index) else {
                return false;
            };
            let id = close_slot::identity(machine, slot, Arc::clone(&admitted.tool));
            close_slot::close(machine, index, result.deduplicated(id), None);
            true
        }
    }
}

enum Known {
    Nothing,
    Unresolved,
    Done(Arc<qitos_contracts::tool::result::ToolResult>),
}

/// What the ledger says of a logical key (TOL-8); only after `rejected` may the effect be tried again (RES-19).
fn known_effect(machine: &Machine, admitted: &Admitted) -> Known {
    let EffectClass::Declared(declared) = &admitted.class else {
        return Known::Nothing;
    };
    if !matches!(declared.key, EffectKey::Logical(_)) {
        return Known::Nothing;
    }
    let name = close_slot::effect_name(
        declared.effect_ref.as_str(),
        admitted.key.as_deref().unwrap_or_default(),
    );
    let Some(entry) = machine.durable.effects.get(&name) else {
        return Known::Nothing;
    };
    let state = entry.resolution.as_deref().unwrap_or(&entry.state);
    match (state, &entry.result) {
        ("committed", Some(result)) => Known::Done(Arc::clone(result)),
        ("rejected", _) => Known::Nothing,
        _ => Known::Unresolved,
    }
}

fn policy_error(code: &str, message: &str) -> Refusal {
    Refusal {
        status: RefusalStatus::Error,
        kind: ErrorKind::Policy,
        code: code.into(),
        message: message.into(),
        recoverable: false,
        hint: None,
        metadata: serde_json::Map::new(),
    }
}
