//! One request: encode, send, decode, interpret. One admission is one provider call (ENG-17).

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qitos_contracts::decision::{Choice, Decision, DecisionParser, ParseCode};
use qitos_contracts::log::{ContinuationAttachment, ParseStatus, ReasoningBlock};
use qitos_contracts::model::{
    CodecError, ContinuationResolver, DecodedResponse, DeltaSink,
    FailureCategory as ProviderCategory, FinishReason, Model, ProviderError, ProviderFailure,
    RequestSent, RequestView, ResponsePart,
};
use serde_json::{Map, json};
use tokio::sync::watch;

use super::attempt::CatchPanic;
use super::continuation::{ATTACHMENT, Refused};
use super::{Done, Driver};
use crate::agent::{AgentError, ErasedAgent, Observation, StateBox};
use crate::engine::SharedSink;
use crate::machine::{Answer, AnswerPart, CallDraft, Input, Plan, ResponseOutcome};
use crate::outcome::{Failure, FailureCategory};

type ConsumerError = Arc<Mutex<Option<Box<dyn Error + Send + Sync>>>>;

/// Everything that one request needs; owned, so that the task outlives any caller.
struct Exchange {
    model: Arc<dyn Model>,
    agent: Arc<dyn ErasedAgent>,
    parser: Option<Arc<dyn DecisionParser>>,
    /// Decodes values that text protocols could not type (TXT-5).
    registry: qitos_contracts::tool::FrozenRegistry,
    state: StateBox,
    observation: Arc<Observation>,
    view: Arc<RequestView>,
    allow_loss: bool,
    continuations: Option<Arc<dyn ContinuationResolver>>,
    sink: Option<SharedSink>,
    consumer_error: ConsumerError,
    step: u64,
}

impl Driver {
    pub(super) fn send_request(&mut self, ordinal: u64) {
        let Some(view) = self.view.take() else { return };
        let observation = self.observation();
        let exchange = Exchange {
            model: Arc::clone(&self.parts.model),
            agent: Arc::clone(&self.parts.agent),
            parser: self.parts.parser.clone(),
            registry: self.parts.registry.clone(),
            state: self.state.clone(),
            observation,
            view,
            allow_loss: self.parts.allow_codec_loss,
            continuations: self.parts.continuations.clone(),
            sink: self.callbacks.on_delta.clone(),
            consumer_error: Arc::clone(&self.consumer_error),
            step: self.machine.durable().step,
        };
        let (stop, stopped) = watch::channel(false);
        self.stop_request = Some(stop);
        let time_left = self.time_left();
        self.tasks.spawn(async move {
            let outcome = exchange.run(stopped, time_left).await;
            Done::Response {
                input: Box::new(Input::Responded {
                    ordinal,
                    outcome: Box::new(outcome),
                }),
            }
        });
    }
}

/// Passes text on and remembers whether any was shown (PRV-87).
struct ShownSink<'a> {
    inner: &'a mut dyn DeltaSink,
    shown: &'a mut bool,
}

impl DeltaSink for ShownSink<'_> {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        *self.shown = true;
        self.inner.delta(text)
    }
}

impl Exchange {
    async fn run(
        self,
        mut stopped: watch::Receiver<bool>,
        time_left: Option<Duration>,
    ) -> ResponseOutcome {
        let capabilities = self.model.capabilities();
        if self.sink.is_some() && !capabilities.supports_streaming {
            let error = CodecError::CapabilityMismatch {
                unsupported: vec!["streaming".into()],
            };
            return self.not_sent(&error);
        }
        let encoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.model
                .codec()
                .encode(&self.view, capabilities, self.allow_loss)
        }));
        let (mut payload, mut report) = match encoded {
            Ok(Ok(encoded)) => encoded,
            Ok(Err(error)) => return self.not_sent(&error),
            Err(_) => {
                return self.not_sent(&CodecError::EncodeFailed {
                    reason: "the codec panicked",
                });
            }
        };
        let applied = super::continuation::apply(
            self.model.codec(),
            self.continuations.as_deref(),
            &mut payload,
            &mut report,
            self.allow_loss,
        );
        match applied.await {
            Ok(()) => {}
            Err(Refused::Codec(error)) => return self.not_sent(&error),
            Err(Refused::Unresolved(code)) => {
                let text = "provider state that the request needs cannot be resolved";
                return self.broken(code, text, RequestSent::No, false);
            }
        }
        if *stopped.borrow() {
            return ResponseOutcome::Stopped {
                sent: RequestSent::No,
            };
        }
        let restartable = self.sink.as_ref().is_some_and(|sink| sink.restartable);
        let mut shown = false;
        let sent = {
            let model = Arc::clone(&self.model);
            let sink = self.sink.clone();
            let shown = &mut shown;
            let call = CatchPanic::new(async move {
                match sink {
                    None => model.send(payload, None).await,
                    Some(sink) => {
                        let mut inner = sink.sink.lock().await;
                        let mut watching = ShownSink {
                            inner: &mut **inner,
                            shown,
                        };
                        model.send(payload, Some(&mut watching)).await
                    }
                }
            });
            tokio::select! {
                biased;
                sent = call => sent,
                () = super::attempt::raised(&mut stopped) => {
                    return ResponseOutcome::Stopped { sent: RequestSent::Maybe };
                }
                () = after(time_left) => return ResponseOutcome::Stopped { sent: RequestSent::Maybe },
            }
        };
        let shown = shown && !restartable;
        let raw = match sent {
            Ok(Ok(raw)) => raw,
            Ok(Err(ProviderError::Failure(failure))) => return self.failed(*failure, shown),
            Ok(Err(ProviderError::Consumer(error))) => {
                *self
                    .consumer_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(error);
                let text = "the consumer of the stream failed";
                return self.broken("stream_consumer_failed", text, RequestSent::Yes, shown);
            }
            Err(_panic) => {
                let text = "the model's client panicked";
                return self.broken("provider_client_panicked", text, RequestSent::Maybe, shown);
            }
        };
        let codec = self.model.codec();
        let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            codec.decode(raw, &self.view)
        }));
        match decoded {
            Ok(Ok(mut decoded)) => {
                let state = decoded.continuation.take();
                let resolver = self.continuations.as_deref();
                match super::continuation::capture(resolver, &self.view.target, state).await {
                    Ok(attachments) => self.interpret(decoded, attachments).await,
                    Err(code) => {
                        let text = "provider state of the answer cannot be kept";
                        self.broken(code, text, RequestSent::Yes, shown)
                    }
                }
            }
            Ok(Err(failure)) => self.failed(*failure, shown),
            Err(_) => {
                let text = "the codec panicked on the response";
                self.broken(
                    "provider_response_decode_failed",
                    text,
                    RequestSent::Yes,
                    shown,
                )
            }
        }
    }

    fn not_sent(&self, error: &CodecError) -> ResponseOutcome {
        ResponseOutcome::Failed {
            failure: Failure::of(error, FailureCategory::ModelError, "DECIDE", self.step),
            retryable: false,
            violation: false,
            sent: RequestSent::No,
            usage: None,
            retry_after_ms: None,
            shown: false,
        }
    }

    fn broken(&self, code: &str, text: &str, sent: RequestSent, shown: bool) -> ResponseOutcome {
        ResponseOutcome::Failed {
            failure: Failure::engine(code, FailureCategory::ModelError, "DECIDE", self.step, text),
            retryable: false,
            violation: false,
            sent,
            usage: None,
            retry_after_ms: None,
            shown,
        }
    }

    fn failed(&self, failure: ProviderFailure, shown: bool) -> ResponseOutcome {
        let mut told = Failure::of(&failure, FailureCategory::ModelError, "DECIDE", self.step);
        told.remediation.clone_from(&failure.remediation);
        if let Some(violation) = failure.redacted_details.violation {
            told.message = format!("{} ({})", failure.message, violation.as_str());
        }
        ResponseOutcome::Failed {
            failure: told,
            retryable: failure.retryable,
            violation: failure.category == ProviderCategory::Stream
                && failure.redacted_details.violation.is_some(),
            sent: failure.request_sent,
            usage: failure.redacted_details.usage,
            retry_after_ms: failure.redacted_details.retry_after_ms,
            shown,
        }
    }

    /// The agent reads first, then the protocol (TXT-9, TXT-10).
    async fn interpret(
        self,
        decoded: DecodedResponse,
        continuation_attachments: Vec<ContinuationAttachment>,
    ) -> ResponseOutcome {
        let decoded = Arc::new(decoded);
        let own = CatchPanic::new(self.agent.interpret(
            self.state.clone(),
            Arc::clone(&self.observation),
            Arc::clone(&decoded),
        ));
        let decision = match own.await {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => return self.agent_failed(&error),
            Err(message) => {
                return self.agent_failed(&AgentError {
                    code: "agent_panicked".into(),
                    message,
                });
            }
        };
        let scope: Arc<str> = self.view.target.scope().into();
        let mut parts = parts_of(&decoded, &scope, !continuation_attachments.is_empty());
        let plan = match decision {
            Some(decision) => self.plan_of(decision, &mut parts),
            None => self.read(&decoded, &mut parts),
        };
        let mut metadata = Map::new();
        if let Some(model) = &decoded.model_name {
            metadata.insert("response_model".into(), json!(model));
        }
        ResponseOutcome::Answer(Box::new(Answer {
            parts,
            continuation_attachments,
            plan,
            usage: decoded.usage,
            finish: decoded.finish.raw.clone(),
            metadata,
        }))
    }

    fn agent_failed(&self, error: &AgentError) -> ResponseOutcome {
        ResponseOutcome::AgentFailed(Failure::of(
            error,
            FailureCategory::StateError,
            "DECIDE",
            self.step,
        ))
    }

    fn read(&self, decoded: &DecodedResponse, parts: &mut Vec<AnswerPart>) -> Plan {
        let calls = decoded.call_count();
        match decoded.finish.reason {
            FinishReason::Paused => return Plan::Paused,
            FinishReason::Length => return Plan::Incomplete,
            FinishReason::ToolCalls if calls > 0 => return Plan::Act,
            FinishReason::Stop | FinishReason::ToolCalls => {}
        }
        if calls > 0 {
            // The codec let calls through under another finish: it said that this provider means it (PRV-C8).
            return Plan::Act;
        }
        let text = decoded.text();
        if text.trim().is_empty() {
            return Plan::Empty;
        }
        let Some(parser) = &self.parser else {
            return Plan::Final(text);
        };
        match parser.parse(&text) {
            Ok(parsed) => {
                let mut decision = parsed.decision;
                if parsed.values_are_text
                    && let Choice::Act { actions } = &mut decision.choice
                {
                    for action in actions {
                        if let Some(tool) = self.registry.by_name(&action.name) {
                            qitos_contracts::decision::apply_declared_types(
                                action,
                                &tool.spec.input_schema,
                            );
                        }
                    }
                }
                self.plan_of(decision, parts)
            }
            // Natively the text of a turn without calls is its answer, unless it looks like a failed action (TXT-10).
            Err(diagnostics)
                if diagnostics.code == ParseCode::NoDecision
                    && !self.view.tool_schemas.is_empty() =>
            {
                Plan::Final(text)
            }
            Err(diagnostics) => Plan::Repair(diagnostics),
        }
    }

    fn plan_of(&self, decision: Decision, parts: &mut Vec<AnswerPart>) -> Plan {
        if let Err(invalid) = decision.validate() {
            let text = invalid.to_string();
            return Plan::Invalid(Failure::engine(
                "invalid_decision",
                FailureCategory::StateError,
                "DECIDE",
                self.step,
                &text,
            ));
        }
        match decision.choice {
            Choice::Act { actions } => {
                parts.retain(|part| !matches!(part, AnswerPart::Call(_)));
                for action in actions {
                    let raw = action
                        .raw
                        .clone()
                        .unwrap_or_else(|| action.args.to_string());
                    parts.push(AnswerPart::Call(CallDraft {
                        scope: "text".into(),
                        call_id: None,
                        name: action.name.into(),
                        raw_arguments: raw.into(),
                        parse_status: if action.args.is_object() {
                            ParseStatus::Parsed
                        } else {
                            ParseStatus::ParsedInvalid
                        },
                        parse_error: (!action.args.is_object())
                            .then(|| "arguments_not_object".into()),
                        parsed_arguments: action.args.is_object().then(|| Arc::new(action.args)),
                        metadata: Map::new(),
                    }));
                }
                Plan::Act
            }
            Choice::Final { answer } => Plan::Final(answer),
            Choice::Wait { reason, until } => Plan::Wait { reason, until },
            Choice::Branch { .. } | Choice::Handoff { .. } => Plan::Invalid(Failure::engine(
                "invalid_decision",
                FailureCategory::StateError,
                "DECIDE",
                self.step,
                "this engine was not given a selector or a destination for the decision",
            )),
        }
    }
}

/// The parts as the log keeps them; with `attached`, replayable reasoning points at the answer's attachment.
fn parts_of(decoded: &DecodedResponse, scope: &Arc<str>, attached: bool) -> Vec<AnswerPart> {
    let mut reasoning = 0;
    decoded
        .parts
        .iter()
        .map(|part| match part {
            ResponsePart::Content(block) => AnswerPart::Content(block.clone()),
            ResponsePart::Reasoning {
                block_type,
                text,
                replayable,
            } => {
                reasoning += 1;
                AnswerPart::Reasoning(ReasoningBlock {
                    provider_scope: Arc::clone(scope),
                    reference_id: format!("reasoning-{reasoning}").into(),
                    attachment_id: (attached && *replayable).then(|| ATTACHMENT.into()),
                    block_type: Arc::clone(block_type),
                    summary: text.clone(),
                })
            }
            ResponsePart::ToolCall {
                call_id,
                name,
                raw_arguments,
                parsed_arguments,
                parse_status,
                parse_error,
                metadata,
            } => AnswerPart::Call(CallDraft {
                scope: Arc::clone(scope),
                call_id: Some(Arc::clone(call_id)),
                name: Arc::clone(name),
                raw_arguments: Arc::clone(raw_arguments),
                parsed_arguments: parsed_arguments.clone(),
                parse_status: *parse_status,
                parse_error: parse_error.clone(),
                metadata: metadata.clone(),
            }),
        })
        .collect()
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
