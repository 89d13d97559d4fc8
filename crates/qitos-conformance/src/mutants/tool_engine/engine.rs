//! The loop: ask, act, until the model answers without calls.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{BatchId, CallId, ItemId, RequestId, RunId, SessionId};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, Item, ItemBody, ParseStatus, SteeringItem,
    ToolCallPart, UserItem,
};
use qitos_contracts::tool::{FrozenRegistry, ToolRegistry};
use serde_json::Map;

use super::Flaw;
use super::attempt::Workers;
use super::batch::{act, recover};
use super::control::{Control, locked};
use super::durable::{Durable, SlotState, Stop, Store, Turn};
use crate::tool::{BatchOrder, Observation, RequestSeen, Scenario, ScriptedCall, Turn as Answer};

/// Everything but the durable state.
pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) flaw: Option<Flaw>,
    pub(super) store: Store,
    pub(super) control: Arc<Control>,
    pub(super) workers: Workers,
    pub(super) session: SessionId,
    pub(super) run: RunId,
    pub(super) artifacts: Mutex<BTreeMap<String, Vec<u8>>>,
    frozen: FrozenRegistry,
}

impl World {
    /// The tools of the run; with [`Flaw::RegistersDuringRun`] also those that came later.
    pub(super) fn registry(&self) -> FrozenRegistry {
        let late = locked(&self.control.late_tools);
        if late.is_empty() {
            return self.frozen.clone();
        }
        let mut registry = ToolRegistry::new();
        for tool in self.scenario.tools.iter().chain(late.iter()) {
            // A refused tool is simply not there.
            drop(registry.register_shared(Arc::clone(tool)).map(|_| ()));
        }
        registry.freeze(&[]).unwrap_or_else(|_| self.frozen.clone())
    }
}

pub(super) fn batch_id(number: usize) -> BatchId {
    BatchId::of_request(&RequestId::of_view(&Digest::of(
        format!("request {number}").as_bytes(),
    )))
}

pub(super) fn run(scenario: &Scenario, flaw: Option<Flaw>) -> Result<Observation, String> {
    let mut registry = ToolRegistry::new();
    for tool in &scenario.tools {
        registry
            .register_shared(Arc::clone(tool))
            .map_err(|error| error.to_string())?;
    }
    let facts = Digest::of(scenario.name.as_bytes());
    let mut world = World {
        scenario: scenario.clone(),
        flaw,
        store: Store::new(scenario.fault, Arc::clone(&scenario.script)),
        control: Arc::new(Control::new(flaw)),
        workers: Workers::default(),
        session: SessionId::derived(&facts),
        run: RunId::derived(&facts),
        artifacts: Mutex::default(),
        frozen: registry.freeze(&[]).map_err(|error| error.to_string())?,
    };
    scenario.script.attach(Arc::clone(&world.control) as _);
    let mut state = Durable::default();
    let mut stopped = drive(&mut world, &mut state, false);
    while stopped == Err(Stop::Killed) {
        let saved = world.store.saved();
        let exists = saved.is_some();
        state = saved.unwrap_or_default();
        world.control = Arc::new(Control::new(flaw));
        scenario.script.attach(Arc::clone(&world.control) as _);
        stopped = drive(&mut world, &mut state, exists);
    }
    Ok(observe(&world, &state, stopped))
}

fn observe(world: &World, state: &Durable, stopped: Result<&'static str, Stop>) -> Observation {
    let patience = world.scenario.settings.cancel_grace * 5 + Duration::from_millis(100);
    let (unresolved, late) = world.workers.settle(patience);
    let durable = world.store.saved().unwrap_or_else(|| state.clone());
    let mut items: Vec<_> = durable.log.items().iter().cloned().collect();
    if world.flaw == Some(Flaw::LosesTerminals) {
        items.retain(|item| match &item.item().body {
            ItemBody::ToolResult(result) => result.result.error_code() != Some("cancelled"),
            _ => true,
        });
    }
    let (outcome, stop_reason, error_code) = match stopped {
        Ok("final") => ("completed", "final", None),
        Ok(reason) => ("cancelled", reason, None),
        Err(_) => ("failed", "unrecoverable_error", Some("persistence_failed")),
    };
    Observation {
        items,
        outcome: outcome.into(),
        stop_reason: stop_reason.into(),
        error_code: error_code.map(Into::into),
        unresolved,
        late,
        artifacts: locked(&world.artifacts).clone(),
        fault_fired: world.store.fired,
    }
}

/// Runs until the end; gives the stop reason.
fn drive(world: &mut World, state: &mut Durable, exists: bool) -> Result<&'static str, Stop> {
    if exists {
        recover(world, state)?;
    } else {
        world.store.commit(state)?;
        let hello = vec![ContentBlock::text("begin")];
        append(
            state,
            ItemBody::User(UserItem {
                content: hello,
                metadata: Map::new(),
            }),
        );
    }
    if state.log.items().is_empty() {
        let hello = vec![ContentBlock::text("begin")];
        append(
            state,
            ItemBody::User(UserItem {
                content: hello,
                metadata: Map::new(),
            }),
        );
    }
    loop {
        act(world, state)?;
        apply_mail(world, state);
        if world.control.cancelled.is_set() {
            world.store.commit(state)?;
            return Ok("cancelled_immediate");
        }
        // The last answer was final, and it may have been committed before a death.
        if answered(state) {
            world.store.commit(state)?;
            return Ok("final");
        }
        world.store.commit(state)?;
        let answer = world.scenario.script.answer_seen(request(world, state));
        if world.flaw == Some(Flaw::SteersBeforeTheAnswer) {
            apply_mail(world, state);
        }
        match answer {
            Answer::Text(text) => {
                let part = AssistantPart::Content(ContentBlock::text(text));
                append_assistant(state, vec![part]);
                world.store.commit(state)?;
                if locked(&world.control.mailbox).is_empty() {
                    return Ok("final");
                }
            }
            Answer::Calls(calls) => declare(state, &calls),
        }
        if world.control.dropped.load(Ordering::SeqCst) && world.flaw.is_none() {
            world.control.cancelled.set();
        }
    }
}

/// Whether the newest item is an answer without calls.
fn answered(state: &Durable) -> bool {
    match state.log.items().last().map(|item| &item.item().body) {
        Some(ItemBody::Assistant(assistant)) => assistant.calls().next().is_none(),
        _ => false,
    }
}

fn request(world: &World, state: &Durable) -> RequestSeen {
    let mut batches: Vec<BatchOrder> = Vec::new();
    for item in state.log.items().iter() {
        match &item.item().body {
            ItemBody::Assistant(assistant) => {
                let declared: Vec<String> = assistant
                    .calls()
                    .map(|call| call.call_id.to_string())
                    .collect();
                if !declared.is_empty() {
                    batches.push(BatchOrder {
                        declaration_order: declared,
                        completion_order: Vec::new(),
                    });
                }
            }
            ItemBody::ToolResult(result) => {
                if let Some(batch) = batches.last_mut() {
                    batch.completion_order.push(result.call_id.to_string());
                }
            }
            _ => {}
        }
    }
    RequestSeen {
        items: state.log.items().iter().cloned().collect(),
        batches,
        tool_names: world
            .registry()
            .tools()
            .iter()
            .map(|tool| tool.wire_name.to_string())
            .collect(),
    }
}

fn apply_mail(world: &World, state: &mut Durable) {
    for text in world.control.take_mail() {
        state.steered += 1;
        append(
            state,
            ItemBody::Steering(SteeringItem {
                content: vec![ContentBlock::text(text)],
                metadata: Map::new(),
            }),
        );
    }
}

fn declare(state: &mut Durable, calls: &[ScriptedCall]) {
    let batch_id = batch_id(state.log.items().len());
    let mut declared: Vec<(CallId, ScriptedCall)> = Vec::new();
    let mut parts = Vec::new();
    for call in calls {
        let Ok(call_id) = call.call_id.parse::<CallId>() else {
            continue;
        };
        parts.push(AssistantPart::ToolCall(ToolCallPart {
            provider_scope: "fake:chat".into(),
            call_id: call_id.clone(),
            batch_id: batch_id.clone(),
            name: call.name.as_str().into(),
            raw_arguments: call.raw_arguments.as_str().into(),
            parsed_arguments: None,
            parse_status: ParseStatus::NotAttempted,
            parse_error: None,
            metadata: Map::new(),
        }));
        declared.push((call_id, call.clone()));
    }
    append_assistant(state, parts);
    state.turn = Some(Turn {
        batch_id,
        slots: vec![SlotState::Open { attempts: 0 }; declared.len()],
        calls: declared,
    });
}

fn append_assistant(state: &mut Durable, parts: Vec<AssistantPart>) {
    state.turn = None;
    append(
        state,
        ItemBody::Assistant(AssistantItem {
            parts,
            ..AssistantItem::default()
        }),
    );
}

fn append(state: &mut Durable, body: ItemBody) {
    let Ok(item_id) = format!("item-{}", state.log.items().len()).parse::<ItemId>() else {
        return;
    };
    let item = Item {
        item_id,
        exchange_id: state.log.exchange_for(&body),
        body,
    };
    // What the log refuses is left out, and the checks see it.
    drop(state.log.append(item, &mut Vec::new()));
}
