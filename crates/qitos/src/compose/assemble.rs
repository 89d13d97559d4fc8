//! From built parts and a configuration to an engine.

use std::sync::Arc;

use async_trait::async_trait;
use qitos_config::AgentConfig;
use qitos_config::section::{ProviderStreamFailure, ToolFailure, ToolPolicy};
use qitos_contracts::artifact::ArtifactStore;
use qitos_contracts::checkpoint::{CheckpointStore, DurabilityClass};
use qitos_contracts::decision::Decision;
use qitos_contracts::env::Env;
use qitos_contracts::model::{ContextBudget, Model, ToolUsePolicy};
use qitos_contracts::secret::CredentialReceipt;
use qitos_contracts::tool::ToolRegistry;
use qitos_contracts::tool::permission::PermissionPolicy;
use qitos_kernel::dispatcher::Dispatcher;
use qitos_kernel::{
    AgentError, AgentModule, Budget, Engine, EnginePolicy, ExecutorMode, FailFast, Observation,
    Reduced, StreamFailurePolicy, Task,
};
use qitos_kit::artifacts::{FileArtifactStore, MemoryArtifactStore};
use qitos_kit::continuations::StoredContinuations;
use qitos_kit::parsers::ProtocolRequest;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::CompositionError;
use crate::registry::FactoryRegistry;

/// The agent of a configuration: the model decides, the state counts.
#[derive(Debug)]
struct ConfiguredAgent {
    name: String,
}

/// What a configured agent keeps between steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfiguredState {
    steps: u64,
    tool_results: u64,
}

#[async_trait]
impl AgentModule for ConfiguredAgent {
    type State = ConfiguredState;

    fn name(&self) -> &str {
        &self.name
    }

    fn init_state(&self, task: &Task) -> Result<ConfiguredState, AgentError> {
        if task.objective.trim().is_empty() {
            return Err(AgentError::new("the task is empty"));
        }
        Ok(ConfiguredState::default())
    }

    fn reduce(
        &self,
        state: &ConfiguredState,
        observation: &Observation,
        _decision: &Decision,
    ) -> Result<Reduced<ConfiguredState>, AgentError> {
        Ok(Reduced::Continue(ConfiguredState {
            steps: state.steps + 1,
            tool_results: state.tool_results + observation.action_results.len() as u64,
        }))
    }
}

/// What the parts of a configuration were built to.
pub(super) struct Parts {
    pub(super) model: Arc<dyn Model>,
    pub(super) tools: ToolRegistry,
    pub(super) store: Option<Arc<dyn CheckpointStore>>,
    pub(super) dispatcher: Option<Arc<Dispatcher>>,
    pub(super) permissions: PermissionPolicy,
    pub(super) env: Option<Arc<dyn Env>>,
    pub(super) credential: Option<CredentialReceipt>,
    pub(super) model_override: bool,
}

/// An engine of the built parts and the rest of the configuration.
pub(super) fn assemble(
    config: &AgentConfig,
    registry: &FactoryRegistry,
    parts: Parts,
) -> Result<qitos_kernel::EngineBuilder, CompositionError> {
    let agent = ConfiguredAgent {
        name: config.agent().name().to_owned(),
    };
    let native = parts.model.capabilities().supports_native_tool_calls;
    let choice = registry
        .protocols
        .choose(ProtocolRequest {
            engine: None,
            agent: Some(config.agent().protocol()),
            parser: None,
            model: native.then_some("native_tool_calls_v1"),
            model_name: Some(config.model().model()),
        })
        .map_err(|unknown| {
            let names = registry
                .protocols
                .protocols()
                .into_iter()
                .map(str::to_owned)
                .collect();
            CompositionError::unknown_name("agent.protocol", &unknown.protocol, names)
        })?;
    let options = config.tools().options();
    let concurrency = u32::try_from(options.max_concurrency()).unwrap_or(64);
    let fail_closed = config.failure_policy().tool() == ToolFailure::FailClosed;
    let context = config.context();
    let guard = context.tool_call_loop_detection_enabled().unwrap_or(true);
    let repeats = context
        .loop_max_repeats()
        .and_then(|repeats| u32::try_from(repeats).ok())
        .unwrap_or(3);
    let policy = EnginePolicy {
        mode: if concurrency > 1 {
            ExecutorMode::Parallel
        } else {
            ExecutorMode::Serial
        },
        max_concurrency: concurrency,
        fail_fast: if fail_closed {
            FailFast::Execution
        } else {
            FailFast::Off
        },
        fail_closed,
        loop_max_repeats: if guard { repeats } else { 0 },
        provider_stream: match config.failure_policy().provider_stream() {
            ProviderStreamFailure::Stop => StreamFailurePolicy::Stop,
            ProviderStreamFailure::Retry => StreamFailurePolicy::Retry,
        },
        ..EnginePolicy::default()
    };
    let budgets = config.budgets();
    let budget = Budget {
        max_steps: budgets.max_steps(),
        max_requests: Some(budgets.max_requests()),
        max_runtime_ms: Some(milliseconds(budgets.max_runtime_seconds())),
        max_tokens: budgets.max_tokens(),
        max_tool_calls: budgets.max_tool_calls(),
    };
    let output_tokens = config.model().request().max_tokens();
    let brings_state = parts.model.capabilities().supports_continuation;
    let mut builder = Engine::builder(agent, parts.model)
        .tools(parts.tools)
        .permissions(parts.permissions)
        .policy(policy)
        .budget(budget)
        .context_budget(context_budget(config))
        .output_tokens(output_tokens)
        .allow_codec_loss(context.allow_codec_loss().unwrap_or(true))
        .tool_use_policy(match config.tools().policy() {
            ToolPolicy::Auto => ToolUsePolicy::Auto,
            ToolPolicy::RequiredForNextDecision => ToolUsePolicy::RequiredForNextDecision,
            ToolPolicy::RequiredBeforeFinal => ToolUsePolicy::RequiredBeforeFinal,
            ToolPolicy::Disabled => ToolUsePolicy::Disabled,
        })
        .composition(json!({
            "configuration": config.sanitized(),
            "credential": parts.credential,
            "model_override": parts.model_override,
        }))
        .config_digest(config.config_digest());
    if choice.parser.protocol_id() != "native_tool_calls_v1" {
        builder = builder.parser(choice.parser);
    }
    for name in context.contributors() {
        if let Some(contributor) = registry.contributors.get(name) {
            builder = builder.contributor(Arc::clone(contributor));
        }
    }
    let is_durable = parts
        .store
        .as_ref()
        .is_some_and(|store| store.capabilities().durability_class() > DurabilityClass::Volatile);
    if let Some(store) = parts.store {
        builder = builder
            .store(store)
            .artifacts(Arc::new(bodies(config, "artifacts")?));
    }
    builder = builder.continuations(
        match registry.continuations.get(context.continuation_resolver()) {
            Some(resolver) => Arc::clone(resolver),
            None => {
                let states: Arc<dyn ArtifactStore> = if is_durable && brings_state {
                    Arc::new(bodies(config, "continuations")?)
                } else {
                    Arc::new(MemoryArtifactStore::new())
                };
                let clock = Arc::new(qitos_kernel::system::SystemClock::new());
                Arc::new(StoredContinuations::new(states, clock))
            }
        },
    );
    if let Some(dispatcher) = parts.dispatcher {
        builder = builder.dispatcher(dispatcher);
    }
    if let Some(env) = parts.env {
        builder = builder.env(env);
    }
    Ok(builder)
}

/// The folder `name` of the data root as a store of bodies.
fn bodies(config: &AgentConfig, name: &str) -> Result<FileArtifactStore, CompositionError> {
    FileArtifactStore::open(&config.data_root().join(name)).map_err(|error| {
        let text = format!(
            "the folder `{name}` of the data root cannot be used: {}",
            error.source
        );
        CompositionError::failed("runtime.data_root", text)
    })
}

/// A declared window bounds a request in tokens; without one the default bounds it in characters (CTX-13).
fn context_budget(config: &AgentConfig) -> ContextBudget {
    let Some(window) = config.model().context_window() else {
        return ContextBudget::default();
    };
    let reserve = config.model().request().max_tokens().min(window / 2);
    ContextBudget {
        max_input_units: window,
        reserved_output_units: reserve,
        available_input_units: window - reserve,
        unit: qitos_contracts::model::UnitKind::Tokens,
        protected_recent_exchanges: 1,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what a u64 of ms holds"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1_000.0).clamp(1.0, 9.0e15) as u64
}
