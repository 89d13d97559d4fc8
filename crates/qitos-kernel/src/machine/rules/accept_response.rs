//! What an answer, or the lack of one, means for the step (D2, ENG-15, TXT-7 to TXT-9).

use std::sync::Arc;

use qitos_contracts::decision::{Choice, Decision};
use qitos_contracts::ids::{BatchId, CallId};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ItemBody, ParseStatus, ToolCallPart,
};
use qitos_contracts::model::{RequestSent, TokenUsage};
use serde_json::{Map, Value, json};

use super::super::input::{Answer, AnswerPart, CallDraft, Plan, ResponseOutcome};
use super::super::limits::StreamFailurePolicy;
use super::super::state::{AfterBatch, Asked, Awaiting, CancelMode, Phase, Turn, TurnDecision};
use super::super::{Effect, Fact, Machine};
use super::{end_run, finish_step, open_batch, settle, steer};
use crate::outcome::{Failure, FailureCategory};

/// The agent decided without the model, or leaves the decision to it.
pub(super) fn accept_decision(
    machine: &mut Machine,
    decision: Result<Option<Decision>, Failure>,
    effects: &mut Vec<Effect>,
) {
    match decision {
        // EXE-18: nothing begins any more.
        Ok(_) if machine.durable.cancel == Some(CancelMode::Immediate) => {}
        Ok(None) => {
            machine.flight.awaiting = Awaiting::View;
            effects.push(Effect::View);
        }
        Ok(Some(decision)) => take_agent_decision(machine, decision),
        Err(failure) => end_run::failed(machine, failure),
    }
}

/// A response, a failure, or the end of a request that was stopped.
pub(super) fn accept(
    machine: &mut Machine,
    ordinal: u64,
    outcome: ResponseOutcome,
    effects: &mut Vec<Effect>,
) {
    let asked = match &machine.durable.phase {
        Phase::Asked(asked) if asked.ordinal == ordinal => asked.clone(),
        _ => return,
    };
    settle(machine, Awaiting::Response);
    machine.durable.phase = Phase::Ready;
    machine.flight.stopping = false;
    match outcome {
        ResponseOutcome::Answer(answer) => {
            settle_request(machine, answer.usage, RequestSent::Yes);
            accept_answer(machine, &asked, *answer);
        }
        ResponseOutcome::Failed {
            failure,
            retryable,
            violation,
            sent,
            usage,
            retry_after_ms,
            shown,
        } => {
            settle_request(machine, usage, sent);
            machine.delta.tell(Fact::ModelFailed {
                request_id: asked.request_id,
                ordinal,
                failure: failure.clone(),
            });
            if machine.durable.cancel == Some(CancelMode::Immediate) {
                // The run was cancelled, and so it ends.
                return;
            }
            let again = !shown
                && if violation {
                    machine.fixed.policy.provider_stream == StreamFailurePolicy::Retry
                } else {
                    retryable
                };
            if again && may_recover(machine) {
                recover_step(machine, failure, "retry_request");
                let attempt = machine.durable.counters.recoveries.saturating_sub(1).min(6);
                let delay_ms = retry_after_ms.unwrap_or(500 << attempt);
                machine.flight.awaiting = Awaiting::Timer;
                effects.push(Effect::Sleep { delay_ms });
            } else {
                end_run::request_failed(machine, failure);
            }
        }
        ResponseOutcome::Stopped { sent } => {
            settle_request(machine, None, sent);
            let failure = machine.failure(
                "provider_request_cancelled",
                FailureCategory::ModelError,
                "cancelled",
            );
            machine.delta.tell(Fact::ModelFailed {
                request_id: asked.request_id,
                ordinal,
                failure,
            });
        }
        ResponseOutcome::AgentFailed(failure) => {
            settle_request(machine, None, RequestSent::Yes);
            end_run::failed(machine, failure);
        }
    }
}

/// Moves a reservation to what was spent; released only if nothing left the process (ENG-12).
pub(super) fn settle_request(machine: &mut Machine, usage: Option<TokenUsage>, sent: RequestSent) {
    let counters = &mut machine.durable.counters;
    counters.requests_reserved = counters.requests_reserved.saturating_sub(1);
    if sent == RequestSent::No {
        return;
    }
    counters.requests += 1;
    match usage.and_then(|usage| usage.total()) {
        Some(total) => counters.tokens = counters.tokens.saturating_add(total),
        None => counters.usage_unknown += 1,
    }
}

fn may_recover(machine: &Machine) -> bool {
    machine.durable.counters.recoveries < machine.fixed.policy.max_recoveries
}

/// Answers a failure by another step (ENG-15): it counts as one begun and re-runs no batch.
fn recover_step(machine: &mut Machine, failure: Failure, decision: &'static str) {
    machine.durable.counters.recoveries += 1;
    machine.delta.tell(Fact::Recovery { failure, decision });
    finish_step(machine);
}

fn accept_answer(machine: &mut Machine, asked: &Asked, answer: Answer) {
    let Answer {
        parts,
        continuation_attachments,
        plan,
        usage,
        finish,
        metadata,
    } = answer;
    let batch_id = BatchId::of_request(&asked.request_id);
    let (parts, calls) = place_parts(machine, parts, &batch_id, asked.request_id.as_str());
    if parts.is_empty() && calls.is_empty() {
        return accept_empty(machine, asked, usage, finish);
    }
    let item = ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments,
        metadata,
    });
    let assistant_at = match machine.append(item) {
        Ok(at) => at,
        Err(error) => {
            let failure = Failure::of(
                &error,
                FailureCategory::ModelError,
                "DECIDE",
                machine.durable.step,
            );
            return end_run::request_failed(machine, failure);
        }
    };
    let (request_id, ordinal) = (asked.request_id.clone(), asked.ordinal);
    machine.delta.tell(Fact::ModelResponse {
        request_id,
        ordinal,
        usage,
        finish,
        assistant_at,
    });
    machine.durable.patch = None;
    if !matches!(plan, Plan::Repair(_)) {
        machine.durable.counters.repairs = 0;
    }
    if !matches!(plan, Plan::Paused) {
        machine.durable.counters.paused_answers = 0;
    }
    let turn = |decision| Turn {
        decision,
        batch: None,
        assistant_at: Some(assistant_at),
        then: AfterBatch::Reduce,
    };
    match plan {
        Plan::Act => open_batch::open(machine, batch_id, calls, assistant_at),
        Plan::Final(answer) => {
            machine.durable.phase = Phase::Acting(turn(TurnDecision::Final { answer }));
            machine.delta.batch = true;
        }
        Plan::Wait { reason, until } => {
            machine.durable.phase = Phase::Acting(turn(TurnDecision::Wait { reason, until }));
            machine.delta.batch = true;
        }
        Plan::Repair(diagnostics) => {
            let feedback = diagnostics.feedback();
            repair(machine, diagnostics.code.as_str(), &feedback);
        }
        Plan::Incomplete if calls.is_empty() => {
            repair(
                machine,
                "incomplete_model_turn",
                "Your answer was cut off before its end, so nothing of it was used. Answer again, more briefly.",
            );
        }
        Plan::Incomplete => open_batch::open_incomplete(machine, batch_id, calls, assistant_at),
        Plan::Paused => {
            machine.durable.counters.paused_answers += 1;
            if machine.durable.counters.paused_answers > machine.fixed.policy.max_paused_answers {
                let failure = machine.failure(
                    "incomplete_model_turn",
                    FailureCategory::ModelError,
                    "the model paused its answer too often in a row",
                );
                return end_run::request_failed(machine, failure);
            }
            finish_step(machine);
        }
        Plan::Empty => accept_silence(machine),
        Plan::Invalid(failure) => end_run::failed(machine, failure),
    }
}

/// An answer without any part: nothing to log, one recovery (ENG-15).
fn accept_empty(machine: &mut Machine, asked: &Asked, usage: Option<TokenUsage>, finish: String) {
    let (request_id, ordinal) = (asked.request_id.clone(), asked.ordinal);
    let assistant_at = machine.durable.log.items().len() as u64;
    machine.delta.tell(Fact::ModelResponse {
        request_id,
        ordinal,
        usage,
        finish,
        assistant_at,
    });
    accept_silence(machine);
}

fn accept_silence(machine: &mut Machine) {
    let failure = machine.failure(
        "empty_model_response",
        FailureCategory::ModelError,
        "the model said nothing",
    );
    if machine.durable.counters.empty_responses == 0 && may_recover(machine) {
        machine.durable.counters.empty_responses += 1;
        recover_step(machine, failure, "retry_request");
    } else {
        end_run::request_failed(machine, failure);
    }
}

/// Feeds a parse failure back to the model (TXT-7, TXT-8): a step and a request; after two in a row `parse_failed`.
fn repair(machine: &mut Machine, code: &str, feedback: &str) {
    if machine.durable.counters.repairs >= machine.fixed.policy.max_repairs {
        let failure = machine.failure(
            "parse_failed",
            FailureCategory::ParseError,
            "the model's text could not be read, also after repairs",
        );
        return end_run::failed(machine, failure);
    }
    machine.durable.counters.repairs += 1;
    let mut metadata = Map::new();
    metadata.insert("source".into(), json!("engine.repair"));
    metadata.insert("code".into(), json!(code));
    let failure = machine.failure(
        code,
        FailureCategory::ParseError,
        "the model's text could not be read",
    );
    if steer::append(machine, vec![ContentBlock::text(feedback)], metadata).is_err() {
        return end_run::failed(machine, failure);
    }
    machine.delta.tell(Fact::Recovery {
        failure,
        decision: "repair",
    });
    finish_step(machine);
}

fn take_agent_decision(machine: &mut Machine, decision: Decision) {
    if let Err(invalid) = decision.validate() {
        let message = invalid.to_string();
        let failure = machine.failure("invalid_decision", FailureCategory::StateError, &message);
        return end_run::failed(machine, failure);
    }
    let step = machine.durable.step;
    let mut metadata = Map::new();
    metadata.insert("source".into(), json!("agent.decide"));
    if let Some(rationale) = decision.rationale {
        metadata.insert("rationale".into(), json!(rationale));
    }
    let mut parts = Vec::new();
    let turn = match decision.choice {
        Choice::Act { actions } => {
            parts.extend(
                actions
                    .into_iter()
                    .map(|action| AnswerPart::Call(agent_call(action.name, action.args))),
            );
            None
        }
        Choice::Final { answer } => {
            parts.push(AnswerPart::Content(ContentBlock::text(answer.as_str())));
            Some(TurnDecision::Final { answer })
        }
        Choice::Wait { reason, until } => {
            parts.push(AnswerPart::Content(ContentBlock::text(reason.as_str())));
            Some(TurnDecision::Wait { reason, until })
        }
        Choice::Branch { .. } | Choice::Handoff { .. } => {
            let failure = machine.failure(
                "invalid_decision",
                FailureCategory::StateError,
                "this engine was not given a selector or a destination for the decision",
            );
            return end_run::failed(machine, failure);
        }
    };
    let name = format!("agent-{step}");
    let batch_id: BatchId = match format!("batch_{name}").parse() {
        Ok(id) => id,
        Err(_) => super::super::impossible("`batch_agent-<number>` is a batch id"),
    };
    let (parts, calls) = place_parts(machine, parts, &batch_id, &name);
    let item = ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments: Vec::new(),
        metadata,
    });
    let assistant_at = match machine.append(item) {
        Ok(at) => at,
        Err(error) => {
            let failure = Failure::of(&error, FailureCategory::StateError, "DECIDE", step);
            return end_run::failed(machine, failure);
        }
    };
    match turn {
        None => open_batch::open(machine, batch_id, calls, assistant_at),
        Some(decision) => {
            let turn = Turn {
                decision,
                batch: None,
                assistant_at: Some(assistant_at),
                then: AfterBatch::Reduce,
            };
            machine.durable.phase = Phase::Acting(turn);
            machine.delta.batch = true;
        }
    }
}

fn agent_call(name: String, args: Value) -> CallDraft {
    let raw = qitos_contracts::canonical_json::to_bytes(&args).unwrap_or_default();
    CallDraft {
        scope: "agent".into(),
        call_id: None,
        name: name.into(),
        raw_arguments: String::from_utf8_lossy(&raw).as_ref().into(),
        parsed_arguments: Some(Arc::new(args)),
        parse_status: ParseStatus::Parsed,
        parse_error: None,
        metadata: Map::new(),
    }
}

/// Gives every call its batch and an id that is unique in the log; the wire id is kept (PRV-24, PRV-25, LOG-2).
fn place_parts(
    machine: &Machine,
    parts: Vec<AnswerPart>,
    batch_id: &BatchId,
    source: &str,
) -> (Vec<AssistantPart>, Vec<ToolCallPart>) {
    let mut placed = Vec::with_capacity(parts.len());
    let mut calls: Vec<ToolCallPart> = Vec::new();
    for part in parts {
        match part {
            AnswerPart::Content(block) => placed.push(AssistantPart::Content(block)),
            AnswerPart::Reasoning(block) => placed.push(AssistantPart::ReasoningBlock(block)),
            AnswerPart::Call(draft) => {
                let mut metadata = draft.metadata;
                let minted = || format!("call_{source}_{}", calls.len());
                let call_id = match draft.call_id.as_deref() {
                    None => minted(),
                    Some(wire) if wire.parse::<CallId>().is_err() => {
                        metadata.insert("wire_id".into(), json!(wire));
                        minted()
                    }
                    Some(wire) if machine.durable.log.has_call(&draft.scope, wire) => {
                        metadata.insert("wire_id".into(), json!(wire));
                        format!("{wire}@{source}")
                    }
                    Some(wire) => wire.to_owned(),
                };
                let call_id = match call_id.parse::<CallId>().or_else(|_| minted().parse()) {
                    Ok(id) => id,
                    Err(_) => super::super::impossible("a minted call id is a call id"),
                };
                let call = ToolCallPart {
                    provider_scope: draft.scope,
                    call_id,
                    batch_id: batch_id.clone(),
                    name: draft.name,
                    raw_arguments: draft.raw_arguments,
                    parsed_arguments: draft.parsed_arguments,
                    parse_status: draft.parse_status,
                    parse_error: draft.parse_error,
                    metadata,
                };
                calls.push(call.clone());
                placed.push(AssistantPart::ToolCall(call));
            }
        }
    }
    (placed, calls)
}
