//! What a user writes: an agent module with a typed state; erased once, at the kernel's edge.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::canonical_json;
use qitos_contracts::decision::{Action, Decision};
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::model::{DecodedResponse, Instruction};
use qitos_contracts::tool::call::BoxFuture;
use qitos_contracts::tool::result::ToolResult;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a run is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// In words.
    pub objective: String,
    /// Free facts.
    pub metadata: serde_json::Map<String, Value>,
}

impl Task {
    /// A task in words.
    #[must_use]
    pub fn new(objective: impl Into<String>) -> Self {
        Task {
            objective: objective.into(),
            metadata: serde_json::Map::new(),
        }
    }
}

impl<T: Into<String>> From<T> for Task {
    fn from(objective: T) -> Self {
        Task::new(objective)
    }
}

/// What an agent sees at a step (ENG-7): canonical results, not views.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The task.
    pub task: Arc<Task>,
    /// The step.
    pub step_id: u64,
    /// Results of the newest batch in declaration order.
    pub action_results: Vec<Arc<ToolResult>>,
    /// Their declaration indexes in completion order (ENG-6).
    pub completion_order: Vec<u32>,
}

/// What stands in front of the history of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// Fixed texts; equal ones keep the provider's prompt cache warm.
    pub instructions: Vec<Instruction>,
    /// Output tokens asked for.
    pub max_output_tokens: Option<u64>,
}

/// What an agent reduces to (ENG-5).
#[derive(Clone, Debug, PartialEq)]
pub enum Reduced<S> {
    /// The next state.
    Continue(S),
    /// The last state and the run's answer.
    Finish(S, String),
}

/// What an agent says of a call before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GateAnswer {
    /// Nothing against it.
    #[default]
    Allow,
    /// Not this one: `error/policy/action_blocked` (PRM-6).
    Block(String),
}

/// An error of the agent's own code; the session ends `failed`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// Stable code, `agent_error` unless the agent names its own.
    pub code: String,
    /// For people.
    pub message: String,
}

impl AgentError {
    /// An error with the code `agent_error`.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        AgentError {
            code: "agent_error".into(),
            message: message.into(),
        }
    }

    pub(crate) fn state(message: impl Into<String>) -> Self {
        AgentError {
            code: "state_decode_failed".into(),
            message: message.into(),
        }
    }
}

impl ContractError for AgentError {
    fn code(&self) -> &str {
        &self.code
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::Unknown
    }
}

/// An agent: pure steps around a model, over a state of its own type (section 8).
///
/// # Contract
/// * [`reduce`](AgentModule::reduce) does no I/O and gives the same state for the same inputs; after a crash it
///   may run again on the same stored results (ENG-6, DUR-10).
/// * The state holds what must survive; engine-owned facts (step, answer, stop reason, counters) are not in it.
/// * Every method may be called again for the same step after a crash.
#[async_trait]
pub trait AgentModule: fmt::Debug + Send + Sync + 'static {
    /// What must survive between steps.
    type State: Serialize + DeserializeOwned + Clone + Send + Sync + 'static;

    /// Version of the state's form; stored with it.
    const SCHEMA_VERSION: u32 = 1;

    /// A stable name.
    fn name(&self) -> &str;

    /// The first state.
    ///
    /// # Errors
    /// The task is not one for this agent: `task_validation_failed`.
    fn init_state(&self, task: &Task) -> Result<Self::State, AgentError>;

    /// What stands in front of the history; the default is nothing.
    ///
    /// # Errors
    /// The session ends `failed`.
    fn prepare(
        &self,
        state: &Self::State,
        observation: &Observation,
    ) -> Result<Prompt, AgentError> {
        let _ = (state, observation);
        Ok(Prompt::default())
    }

    /// A decision without the model; the default leaves it to the model.
    ///
    /// # Errors
    /// The session ends `failed`.
    ///
    /// # Cancel safety
    /// Dropped when the run is cancelled.
    async fn decide(
        &self,
        state: &Self::State,
        observation: &Observation,
    ) -> Result<Option<Decision>, AgentError> {
        let _ = (state, observation);
        Ok(None)
    }

    /// Reads a response in the agent's own way; the default leaves it to the protocol.
    ///
    /// # Errors
    /// The session ends `failed`.
    ///
    /// # Cancel safety
    /// Dropped when the run is cancelled.
    async fn interpret(
        &self,
        state: &Self::State,
        observation: &Observation,
        response: &DecodedResponse,
    ) -> Result<Option<Decision>, AgentError> {
        let _ = (state, observation, response);
        Ok(None)
    }

    /// The next state.
    ///
    /// # Errors
    /// The session ends `failed`.
    fn reduce(
        &self,
        state: &Self::State,
        observation: &Observation,
        decision: &Decision,
    ) -> Result<Reduced<Self::State>, AgentError>;

    /// The agent's own condition to stop.
    ///
    /// # Errors
    /// The session ends `failed`.
    fn should_stop(&self, state: &Self::State) -> Result<bool, AgentError> {
        let _ = state;
        Ok(false)
    }

    /// A word on a call before it runs; an error or panic denies it (PRM-5).
    ///
    /// # Errors
    /// `skipped/policy/policy_error` for this call.
    fn gate(&self, state: &Self::State, action: &Action) -> Result<GateAnswer, AgentError> {
        let _ = (state, action);
        Ok(GateAnswer::Allow)
    }

    /// Makes a state of this version out of one of an older version.
    ///
    /// # Errors
    /// No migration from that version: `resolver_type_mismatch` at restore.
    fn migrate(&self, version: u32, state: Value) -> Result<Self::State, AgentError> {
        let _ = state;
        Err(AgentError::state(format!(
            "no migration from state version {version}"
        )))
    }
}

/// A typed state behind a pointer.
#[derive(Clone)]
pub(crate) struct StateBox(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for StateBox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateBox")
    }
}

/// What reducing gave, with the state in both forms.
#[derive(Debug)]
pub(crate) struct ErasedReduction {
    pub(crate) state: StateBox,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) finish: Option<String>,
    pub(crate) should_stop: bool,
}

/// An agent whose state type is hidden; panics of user code come back as errors.
pub(crate) trait ErasedAgent: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;
    fn state_schema(&self) -> String;
    fn init(&self, task: &Task) -> Result<(StateBox, Arc<[u8]>), AgentError>;
    fn load(&self, schema: &str, state: Value) -> Result<StateBox, AgentError>;
    fn load_bytes(&self, bytes: &[u8]) -> Result<StateBox, AgentError>;
    fn prepare(&self, state: &StateBox, observation: &Observation) -> Result<Prompt, AgentError>;
    fn decide(
        &self,
        state: StateBox,
        observation: Arc<Observation>,
    ) -> BoxFuture<'static, Result<Option<Decision>, AgentError>>;
    fn interpret(
        &self,
        state: StateBox,
        observation: Arc<Observation>,
        response: Arc<DecodedResponse>,
    ) -> BoxFuture<'static, Result<Option<Decision>, AgentError>>;
    fn reduce(
        &self,
        state: &StateBox,
        observation: &Observation,
        decision: &Decision,
    ) -> Result<ErasedReduction, AgentError>;
    fn gate(&self, state: &StateBox, action: &Action) -> Result<GateAnswer, AgentError>;
}

#[derive(Debug)]
pub(crate) struct Erased<A>(pub(crate) Arc<A>);

/// Runs user code and turns a panic into an error; the payload's text is bounded.
pub(crate) fn guarded<T>(
    what: &str,
    run: impl FnOnce() -> Result<T, AgentError>,
) -> Result<T, AgentError> {
    match std::panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(payload) => Err(AgentError {
            code: "agent_panicked".into(),
            message: format!("{what} panicked: {}", panic_text(payload.as_ref())),
        }),
    }
}

/// The text of a panic, at most 512 characters.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is no text");
    text.chars().take(512).collect()
}

impl<A: AgentModule> Erased<A> {
    fn state<'a>(&self, state: &'a StateBox) -> Result<&'a A::State, AgentError> {
        state
            .0
            .downcast_ref()
            .ok_or_else(|| AgentError::state("the state belongs to another agent"))
    }

    fn seal(&self, state: A::State) -> Result<(StateBox, Arc<[u8]>), AgentError> {
        let bytes = canonical_json::to_canonical(&state)
            .map_err(|error| AgentError::state(format!("the state cannot be written: {error}")))?;
        Ok((StateBox(Arc::new(state)), bytes.into()))
    }
}

impl<A: AgentModule> ErasedAgent for Erased<A> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn state_schema(&self) -> String {
        format!("{}/v{}", self.0.name(), A::SCHEMA_VERSION)
    }

    fn init(&self, task: &Task) -> Result<(StateBox, Arc<[u8]>), AgentError> {
        guarded("init_state", || self.seal(self.0.init_state(task)?))
    }

    fn load(&self, schema: &str, state: Value) -> Result<StateBox, AgentError> {
        guarded("the state's decoder", || {
            if schema == self.state_schema() {
                let state: A::State = serde_json::from_value(state).map_err(|error| {
                    AgentError::state(format!("the stored state does not decode: {error}"))
                })?;
                return Ok(StateBox(Arc::new(state)));
            }
            let version = schema
                .strip_prefix(self.0.name())
                .and_then(|rest| rest.strip_prefix("/v"))
                .and_then(|version| version.parse().ok())
                .ok_or_else(|| AgentError::state("the stored state belongs to another agent"))?;
            Ok(StateBox(Arc::new(self.0.migrate(version, state)?)))
        })
    }

    fn load_bytes(&self, bytes: &[u8]) -> Result<StateBox, AgentError> {
        guarded("the state's decoder", || {
            let value = canonical_json::read_canonical(bytes).map_err(|error| {
                AgentError::state(format!("the state does not decode: {error}"))
            })?;
            let state: A::State = serde_json::from_value(value).map_err(|error| {
                AgentError::state(format!("the state does not decode: {error}"))
            })?;
            Ok(StateBox(Arc::new(state)))
        })
    }

    fn prepare(&self, state: &StateBox, observation: &Observation) -> Result<Prompt, AgentError> {
        guarded("prepare", || {
            self.0.prepare(self.state(state)?, observation)
        })
    }

    fn decide(
        &self,
        state: StateBox,
        observation: Arc<Observation>,
    ) -> BoxFuture<'static, Result<Option<Decision>, AgentError>> {
        let agent = Arc::clone(&self.0);
        Box::pin(async move {
            let erased = Erased(agent);
            erased.0.decide(erased.state(&state)?, &observation).await
        })
    }

    fn interpret(
        &self,
        state: StateBox,
        observation: Arc<Observation>,
        response: Arc<DecodedResponse>,
    ) -> BoxFuture<'static, Result<Option<Decision>, AgentError>> {
        let agent = Arc::clone(&self.0);
        Box::pin(async move {
            let erased = Erased(agent);
            erased
                .0
                .interpret(erased.state(&state)?, &observation, &response)
                .await
        })
    }

    fn reduce(
        &self,
        state: &StateBox,
        observation: &Observation,
        decision: &Decision,
    ) -> Result<ErasedReduction, AgentError> {
        guarded("reduce", || {
            let (next, finish) = match self.0.reduce(self.state(state)?, observation, decision)? {
                Reduced::Continue(next) => (next, None),
                Reduced::Finish(next, answer) => (next, Some(answer)),
            };
            let should_stop = self.0.should_stop(&next)?;
            let (state, bytes) = self.seal(next)?;
            Ok(ErasedReduction {
                state,
                bytes,
                finish,
                should_stop,
            })
        })
    }

    fn gate(&self, state: &StateBox, action: &Action) -> Result<GateAnswer, AgentError> {
        guarded("gate", || self.0.gate(self.state(state)?, action))
    }
}

/// What a critic looks at (ENG-19).
#[derive(Clone, Debug)]
pub struct CriticInput<'a> {
    /// The step.
    pub step_id: u64,
    /// The decision that was carried out.
    pub decision: &'a Decision,
    /// The answer, if the step gave one.
    pub answer: Option<&'a str>,
    /// Results in declaration order.
    pub results: &'a [Arc<ToolResult>],
    /// The agent's state.
    pub state: &'a Value,
}

/// What a critic says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// End the run.
    Stop {
        /// Why.
        reason: String,
    },
    /// Decide anew in the next step; tools are neither undone nor repeated (ENG-20).
    Retry {
        /// What to tell the model, once.
        instruction: Option<String>,
        /// A JSON merge patch on the state (ENG-21).
        state_patch: Option<Value>,
    },
}

/// Judges a step before it is committed; synchronous, no I/O.
pub trait Critic: fmt::Debug + Send + Sync + 'static {
    /// A stable name.
    fn name(&self) -> &str;

    /// Judges one step.
    ///
    /// # Errors
    /// A recovery case, not a pass (ENG-20).
    fn judge(&self, input: &CriticInput<'_>) -> Result<Verdict, AgentError>;
}

/// Applies a JSON merge patch (RFC 7396).
pub(crate) fn merge_patch(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                *target = Value::Object(serde_json::Map::new());
            }
            if let Value::Object(target) = target {
                for (key, value) in patch {
                    if value.is_null() {
                        target.remove(&key);
                    } else {
                        merge_patch(target.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
        }
        other => *target = other,
    }
}
