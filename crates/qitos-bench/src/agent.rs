//! The agent of the workloads: one tool call per step, then the text `done`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use qitos::contracts::decision::Decision;
use qitos::models::openai_chat::{ChatCodec, ChatOptions, ChatProfile, chat_capabilities};
use qitos::models::{
    ContextBudget, DeltaSink, FailureCategory, FailureStage, Instruction, InstructionRole, Model,
    ProviderCapabilities, ProviderCodec, ProviderError, ProviderFailure, RawResponse, RequestSent,
    Target, WirePayload,
};
use qitos::tool::ToolRegistry;
use qitos::tool::permission::{PermissionPolicy, PermissionRule, RuleEffect};
use qitos::{
    AgentError, AgentModule, Budget, Engine, EngineBuilder, History, Observation, Prompt, Reduced,
    Task,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Outcome;

/// What the tool returns for call `index`: 64 ASCII bytes.
fn result_text(index: u64) -> String {
    let mut text = format!("ok {index:06} ");
    while text.len() < 64 {
        text.push('x');
    }
    text
}

mod read_only {
    /// One step of the benchmark.
    #[qitos::tool(read_only)]
    pub(super) async fn step(i: u64) -> String {
        super::result_text(i)
    }
}

mod effectful {
    /// One step of the benchmark.
    #[qitos::tool]
    pub(super) async fn step(i: u64) -> String {
        super::result_text(i)
    }
}

/// The state that an agent of the workloads keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Count {
    steps: u64,
}

/// The agent of the workloads.
#[derive(Debug)]
pub(crate) struct BenchAgent;

impl AgentModule for BenchAgent {
    type State = Count;

    fn name(&self) -> &str {
        "bench"
    }

    fn init_state(&self, _task: &Task) -> Result<Count, AgentError> {
        Ok(Count::default())
    }

    fn prepare(&self, _state: &Count, _observation: &Observation) -> Result<Prompt, AgentError> {
        Ok(Prompt {
            instructions: vec![Instruction {
                role: InstructionRole::System,
                text: "You are a benchmark agent.".into(),
            }],
            max_output_tokens: None,
        })
    }

    fn reduce(
        &self,
        state: &Count,
        _observation: &Observation,
        _decision: &Decision,
    ) -> Result<Reduced<Count>, AgentError> {
        Ok(Reduced::Continue(Count {
            steps: state.steps + 1,
        }))
    }
}

/// How the model knows which reply is due.
#[derive(Debug)]
pub(crate) enum Position {
    /// By counting its requests: for one session, whatever its view holds.
    Counted(AtomicU64),
    /// By the history in the request, which must be whole: for sessions that share the model.
    FromHistory,
}

/// A model in this process that writes each request's whole body out, as a client of HTTP must.
#[derive(Debug)]
pub(crate) struct BenchModel {
    target: Arc<Target>,
    capabilities: ProviderCapabilities,
    codec: ChatCodec,
    steps: u64,
    position: Position,
    wait: Duration,
    buffer: Mutex<Vec<u8>>,
    requests: Mutex<Vec<Instant>>,
}

impl BenchModel {
    pub(crate) fn new(steps: u64, position: Position, wait: Duration) -> Outcome<Self> {
        let target = Target::new("bench", "scripted", "in_process", "chat_completions")?;
        let counted = matches!(position, Position::Counted(_));
        let capacity = if counted { steps + 2 } else { 0 };
        Ok(BenchModel {
            capabilities: chat_capabilities(target.clone(), None),
            target: Arc::new(target),
            codec: ChatCodec::new(ChatOptions::default(), ChatProfile::default())?,
            steps,
            position,
            wait,
            buffer: Mutex::new(Vec::new()),
            requests: Mutex::new(Vec::with_capacity(usize::try_from(capacity)?)),
        })
    }

    /// When each request came; empty for a model that sessions share.
    pub(crate) fn request_times(&self) -> Vec<Instant> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn reply(&self, index: u64) -> RawResponse {
        let (message, finish) = if index <= self.steps {
            let call = json!({
                "id": format!("call_{index:06}"),
                "type": "function",
                "function": {"name": "step", "arguments": format!("{{\"i\": {index}}}")},
            });
            let message = json!({"role": "assistant", "content": "", "tool_calls": [call]});
            (message, "tool_calls")
        } else {
            (json!({"role": "assistant", "content": "done"}), "stop")
        };
        RawResponse::whole(json!({
            "object": "chat.completion",
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }))
    }
}

#[async_trait]
impl Model for BenchModel {
    fn target(&self) -> &Arc<Target> {
        &self.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        _on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let index = match &self.position {
            Position::Counted(count) => {
                self.requests
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Instant::now());
                count.fetch_add(1, Ordering::Relaxed) + 1
            }
            // Instructions and the task, then two items per step.
            Position::FromHistory => (payload.fragments().count() as u64).saturating_sub(2) / 2 + 1,
        };
        {
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            buffer.clear();
            payload.write_out(&mut buffer).map_err(|_| {
                ProviderFailure::new(
                    &self.target,
                    FailureCategory::UnsupportedRequest,
                    "codec_payload_invalid",
                    FailureStage::Projection,
                    RequestSent::No,
                    "the request cannot be written out",
                )
            })?;
        }
        drop(payload);
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
        Ok(self.reply(index))
    }
}

/// An engine around `model`, without limits that a long run would reach.
pub(crate) fn engine(
    model: &Arc<BenchModel>,
    history: History,
    effectful: bool,
) -> Outcome<EngineBuilder> {
    let mut tools = ToolRegistry::new();
    if effectful {
        tools.register(effectful::Step)?;
    } else {
        tools.register(read_only::Step)?;
    }
    let allow = vec![PermissionRule::for_tool(RuleEffect::Allow, "step")];
    let window = 1 << 40;
    let reserve = 8_000;
    Ok(
        Engine::builder(BenchAgent, Arc::clone(model) as Arc<dyn Model>)
            .tools(tools)
            .permissions(PermissionPolicy::new(allow, None)?)
            .history(history)
            .context_budget(ContextBudget {
                max_input_units: window,
                reserved_output_units: reserve,
                available_input_units: window - reserve,
                ..ContextBudget::default()
            })
            .budget(unlimited()),
    )
}

/// A budget that no workload reaches.
pub(crate) fn unlimited() -> Budget {
    Budget {
        max_steps: u64::MAX / 2,
        ..Budget::default()
    }
}

#[cfg(test)]
mod tests {
    use super::result_text;

    #[test]
    fn a_result_has_64_bytes() {
        assert_eq!(result_text(7).len(), 64);
        assert!(result_text(999_999).starts_with("ok 999999 x"));
    }
}
