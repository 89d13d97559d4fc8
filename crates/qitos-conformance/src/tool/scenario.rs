//! What an engine is asked to run, and what the suite sees of it while it runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qitos_contracts::ids::SlotId;
use qitos_contracts::log::{ItemBody, ItemRef};
use qitos_contracts::model::RequestView;
use qitos_contracts::tool::Tool;
use serde_json::Value;

use super::observation::Observation;

/// An engine under test: executor, log and loop behind one method.
///
/// # Contract
/// [`run`](ToolEngine::run) creates a fresh session in a fresh in-memory store, registers
/// [`Scenario::tools`], sends one user item, and drives the session until it ends, with permission for every call.
/// On the way it
///
/// 1. gives [`Script::attach`] a handle on the run before the first request;
/// 2. answers each model request with [`Script::answer`] (native calls with a normal end, or text with one);
/// 3. calls [`Script::terminal_durable`] for each terminal once it is durable, and [`Script::commit_refused`] when
///    a commit was refused by [`Fault::RefuseCommit`];
/// 4. after a kill, forgets everything but the store, recovers the session and goes on to its end.
#[async_trait]
pub trait ToolEngine: Send + Sync + 'static {
    /// The name in the report.
    fn name(&self) -> &str;

    /// Whether the feature is there; without it its checks are `not_claimed`.
    fn offers(&self, feature: Feature) -> bool;

    /// Runs a scenario to its end.
    ///
    /// # Errors
    /// A text for the report when the scenario could not be run at all; an ended run is never an error.
    ///
    /// # Cancel safety
    /// The suite never drops the future.
    async fn run(&self, scenario: Scenario) -> Result<Observation, String>;
}

/// Parts of the contract that an engine may not offer (yet).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// [`Settings::rewrite`].
    Rewrite,
    /// [`RunControl::cancel`].
    Cancel,
    /// [`RunControl::steer`].
    Steer,
    /// [`RunControl::drop_run`].
    DropRun,
    /// [`RunControl::register`].
    RegisterDuringRun,
    /// [`Scenario::fault`] with [`Fault::RefuseCommit`], and [`RunControl::intent_is_durable`].
    RefusedCommits,
    /// [`Scenario::fault`] with the two kills.
    Kills,
    /// [`Observation::late`].
    LateRecords,
    /// [`Observation::artifacts`].
    Artifacts,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Feature; 9] = [
        Feature::Rewrite,
        Feature::Cancel,
        Feature::Steer,
        Feature::DropRun,
        Feature::RegisterDuringRun,
        Feature::RefusedCommits,
        Feature::Kills,
        Feature::LateRecords,
        Feature::Artifacts,
    ];

    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Feature::Rewrite => "rewrite",
            Feature::Cancel => "cancel",
            Feature::Steer => "steer",
            Feature::DropRun => "drop_run",
            Feature::RegisterDuringRun => "register_during_run",
            Feature::RefusedCommits => "refused_commits",
            Feature::Kills => "kills",
            Feature::LateRecords => "late_records",
            Feature::Artifacts => "artifacts",
        }
    }
}

/// One run to be made.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name of the check, for session names and messages.
    pub name: String,
    /// The tools of the run.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What the model says.
    pub script: Arc<Script>,
    /// How the executor is set.
    pub settings: Settings,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

impl Scenario {
    /// A run with default settings and no fault.
    #[must_use]
    pub fn new(name: &str, tools: Vec<Arc<dyn Tool>>, turns: Vec<Turn>) -> Self {
        Scenario {
            name: name.into(),
            tools,
            script: Arc::new(Script::new(turns)),
            settings: Settings::default(),
            fault: None,
        }
    }

    /// The same run, in parallel mode with this bound.
    #[must_use]
    pub fn parallel(mut self, max_concurrency: u32) -> Self {
        self.settings.mode = Mode::Parallel;
        self.settings.max_concurrency = max_concurrency;
        self
    }

    /// The same run with a fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }
}

/// Executor mode (EXE-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One by one in declaration order.
    #[default]
    Serial,
    /// Runs of safe calls together.
    Parallel,
}

/// When a failing slot stops its batch (EXE-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailFast {
    /// Never.
    #[default]
    Off,
    /// On `error/execution` and `timed_out`.
    Execution,
    /// On any error.
    Any,
}

/// Who rewrites arguments on the way to the tool (TCK-7).
#[derive(Clone, Debug, PartialEq)]
pub enum Rewrite {
    /// An interceptor, before the gates.
    Interceptor(Value),
    /// A policy.
    Policy(Value),
    /// An approver answering `modify`.
    Approver(Value),
}

/// How the executor is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Executor mode.
    pub mode: Mode,
    /// How many calls may run at once.
    pub max_concurrency: u32,
    /// When a failing slot stops its batch.
    pub fail_fast: FailFast,
    /// How long a signalled tool may take (EXE-8).
    pub cancel_grace: Duration,
    /// Steps of the run.
    pub max_steps: u64,
    /// Replaces the arguments of every call.
    pub rewrite: Option<Rewrite>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Serial,
            max_concurrency: 4,
            fail_fast: FailFast::Off,
            cancel_grace: Duration::from_millis(40),
            max_steps: 10,
            rewrite: None,
        }
    }
}

/// What goes wrong. Commits are counted from 0, the session's creation included, recovery included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store refuses this commit, and every later one, as `persistence_failed`.
    RefuseCommit(u64),
    /// The process dies before this commit is durable.
    KillBeforeCommit(u64),
    /// The process dies when this commit is durable and before anything else happens.
    KillAfterCommit(u64),
}

/// One answer of the model, with a normal end.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Native tool calls.
    Calls(Vec<ScriptedCall>),
    /// Text without calls: a final answer.
    Text(String),
}

/// One declared call.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedCall {
    /// The id the provider gives, unique in the run.
    pub call_id: String,
    /// The name as the model writes it.
    pub name: String,
    /// The argument text as the model writes it.
    pub raw_arguments: String,
}

impl Turn {
    /// Calls with generated ids and the given names and argument texts.
    #[must_use]
    pub fn calls(turn: usize, calls: &[(&str, &str)]) -> Self {
        let declared = calls
            .iter()
            .enumerate()
            .map(|(index, (name, raw_arguments))| ScriptedCall {
                call_id: format!("call-{turn}-{index}"),
                name: (*name).into(),
                raw_arguments: (*raw_arguments).into(),
            })
            .collect();
        Turn::Calls(declared)
    }
}

/// A handle on a run that goes on, for the tools of the suite.
///
/// Each method returns at once; what it asks for happens as soon as the engine's rules allow.
pub trait RunControl: fmt::Debug + Send + Sync {
    /// Cancels the run, `immediate` (EXE-18).
    fn cancel(&self);
    /// Gives the session text for the model (LOG-7).
    fn steer(&self, text: &str);
    /// Drops the future of the run, as an impatient caller does (EXE-9). The session is then settled by whatever the
    /// engine does with dropped runs, and [`ToolEngine::run`] returns what became of it.
    fn drop_run(&self);
    /// Tries to register a tool now (REG-6).
    ///
    /// # Errors
    /// The code of the refusal.
    fn register(&self, tool: Arc<dyn Tool>) -> Result<(), String>;
    /// Whether the intent of the slot's running attempt is durable (EXE-16).
    fn intent_is_durable(&self, slot: &SlotId) -> bool;
}

/// A request as the model saw it.
#[derive(Clone, Debug)]
pub struct RequestSeen {
    /// The items in the order of the request.
    pub items: Vec<ItemRef>,
    /// Per batch: declared call ids and, in completion order, answered ones (LOG-12).
    pub batches: Vec<BatchOrder>,
    /// Wire names of the tools shown.
    pub tool_names: Vec<String>,
}

/// The two orders of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOrder {
    /// Call ids as declared.
    pub declaration_order: Vec<String>,
    /// Call ids as completed.
    pub completion_order: Vec<String>,
}

type OnRequest = Box<dyn Fn(usize, &dyn RunControl) + Send + Sync>;
type OnTerminal = Box<dyn Fn(usize) + Send + Sync>;

#[derive(Default)]
struct Seen {
    requests: Vec<RequestSeen>,
    terminals: Vec<SlotId>,
    refused: bool,
    control: Option<Arc<dyn RunControl>>,
}

/// What the model says, and what was seen on the way.
pub struct Script {
    turns: Vec<Turn>,
    on_request: Option<OnRequest>,
    on_terminal: Option<OnTerminal>,
    seen: Mutex<Seen>,
}

impl fmt::Debug for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Script")
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// A script of these turns; whatever is asked after them is answered by the final text `done`.
    #[must_use]
    pub fn new(turns: Vec<Turn>) -> Self {
        Script {
            turns,
            on_request: None,
            on_terminal: None,
            seen: Mutex::new(Seen::default()),
        }
    }

    pub(super) fn on_request(
        mut self,
        action: impl Fn(usize, &dyn RunControl) + Send + Sync + 'static,
    ) -> Self {
        self.on_request = Some(Box::new(action));
        self
    }

    /// `action` gets how many terminals are durable.
    pub(super) fn on_terminal(mut self, action: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_terminal = Some(Box::new(action));
        self
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the suite a handle on the run; again after a recovery.
    pub fn attach(&self, control: Arc<dyn RunControl>) {
        self.seen().control = Some(control);
    }

    /// The model's answer to a request: the turn after the assistant items it shows.
    ///
    /// Derived from the request alone, so a request that is asked again gets the same answer.
    pub fn answer(&self, view: &RequestView) -> Turn {
        let batches = view
            .correlation_facts()
            .into_iter()
            .map(|facts| BatchOrder {
                declaration_order: facts
                    .declaration_order
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                completion_order: facts
                    .completion_order
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            })
            .collect();
        self.answer_seen(RequestSeen {
            items: view.items.iter().cloned().collect(),
            batches,
            tool_names: view
                .tool_schemas
                .tools()
                .iter()
                .map(|schema| schema.name.to_string())
                .collect(),
        })
    }

    /// As [`Script::answer`], for engines without a [`RequestView`].
    pub fn answer_seen(&self, request: RequestSeen) -> Turn {
        let answered = request
            .items
            .iter()
            .filter(|item| matches!(item.item().body, ItemBody::Assistant(_)))
            .count();
        let (ordinal, control) = {
            let mut seen = self.seen();
            seen.requests.push(request);
            (seen.requests.len() - 1, seen.control.clone())
        };
        if let (Some(action), Some(control)) = (&self.on_request, control) {
            action(ordinal, &*control);
        }
        self.turns
            .get(answered)
            .cloned()
            .unwrap_or_else(|| Turn::Text("done".into()))
    }

    /// A terminal is durable; called once per slot and durable terminal, in completion order.
    pub fn terminal_durable(&self, slot: &SlotId) {
        let count = {
            let mut seen = self.seen();
            seen.terminals.push(slot.clone());
            seen.terminals.len()
        };
        if let Some(action) = &self.on_terminal {
            action(count);
        }
    }

    /// A commit was refused.
    pub fn commit_refused(&self) {
        self.seen().refused = true;
    }

    pub(super) fn was_refused(&self) -> bool {
        self.seen().refused
    }

    /// The handle on the run.
    pub(super) fn control(&self) -> Option<Arc<dyn RunControl>> {
        self.seen().control.clone()
    }

    /// The requests in the order they were made.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestSeen> {
        self.seen().requests.clone()
    }

    /// The slots whose terminals became durable, in that order.
    #[must_use]
    pub fn terminals(&self) -> Vec<SlotId> {
        self.seen().terminals.clone()
    }
}
