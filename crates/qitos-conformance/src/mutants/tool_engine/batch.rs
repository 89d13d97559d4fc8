//! The executor: which calls start, what their ends become, what is durable when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use qitos_contracts::artifact::ArtifactRef;
use qitos_contracts::ids::{AttemptId, ItemId, SlotId};
use qitos_contracts::log::{Item, ItemBody, ToolResultItem};
use qitos_contracts::tool::call::CallIdentity;
use qitos_contracts::tool::effect::idempotency_key;
use qitos_contracts::tool::model_view::{SpillOutcome, result_limit, settle, spills};
use qitos_contracts::tool::result::{
    AttemptFacts, End, LostKind, ResultIdentity, TerminalStatus, ToolResult,
};
use qitos_contracts::tool::{EffectClass, EffectKey, ErrorKind, Returned, ToolError};
use serde_json::Value;

use super::Flaw;
use super::attempt::{Attempt, perform};
use super::control::locked;
use super::durable::{Durable, SlotState, Stop};
use super::engine::World;
use super::gates::{Gated, Ready, pass};
use crate::tool::{FailFast, Mode};

/// The batch in memory, while it is acted on.
struct Running {
    gated: Vec<Gated>,
    in_flight: BTreeSet<usize>,
    stopped_by: Option<&'static str>,
    sender: Sender<(usize, u32, End)>,
    /// Ends that wait for their turn, with [`Flaw::SortsResults`].
    held: Vec<(usize, Arc<ToolResult>)>,
}

/// Acts on the open batch until every slot has its terminal.
pub(super) fn act(world: &mut World, state: &mut Durable) -> Result<(), Stop> {
    let Some(turn) = state.turn.clone() else {
        return Ok(());
    };
    let (sender, receiver) = channel();
    let gated = turn
        .calls
        .iter()
        .enumerate()
        .map(|(index, (_, call))| {
            let registry = world.registry();
            let slot = slot_id(state, index);
            pass(&registry, call, &slot, &world.scenario.settings, world.flaw)
        })
        .collect();
    let mut running = Running {
        gated,
        in_flight: BTreeSet::new(),
        stopped_by: None,
        sender,
        held: Vec::new(),
    };
    loop {
        let repeating = world.flaw == Some(Flaw::RepeatsDroppedRuns);
        if running.stopped_by.is_none() && world.control.cancelled.is_set() && !repeating {
            running.stopped_by = Some("cancel_token");
        }
        let closed = close_unstarted(world, state, &mut running);
        let starting = startable(world, state, &running);
        for index in &starting {
            start_intent(state, *index);
        }
        if world.flaw == Some(Flaw::DispatchesFirst) {
            dispatch(world, state, &mut running, &starting);
        }
        if !starting.is_empty() || !closed.is_empty() {
            world.store.commit(state)?;
        }
        for index in closed {
            world
                .scenario
                .script
                .terminal_durable(&slot_id(state, index));
        }
        if world.flaw != Some(Flaw::DispatchesFirst) {
            for index in &starting {
                locked(&world.control.intents).insert(slot_id(state, *index));
            }
            dispatch(world, state, &mut running, &starting);
        }
        if running.in_flight.is_empty() && startable(world, state, &running).is_empty() {
            return Ok(());
        }
        if !running.in_flight.is_empty() {
            receive(world, state, &mut running, &receiver)?;
        }
    }
}

fn slot_id(state: &Durable, index: usize) -> SlotId {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    match &state.turn {
        Some(turn) => SlotId::new(&turn.batch_id, index),
        // Never asked without a batch.
        None => SlotId::new(&super::engine::batch_id(0), index),
    }
}

fn attempts(state: &Durable, index: usize) -> u32 {
    match state.turn.as_ref().and_then(|turn| turn.slots.get(index)) {
        Some(SlotState::Open { attempts } | SlotState::Started { attempts }) => *attempts,
        _ => 0,
    }
}

fn set_slot(state: &mut Durable, index: usize, slot: SlotState) {
    if let Some(place) = state
        .turn
        .as_mut()
        .and_then(|turn| turn.slots.get_mut(index))
    {
        *place = slot;
    }
}

fn start_intent(state: &mut Durable, index: usize) {
    let attempts = attempts(state, index) + 1;
    set_slot(state, index, SlotState::Started { attempts });
}

fn identity(state: &Durable, index: usize) -> Option<ResultIdentity> {
    let (call_id, call) = state.turn.as_ref()?.calls.get(index)?;
    Some(ResultIdentity {
        tool_name: call.name.as_str().into(),
        call_id: call_id.clone(),
        slot_id: slot_id(state, index),
        owner_generation: state.generation,
    })
}

/// The logical key of a call, if it has one.
fn logical_key(class: &EffectClass) -> Option<String> {
    match class {
        EffectClass::Declared(declared) => match &declared.key {
            EffectKey::Logical(key) => Some(format!("{}\n{key}", declared.effect_ref)),
            EffectKey::PerSlot => None,
        },
        _ => None,
    }
}

/// Closes open slots that will not be dispatched: refused, deduplicated or stopped.
fn close_unstarted(world: &World, state: &mut Durable, running: &mut Running) -> Vec<usize> {
    let mut closed = Vec::new();
    for index in 0..running.gated.len() {
        let open = matches!(
            state.turn.as_ref().and_then(|turn| turn.slots.get(index)),
            Some(SlotState::Open { .. })
        );
        let Some(identity) = identity(state, index).filter(|_| open) else {
            continue;
        };
        let result = match (running.gated.get(index), running.stopped_by) {
            (Some(Err(refusal)), _) => {
                ToolResult::refused(identity, (**refusal).clone(), &EffectClass::Pure)
            }
            (Some(Ok(ready)), Some(source)) => {
                ToolResult::cancelled_unstarted(identity, source, &ready.class)
            }
            (Some(Ok(ready)), None) => {
                let earlier = logical_key(&ready.class)
                    .filter(|_| world.flaw != Some(Flaw::IgnoresLogicalKeys))
                    .and_then(|key| state.effects.get(&key));
                match earlier {
                    Some(earlier) => earlier.deduplicated(identity),
                    None => continue,
                }
            }
            (None, _) => continue,
        };
        if append_result(state, index, Arc::new(result), false) {
            closed.push(index);
        }
    }
    closed
}

/// Which open slots may start now (EXE-2, EXE-3).
fn startable(world: &World, state: &Durable, running: &Running) -> Vec<usize> {
    let Some(turn) = &state.turn else {
        return Vec::new();
    };
    let settings = &world.scenario.settings;
    let parallel = match world.flaw {
        Some(Flaw::OverlapsEverything) => true,
        Some(Flaw::OverlapsNothing) => false,
        _ => settings.mode == Mode::Parallel,
    };
    let bound = match world.flaw {
        Some(Flaw::OverlapsEverything) => usize::MAX,
        _ if parallel => settings.max_concurrency as usize,
        _ => 1,
    };
    let ready = |index: usize| {
        running
            .gated
            .get(index)
            .and_then(|gated| gated.as_ref().ok())
    };
    let safe = |ready: &Ready| {
        world.flaw == Some(Flaw::OverlapsEverything)
            || ready
                .tool
                .spec
                .concurrency_safe
                .unwrap_or(ready.tool.spec.read_only)
    };
    let mut active: Vec<usize> = running.in_flight.iter().copied().collect();
    let mut starting = Vec::new();
    for (index, slot) in turn.slots.iter().enumerate() {
        let open = matches!(slot, SlotState::Open { .. });
        let Some(call) = ready(index).filter(|_| open) else {
            continue;
        };
        let clashes = active.iter().any(|other| {
            ready(*other).is_some_and(|other| {
                !parallel
                    || !safe(call)
                    || !safe(other)
                    || (world.flaw != Some(Flaw::OverlapsEverything)
                        && call.class.effect_ref().is_some()
                        && call.class.effect_ref() == other.class.effect_ref())
            })
        });
        // In declaration order: whoever has to wait makes all later ones wait.
        if clashes || active.len() >= bound {
            break;
        }
        active.push(index);
        starting.push(index);
    }
    starting
}

fn dispatch(world: &World, state: &Durable, running: &mut Running, starting: &[usize]) {
    for index in starting {
        let Some(Ok(ready)) = running.gated.get(*index) else {
            continue;
        };
        let number = attempts(state, *index);
        let slot_id = slot_id(state, *index);
        let batch_id = match &state.turn {
            Some(turn) => turn.batch_id.clone(),
            None => continue,
        };
        let key = match &ready.class {
            EffectClass::Declared(declared) if world.flaw == Some(Flaw::SharesKeys) => {
                Some(format!("idem:{}", declared.effect_ref))
            }
            EffectClass::Declared(declared) => Some(idempotency_key(
                &world.session,
                &slot_id,
                declared,
                &ready.tool.spec.name,
                &ready.args,
            )),
            _ => None,
        };
        let attempt = Attempt {
            tool: Arc::clone(&ready.tool.tool),
            args: Arc::clone(&ready.args),
            identity: CallIdentity {
                session_id: world.session.clone(),
                run_id: world.run.clone(),
                step_id: 0,
                batch_id,
                attempt_id: AttemptId::of_slot(&slot_id, number, state.generation),
                slot_id,
                generation: state.generation,
                effect_ref: ready.class.effect_ref().cloned(),
                idempotency_key: key,
                deadline: ready.tool.spec.timeout,
            },
            timeout: ready.tool.spec.timeout,
            grace: world.scenario.settings.cancel_grace,
            run_cancelled: world.control.cancelled.clone(),
            workers: world.workers.clone(),
            flaw: world.flaw,
        };
        let (sender, index) = (running.sender.clone(), *index);
        running.in_flight.insert(index);
        let started = std::thread::Builder::new()
            .name("small-engine-call".into())
            // Nobody listens any more after a death.
            .spawn(move || drop(sender.send((index, number, perform(attempt)))));
        if started.is_err() {
            drop(
                running
                    .sender
                    .send((index, number, End::Lost(LostKind::Worker))),
            );
        }
    }
}

/// Takes one end: a repeat, or the slot's terminal.
fn receive(
    world: &mut World,
    state: &mut Durable,
    running: &mut Running,
    receiver: &Receiver<(usize, u32, End)>,
) -> Result<(), Stop> {
    let Ok((index, number, end)) = receiver.recv() else {
        running.in_flight.clear();
        return Ok(());
    };
    running.in_flight.remove(&index);
    let Some(Ok(ready)) = running.gated.get(index).cloned() else {
        return Ok(());
    };
    if repeats(world, &ready, &end, number) {
        set_slot(state, index, SlotState::Open { attempts: number });
        return Ok(());
    }
    let Some(identity) = identity(state, index) else {
        return Ok(());
    };
    let facts = AttemptFacts {
        attempt_id: AttemptId::of_slot(&identity.slot_id, number, state.generation),
        attempts: u64::from(number),
        latency_ms: 0,
    };
    let end = match end {
        End::Returned(Returned::Value(output))
            if world.flaw == Some(Flaw::ReadsStatusFromOutput)
                && output.get("status") == Some(&Value::from("failed")) =>
        {
            End::Failed(ToolError::new("tool_reported_error", "its output says so"))
        }
        end => end,
    };
    let result = ToolResult::ended(identity, &ready.class, end, None, facts);
    let result = Arc::new(keep_whole(world, running.gated.len(), index, result));
    if result.status() == TerminalStatus::Success
        && let Some(key) = logical_key(&ready.class)
    {
        state.effects.insert(key, Arc::clone(&result));
    }
    stop_after(world, running, &result);
    if world.flaw == Some(Flaw::SortsResults) && !running.in_flight.is_empty() {
        running.held.push((index, result));
        return Ok(());
    }
    let mut arrived = std::mem::take(&mut running.held);
    arrived.push((index, result));
    if world.flaw == Some(Flaw::SortsResults) {
        arrived.sort_by_key(|(index, _)| *index);
    }
    let arrived: Vec<usize> = arrived
        .into_iter()
        .filter_map(|(index, result)| append_result(state, index, result, false).then_some(index))
        .collect();
    world.store.commit(state)?;
    for index in arrived {
        world
            .scenario
            .script
            .terminal_durable(&slot_id(state, index));
    }
    Ok(())
}

/// Stores what the model will not see, before the result is recorded (PRJ-5).
fn keep_whole(world: &World, slots: usize, index: usize, result: ToolResult) -> ToolResult {
    let limit = result_limit(slots, index, &[]);
    let outcomes = spills(&result, limit)
        .into_iter()
        .map(|spill| {
            let mut body = spill.body;
            if world.flaw == Some(Flaw::KeepsWhatItShows) {
                body.truncate(limit);
            }
            let reference = ArtifactRef::of_body("memory", spill.media_type, &body);
            locked(&world.artifacts).insert(reference.artifact_id.clone(), body);
            SpillOutcome {
                part: spill.part,
                stored: Ok(reference),
            }
        })
        .collect();
    settle(result, limit, outcomes)
}

/// RES-16 and RES-17, and what the flaws make of them.
fn repeats(world: &World, ready: &Ready, end: &End, number: u32) -> bool {
    let spec = &ready.tool.spec;
    let left = number < spec.retry.max_attempts;
    match end {
        End::Failed(error) => {
            left && error.recoverable
                && spec.retry.retryable_codes.contains(&error.code)
                && (ready.class.is_pure() || spec.idempotent)
        }
        End::TimedOut { .. } | End::Panicked(_) => {
            left && world.flaw == Some(Flaw::RepeatsUnknownEffects)
        }
        End::Returned(_) => {
            world.flaw == Some(Flaw::RepeatsDroppedRuns)
                && world.control.dropped.load(Ordering::SeqCst)
                && number < 2
        }
        _ => false,
    }
}

/// Whether this end keeps the rest of the batch from starting (EXE-6).
fn stop_after(world: &World, running: &mut Running, result: &ToolResult) {
    let failed = result.status() != TerminalStatus::Success;
    let execution = result.status() == TerminalStatus::TimedOut
        || (result.status() == TerminalStatus::Error
            && result.error_kind() == Some(ErrorKind::Execution));
    let fires = match (world.scenario.settings.fail_fast, world.flaw) {
        (_, Some(Flaw::FirstErrorEndsBatch)) | (FailFast::Any, _) => failed,
        (FailFast::Execution, Some(Flaw::FailsFastOnAnything)) => failed,
        (FailFast::Execution, _) => execution,
        (FailFast::Off, _) => false,
    };
    if fires && running.stopped_by.is_none() {
        running.stopped_by = Some("fail_fast");
    }
}

/// Appends a terminal; false if the log refuses it.
pub(super) fn append_result(
    state: &mut Durable,
    index: usize,
    result: Arc<ToolResult>,
    synthetic: bool,
) -> bool {
    let Some(turn) = &state.turn else {
        return false;
    };
    let Some((call_id, _)) = turn.calls.get(index) else {
        return false;
    };
    let body = ItemBody::ToolResult(ToolResultItem {
        provider_scope: "fake:chat".into(),
        call_id: call_id.clone(),
        batch_id: turn.batch_id.clone(),
        result,
        synthetic,
        closure_reason: synthetic.then(|| "process_lost".into()),
    });
    let Ok(item_id) = format!("item-{}", state.log.items().len()).parse::<ItemId>() else {
        return false;
    };
    let item = Item {
        item_id,
        exchange_id: state.log.exchange_for(&body),
        body,
    };
    let appended = state.log.append(item, &mut Vec::new()).is_ok();
    if appended {
        set_slot(state, index, SlotState::Closed);
    }
    appended
}

/// What a new process makes of slots that were started and have no terminal (section 10).
pub(super) fn recover(world: &mut World, state: &mut Durable) -> Result<(), Stop> {
    state.generation += 1;
    let Some(turn) = state.turn.clone() else {
        return world.store.commit(state);
    };
    for (index, (_, call)) in turn.calls.iter().enumerate() {
        let Some(SlotState::Started { attempts }) = turn.slots.get(index) else {
            continue;
        };
        let slot = slot_id(state, index);
        let registry = world.registry();
        let gated = pass(&registry, call, &slot, &world.scenario.settings, world.flaw);
        let Ok(ready) = gated else { continue };
        let spec = &ready.tool.spec;
        let again = ready.class.is_pure() && *attempts <= spec.retry.max_attempts;
        if again || world.flaw == Some(Flaw::RepeatsAfterDeath) {
            set_slot(
                state,
                index,
                SlotState::Open {
                    attempts: *attempts,
                },
            );
            continue;
        }
        let Some(identity) = identity(state, index) else {
            continue;
        };
        let facts = AttemptFacts {
            attempt_id: AttemptId::of_slot(&slot, *attempts, state.generation),
            attempts: u64::from(*attempts),
            latency_ms: 0,
        };
        let class = if world.flaw == Some(Flaw::HidesWhatWasCutOff) {
            EffectClass::Pure
        } else {
            ready.class
        };
        let lost = ToolResult::ended(identity, &class, End::Lost(LostKind::Process), None, facts);
        append_result(state, index, Arc::new(lost), true);
    }
    world.store.commit(state)
}
