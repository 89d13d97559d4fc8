//! Closing runs once; repeats give the same receipt (CFG-27).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use qitos_kernel::Engine;
use qitos_kernel::dispatcher::Dispatcher;
use serde::Serialize;

use super::{CompositionError, OpenedStore};

/// What closing did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CloseReceipt {
    /// `closed` or `cleanup_failed`.
    pub status: String,
    /// What was closed, in order.
    pub closed: Vec<String>,
    /// What could not be.
    pub failures: Vec<CloseFailure>,
    /// Receipt of the sandbox; there is none in this release.
    pub sandbox: Option<String>,
}

/// A resource that could not be closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CloseFailure {
    /// Which one.
    pub resource: String,
    /// Its error code.
    pub error_type: String,
}

#[derive(Debug, Default)]
pub(super) struct State(Mutex<Option<CloseReceipt>>);

impl State {
    fn receipt(&self) -> Option<CloseReceipt> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn check_open(&self) -> Result<(), CompositionError> {
        if self.receipt().is_some() {
            Err(CompositionError::closed())
        } else {
            Ok(())
        }
    }

    pub(super) async fn close(
        &self,
        engine: &Engine,
        dispatcher: Option<&Dispatcher>,
        store: Option<&OpenedStore>,
        limit: Duration,
    ) -> CloseReceipt {
        if let Some(receipt) = self.receipt() {
            return receipt;
        }
        let mut closed = Vec::new();
        let mut failures = Vec::new();
        let left = engine.shutdown(limit).await;
        if left.is_empty() {
            closed.push("workers".to_owned());
        } else {
            let error_type = "worker_still_running".to_owned();
            failures.extend(left.iter().map(|_| CloseFailure {
                resource: "workers".into(),
                error_type: error_type.clone(),
            }));
        }
        if let Some(dispatcher) = dispatcher {
            let report = dispatcher.close(Instant::now() + limit).await;
            let failed = report.failures.iter().map(|failure| CloseFailure {
                resource: format!("sink {}", failure.sink_id),
                error_type: qitos_contracts::error::ContractError::code(&failure.error).to_owned(),
            });
            let before = failures.len();
            failures.extend(failed);
            if failures.len() == before {
                closed.push("sinks".to_owned());
            }
        }
        if let Some(store) = store {
            match tokio::time::timeout(limit, store.close()).await {
                Ok(true) => closed.push("checkpoint store".to_owned()),
                // Its owner closes it.
                Ok(false) => {}
                Err(_) => failures.push(CloseFailure {
                    resource: "checkpoint store".into(),
                    error_type: "store_busy".into(),
                }),
            }
        }
        closed.push("model".to_owned());
        let status = if failures.is_empty() {
            "closed"
        } else {
            "cleanup_failed"
        };
        let receipt = CloseReceipt {
            status: status.into(),
            closed,
            failures,
            sandbox: None,
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(receipt.clone());
        receipt
    }
}
