//! Facts of a commit become records, and records go to the sinks, after the commit and never before (SES-33).

use qitos_contracts::checkpoint::Receipt;
use qitos_contracts::record::{Record, RecordKind, RecordRole};
use serde_json::{Map, Value, json};

use super::Driver;
use crate::machine::Fact;
use crate::machine::state::Now;

impl Driver {
    /// Publishes; `false` if a required sink failed, so that nothing may be let out.
    pub(super) async fn publish(
        &mut self,
        facts: &[Fact],
        receipt: Option<&Receipt>,
        now: Now,
    ) -> bool {
        for hook in &self.parts.hooks {
            // An observer gets copies and cannot break a run (ENG-18).
            let told =
                std::panic::AssertUnwindSafe(|| facts.iter().for_each(|fact| hook.on_fact(fact)));
            let _ = std::panic::catch_unwind(told);
        }
        let Some(dispatcher) = self.parts.dispatcher.clone() else {
            return true;
        };
        if dispatcher.is_empty() {
            return true;
        }
        let mut records: Vec<Record> = Vec::with_capacity(facts.len() + 1);
        for fact in facts {
            let mut record = self.record(records.len(), receipt, now, kind_of(fact));
            self.fill(&mut record, fact);
            records.push(record);
        }
        if let Some(receipt) = receipt {
            records.push(self.lifecycle_event(records.len(), receipt, now));
        }
        let submitted = dispatcher.submit(records).await;
        if !submitted.report.failures.is_empty() {
            self.trajectory_complete = false;
        }
        !submitted.required_failed
    }

    /// A record that reports a commit: deriving it again after a crash gives the same id and time (TRJ-4).
    fn record(
        &self,
        index: usize,
        receipt: Option<&Receipt>,
        now: Now,
        kind: RecordKind,
    ) -> Record {
        let durable = self.machine.durable();
        let record_id = match receipt {
            Some(receipt) => format!("{}:{index}", receipt.snapshot_id),
            None => format!("{}:{}:{index}", durable.run, self.parts.next_volatile()),
        };
        let mut record = Record::new(kind, record_id, now.wall);
        if kind == RecordKind::Step {
            // An aggregate is no fact of its own (TRJ-6); sealing refuses it otherwise.
            record.role = RecordRole::DerivedView;
        }
        record.session_id = Some(durable.session.as_str().into());
        record.run_id = Some(durable.run.as_str().into());
        record.step_id = Some(durable.step);
        record.phase = Some(self.machine.phase_name().into());
        record.agent_id = Some(self.parts.agent.name().into());
        record.owner_generation = Some(durable.owner_generation);
        record.snapshot_id = receipt.map(|receipt| receipt.snapshot_id.as_str().into());
        record
    }

    /// SES-67: one lifecycle event after each commit.
    fn lifecycle_event(&self, index: usize, receipt: &Receipt, now: Now) -> Record {
        let mut record = self.record(index, Some(receipt), now, RecordKind::Snapshot);
        record.checkpoint_ref = Some(receipt.checkpoint_id.as_str().into());
        record.lifecycle_state = Some(receipt.lifecycle.as_str().into());
        record.payload = object(json!({
            "event": "session_committed",
            "generation": receipt.generation,
            "lifecycle": receipt.lifecycle.as_str(),
            "durability": receipt.durability_class.as_str(),
            "root_digest": receipt.root_digest,
            "captured_at": now.wall,
        }));
        record
    }

    fn fill(&self, record: &mut Record, fact: &Fact) {
        let durable = self.machine.durable();
        let payload = match fact {
            Fact::RunStarted => json!({
                "event": "run_started",
                "agent_name": self.parts.agent.name(),
                "model": self.parts.view_policy.target().model(),
                "objective": self.callbacks.task.objective,
            }),
            Fact::StepBegun { step } => {
                record.step_id = Some(*step);
                json!({"event": "step_begun", "step_id": step})
            }
            Fact::StepCommitted { step } => {
                record.step_id = Some(*step);
                json!({"event": "step_committed", "step_id": step})
            }
            Fact::ModelRequest { asked, items } => {
                record.provider_transaction_id = Some(asked.request_id.as_str().into());
                json!({
                    "provider": self.parts.view_policy.target().provider(),
                    "model": self.parts.view_policy.target().model(),
                    "operation": "chat",
                    "ordinal": asked.ordinal,
                    "items": [[0, items]],
                    "view_digest": asked.view_digest,
                    "reserved_tokens": asked.reserved_tokens,
                })
            }
            Fact::ModelResponse {
                request_id,
                ordinal,
                usage,
                finish,
                assistant_at,
            } => {
                record.provider_transaction_id = Some(request_id.as_str().into());
                let text = usize::try_from(*assistant_at)
                    .ok()
                    .and_then(|at| durable.log.items().get(at))
                    .and_then(|item| match &item.item().body {
                        qitos_contracts::log::ItemBody::Assistant(assistant) => {
                            Some(assistant.text())
                        }
                        _ => None,
                    });
                let usage = usage.map(|usage| {
                    json!({
                        "input_tokens": usage.prompt_tokens,
                        "output_tokens": usage.completion_tokens,
                        "cache_read_input_tokens": usage.cached_tokens,
                        "cache_creation_input_tokens": usage.cache_creation_tokens,
                        "reasoning_output_tokens": usage.reasoning_tokens,
                    })
                });
                json!({
                    "ordinal": ordinal,
                    "finish_reasons": [finish],
                    "usage": usage,
                    "item": assistant_at,
                    "text": text,
                })
            }
            Fact::ModelFailed {
                request_id,
                ordinal,
                failure,
            } => {
                record.provider_transaction_id = Some(request_id.as_str().into());
                json!({
                    "ordinal": ordinal,
                    "event": "model_failed",
                    "code": failure.error_code,
                    "message": failure.message,
                    "retryable": failure.recoverable,
                })
            }
            Fact::BatchDeclared { batch_id, calls } => {
                record.operation_id = Some(batch_id.as_str().into());
                record.tool_call_id = calls.first().map(|(call, _)| call.as_str().into());
                let declared: Vec<Value> = calls
                    .iter()
                    .map(|(call, name)| json!({"call_id": call, "name": &**name}))
                    .collect();
                json!({"event": "batch_declared", "batch_id": batch_id, "declaration_order": declared})
            }
            Fact::SlotStarted {
                slot_id,
                call_id,
                attempt_id,
                attempt,
                tool,
            } => {
                record.tool_call_id = Some(call_id.as_str().into());
                record.attempt_id = Some(attempt_id.as_str().into());
                record.attempt = Some(u64::from(*attempt));
                json!({"tool_name": &**tool, "status": "started", "slot_id": slot_id})
            }
            Fact::SlotTerminal {
                slot_id,
                call_id,
                completion_index,
                result,
                synthetic,
            } => {
                record.tool_call_id = Some(call_id.as_str().into());
                record.attempt_id = result.attempt_id().map(|attempt| attempt.as_str().into());
                record.attempt = Some(result.attempts());
                json!({
                    "event": "tool_slot_terminal",
                    "slot_id": slot_id,
                    "tool_name": result.tool_name(),
                    "status": result.status().as_str(),
                    "error_code": result.error_code(),
                    "completion_index": completion_index,
                    "synthetic": synthetic,
                    "outcome_unknown": result.outcome_unknown(),
                    "result": result.output(),
                })
            }
            Fact::LateResult {
                slot_id,
                attempt_id,
                disposition,
            } => {
                record.attempt_id = Some(attempt_id.as_str().into());
                record.tool_call_id = Some(
                    qitos_contracts::ids::ToolCallIdentity::of_slot(slot_id)
                        .as_str()
                        .into(),
                );
                json!({"event": "late_result", "slot_id": slot_id, "disposition": disposition})
            }
            Fact::EffectReported {
                slot_id,
                attempt_id,
                state,
            } => {
                record.attempt_id = Some(attempt_id.as_str().into());
                record.operation_id = Some(slot_id.as_str().into());
                record.effect_id = Some(slot_id.as_str().into());
                json!({"event": "effect_reported", "state": state})
            }
            Fact::EffectSettled {
                slot_id,
                disposition,
                accepted,
            } => {
                record.operation_id = Some(slot_id.as_str().into());
                record.effect_id = Some(slot_id.as_str().into());
                json!({"event": "effect_settled", "disposition": disposition, "accepted": accepted})
            }
            Fact::Unheard { kind } => json!({"event": "inbox_entry_unheard", "kind": kind}),
            Fact::Recovery { failure, decision } => json!({
                "event": "recovery",
                "code": failure.error_code,
                "message": failure.message,
                "retryable": failure.recoverable,
                "decision": decision,
            }),
            Fact::Steering { receipt } => json!({
                "event": "steering",
                "item_id": receipt.item_id,
                "disposition": receipt.disposition,
                "sequence": receipt.sequence,
            }),
            Fact::Withheld { effects } => json!({"event": "effects_withheld", "count": effects}),
            Fact::LifecycleChanged { lifecycle } => {
                record.lifecycle_state = Some(lifecycle.as_str().into());
                json!({"event": "lifecycle", "lifecycle": lifecycle.as_str()})
            }
            Fact::Stopped {
                outcome,
                stop_reason,
                final_result,
                failure,
            } => json!({
                "stop_reason": stop_reason.as_str(),
                "outcome": outcome,
                "final_result": final_result,
                "failure": failure,
            }),
        };
        record.payload = object(payload);
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn kind_of(fact: &Fact) -> RecordKind {
    match fact {
        Fact::RunStarted => RecordKind::Run,
        Fact::StepBegun { .. } | Fact::StepCommitted { .. } => RecordKind::Step,
        Fact::ModelRequest { .. } => RecordKind::ModelRequest,
        Fact::ModelResponse { .. } => RecordKind::ModelResponse,
        Fact::ModelFailed { .. } => RecordKind::ProviderTransaction,
        Fact::BatchDeclared { .. } => RecordKind::ToolBatch,
        Fact::SlotStarted { .. } => RecordKind::ToolSlot,
        Fact::SlotTerminal { .. } | Fact::LateResult { .. } => RecordKind::ToolResult,
        Fact::EffectReported { .. } | Fact::EffectSettled { .. } => RecordKind::Effect,
        Fact::Unheard { .. } => RecordKind::Error,
        Fact::Recovery { .. } => RecordKind::Error,
        Fact::Steering { .. } => RecordKind::Steering,
        Fact::Withheld { .. } => RecordKind::Pause,
        Fact::LifecycleChanged { .. } => RecordKind::Lifecycle,
        Fact::Stopped { .. } => RecordKind::Stop,
    }
}
