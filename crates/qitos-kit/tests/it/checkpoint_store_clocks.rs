//! The checks that turn a store's clock, over a memory store that tells the time of a clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos_conformance::checkpoint_store::{StoreSubject, conformance};
use qitos_conformance::mutants::checkpoint_store::{Flaw, MutantSubject};
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;
use qitos_contracts::checkpoint::{
    CheckpointStore, Commit, Groups, Head, LineagePage, Page, Receipt, Resolved, StoreCapabilities,
    StoreError, StoredSnapshot,
};
use qitos_contracts::clock::{Clock, ManualClock, Timestamp};
use qitos_contracts::ids::{SessionId, SnapshotId};

use crate::conformance::MemorySubject;

type Times = Arc<Mutex<HashMap<SnapshotId, Timestamp>>>;

#[derive(Debug)]
struct Clocked {
    inner: Arc<dyn CheckpointStore>,
    clock: Arc<ManualClock>,
    times: Times,
}

impl Clocked {
    fn time(&self, snapshot: &SnapshotId) -> Option<Timestamp> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.get(snapshot).copied()
    }
}

#[async_trait]
impl CheckpointStore for Clocked {
    fn capabilities(&self) -> &StoreCapabilities {
        self.inner.capabilities()
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        let receipt = self.inner.commit(commit).await?;
        self.times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(receipt.snapshot_id.clone())
            .or_insert_with(|| self.clock.now());
        Ok(receipt)
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        self.inner.resolve(snapshot).await
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        self.inner.head(session).await
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        let mut found = self.inner.snapshot(snapshot).await?;
        if let (Some(stored), Some(time)) = (&mut found, self.time(snapshot)) {
            stored.captured_at = time;
        }
        Ok(found)
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        let mut found = self.inner.lineage(session, page).await?;
        for entry in &mut found.entries {
            if let Some(time) = self.time(&entry.snapshot_id) {
                entry.captured_at = time;
            }
        }
        Ok(found)
    }

    fn groups(&self) -> Groups<'_> {
        self.inner.groups()
    }
}

struct ClockedSubject {
    memory: MemorySubject,
    clock: Arc<ManualClock>,
    times: Times,
}

impl ClockedSubject {
    fn new() -> Self {
        ClockedSubject {
            memory: MemorySubject::default(),
            clock: Arc::new(ManualClock::new(Timestamp::from_micros(
                1_767_225_600_000_000,
            ))),
            times: Times::default(),
        }
    }
}

#[async_trait]
impl StoreSubject for ClockedSubject {
    fn name(&self) -> &str {
        "memory with a clock"
    }

    fn capabilities(&self) -> StoreCapabilities {
        self.memory.capabilities()
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        Ok(Arc::new(Clocked {
            inner: self.memory.open(place).await?,
            clock: Arc::clone(&self.clock),
            times: Arc::clone(&self.times),
        }))
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        Some(Arc::clone(&self.clock))
    }
}

#[test]
fn a_store_that_orders_by_generation_does_not_mind_clocks() {
    let options = RunOptions::default().only("K65.").only("K66.");
    let report = conformance(Arc::new(ClockedSubject::new()), &options)
        .conforms()
        .unwrap();
    assert_eq!(report.passed(), 2);
}

#[test]
fn a_store_that_orders_by_time_is_rejected() {
    for flaw in [Flaw::OrdersByTime, Flaw::OrdersEqualTimesById] {
        let subject = MutantSubject::new(Arc::new(ClockedSubject::new()), flaw);
        let options = RunOptions::default().only(flaw.rejected_by());
        let report = conformance(Arc::new(subject), &options);
        let check = report.check(flaw.rejected_by()).unwrap();
        assert_eq!(check.status(), Status::Fail, "{flaw:?}: {}", check.detail());
    }
}
