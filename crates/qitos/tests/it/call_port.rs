//! A call port that runs blocking jobs at once and counts them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use qitos::__private::async_trait::async_trait;
use qitos::__private::serde_json::Value;
use qitos::tool::call::{BlockingJob, BoxFuture, CallIdentity, Facts};
use qitos::tool::{CallCtx, CallPort, EffectReport, PortError, Returned, Tool, ToolError};
use qitos_contracts::artifact::ArtifactRef;
use qitos_contracts::env::{Ops, OpsGroup};

/// Counts the jobs that a worker would have run.
#[derive(Debug, Default)]
pub(crate) struct CountingPort {
    blocking_jobs: AtomicU32,
}

impl CountingPort {
    /// Jobs run so far.
    pub(crate) fn blocking_jobs(&self) -> u32 {
        self.blocking_jobs.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl CallPort for CountingPort {
    fn is_cancelled(&self) -> bool {
        false
    }

    async fn cancelled(&self) {
        std::future::pending::<()>().await;
    }

    fn ops(&self, _group: OpsGroup) -> Option<Ops> {
        None
    }

    fn emit_progress(&self, _note: Value) {}

    async fn record_artifact(
        &self,
        _media_type: String,
        _body: Vec<u8>,
    ) -> Result<ArtifactRef, PortError> {
        Err(PortError::OwnerGone)
    }

    async fn report_effect(&self, _report: EffectReport, _receipt: Value) -> Result<(), PortError> {
        Err(PortError::OwnerGone)
    }

    fn run_blocking(
        &self,
        job: BlockingJob,
    ) -> BoxFuture<'static, Result<Result<Returned, ToolError>, PortError>> {
        self.blocking_jobs.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            std::thread::spawn(job)
                .join()
                .map_err(|_| PortError::WorkerLost)
        })
    }
}

/// A context of step 7 around a fresh port.
pub(crate) fn context() -> (CallCtx, Arc<CountingPort>) {
    let port = Arc::new(CountingPort::default());
    let identity = CallIdentity {
        session_id: "session_0123456789abcdef".parse().unwrap(),
        run_id: "run_0123456789abcdef".parse().unwrap(),
        step_id: 7,
        batch_id: "batch_request_0123456789abcdef01234567".parse().unwrap(),
        slot_id: "batch_request_0123456789abcdef01234567:0".parse().unwrap(),
        attempt_id: "attempt_0123456789abcdef".parse().unwrap(),
        generation: 1,
        effect_ref: None,
        idempotency_key: None,
        deadline: None,
    };
    (CallCtx::new(identity, port.clone()), port)
}

/// Facts of step 7.
pub(crate) fn facts() -> Facts {
    Facts {
        session_id: "session_0123456789abcdef".parse().unwrap(),
        run_id: "run_0123456789abcdef".parse().unwrap(),
        step_id: 7,
        tool_name: "tool".into(),
        sandboxed: false,
        earlier_decisions: Vec::new(),
        tool_calls_left: None,
    }
}

/// Runs a future that needs neither timers nor I/O.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Executes a tool and gives its value.
pub(crate) fn run(tool: &dyn Tool, args: Value) -> (Result<Value, ToolError>, Arc<CountingPort>) {
    let (context, port) = context();
    let output = block_on(tool.execute(Arc::new(args), context)).map(|returned| match returned {
        Returned::Value(value) => value,
        Returned::Result(result) => panic!("a result of its own: {result:?}"),
    });
    (output, port)
}
