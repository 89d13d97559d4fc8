//! Canonical components back to durable facts; strict: what does not decode is `corrupt_snapshot`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{RunId, SessionId, WorkAttemptId, WorkItemId};
use qitos_contracts::log::{
    ContentBlock, ExchangeLog, Item, ItemBody, QueuedSteering, SteeringItem, ToolCallPart,
};
use qitos_contracts::snapshot::Lifecycle;
use qitos_contracts::tool::result::{ReportedEffect, ToolResult};
use qitos_contracts::tool::{DeclaredEffect, EffectClass, EffectKey, EffectReport};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::machine::limits::Budget;
use crate::machine::state::{
    Admitted, AfterBatch, Asked, Batch, CancelMode, Counters, Durable, EffectEntry, Intent,
    LastStop, Phase, RecentTerminal, Slot, SlotState, Turn, TurnDecision,
};
use crate::outcome::StopReason;

/// A component that does not decode; names the place, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("component `{component}` does not decode at `{place}`")]
pub(crate) struct Undecodable {
    pub(crate) component: &'static str,
    pub(crate) place: String,
}

fn bad(component: &'static str, place: impl Into<String>) -> Undecodable {
    Undecodable {
        component,
        place: place.into(),
    }
}

/// Everything that a snapshot tells.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) durable: Durable,
    pub(crate) agent_id: String,
    pub(crate) state_schema: String,
    pub(crate) state: Value,
    pub(crate) task: Value,
    pub(crate) engine_config: Value,
    pub(crate) execution_options: Value,
    pub(crate) runtime_composition: Value,
    pub(crate) manifest_digest: Digest,
    pub(crate) work_item_id: WorkItemId,
    pub(crate) fork_source: Option<Value>,
    pub(crate) run: RunId,
    /// Live records of the keyed logs, to be given to the writer.
    pub(crate) receipts: Vec<(String, Vec<u8>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    asked: Option<Asked>,
    cancel: Option<CancelMode>,
    counters: Counters,
    engine_config: Value,
    execution_options: Value,
    last_stop: Option<LastStop>,
    lifecycle: String,
    manifest_digest: Digest,
    next_step: u64,
    owner_generation: u64,
    patch: Option<String>,
    #[serde(rename = "pause_safety")]
    _pause_safety: Value,
    phase: String,
    recent: Vec<RecentTerminal>,
    runtime_composition: Value,
    step_begun: bool,
    task: Value,
    #[serde(rename = "terminal_failure")]
    _terminal_failure: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetRecord {
    #[serde(rename = "active_seconds")]
    _active_seconds: f64,
    max_model_requests: Option<u64>,
    max_runtime_seconds: Option<f64>,
    max_steps: u64,
    max_tokens: Option<u64>,
    max_tool_calls: Option<u64>,
    #[serde(rename = "model_requests_consumed")]
    _model_requests_consumed: u64,
    #[serde(rename = "model_requests_reserved")]
    _model_requests_reserved: u64,
    #[serde(rename = "token_usage")]
    _token_usage: u64,
    #[serde(rename = "tool_calls_consumed")]
    _tool_calls_consumed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lineage {
    attempt_id: WorkAttemptId,
    work_item_id: WorkItemId,
    source_checkpoint_id: Option<String>,
    source_run_id: Option<String>,
    source_session_id: Option<String>,
    source_snapshot_id: Option<String>,
    source_work_item_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    exchange_log: LogRecord,
    last_request_view: Option<Value>,
    log_chain: Digest,
    #[serde(default)]
    steering_receipts: Vec<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogRecord {
    items: Vec<Value>,
    #[serde(rename = "log_id")]
    _log_id: String,
    queued_steering: Vec<Queued>,
    schema_version: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Queued {
    content: Vec<String>,
    item_id: qitos_contracts::ids::ItemId,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnRecord {
    assistant_at: Option<u64>,
    batch: Option<BatchRecord>,
    decision: TurnDecision,
    then: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRecord {
    batch_id: qitos_contracts::ids::BatchId,
    completion: Vec<u32>,
    fired: bool,
    slots: Vec<SlotRecord>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotRecord {
    attempts: u32,
    call_id: qitos_contracts::ids::CallId,
    intent: Option<IntentRecord>,
    reported: Option<ReportedRecord>,
    slot_id: qitos_contracts::ids::SlotId,
    state: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IntentRecord {
    attempt_id: qitos_contracts::ids::AttemptId,
    generation: u64,
    what: AdmittedRecord,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmittedRecord {
    args_digest: Digest,
    backoff_ms: u64,
    concurrent: bool,
    effect: Value,
    key: Option<String>,
    max_attempts: u32,
    max_backoff_ms: u64,
    repeatable: bool,
    resume_with_key: bool,
    retryable_codes: Vec<String>,
    tool: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredRecord {
    dedupe: bool,
    effect_ref: qitos_contracts::ids::EffectRef,
    logical_key: Option<String>,
    reconcile: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportedRecord {
    receipt: Value,
    state: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectRecord {
    effect_ref: qitos_contracts::ids::EffectRef,
    #[serde(default)]
    evidence: Option<String>,
    key: String,
    resolution: Option<String>,
    result: Option<Value>,
    slot_id: qitos_contracts::ids::SlotId,
    state: String,
}

/// The payloads of a snapshot's components, as a reader gives them.
#[derive(Debug)]
pub(crate) struct Payloads {
    pub(crate) agent_state: Value,
    pub(crate) progress: Value,
    pub(crate) budget: Value,
    pub(crate) trace: Value,
    pub(crate) lineage: Option<Value>,
    pub(crate) conversation: Value,
    pub(crate) batch: Value,
    pub(crate) effects: Option<Value>,
}

fn typed<T: DeserializeOwned>(component: &'static str, value: Value) -> Result<T, Undecodable> {
    serde_json::from_value(value).map_err(|error| bad(component, place_of(&error)))
}

/// The field that serde's message names, without values.
fn place_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split('`').nth(1).map_or_else(
        || "payload".to_owned(),
        |field| field.chars().take(64).collect(),
    )
}

/// Reads everything; nothing live is made yet (SES-27).
pub(crate) fn read_durable(
    session: &SessionId,
    payloads: Payloads,
) -> Result<Restored, Undecodable> {
    let progress: Progress = typed("engine_progress", payloads.progress)?;
    let budget: BudgetRecord = typed("budget_capability", payloads.budget)?;
    let lineage: Option<Lineage> = payloads
        .lineage
        .map(|value| typed("fork_lineage", value))
        .transpose()?;
    let conversation: Conversation = typed("conversation", payloads.conversation)?;
    let Value::Object(mut agent) = payloads.agent_state else {
        return Err(bad("agent_state", "payload"));
    };
    let mut text = |key: &'static str| match agent.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(bad("agent_state", key)),
    };
    let (agent_id, state_schema) = (text("agent_id")?, text("state_schema")?);
    let state = agent
        .remove("state")
        .ok_or_else(|| bad("agent_state", "state"))?;
    if !agent.is_empty() {
        return Err(bad("agent_state", "unknown"));
    }
    let run = payloads
        .trace
        .get("run_id")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| bad("trace_lineage", "run_id"))?;
    let log = read_log(conversation.exchange_log, conversation.log_chain)?;
    let _ = conversation.last_request_view;
    let turn = payloads.batch.get("turn").cloned().unwrap_or(Value::Null);
    let phase = match (progress.phase.as_str(), progress.asked, turn) {
        ("ready", None, _) => Phase::Ready,
        ("asked", Some(asked), _) => Phase::Asked(asked),
        ("acting", None, turn @ Value::Object(_)) => {
            Phase::Acting(read_turn(typed("tool_batch", turn)?, &log)?)
        }
        _ => return Err(bad("engine_progress", "phase")),
    };
    let lifecycle = progress
        .lifecycle
        .parse::<Lifecycle>()
        .map_err(|_| bad("engine_progress", "lifecycle"))?;
    let effects = payloads
        .effects
        .map(read_effects)
        .transpose()?
        .unwrap_or_default();
    let state_bytes = canonical_json::to_bytes(&state).map_err(|_| bad("agent_state", "state"))?;
    let receipts = conversation
        .steering_receipts
        .into_iter()
        .filter_map(|receipt| {
            let key = receipt.get("receipt_id")?.as_str()?.to_owned();
            Some((key, canonical_json::to_bytes(&Value::Object(receipt)).ok()?))
        })
        .collect();
    let fork_source = lineage.as_ref().and_then(|lineage| {
        lineage.source_session_id.as_ref()?;
        Some(serde_json::json!({
            "source_checkpoint_id": lineage.source_checkpoint_id,
            "source_run_id": lineage.source_run_id,
            "source_session_id": lineage.source_session_id,
            "source_snapshot_id": lineage.source_snapshot_id,
            "source_work_item_id": lineage.source_work_item_id,
        }))
    });
    let lineage = lineage.ok_or_else(|| bad("fork_lineage", "payload"))?;
    let _ = lineage.attempt_id;
    Ok(Restored {
        durable: Durable {
            session: session.clone(),
            run: RunId::clone(&run),
            owner_generation: progress.owner_generation,
            lifecycle,
            phase,
            step: progress.next_step,
            step_begun: progress.step_begun,
            state: state_bytes.into(),
            log,
            counters: progress.counters,
            budget: Budget {
                max_steps: budget.max_steps,
                max_requests: budget.max_model_requests,
                max_runtime_ms: budget.max_runtime_seconds.map(millis),
                max_tokens: budget.max_tokens,
                max_tool_calls: budget.max_tool_calls,
            },
            cancel: progress.cancel,
            recent: VecDeque::from(progress.recent),
            effects,
            patch: progress.patch,
            last_stop: progress.last_stop,
        },
        agent_id,
        state_schema,
        state,
        task: progress.task,
        engine_config: progress.engine_config,
        execution_options: progress.execution_options,
        runtime_composition: progress.runtime_composition,
        manifest_digest: progress.manifest_digest,
        work_item_id: lineage.work_item_id,
        fork_source,
        run,
        receipts,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a u64 of ms holds"
)]
fn millis(seconds: f64) -> u64 {
    (seconds * 1_000.0).round().clamp(0.0, 9.0e15) as u64
}

fn read_log(record: LogRecord, chain: Digest) -> Result<ExchangeLog, Undecodable> {
    if record.schema_version != qitos_contracts::log::LOG_SCHEMA {
        return Err(bad("conversation", "schema_version"));
    }
    let mut items = Vec::with_capacity(record.items.len());
    for item in record.items {
        items.push(Item::from_value(item).map_err(|error| bad("conversation", error.field))?);
    }
    let queue = record
        .queued_steering
        .into_iter()
        .map(|queued| QueuedSteering {
            item_id: queued.item_id,
            steering: SteeringItem {
                content: queued.content.into_iter().map(ContentBlock::text).collect(),
                metadata: Map::new(),
            },
        })
        .collect();
    let log = ExchangeLog::restore(items, queue).map_err(|_| bad("conversation", "items"))?;
    // CTX-23: the identity of the log is the chain over its items.
    if log.chain() == chain {
        Ok(log)
    } else {
        Err(bad("conversation", "log_chain"))
    }
}

fn read_turn(record: TurnRecord, log: &ExchangeLog) -> Result<Turn, Undecodable> {
    let here = |place: &str| bad("tool_batch", place);
    let then = match record.then.as_str() {
        "reduce" => AfterBatch::Reduce,
        "ask_again" => AfterBatch::AskAgain,
        word => AfterBatch::Stop(StopReason::from_word(word).ok_or_else(|| here("then"))?),
    };
    let Some(batch) = record.batch else {
        return Ok(Turn {
            decision: record.decision,
            batch: None,
            assistant_at: record.assistant_at,
            then,
        });
    };
    let at = record
        .assistant_at
        .and_then(|at| usize::try_from(at).ok())
        .ok_or_else(|| here("assistant_at"))?;
    let assistant = log.items().get(at).ok_or_else(|| here("assistant_at"))?;
    let ItemBody::Assistant(assistant) = &assistant.item().body else {
        return Err(here("assistant_at"));
    };
    let calls: Vec<&ToolCallPart> = assistant.calls().collect();
    if calls.len() != batch.slots.len() {
        return Err(here("slots"));
    }
    let results: HashMap<&str, Arc<ToolResult>> = (at + 1..log.items().len())
        .filter_map(|index| match &log.items().get(index)?.item().body {
            ItemBody::ToolResult(result) if result.batch_id == batch.batch_id => {
                Some((result.call_id.as_str(), Arc::clone(&result.result)))
            }
            _ => None,
        })
        .collect();
    let mut slots = Vec::with_capacity(calls.len());
    for (slot, call) in batch.slots.into_iter().zip(calls) {
        if slot.call_id != call.call_id {
            return Err(here("call_id"));
        }
        let state = match (slot.state.as_str(), slot.intent) {
            ("open", None) => SlotState::Declared,
            ("started", Some(intent)) => SlotState::Started(read_intent(intent)?),
            ("closed", None) => SlotState::Closed(
                results
                    .get(slot.call_id.as_str())
                    .cloned()
                    .ok_or_else(|| here("result"))?,
            ),
            _ => return Err(here("state")),
        };
        let reported = slot
            .reported
            .map(|reported| {
                let state = match reported.state.as_str() {
                    "committed" => EffectReport::Committed,
                    "rejected" => EffectReport::Rejected,
                    _ => return Err(here("reported")),
                };
                Ok(ReportedEffect {
                    state,
                    receipt: reported.receipt,
                })
            })
            .transpose()?;
        slots.push(Slot {
            id: slot.slot_id,
            scope: Arc::clone(&call.provider_scope),
            call_id: slot.call_id,
            name: Arc::clone(&call.name),
            raw_arguments: Arc::clone(&call.raw_arguments),
            args: call.parsed_arguments.clone(),
            state,
            attempts: slot.attempts,
            reported,
        });
    }
    let batch = Batch {
        id: batch.batch_id,
        slots,
        completion: batch.completion,
        fired: batch.fired,
    };
    Ok(Turn {
        decision: record.decision,
        batch: Some(batch),
        assistant_at: record.assistant_at,
        then,
    })
}

fn read_intent(record: IntentRecord) -> Result<Intent, Undecodable> {
    let what = record.what;
    let class = match what.effect {
        Value::String(word) if word == "pure" => EffectClass::Pure,
        Value::String(word) if word == "undeclared" => EffectClass::Undeclared,
        value @ Value::Object(_) => {
            let declared: DeclaredRecord = typed("tool_batch", value)?;
            EffectClass::Declared(DeclaredEffect {
                effect_ref: declared.effect_ref,
                key: declared
                    .logical_key
                    .map_or(EffectKey::PerSlot, EffectKey::Logical),
                dedupe: declared.dedupe,
                reconcile: declared.reconcile,
            })
        }
        _ => return Err(bad("tool_batch", "effect")),
    };
    Ok(Intent {
        admitted: Admitted {
            tool: what.tool.into(),
            args_digest: what.args_digest,
            class,
            key: what.key,
            repeatable: what.repeatable,
            concurrent: what.concurrent,
            max_attempts: what.max_attempts,
            retryable_codes: what.retryable_codes.into(),
            backoff_ms: what.backoff_ms,
            max_backoff_ms: what.max_backoff_ms,
            resume_with_key: what.resume_with_key,
        },
        attempt_id: record.attempt_id,
        generation: record.generation,
    })
}

fn read_effects(value: Value) -> Result<BTreeMap<String, EffectEntry>, Undecodable> {
    let here = |place: &str| bad("tool_effects", place);
    let Value::Object(mut map) = value else {
        return Err(here("payload"));
    };
    let records = match map.remove("effects") {
        None => Vec::new(),
        Some(Value::Array(records)) => records,
        Some(_) => return Err(here("effects")),
    };
    let mut effects = BTreeMap::new();
    for record in records {
        let record: EffectRecord = typed("tool_effects", record)?;
        let result = record
            .result
            .map(|result| {
                ToolResult::from_value(result)
                    .map(Arc::new)
                    .map_err(|_| here("result"))
            })
            .transpose()?;
        let name = format!("{}\n{}", record.effect_ref, record.key);
        let entry = EffectEntry {
            effect_ref: record.effect_ref,
            key: record.key,
            slot_id: record.slot_id,
            state: record.state.into(),
            result,
            resolution: record.resolution,
            evidence: record.evidence,
        };
        effects.insert(name, entry);
    }
    Ok(effects)
}
