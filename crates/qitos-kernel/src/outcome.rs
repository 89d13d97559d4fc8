//! How a run ends: outcome, stop reason, failure (section 8 of tools-and-engine).

use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{AttemptId, RunId, SessionId};
use qitos_contracts::snapshot::Lifecycle;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// An answer is there.
    Completed,
    /// It ended in order without one.
    Stopped,
    /// Something failed.
    Failed,
    /// It rests at a safe boundary because somebody asked, or a sink failed.
    Paused,
    /// It rests until something it named happens.
    Waiting,
    /// It was cancelled.
    Cancelled,
}

macro_rules! stop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)?) => {
        /// Why a run ended; exactly one per run (ENG-10).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum StopReason {
            $($(#[$doc])* #[serde(rename = $word)] $variant,)+
        }

        impl StopReason {
            /// The word of records and results.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(StopReason::$variant => $word,)+ }
            }

            /// Reads a word back; `max_steps` of old records is `budget_steps`.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(StopReason::$variant),)+
                    "max_steps" => Some(StopReason::BudgetSteps),
                    _ => None,
                }
            }
        }
    };
}

stop_reasons!(
    /// A final decision.
    Final = "final",
    /// A criterion of success.
    Success = "success",
    /// The agent's `should_stop`.
    AgentCondition = "agent_condition",
    /// The environment ended.
    EnvTerminal = "env_terminal",
    /// A critic.
    CriticStop = "critic_stop",
    /// Nothing changed any more.
    Stagnation = "stagnation",
    /// No step left.
    BudgetSteps = "budget_steps",
    /// No time left.
    BudgetTime = "budget_time",
    /// No tokens left.
    BudgetTokens = "budget_tokens",
    /// No request left.
    BudgetRequests = "budget_requests",
    /// No tool call left.
    BudgetToolCalls = "budget_tool_calls",
    /// The request does not fit and nothing can be left out.
    ContextOverflow = "context_overflow",
    /// The task is not valid.
    TaskValidationFailed = "task_validation_failed",
    /// The environment lacks what tools need.
    EnvCapabilityMismatch = "env_capability_mismatch",
    /// What the run stands on is broken.
    InfrastructureInvalid = "infrastructure_invalid",
    /// See `failure`.
    UnrecoverableError = "unrecoverable_error",
    /// Cancelled at once.
    CancelledImmediate = "cancelled_immediate",
    /// Cancelled after the step.
    CancelledAfterStep = "cancelled_after_step",
    /// A pause was asked for.
    Interrupt = "interrupt",
    /// An approver ended the run.
    ApprovalTerminated = "approval_terminated",
    /// The agent waits.
    Wait = "wait",
    /// An approval is open.
    ApprovalPending = "approval_pending",
    /// A required sink failed; the session rests.
    TrajectorySinkFailed = "trajectory_sink_failed",
    /// A required sink failed and there is no session to rest in.
    RequiredSinkFailed = "required_sink_failed",
    /// The work went to another agent.
    Handoff = "handoff",
);

/// Where an error belongs; follows from its type (ENG-16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCategory {
    /// The provider.
    ModelError,
    /// A text that could not be read.
    ParseError,
    /// A tool.
    ToolError,
    /// The agent's own code or state.
    StateError,
    /// The task.
    TaskError,
    /// The environment.
    EnvError,
    /// Store, sinks, configuration.
    SystemError,
}

/// What failed, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The code of whoever failed, unchanged.
    pub error_code: String,
    /// Where it belongs.
    pub category: FailureCategory,
    /// Phase of the step.
    pub phase: String,
    /// The step.
    pub step_id: u64,
    /// Constant or redacted text for people.
    pub message: String,
    /// A remedy for people, may be empty.
    pub remediation: String,
    /// Repeating may succeed.
    pub recoverable: bool,
}

impl Failure {
    /// From any contract error.
    #[must_use]
    pub fn of(
        error: &dyn ContractError,
        category: FailureCategory,
        phase: &str,
        step_id: u64,
    ) -> Self {
        Failure {
            error_code: error.code().to_owned(),
            category,
            phase: phase.into(),
            step_id,
            message: error.to_string(),
            remediation: String::new(),
            recoverable: error.retry() != qitos_contracts::error::Retry::Never,
        }
    }

    /// From a code of the engine's own.
    #[must_use]
    pub fn engine(
        code: &str,
        category: FailureCategory,
        phase: &str,
        step_id: u64,
        message: &str,
    ) -> Self {
        Failure {
            error_code: code.into(),
            category,
            phase: phase.into(),
            step_id,
            message: message.into(),
            remediation: String::new(),
            recoverable: false,
        }
    }
}

/// What a run used (SES-65).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Requests that may have left the process.
    pub requests: u64,
    /// Known tokens.
    pub tokens: u64,
    /// Attempts whose usage nobody told; never counted as 0 (PRV-70).
    pub usage_unknown: u64,
    /// Calls dispatched.
    pub tool_calls: u64,
    /// Active time.
    pub active_seconds: f64,
}

/// What a run gives back; every ended run returns one (ENG-10).
#[derive(Clone, Debug)]
pub struct EngineResult {
    /// The run.
    pub run_id: RunId,
    /// The session.
    pub session_id: SessionId,
    /// What became of the run.
    pub outcome: RunOutcome,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// Durable lifecycle afterwards.
    pub lifecycle: Lifecycle,
    /// The answer.
    pub final_result: Option<String>,
    /// The agent's state.
    pub state: Value,
    /// Steps begun.
    pub step_count: u64,
    /// What was used.
    pub usage: Usage,
    /// What failed.
    pub failure: Option<Failure>,
    /// Attempts whose outcome is not known or whose worker still runs.
    pub unresolved_attempts: Vec<AttemptId>,
    /// Whether every required and optional sink has everything (section 3 of the trajectory specification).
    pub trajectory_complete: bool,
    /// Code of the store error that stopped the run, if one did; the durable lifecycle stays (SES-11).
    pub store_failure: Option<String>,
}
