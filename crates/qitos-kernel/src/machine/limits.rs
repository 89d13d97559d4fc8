//! Budgets and policies of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::StopReason;

/// What a session may spend (ENG-11); `None` is unbounded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Steps begun.
    pub max_steps: u64,
    /// Requests that may leave the process.
    pub max_requests: Option<u64>,
    /// Active milliseconds.
    pub max_runtime_ms: Option<u64>,
    /// Tokens, known ones and reservations.
    pub max_tokens: Option<u64>,
    /// Calls dispatched.
    pub max_tool_calls: Option<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            max_steps: 10,
            max_requests: None,
            max_runtime_ms: None,
            max_tokens: None,
            max_tool_calls: None,
        }
    }
}

/// How calls of one batch run together (EXE-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutorMode {
    /// One by one in declaration order.
    #[default]
    Serial,
    /// Runs of safe calls together, every other call alone (EXE-3).
    Parallel,
}

/// What ends a batch early (EXE-6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailFast {
    /// Nothing.
    #[default]
    Off,
    /// `error/execution` and `timed_out`.
    Execution,
    /// Any result that is no success.
    Any,
}

/// What follows a violated stream (decision 72).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamFailurePolicy {
    /// The run ends.
    #[default]
    Stop,
    /// A new attempt with its own admission.
    Retry,
}

/// Policies of a run. `Default` is the specification's default everywhere.
#[derive(Clone, Debug)]
pub struct EnginePolicy {
    /// How calls of one batch run together.
    pub mode: ExecutorMode,
    /// At most so many calls at once in parallel mode; at least 1.
    pub max_concurrency: u32,
    /// What ends a batch early.
    pub fail_fast: FailFast,
    /// After a batch with an execution error or unknown outcome the run stops (CFG-32).
    pub fail_closed: bool,
    /// Time limit of a call whose tool names none.
    pub call_timeout: Option<Duration>,
    /// How long a signalled call may take to return (EXE-8).
    pub cancel_grace: Duration,
    /// The loop guard blocks a call after this many equal terminals; 0 switches it off (ENG-22).
    pub loop_max_repeats: u32,
    /// Recoveries per run (ENG-15).
    pub max_recoveries: u64,
    /// Text repairs in a row (TXT-8).
    pub max_repairs: u64,
    /// Critic retries in a row (ENG-20).
    pub max_critic_retries: u64,
    /// `paused` answers in a row (TXT-9).
    pub max_paused_answers: u64,
    /// What follows a violated stream.
    pub provider_stream: StreamFailurePolicy,
    /// A cut-off effect whose backend deduplicates is dispatched again with its key (DUR-6).
    pub resume_with_key: bool,
    /// Stop criteria, in order; a final decision stops anyway (ENG-9).
    pub criteria: Vec<Criterion>,
}

impl Default for EnginePolicy {
    fn default() -> Self {
        EnginePolicy {
            mode: ExecutorMode::Serial,
            max_concurrency: 4,
            fail_fast: FailFast::Off,
            fail_closed: false,
            call_timeout: None,
            cancel_grace: Duration::from_secs(2),
            loop_max_repeats: 3,
            max_recoveries: 3,
            max_repairs: 2,
            max_critic_retries: 3,
            max_paused_answers: 8,
            provider_stream: StreamFailurePolicy::Stop,
            resume_with_key: false,
            criteria: Vec::new(),
        }
    }
}

/// A condition that ends a run at `CHECK_STOP` (ENG-9); its counters are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Criterion {
    /// So many steps were begun.
    MaxSteps(u64),
    /// So many active milliseconds passed.
    MaxRuntimeMs(u64),
    /// So many known tokens were used.
    MaxTokens(u64),
    /// The state stayed the same for so many steps in a row.
    Stagnation(u64),
}

impl Criterion {
    /// The stop reason that it writes.
    #[must_use]
    pub const fn stop_reason(&self) -> StopReason {
        match self {
            Criterion::MaxSteps(_) => StopReason::BudgetSteps,
            Criterion::MaxRuntimeMs(_) => StopReason::BudgetTime,
            Criterion::MaxTokens(_) => StopReason::BudgetTokens,
            Criterion::Stagnation(_) => StopReason::Stagnation,
        }
    }
}
