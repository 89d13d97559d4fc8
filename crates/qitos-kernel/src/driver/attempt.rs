//! One execution of a slot: time limit, cancellation, panic, worker (EXE-7, EXE-8, EXE-17).

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use qitos_contracts::artifact::{ArtifactRef, ArtifactStore};
use qitos_contracts::env::{Env, Ops, OpsGroup};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{AttemptId, EffectRef};
use qitos_contracts::tool::call::{BlockingJob, BoxFuture};
use qitos_contracts::tool::registry::RegisteredTool;
use qitos_contracts::tool::result::{End, LostKind, ReportedEffect, ToolResult};
use qitos_contracts::tool::{
    CallCtx, CallPort, EffectReport, ErrorKind, PortError, Returned, ToolError,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::mail::Mail;
use crate::agent::panic_text;
use crate::machine::AttemptEnd;
use crate::workers::{JobResult, UnresolvedWorker, WorkerTable};

/// A future whose panics come back as text instead of unwinding.
pub(super) struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future> CatchPanic<F> {
    pub(super) fn new(future: F) -> Self {
        CatchPanic(Box::pin(future))
    }
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.0.as_mut();
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(payload) => Poll::Ready(Err(panic_text(payload.as_ref()))),
        }
    }
}

/// What a running call reaches.
pub(super) struct AttemptPort {
    pub(super) slot: u32,
    pub(super) attempt: AttemptId,
    pub(super) tool: Arc<str>,
    pub(super) effect_ref: Option<EffectRef>,
    pub(super) cancel: watch::Receiver<bool>,
    pub(super) mail: mpsc::Sender<Mail>,
    pub(super) env: Option<Arc<dyn Env>>,
    pub(super) granted: Vec<OpsGroup>,
    pub(super) artifacts: Option<Arc<dyn ArtifactStore>>,
    pub(super) workers: WorkerTable,
}

impl fmt::Debug for AttemptPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AttemptPort")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl CallPort for AttemptPort {
    fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }

    async fn cancelled(&self) {
        raised(&mut self.cancel.clone()).await;
    }

    fn ops(&self, group: OpsGroup) -> Option<Ops> {
        if self.granted.contains(&group) {
            self.env.as_ref()?.ops(group)
        } else {
            None
        }
    }

    fn emit_progress(&self, note: Value) {
        let _ = self.mail.try_send(Mail::Progress {
            slot: self.slot,
            attempt: self.attempt.clone(),
            note,
        });
    }

    async fn record_artifact(
        &self,
        media_type: String,
        body: Vec<u8>,
    ) -> Result<ArtifactRef, PortError> {
        let Some(store) = &self.artifacts else {
            return Err(PortError::NotDurable {
                code: "artifact_store_missing".into(),
            });
        };
        let reference = ArtifactRef::of_body(store.resolver_key(), &media_type, &body);
        match store.put(&reference, &body).await {
            Ok(()) => Ok(reference),
            Err(error) => Err(PortError::NotDurable {
                code: error.code().to_owned(),
            }),
        }
    }

    async fn report_effect(&self, report: EffectReport, receipt: Value) -> Result<(), PortError> {
        let (reply, answer) = oneshot::channel();
        let effect = ReportedEffect {
            state: report,
            receipt,
        };
        let mail = Mail::Report {
            slot: self.slot,
            attempt: self.attempt.clone(),
            effect,
            reply,
        };
        self.mail
            .send(mail)
            .await
            .map_err(|_| PortError::OwnerGone)?;
        answer.await.map_err(|_| PortError::OwnerGone)
    }

    fn run_blocking(
        &self,
        job: BlockingJob,
    ) -> BoxFuture<'static, Result<Result<Returned, ToolError>, PortError>> {
        let worker = UnresolvedWorker {
            attempt_id: self.attempt.clone(),
            tool: Arc::clone(&self.tool),
            effect_ref: self.effect_ref.clone(),
            orphaned: false,
        };
        let (mail, slot, attempt) = (self.mail.clone(), self.slot, self.attempt.clone());
        let late = move |result: JobResult| {
            // A late return is told to the owner, who keeps the terminal and records what came (EXE-11).
            let _ = mail.try_send(Mail::Late {
                slot,
                attempt,
                result,
            });
        };
        let started = self.workers.start(worker, job, late);
        Box::pin(async move {
            match started?.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(panic)) => std::panic::resume_unwind(Box::new(panic)),
                Err(_) => Err(PortError::WorkerLost),
            }
        })
    }
}

/// Everything one attempt needs.
pub(super) struct Attempt {
    pub(super) tool: RegisteredTool,
    pub(super) args: Arc<Value>,
    pub(super) context: CallCtx,
    pub(super) attempt: AttemptId,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) signal: Arc<watch::Sender<bool>>,
    pub(super) workers: WorkerTable,
    pub(super) artifacts: Option<Arc<dyn ArtifactStore>>,
    /// Characters of the result that the model may see (PRJ-2).
    pub(super) shown_chars: usize,
}

enum Cut {
    Deadline,
    Cancel,
}

impl Attempt {
    /// Runs the tool to its end: its own return, a panic, or what is left when time or patience is over.
    pub(super) async fn run(self) -> AttemptEnd {
        let started = Instant::now();
        let mut cancel = self.signal.subscribe();
        let tool = Arc::clone(&self.tool.tool);
        let (args, context) = (Arc::clone(&self.args), self.context.clone());
        let mut call = CatchPanic::new(async move { tool.execute(args, context).await });
        let deadline = self.timeout.map(|timeout| started + timeout);
        let cut = tokio::select! {
            biased;
            result = &mut call => return self.finish(result, started).await,
            () = at(deadline) => Cut::Deadline,
            () = raised(&mut cancel) => Cut::Cancel,
        };
        self.signal.send_replace(true);
        if let Ok(result) = tokio::time::timeout(self.grace, &mut call).await {
            // A real result returned within the grace period is kept (EXE-8).
            return self.finish(result, started).await;
        }
        drop(call);
        let worker_running = self.workers.orphan(&self.attempt);
        let end = match cut {
            Cut::Deadline => End::TimedOut { worker_running },
            Cut::Cancel => End::Cancelled { worker_running },
        };
        AttemptEnd {
            end,
            latency_ms: since(started),
        }
    }

    async fn finish(
        &self,
        result: Result<Result<Returned, ToolError>, String>,
        started: Instant,
    ) -> AttemptEnd {
        let latency_ms = since(started);
        let end = match result {
            Err(panic) => End::Panicked(panic),
            Ok(Ok(returned)) => self.check_output(returned).await,
            Ok(Err(error)) => match error.code.as_str() {
                "missing_worker" if error.kind == ErrorKind::Execution => {
                    End::Lost(LostKind::Worker)
                }
                "transport_lost" if error.kind == ErrorKind::Execution => {
                    End::Lost(LostKind::Transport)
                }
                "process_lost" if error.kind == ErrorKind::Execution => {
                    End::Lost(LostKind::Process)
                }
                _ => End::Failed(error),
            },
        };
        AttemptEnd { end, latency_ms }
    }

    async fn record(&self, returned: Returned) -> End {
        End::Returned(
            super::spill::spill(returned, self.shown_chars, self.artifacts.as_deref()).await,
        )
    }

    /// The declared output schema (TOL-10) and the size of what is kept inline (PRJ-1).
    async fn check_output(&self, returned: Returned) -> End {
        let Returned::Value(value) = returned else {
            return self.record(returned).await;
        };
        if let Some(schema) = &self.tool.output
            && !schema.accepts(&value)
        {
            let failure = ToolResult::failure(
                ErrorKind::Execution,
                "invalid_tool_output",
                "the output does not fit the tool's declared output schema",
            );
            return End::Returned(Returned::Result(Box::new(failure)));
        }
        self.record(Returned::Value(value)).await
    }
}

/// Resolves when the signal is raised; holds no guard across an await.
pub(super) async fn raised(signal: &mut watch::Receiver<bool>) {
    while !*signal.borrow_and_update() {
        if signal.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(super) fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}
