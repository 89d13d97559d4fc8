//! Putting an engine together: agent, model, tools, store, policies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use qitos_contracts::artifact::ArtifactStore;
use qitos_contracts::checkpoint::CheckpointStore;
use qitos_contracts::clock::{Clock, IdSource};
use qitos_contracts::context::ContextContributor;
use qitos_contracts::decision::{DecisionParser, ToolListing};
use qitos_contracts::digest::Digest;
use qitos_contracts::env::Env;
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::ids::AttemptId;
use qitos_contracts::model::{
    ContextBudget, ContinuationResolver, DeltaSink, Instruction, InstructionRole, Model,
    ReasoningPolicy, ToolSchema, ToolSchemas, ToolUsePolicy,
};
use qitos_contracts::tool::permission::PermissionPolicy;
use qitos_contracts::tool::registry::{FrozenRegistry, RegistryError, ToolRegistry};
use serde_json::{Value, json};

use crate::agent::{AgentModule, Critic, Erased, ErasedAgent, Task};
use crate::dispatcher::Dispatcher;
use crate::machine::Fact;
use crate::machine::limits::{Budget, EnginePolicy};
use crate::view::{History, ViewPolicy};
use crate::workers::{UnresolvedWorker, WorkerLimits, WorkerTable};

/// Hears what happened; gets copies, alters nothing, and its panics are swallowed (ENG-18).
pub trait Hook: fmt::Debug + Send + Sync + 'static {
    /// Something happened and is durable. Called between commit and effects: keep it short.
    fn on_fact(&self, fact: &Fact);
}

/// Hears how far tools are.
pub trait ProgressSink: Send + Sync + 'static {
    /// A note of a running attempt.
    fn tool_progress(&self, slot: u32, attempt: &AttemptId, note: &Value);
}

/// A consumer of streamed text, shared by the requests of a run.
#[derive(Clone)]
pub(crate) struct SharedSink {
    pub(crate) sink: Arc<tokio::sync::Mutex<Box<dyn DeltaSink>>>,
    pub(crate) restartable: bool,
}

/// What a caller of one run hands in.
pub(crate) struct RunCallbacks {
    pub(crate) task: Arc<Task>,
    pub(crate) on_delta: Option<SharedSink>,
    pub(crate) progress: Option<Arc<dyn ProgressSink>>,
}

/// Everything that sessions of one engine share.
pub(crate) struct Parts {
    pub(crate) agent: Arc<dyn ErasedAgent>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) registry: FrozenRegistry,
    pub(crate) permissions: PermissionPolicy,
    pub(crate) critics: Vec<Arc<dyn Critic>>,
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
    pub(crate) contributors: Vec<Arc<dyn ContextContributor>>,
    pub(crate) contributor_deadline: Duration,
    pub(crate) reconcile_deadline: Duration,
    pub(crate) view_policy: ViewPolicy,
    pub(crate) protocol_instruction: Option<Instruction>,
    pub(crate) parser: Option<Arc<dyn DecisionParser>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) workers: WorkerTable,
    pub(crate) env: Option<Arc<dyn Env>>,
    pub(crate) artifacts: Option<Arc<dyn ArtifactStore>>,
    pub(crate) dispatcher: Option<Arc<Dispatcher>>,
    pub(crate) continuations: Option<Arc<dyn ContinuationResolver>>,
    pub(crate) allow_codec_loss: bool,
    pub(crate) policy: EnginePolicy,
    pub(crate) budget: Budget,
    pub(crate) store: Option<Arc<dyn CheckpointStore>>,
    pub(crate) composition: Value,
    pub(crate) config_digest: Option<Digest>,
    volatile: AtomicU64,
}

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Parts")
            .field("agent", &self.agent.name())
            .finish_non_exhaustive()
    }
}

impl Parts {
    /// Numbers records of runs without commits.
    pub(crate) fn next_volatile(&self) -> u64 {
        self.volatile.fetch_add(1, Ordering::Relaxed)
    }
}

/// Why an engine could not be put together; nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// `configuration_error`: a value is out of range.
    #[error("`{field}` is not valid: {reason}")]
    Configuration {
        /// The field.
        field: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// The tools cannot be frozen.
    #[error("the tools cannot be frozen")]
    Registry(#[from] RegistryError),
    /// `configuration_error`: the model contradicts itself.
    #[error("the model's capabilities are not valid")]
    Model(#[from] qitos_contracts::model::CapabilityError),
    /// `env_capability_mismatch`: a tool needs operations that the environment lacks (ENG-8).
    #[error("tool `{tool}` needs operations that the environment does not have")]
    EnvCapability {
        /// The tool.
        tool: String,
    },
}

impl ContractError for EngineError {
    fn code(&self) -> &str {
        match self {
            EngineError::Configuration { .. } | EngineError::Model(_) => "configuration_error",
            EngineError::Registry(error) => error.code(),
            EngineError::EnvCapability { .. } => "env_capability_mismatch",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Collects what an engine is made of; [`build`](EngineBuilder::build) checks all of it at once.
#[must_use]
pub struct EngineBuilder {
    agent: Arc<dyn ErasedAgent>,
    model: Arc<dyn Model>,
    tools: ToolRegistry,
    permissions: PermissionPolicy,
    critics: Vec<Arc<dyn Critic>>,
    hooks: Vec<Arc<dyn Hook>>,
    contributors: Vec<Arc<dyn ContextContributor>>,
    parser: Option<Arc<dyn DecisionParser>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    workers: WorkerLimits,
    env: Option<Arc<dyn Env>>,
    artifacts: Option<Arc<dyn ArtifactStore>>,
    dispatcher: Option<Arc<Dispatcher>>,
    continuations: Option<Arc<dyn ContinuationResolver>>,
    store: Option<Arc<dyn CheckpointStore>>,
    policy: EnginePolicy,
    budget: Budget,
    context_budget: ContextBudget,
    history: History,
    tool_use_policy: ToolUsePolicy,
    output_tokens: u64,
    allow_codec_loss: bool,
    composition: Value,
    config_digest: Option<Digest>,
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EngineBuilder")
            .field("agent", &self.agent.name())
            .finish_non_exhaustive()
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),+ $(,)?) => {
        $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self { self.$name = $name; self })+
    };
}

impl EngineBuilder {
    setters!(
        /// The tools; frozen when a run starts.
        tools: ToolRegistry,
        /// Permission rules (section 3).
        permissions: PermissionPolicy,
        /// Executor and loop policies.
        policy: EnginePolicy,
        /// What a session may spend.
        budget: Budget,
        /// How much fits into a request.
        context_budget: ContextBudget,
        /// How much of the history a request carries.
        history: History,
        /// Whether tools must be used.
        tool_use_policy: ToolUsePolicy,
        /// Output tokens that admission reserves where the agent asks for none.
        output_tokens: u64,
        /// Declared codec loss is allowed (PRV-14).
        allow_codec_loss: bool,
        /// Bounds of the pool for blocking tools.
        workers: WorkerLimits,
        /// Sanitized facts of the composition, stored with every session.
        composition: Value,
        /// Where time comes from.
        clock: Arc<dyn Clock>,
        /// Where identities come from.
        ids: Arc<dyn IdSource>,
    );

    /// Where sessions live; without one a session is ephemeral.
    pub fn store(mut self, store: Arc<dyn CheckpointStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Where records go.
    pub fn dispatcher(mut self, dispatcher: Arc<Dispatcher>) -> Self {
        self.dispatcher = Some(dispatcher);
        self
    }

    /// Where large outputs go.
    pub fn artifacts(mut self, artifacts: Arc<dyn ArtifactStore>) -> Self {
        self.artifacts = Some(artifacts);
        self
    }

    /// Where opaque state of providers goes; without one an answer that brings some fails (PRV-33).
    pub fn continuations(mut self, resolver: Arc<dyn ContinuationResolver>) -> Self {
        self.continuations = Some(resolver);
        self
    }

    /// What tools may touch.
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = Some(env);
        self
    }

    /// The text protocol's parser; without one only native calls act and plain text is the answer.
    pub fn parser(mut self, parser: Arc<dyn DecisionParser>) -> Self {
        self.parser = Some(parser);
        self
    }

    /// Adds a critic.
    pub fn critic(mut self, critic: Arc<dyn Critic>) -> Self {
        self.critics.push(critic);
        self
    }

    /// Adds an observer.
    pub fn hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Adds a source of context.
    pub fn contributor(mut self, contributor: Arc<dyn ContextContributor>) -> Self {
        self.contributors.push(contributor);
        self
    }

    /// Digest of the configuration; a restore under another one is refused (CFG-14).
    pub fn config_digest(mut self, digest: Digest) -> Self {
        self.config_digest = Some(digest);
        self
    }

    /// Checks everything and freezes the tools.
    ///
    /// # Errors
    /// `configuration_error`, `wire_name_collision`, `env_capability_mismatch`, `context_policy_error`. Nothing was
    /// started.
    pub fn build(mut self) -> Result<Engine, EngineError> {
        if cfg!(panic = "abort") {
            return Err(EngineError::Configuration {
                field: "panic",
                reason: "a build that aborts cannot contain panics",
            });
        }
        if self.policy.max_concurrency == 0 {
            return Err(EngineError::Configuration {
                field: "max_concurrency",
                reason: "must be at least 1",
            });
        }
        if self.budget.max_steps == 0 {
            return Err(EngineError::Configuration {
                field: "max_steps",
                reason: "must be at least 1",
            });
        }
        let budget = &self.context_budget;
        if budget.max_input_units == 0 || budget.reserved_output_units >= budget.max_input_units {
            return Err(EngineError::Configuration {
                field: "context_budget",
                reason: "the reserve must be smaller than the window",
            });
        }
        self.contributors
            .sort_by(|left, right| left.contributor_id().cmp(right.contributor_id()));
        let mut previous = "";
        for contributor in &self.contributors {
            if contributor.contributor_id().is_empty() || contributor.contributor_id() == previous {
                return Err(EngineError::Configuration {
                    field: "contributors",
                    reason: "ids must be unique and not empty",
                });
            }
            previous = contributor.contributor_id();
        }
        let capabilities = self.model.capabilities();
        capabilities.check()?;
        let registry = self.tools.freeze(&[])?;
        for tool in registry.tools() {
            let has = |group: &qitos_contracts::env::OpsGroup| {
                self.env
                    .as_ref()
                    .is_some_and(|env| env.ops(*group).is_some())
            };
            if !tool.spec.required_ops.iter().all(has) {
                return Err(EngineError::EnvCapability {
                    tool: tool.spec.name.to_string(),
                });
            }
        }
        let offered = self.tool_use_policy != ToolUsePolicy::Disabled;
        let native = offered
            && capabilities.supports_tool_schemas
            && capabilities.supports_native_tool_calls;
        let schemas = registry
            .tools()
            .iter()
            .filter(|_| native)
            .map(|tool| ToolSchema {
                name: tool.wire_name.to_string(),
                description: tool.spec.description.clone(),
                input_schema: tool.spec.input_schema.clone(),
                strict_schema: None,
            });
        let tool_schemas = Arc::new(ToolSchemas::new(schemas.collect()));
        let protocol_instruction = self.parser.as_ref().map(|parser| {
            let listing: Vec<ToolListing<'_>> = registry
                .tools()
                .iter()
                .map(|tool| ToolListing {
                    name: &tool.spec.name,
                    description: tool
                        .spec
                        .prompt
                        .as_deref()
                        .unwrap_or(&tool.spec.description),
                    input_schema: &tool.spec.input_schema,
                })
                .collect();
            Instruction {
                role: InstructionRole::System,
                text: parser.instructions(&listing),
            }
        });
        let protocol_id: Arc<str> = self.parser.as_ref().map_or_else(
            || "native_tool_calls_v1".into(),
            |parser| parser.protocol_id().into(),
        );
        let view_policy = ViewPolicy {
            target: Arc::clone(self.model.target()),
            budget: self.context_budget,
            tool_schemas,
            protocol_id,
            tool_use_policy: self.tool_use_policy,
            reasoning: ReasoningPolicy::default(),
            history: self.history,
            log_id: "log".into(),
            output_tokens: self.output_tokens,
        };
        Ok(Engine(Arc::new(Parts {
            agent: self.agent,
            model: self.model,
            registry,
            permissions: self.permissions,
            critics: self.critics,
            hooks: self.hooks,
            contributors: self.contributors,
            contributor_deadline: Duration::from_secs(2),
            reconcile_deadline: Duration::from_secs(30),
            view_policy,
            protocol_instruction,
            parser: self.parser,
            clock: self.clock,
            ids: self.ids,
            workers: WorkerTable::new(self.workers),
            env: self.env,
            artifacts: self.artifacts,
            dispatcher: self.dispatcher,
            continuations: self.continuations,
            allow_codec_loss: self.allow_codec_loss,
            policy: self.policy,
            budget: self.budget,
            store: self.store,
            composition: self.composition,
            config_digest: self.config_digest,
            volatile: AtomicU64::new(0),
        })))
    }
}

/// An agent with everything it runs on; makes and restores sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(pub(crate) Arc<Parts>);

impl Engine {
    /// Starts putting an engine together around an agent and a model.
    pub fn builder(agent: impl AgentModule, model: Arc<dyn Model>) -> EngineBuilder {
        EngineBuilder {
            agent: Arc::new(Erased(Arc::new(agent))),
            model,
            tools: ToolRegistry::new(),
            permissions: PermissionPolicy::default(),
            critics: Vec::new(),
            hooks: Vec::new(),
            contributors: Vec::new(),
            parser: None,
            clock: Arc::new(crate::system::SystemClock::new()),
            ids: Arc::new(crate::system::SystemIds),
            workers: WorkerLimits::default(),
            env: None,
            artifacts: None,
            dispatcher: None,
            continuations: None,
            store: None,
            policy: EnginePolicy::default(),
            budget: Budget::default(),
            context_budget: ContextBudget::default(),
            history: History::Full,
            tool_use_policy: ToolUsePolicy::Auto,
            output_tokens: 2_048,
            allow_codec_loss: true,
            composition: json!({}),
            config_digest: None,
        }
    }

    /// The tools of every run of this engine.
    #[must_use]
    pub fn tools(&self) -> &FrozenRegistry {
        &self.0.registry
    }

    /// Where sessions live.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<dyn CheckpointStore>> {
        self.0.store.as_ref()
    }

    /// Workers that have not ended (EXE-9).
    #[must_use]
    pub fn unresolved_workers(&self) -> Vec<UnresolvedWorker> {
        self.0.workers.unresolved()
    }

    /// Waits for workers up to `limit` and names those that are left; never claims them stopped (EXE-9, PRV-99).
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn shutdown(&self, limit: Duration) -> Vec<UnresolvedWorker> {
        let until = tokio::time::Instant::now() + limit;
        loop {
            let left = self.0.workers.unresolved();
            if left.is_empty() || tokio::time::Instant::now() >= until {
                return left;
            }
            tokio::time::sleep(Duration::from_millis(10).min(limit)).await;
        }
    }
}
