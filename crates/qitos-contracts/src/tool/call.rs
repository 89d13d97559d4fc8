//! What a running call may touch, and what it gives back.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::result::ToolResult;
use crate::artifact::ArtifactRef;
use crate::env::{Ops, OpsGroup};
use crate::error::{ContractError, Performed, Retry};
use crate::ids::{AttemptId, BatchId, EffectRef, RunId, SessionId, SlotId};

/// A future that a trait object returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a tool gives back in order.
#[derive(Clone, Debug)]
pub enum Returned {
    /// A canonical value; JSON `null` is a success without output (TOL-12).
    Value(Value),
    /// A complete result of the tool's own; authoritative but for identity and effect fields (RES-6).
    Result(Box<ToolResult>),
}

/// Where an error belongs (`error_kind` of a result).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The tool understood the call and says no.
    Semantic,
    /// The call could not be carried out.
    Execution,
    /// A rule forbids it.
    Policy,
}

impl ErrorKind {
    /// The word of the result format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Semantic => "semantic",
            ErrorKind::Execution => "execution",
            ErrorKind::Policy => "policy",
        }
    }
}

/// The orderly failure of a tool, its validation or its predicate.
///
/// `code` matches `[a-z][a-z0-9_]{0,63}`; anything else is recorded as `tool_failed`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// Where the error belongs; [`ErrorKind::Semantic`] unless said otherwise (MAC-6).
    pub kind: ErrorKind,
    /// Stable code.
    pub code: String,
    /// Text for the model and for people; no secrets.
    pub message: String,
    /// Repeating the call may succeed.
    pub recoverable: bool,
    /// What the model could do about it.
    pub hint: Option<String>,
    /// Advice `{name, args?, action_id?}`, never executed by itself.
    pub next_action: Option<Value>,
    /// What became of the declared effect, if the tool knows.
    pub effect: Option<EffectReport>,
}

impl ToolError {
    /// A semantic error that is not recoverable.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        ToolError {
            kind: ErrorKind::Semantic,
            code: code.into(),
            message: message.into(),
            recoverable: false,
            hint: None,
            next_action: None,
            effect: None,
        }
    }

    /// The same error of another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same error, marked as worth repeating.
    #[must_use]
    pub fn recoverable(mut self) -> Self {
        self.recoverable = true;
        self
    }

    /// The same error with a hint for the model.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<String> for ToolError {
    fn from(message: String) -> Self {
        ToolError::new("tool_failed", message)
    }
}

impl From<&str> for ToolError {
    fn from(message: &str) -> Self {
        ToolError::new("tool_failed", message)
    }
}

impl ContractError for ToolError {
    fn code(&self) -> &str {
        &self.code
    }

    fn retry(&self) -> Retry {
        if self.recoverable {
            Retry::SameRequest
        } else {
            Retry::Never
        }
    }

    fn performed(&self) -> Performed {
        match self.effect {
            Some(EffectReport::Committed) => Performed::Yes,
            Some(EffectReport::Rejected) => Performed::No,
            None => Performed::Unknown,
        }
    }
}

/// What a tool knows of its effect (RES-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectReport {
    /// The outside world took it.
    Committed,
    /// The outside world refused it.
    Rejected,
}

/// The answer of [`reconcile`](super::Tool::reconcile) (RES-19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reconciled {
    /// The effect happened.
    Committed,
    /// The effect did not happen.
    Rejected,
    /// Nobody can tell.
    Unknown,
}

/// An approval predicate's view of the run: plain values, no handles (decision 65).
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The step that declared the call.
    pub step_id: u64,
    /// Canonical tool name.
    pub tool_name: Arc<str>,
    /// The declared effects stay inside the sandbox.
    pub sandboxed: bool,
    /// Decisions that this session already holds for this tool: `(decision, times)`.
    pub earlier_decisions: Vec<(String, u64)>,
    /// Tool calls that the budget still admits.
    pub tool_calls_left: Option<u64>,
}

/// Why the port refused or lost something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The owner is gone or was superseded; nothing was recorded.
    #[error("the owner of this attempt is gone")]
    OwnerGone,
    /// The record could not be made durable.
    #[error("the record could not be made durable ({code})")]
    NotDurable {
        /// The code of the store or artifact store.
        code: String,
    },
    /// No worker is free (`worker_capacity_exhausted`).
    #[error("no worker is free")]
    WorkerCapacity,
    /// The worker ended without giving its result back.
    #[error("the worker ended without a result")]
    WorkerLost,
}

/// A job for the executor's own worker pool.
pub type BlockingJob = Box<dyn FnOnce() -> Result<Returned, ToolError> + Send>;

/// What the executor offers a running call; one object behind [`CallCtx`].
///
/// # Contract
/// Calls are attributed to one attempt. After the attempt was closed, progress is still kept, marked with
/// its attempt (EXE-20), and effect reports are stored as late.
#[async_trait]
pub trait CallPort: fmt::Debug + Send + Sync {
    /// Whether cancellation was requested.
    fn is_cancelled(&self) -> bool;
    /// Resolves when cancellation is requested.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    async fn cancelled(&self);
    /// A granted operation group of the environment.
    fn ops(&self, group: OpsGroup) -> Option<Ops>;
    /// Publishes a progress note, best effort.
    fn emit_progress(&self, note: Value);
    /// Stores an artifact and ties it to this attempt.
    ///
    /// # Errors
    /// [`PortError::NotDurable`] if the artifact store refused it.
    ///
    /// # Cancel safety
    /// Dropping it may leave the artifact stored.
    async fn record_artifact(
        &self,
        media_type: String,
        body: Vec<u8>,
    ) -> Result<ArtifactRef, PortError>;
    /// Makes the fate of the declared effect durable before it returns (RES-15).
    ///
    /// # Errors
    /// [`PortError::NotDurable`] or [`PortError::OwnerGone`]; nothing may be assumed then.
    ///
    /// # Cancel safety
    /// The report, once begun, is finished even if the future is dropped.
    async fn report_effect(&self, report: EffectReport, receipt: Value) -> Result<(), PortError>;
    /// Runs a blocking job on the executor's own pool; the worker belongs to the executor until it ends (EXE-9).
    ///
    /// # Cancel safety
    /// Dropping the future abandons the result, not the worker.
    fn run_blocking(
        &self,
        job: BlockingJob,
    ) -> BoxFuture<'static, Result<Result<Returned, ToolError>, PortError>>;
}

/// Everything a running call may touch: plain data and one port (section 1.1).
///
/// Never holds the engine, the registry, the state or credentials the tool did not ask for.
#[derive(Clone, Debug)]
pub struct CallCtx {
    /// Which call this is, and for how long it may run.
    pub call: CallIdentity,
    port: Arc<dyn CallPort>,
}

impl CallCtx {
    /// A context around `port`; used by executors and tests.
    #[must_use]
    pub fn new(call: CallIdentity, port: Arc<dyn CallPort>) -> Self {
        CallCtx { call, port }
    }

    /// Whether cancellation was requested; blocking tools poll this.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.port.is_cancelled()
    }

    /// Resolves when cancellation is requested.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    pub async fn cancelled(&self) {
        self.port.cancelled().await;
    }

    /// A granted operation group of the environment.
    #[must_use]
    pub fn ops(&self, group: OpsGroup) -> Option<Ops> {
        self.port.ops(group)
    }

    /// Publishes a progress note, best effort.
    pub fn emit_progress(&self, note: Value) {
        self.port.emit_progress(note);
    }

    /// Stores an artifact and ties it to this attempt.
    ///
    /// # Errors
    /// As [`CallPort::record_artifact`].
    ///
    /// # Cancel safety
    /// As [`CallPort::record_artifact`].
    pub async fn record_artifact(
        &self,
        media_type: impl Into<String>,
        body: Vec<u8>,
    ) -> Result<ArtifactRef, PortError> {
        self.port.record_artifact(media_type.into(), body).await
    }

    /// Makes the fate of the declared effect durable before it returns (RES-15).
    ///
    /// # Errors
    /// As [`CallPort::report_effect`].
    ///
    /// # Cancel safety
    /// As [`CallPort::report_effect`].
    pub async fn report_effect(
        &self,
        report: EffectReport,
        receipt: Value,
    ) -> Result<(), PortError> {
        self.port.report_effect(report, receipt).await
    }

    /// Runs a blocking job on the executor's own pool and gives its result.
    ///
    /// # Errors
    /// The job's own error; `worker_capacity_exhausted` or `missing_worker` if no worker took or kept it.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the result, not the worker.
    pub async fn run_blocking(
        &self,
        job: impl FnOnce() -> Result<Returned, ToolError> + Send + 'static,
    ) -> Result<Returned, ToolError> {
        match self.port.run_blocking(Box::new(job)).await {
            Ok(result) => result,
            Err(PortError::WorkerCapacity) => Err(ToolError::new(
                "worker_capacity_exhausted",
                "no worker is free",
            )
            .with_kind(ErrorKind::Execution)),
            Err(error) => {
                Err(ToolError::new("missing_worker", error.to_string())
                    .with_kind(ErrorKind::Execution))
            }
        }
    }
}

/// The plain data of a [`CallCtx`].
#[derive(Clone, Debug)]
pub struct CallIdentity {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The step that declared the call.
    pub step_id: u64,
    /// The batch.
    pub batch_id: BatchId,
    /// The slot.
    pub slot_id: SlotId,
    /// This attempt.
    pub attempt_id: AttemptId,
    /// Owner generation of the session.
    pub generation: u64,
    /// The declared effect.
    pub effect_ref: Option<EffectRef>,
    /// The key under which the backend may recognise a repeat.
    pub idempotency_key: Option<String>,
    /// Time left when the call starts; `None` means unbounded.
    pub deadline: Option<Duration>,
}
