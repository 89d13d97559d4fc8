//! One attempt on a thread of its own: deadline, cancel, grace, panic, and workers that run on.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use qitos_contracts::artifact::ArtifactRef;
use qitos_contracts::env::{Ops, OpsGroup};
use qitos_contracts::ids::{AttemptId, SlotId};
use qitos_contracts::tool::call::{BlockingJob, BoxFuture, CallIdentity};
use qitos_contracts::tool::result::End;
use qitos_contracts::tool::{
    CallCtx, CallPort, EffectReport, PortError, Returned, Tool, ToolError,
};
use serde_json::Value;

use super::Flaw;
use super::control::{Signal, locked};
use crate::tool::LateRecord;

/// Workers that belong to the engine until they end (EXE-9).
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Arc<(Mutex<Table>, Condvar)>);

#[derive(Debug, Default)]
struct Table {
    /// Attempt to slot, and whether its slot was closed without it.
    running: BTreeMap<AttemptId, (SlotId, bool)>,
    late: Vec<LateRecord>,
}

impl Workers {
    fn begin(&self, attempt: &AttemptId, slot: &SlotId) {
        locked(&self.0.0)
            .running
            .insert(attempt.clone(), (slot.clone(), false));
    }

    fn end(&self, attempt: &AttemptId, disposition: &str) {
        let mut table = locked(&self.0.0);
        if let Some((slot, true)) = table.running.remove(attempt) {
            table.late.push(LateRecord {
                slot,
                disposition: disposition.into(),
            });
        }
        self.0.1.notify_all();
    }

    /// The slot is closed; whether its worker runs on.
    fn abandon(&self, attempt: &AttemptId) -> bool {
        match locked(&self.0.0).running.get_mut(attempt) {
            Some(entry) => {
                entry.1 = true;
                true
            }
            None => false,
        }
    }

    /// Waits a while for all workers to end; who still runs, and what came late.
    pub(super) fn settle(&self, patience: Duration) -> (Vec<SlotId>, Vec<LateRecord>) {
        let (table, _) = self
            .0
            .1
            .wait_timeout_while(locked(&self.0.0), patience, |table| {
                !table.running.is_empty()
            })
            .unwrap_or_else(PoisonError::into_inner);
        let running = table
            .running
            .values()
            .map(|(slot, _)| slot.clone())
            .collect();
        (running, table.late.clone())
    }
}

/// What an attempt needs.
pub(super) struct Attempt {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) args: Arc<Value>,
    pub(super) identity: CallIdentity,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) run_cancelled: Signal,
    pub(super) workers: Workers,
    pub(super) flaw: Option<Flaw>,
}

#[derive(Debug)]
struct Port {
    token: Signal,
    workers: Workers,
    attempt: AttemptId,
    slot: SlotId,
    late_disposition: &'static str,
}

type WorkerResult = Result<Result<Returned, ToolError>, Box<dyn Any + Send>>;

#[async_trait]
impl CallPort for Port {
    fn is_cancelled(&self) -> bool {
        self.token.is_set()
    }

    async fn cancelled(&self) {
        self.token.wait().await;
    }

    fn ops(&self, _group: OpsGroup) -> Option<Ops> {
        None
    }

    fn emit_progress(&self, _note: Value) {}

    async fn record_artifact(
        &self,
        media_type: String,
        body: Vec<u8>,
    ) -> Result<ArtifactRef, PortError> {
        Ok(ArtifactRef::of_body("memory", &media_type, &body))
    }

    async fn report_effect(&self, _report: EffectReport, _receipt: Value) -> Result<(), PortError> {
        Ok(())
    }

    fn run_blocking(
        &self,
        job: BlockingJob,
    ) -> BoxFuture<'static, Result<Result<Returned, ToolError>, PortError>> {
        let done = Signal::default();
        let result: Arc<Mutex<Option<WorkerResult>>> = Arc::default();
        let (signal, slot) = (done.clone(), Arc::clone(&result));
        let (workers, attempt) = (self.workers.clone(), self.attempt.clone());
        let disposition = self.late_disposition;
        workers.begin(&attempt, &self.slot);
        let started = std::thread::Builder::new()
            .name("small-engine-worker".into())
            .spawn(move || {
                let outcome = catch_unwind(AssertUnwindSafe(job));
                *locked(&slot) = Some(outcome);
                workers.end(&attempt, disposition);
                signal.set();
            });
        Box::pin(async move {
            if started.is_err() {
                return Err(PortError::WorkerCapacity);
            }
            done.wait().await;
            let outcome = locked(&result).take();
            match outcome {
                Some(Ok(result)) => Ok(result),
                Some(Err(panic)) => resume_unwind(panic),
                None => Err(PortError::WorkerLost),
            }
        })
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs an attempt to its end on the calling thread.
pub(super) fn perform(attempt: Attempt) -> End {
    let token = Signal::default();
    let attempt_id = attempt.identity.attempt_id.clone();
    let port = Port {
        token: token.clone(),
        workers: attempt.workers.clone(),
        attempt: attempt_id.clone(),
        slot: attempt.identity.slot_id.clone(),
        late_disposition: if attempt.flaw == Some(Flaw::AcceptsLateReturns) {
            "committed"
        } else {
            "late_terminal_rejected"
        },
    };
    let ctx = CallCtx::new(attempt.identity, Arc::new(port));
    let tool = attempt.tool;
    let mut future: Pin<Box<dyn Future<Output = Result<Returned, ToolError>> + Send>> =
        Box::pin(async move { tool.execute(attempt.args, ctx).await });
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let begun = Instant::now();
    let mut cut: Option<(bool, Instant)> = None;
    loop {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context))) {
            Ok(Poll::Ready(Ok(returned))) => return End::Returned(returned),
            Ok(Poll::Ready(Err(error))) => return End::Failed(error),
            Ok(Poll::Pending) => {}
            Err(panic) => {
                if attempt.flaw == Some(Flaw::CallsPanicsCancels) {
                    return End::Cancelled {
                        worker_running: false,
                    };
                }
                return End::Panicked(panic_text(&*panic));
            }
        }
        let now = Instant::now();
        let timed_out = attempt
            .timeout
            .is_some_and(|timeout| now.duration_since(begun) >= timeout);
        match cut {
            None if timed_out || attempt.run_cancelled.is_set() => {
                token.set();
                cut = Some((timed_out, now + attempt.grace));
                continue;
            }
            Some((timed_out, until)) if now >= until => {
                drop(future);
                let mut worker_running = attempt.workers.abandon(&attempt_id);
                match attempt.flaw {
                    Some(Flaw::CallsDroppedRunning) => worker_running = true,
                    Some(Flaw::ForgetsWorkers) => worker_running = false,
                    _ => {}
                }
                return if timed_out {
                    End::TimedOut { worker_running }
                } else {
                    End::Cancelled { worker_running }
                };
            }
            _ => {}
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
