//! The pure session machine of QitOS and the driver that performs its effects.
//!
//! Read in this order: [`machine`] (what happens next, and why), `driver` (commit, publish, perform), [`session`]
//! (the handle), [`agent`] (what a user writes). `components` and `writer` turn durable facts into snapshots and
//! commits; [`dispatcher`] hands records to sinks.

pub mod agent;
mod components;
pub mod dispatcher;
mod driver;
pub mod engine;
mod gates;
pub mod machine;
pub mod outcome;
pub mod session;
pub mod system;
mod view;
mod workers;
mod writer;

pub use agent::{
    AgentError, AgentModule, Critic, CriticInput, GateAnswer, Observation, Prompt, Reduced, Task,
    Verdict,
};
pub use engine::{Engine, EngineBuilder, EngineError, Hook, ProgressSink};
pub use machine::Disposition;
pub use machine::limits::{
    Budget, Criterion, EnginePolicy, ExecutorMode, FailFast, StreamFailurePolicy,
};
pub use machine::state::{CancelMode, SteeringDisposition, SteeringReceipt};
pub use outcome::{EngineResult, Failure, FailureCategory, RunOutcome, StopReason, Usage};
pub use session::{
    ForkFrom, PauseReceipt, PauseStatus, RestoreOptions, RunError, RunOptions, Session,
    SettlementReceipt, Takeover, inspect, log_tail, resolve_effect,
};
pub use view::History;
pub use workers::{UnresolvedWorker, WorkerLimits, WorkerTable};
