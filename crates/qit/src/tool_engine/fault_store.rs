//! A store that refuses or dies at a chosen commit.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use qitos::checkpoint::{
    CheckpointStore, Commit, Groups, Head, LineagePage, Page, Receipt, Resolved, StoreCapabilities,
    StoreError, StoredSnapshot,
};
use qitos::contracts::ids::{SessionId, SnapshotId};
use qitos_conformance::tool::{Fault, Script};
use tokio::sync::Notify;

/// The fault of a scenario, counted over all its processes.
#[derive(Debug)]
pub(super) struct Faults {
    fault: Option<Fault>,
    script: Arc<Script>,
    commits: AtomicU64,
    fired: AtomicBool,
}

impl Faults {
    pub(super) fn new(fault: Option<Fault>, script: Arc<Script>) -> Self {
        Faults {
            fault,
            script,
            commits: AtomicU64::new(0),
            fired: AtomicBool::new(false),
        }
    }

    pub(super) fn fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }
}

/// The store as one process sees it; once the process is dead, nothing returns any more.
#[derive(Debug)]
pub(super) struct FaultStore {
    inner: Arc<dyn CheckpointStore>,
    faults: Arc<Faults>,
    dead: AtomicBool,
    death: Arc<Notify>,
}

impl FaultStore {
    pub(super) fn new(inner: Arc<dyn CheckpointStore>, faults: Arc<Faults>) -> Self {
        FaultStore {
            inner,
            faults,
            dead: AtomicBool::new(false),
            death: Arc::new(Notify::new()),
        }
    }

    /// Told once when the process dies.
    pub(super) fn death(&self) -> Arc<Notify> {
        Arc::clone(&self.death)
    }

    async fn die<T>(&self) -> T {
        self.faults.fired.store(true, Ordering::SeqCst);
        self.dead.store(true, Ordering::SeqCst);
        self.death.notify_one();
        pending().await
    }

    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            pending().await
        }
    }
}

#[async_trait]
impl CheckpointStore for FaultStore {
    fn capabilities(&self) -> &StoreCapabilities {
        self.inner.capabilities()
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        self.alive().await;
        let number = self.faults.commits.fetch_add(1, Ordering::SeqCst);
        match self.faults.fault {
            Some(Fault::RefuseCommit(first)) if number >= first => {
                self.faults.fired.store(true, Ordering::SeqCst);
                self.faults.script.commit_refused();
                Err(StoreError::PersistenceFailed {
                    operation: "commit",
                    detail: "refused by the scenario".into(),
                })
            }
            Some(Fault::KillBeforeCommit(at)) if number == at => self.die().await,
            Some(Fault::KillAfterCommit(at)) if number == at => {
                self.inner.commit(commit).await?;
                self.die().await
            }
            _ => self.inner.commit(commit).await,
        }
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        self.alive().await;
        self.inner.resolve(snapshot).await
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        self.alive().await;
        self.inner.head(session).await
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        self.alive().await;
        self.inner.snapshot(snapshot).await
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        self.alive().await;
        self.inner.lineage(session, page).await
    }

    fn groups(&self) -> Groups<'_> {
        self.inner.groups()
    }
}
