//! Durable facts to canonical component bytes; each commit writes what changed.

use qitos_contracts::canonical_json::{CanonicalError, ObjectWriter, to_bytes};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{RunId, WorkAttemptId, WorkItemId};
use qitos_contracts::log::ContentBlock;
use qitos_contracts::snapshot::{ComponentSpec, Lifecycle, SnapshotError, SnapshotWriter};
use qitos_contracts::tool::{EffectClass, EffectKey};
use serde_json::Value;

use crate::machine::Delta;
use crate::machine::state::{
    Admitted, AfterBatch, Durable, EffectEntry, Phase, Slot, SlotState, Turn,
};

/// Facts of a session that never change, or change only with its owner.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    /// The agent's name.
    pub(crate) agent_id: String,
    /// Name and version of the state's form.
    pub(crate) state_schema: String,
    /// The task.
    pub(crate) task: Value,
    /// Engine configuration.
    pub(crate) engine_config: Value,
    /// Options of the first run.
    pub(crate) execution_options: Value,
    /// What the run was composed of, launch metadata included.
    pub(crate) runtime_composition: Value,
    /// Digest of the tools.
    pub(crate) manifest_digest: Digest,
    /// The run before.
    pub(crate) parent_run: Option<RunId>,
    /// The work item of the session.
    pub(crate) work_item_id: WorkItemId,
    /// The attempt of that work item.
    pub(crate) attempt_id: WorkAttemptId,
    /// The five source fields of a forked session.
    pub(crate) fork_source: Option<Value>,
}

/// Why a commit could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("a component cannot be written")]
    Canonical(#[from] CanonicalError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

/// Tells the writer what changed since the last commit; `whole` writes everything (first commit, new owner).
pub(crate) fn capture(
    writer: &mut SnapshotWriter,
    fixed: &Capture,
    durable: &Durable,
    unresolved: u64,
    delta: &Delta,
    whole: bool,
) -> Result<(), CaptureError> {
    if whole {
        write_fixed(writer, fixed, durable)?;
    }
    if delta.state || whole {
        writer.replace(&ComponentSpec::AGENT_STATE, agent_state(fixed, durable))?;
    }
    writer.map_rest(
        &ComponentSpec::ENGINE_PROGRESS,
        progress(fixed, durable, unresolved)?,
    )?;
    writer.replace(&ComponentSpec::BUDGET_CAPABILITY, budget(durable)?)?;
    let conversation = &ComponentSpec::CONVERSATION;
    writer.append(conversation, "/exchange_log/items", delta.items())?;
    let receipts: Vec<(String, Vec<u8>)> = delta
        .receipts
        .iter()
        .map(|receipt| {
            Ok((
                receipt.receipt_id.clone(),
                qitos_contracts::canonical_json::to_canonical(receipt)?,
            ))
        })
        .collect::<Result<_, CanonicalError>>()?;
    writer.upsert(
        conversation,
        "/steering_receipts",
        receipts
            .iter()
            .map(|(key, record)| (key.as_str(), Some(record.as_slice()))),
    )?;
    if let Some(asked) = &delta.view {
        let mut bytes = Vec::with_capacity(256);
        let mut object = ObjectWriter::new(&mut bytes);
        object.key("ordinal").u64(asked.ordinal);
        object.key("request_id").str(asked.request_id.as_str());
        // SES-19: runs [first item, count] over the log.
        let mut runs = object.key("runs").array();
        let mut run = runs.item().array();
        run.item().u64(delta.view_first);
        run.item()
            .u64(durable.log.items().len() as u64 - delta.view_first);
        run.end();
        runs.end();
        object.key("view_digest").digest(&asked.view_digest);
        object.end();
        writer.map_blob(conversation, "/last_request_view", bytes.into())?;
    }
    writer.map_rest(conversation, conversation_rest(durable)?)?;
    if delta.batch || whole {
        writer.replace(&ComponentSpec::TOOL_BATCH, tool_batch(durable)?)?;
    }
    if !durable.effects.is_empty() {
        let changed: Vec<(&str, Vec<u8>)> = delta
            .effects
            .iter()
            .filter_map(|name| Some((name.as_str(), durable.effects.get(name)?)))
            .map(|(name, entry)| Ok((name, effect(entry)?)))
            .collect::<Result<_, CanonicalError>>()?;
        writer.upsert(
            &ComponentSpec::TOOL_EFFECTS,
            "/effects",
            changed
                .iter()
                .map(|(name, record)| (*name, Some(record.as_slice()))),
        )?;
        writer.map_rest(&ComponentSpec::TOOL_EFFECTS, b"{}".to_vec())?;
    }
    Ok(())
}

fn write_fixed(
    writer: &mut SnapshotWriter,
    fixed: &Capture,
    durable: &Durable,
) -> Result<(), CaptureError> {
    let progress = &ComponentSpec::ENGINE_PROGRESS;
    for (pointer, value) in [
        ("/task", &fixed.task),
        ("/engine_config", &fixed.engine_config),
        ("/execution_options", &fixed.execution_options),
        ("/runtime_composition", &fixed.runtime_composition),
    ] {
        writer.map_blob(progress, pointer, to_bytes(value)?.into())?;
    }
    let mut bytes = Vec::new();
    let mut object = ObjectWriter::new(&mut bytes);
    object
        .key("parent_run_id")
        .optional_str(fixed.parent_run.as_ref().map(RunId::as_str));
    object.key("run_id").str(durable.run.as_str());
    object.key("trace_complete").bool(true);
    object.end();
    writer.replace(&ComponentSpec::TRACE_LINEAGE, bytes)?;
    let mut bytes = Vec::new();
    let mut object = ObjectWriter::new(&mut bytes);
    object.key("attempt_id").str(fixed.attempt_id.as_str());
    let source = fixed.fork_source.as_ref();
    for key in [
        "source_checkpoint_id",
        "source_run_id",
        "source_session_id",
        "source_snapshot_id",
        "source_work_item_id",
    ] {
        object.key(key).optional_str(
            source
                .and_then(|source| source.get(key))
                .and_then(Value::as_str),
        );
    }
    object.key("work_item_id").str(fixed.work_item_id.as_str());
    object.end();
    writer.replace(&ComponentSpec::FORK_LINEAGE, bytes)?;
    Ok(())
}

fn agent_state(fixed: &Capture, durable: &Durable) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(durable.state.len() + 96);
    let mut object = ObjectWriter::new(&mut bytes);
    object.key("agent_id").str(&fixed.agent_id);
    object.key("state").raw(&durable.state);
    object.key("state_schema").str(&fixed.state_schema);
    object.end();
    bytes
}

/// The boundary at which a session in this state rests (SES-58).
fn boundary(durable: &Durable) -> &'static str {
    match (&durable.phase, durable.lifecycle) {
        (_, Lifecycle::WaitingInput) => "waiting_input",
        (Phase::Asked(_), _) => "in_flight_operation",
        (Phase::Acting(turn), _) if turn.batch.as_ref().is_some_and(|batch| !batch.is_closed()) => {
            "partial_parallel_recorded"
        }
        (Phase::Acting(_), _) => "after_tool_result",
        (Phase::Ready, _) => "after_model_result",
    }
}

fn started_slots(durable: &Durable) -> usize {
    match &durable.phase {
        Phase::Acting(turn) => turn.batch.as_ref().map_or(0, |batch| {
            batch
                .slots
                .iter()
                .filter(|slot| matches!(slot.state, SlotState::Started(_)))
                .count()
        }),
        _ => 0,
    }
}

fn progress(
    fixed: &Capture,
    durable: &Durable,
    unresolved: u64,
) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::with_capacity(1_024);
    let mut object = ObjectWriter::new(&mut bytes);
    match &durable.phase {
        Phase::Asked(asked) => object.key("asked").serialize(asked)?,
        _ => object.key("asked").null(),
    }
    object.key("cancel").serialize(&durable.cancel)?;
    object.key("counters").serialize(&durable.counters)?;
    match &durable.last_stop {
        Some(stop) => object.key("last_stop").serialize(stop)?,
        None => object.key("last_stop").null(),
    }
    object.key("lifecycle").str(durable.lifecycle.as_str());
    object.key("manifest_digest").digest(&fixed.manifest_digest);
    object.key("next_step").u64(durable.step);
    object.key("owner_generation").u64(durable.owner_generation);
    object.key("patch").optional_str(durable.patch.as_deref());
    let mut safety = object.key("pause_safety").object();
    safety.key("boundary").str(boundary(durable));
    safety.key("completed_slots_recorded").bool(true);
    safety
        .key("framework_workers_quiesced")
        .bool(started_slots(durable) == 0);
    safety.key("open_slots_recorded").bool(true);
    safety.key("unresolved_effect_count").u64(unresolved);
    safety.end();
    object.key("phase").str(durable.phase.as_str());
    let mut recent = object.key("recent").array();
    for terminal in &durable.recent {
        let mut entry = recent.item().object();
        entry.key("args").digest(&terminal.args);
        entry.key("result").digest(&terminal.result);
        entry.key("tool").str(&terminal.tool);
        entry.end();
    }
    recent.end();
    object.key("step_begun").bool(durable.step_begun);
    let failed = (durable.lifecycle == Lifecycle::Failed)
        .then(|| {
            durable
                .last_stop
                .as_ref()
                .and_then(|stop| stop.failure.as_ref())
        })
        .flatten();
    match failed {
        Some(failure) => object.key("terminal_failure").serialize(failure)?,
        None => object.key("terminal_failure").null(),
    }
    object.end();
    Ok(bytes)
}

fn budget(durable: &Durable) -> Result<Vec<u8>, CanonicalError> {
    let (counters, budget) = (&durable.counters, &durable.budget);
    let mut bytes = Vec::with_capacity(384);
    let mut object = ObjectWriter::new(&mut bytes);
    object
        .key("active_seconds")
        .f64(seconds(counters.active_ms))?;
    object
        .key("max_model_requests")
        .optional_u64(budget.max_requests);
    match budget.max_runtime_ms {
        Some(limit) => object.key("max_runtime_seconds").f64(seconds(limit))?,
        None => object.key("max_runtime_seconds").null(),
    }
    object.key("max_steps").u64(budget.max_steps);
    object.key("max_tokens").optional_u64(budget.max_tokens);
    object
        .key("max_tool_calls")
        .optional_u64(budget.max_tool_calls);
    object.key("model_requests_consumed").u64(counters.requests);
    object
        .key("model_requests_reserved")
        .u64(counters.requests_reserved);
    object.key("token_usage").u64(counters.tokens);
    object.key("tool_calls_consumed").u64(counters.tool_calls);
    object.end();
    Ok(bytes)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds of a session stay far below 2^53"
)]
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1_000.0
}

fn conversation_rest(durable: &Durable) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::with_capacity(256);
    let mut object = ObjectWriter::new(&mut bytes);
    let mut log = object.key("exchange_log").object();
    log.key("log_id").str(&format!("log_{}", durable.session));
    let mut queued = log.key("queued_steering").array();
    for waiting in durable.log.queue() {
        let mut entry = queued.item().object();
        let texts: Vec<&str> = waiting
            .steering
            .content
            .iter()
            .filter_map(|block: &ContentBlock| block.text.as_deref())
            .collect();
        entry.key("content").strings(&texts);
        entry.key("item_id").str(waiting.item_id.as_str());
        entry.end();
    }
    queued.end();
    log.key("schema_version")
        .str(qitos_contracts::log::LOG_SCHEMA);
    log.end();
    object.key("log_chain").digest(&durable.log.chain());
    object.end();
    Ok(bytes)
}

fn tool_batch(durable: &Durable) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::with_capacity(512);
    let mut object = ObjectWriter::new(&mut bytes);
    match &durable.phase {
        Phase::Acting(turn) => write_turn(object.key("turn").object(), turn)?,
        _ => object.key("turn").null(),
    }
    object.end();
    Ok(bytes)
}

fn write_turn(mut object: ObjectWriter<'_>, turn: &Turn) -> Result<(), CanonicalError> {
    object.key("assistant_at").optional_u64(turn.assistant_at);
    match &turn.batch {
        None => object.key("batch").null(),
        Some(batch) => {
            let mut entry = object.key("batch").object();
            entry.key("batch_id").str(batch.id.as_str());
            let mut completion = entry.key("completion").array();
            for index in &batch.completion {
                completion.item().u64(u64::from(*index));
            }
            completion.end();
            entry.key("fired").bool(batch.fired);
            let mut slots = entry.key("slots").array();
            for slot in &batch.slots {
                write_slot(slots.item().object(), slot)?;
            }
            slots.end();
            entry.end();
        }
    }
    object.key("decision").serialize(&turn.decision)?;
    match &turn.then {
        AfterBatch::Reduce => object.key("then").str("reduce"),
        AfterBatch::AskAgain => object.key("then").str("ask_again"),
        AfterBatch::Stop(reason) => object.key("then").str(reason.as_str()),
    }
    object.end();
    Ok(())
}

fn write_slot(mut object: ObjectWriter<'_>, slot: &Slot) -> Result<(), CanonicalError> {
    let (state, intent) = match &slot.state {
        // A slot that the gates passed and that did not start passes them again after a restart (ARG-5).
        SlotState::Declared | SlotState::Ready(_) => ("open", None),
        SlotState::Started(intent) => ("started", Some(intent)),
        SlotState::Closed(_) => ("closed", None),
    };
    object.key("attempts").u64(u64::from(slot.attempts));
    object.key("call_id").str(slot.call_id.as_str());
    match intent {
        None => object.key("intent").null(),
        Some(intent) => {
            let mut entry = object.key("intent").object();
            entry.key("attempt_id").str(intent.attempt_id.as_str());
            entry.key("generation").u64(intent.generation);
            write_admitted(entry.key("what").object(), &intent.admitted);
            entry.end();
        }
    }
    match &slot.reported {
        None => object.key("reported").null(),
        Some(reported) => {
            let mut entry = object.key("reported").object();
            entry.key("receipt").value(&reported.receipt)?;
            entry.key("state").str(match reported.state {
                qitos_contracts::tool::EffectReport::Committed => "committed",
                qitos_contracts::tool::EffectReport::Rejected => "rejected",
            });
            entry.end();
        }
    }
    object.key("slot_id").str(slot.id.as_str());
    object.key("state").str(state);
    object.end();
    Ok(())
}

fn write_admitted(mut object: ObjectWriter<'_>, admitted: &Admitted) {
    object.key("args_digest").digest(&admitted.args_digest);
    object.key("backoff_ms").u64(admitted.backoff_ms);
    object.key("concurrent").bool(admitted.concurrent);
    match &admitted.class {
        EffectClass::Pure => object.key("effect").str("pure"),
        EffectClass::Undeclared => object.key("effect").str("undeclared"),
        EffectClass::Declared(declared) => {
            let mut entry = object.key("effect").object();
            entry.key("dedupe").bool(declared.dedupe);
            entry.key("effect_ref").str(declared.effect_ref.as_str());
            entry.key("logical_key").optional_str(match &declared.key {
                EffectKey::PerSlot => None,
                EffectKey::Logical(key) => Some(key),
            });
            entry.key("reconcile").bool(declared.reconcile);
            entry.end();
        }
    }
    object.key("key").optional_str(admitted.key.as_deref());
    object
        .key("max_attempts")
        .u64(u64::from(admitted.max_attempts));
    object.key("max_backoff_ms").u64(admitted.max_backoff_ms);
    object.key("repeatable").bool(admitted.repeatable);
    object.key("resume_with_key").bool(admitted.resume_with_key);
    object
        .key("retryable_codes")
        .strings(admitted.retryable_codes.iter());
    object.key("tool").str(&admitted.tool);
    object.end();
}

fn effect(entry: &EffectEntry) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::with_capacity(256);
    let mut object = ObjectWriter::new(&mut bytes);
    object.key("effect_ref").str(entry.effect_ref.as_str());
    if let Some(evidence) = &entry.evidence {
        object.key("evidence").str(evidence);
    }
    object.key("key").str(&entry.key);
    object
        .key("resolution")
        .optional_str(entry.resolution.as_deref());
    match &entry.result {
        Some(result) => object.key("result").raw(result.canonical_bytes()),
        None => object.key("result").null(),
    }
    object.key("slot_id").str(entry.slot_id.as_str());
    object.key("state").str(&entry.state);
    object.end();
    Ok(bytes)
}
