//! Errors of the engine at the worst moments (rows 13 and 14, STO-7, STO-21).

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use qitos_contracts::checkpoint::{CheckpointStore, Resolved, VerifyDepth};
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;
use qitos_store_sqlite::fault_point::{FaultPlan, InjectedFault, Point};
use qitos_store_sqlite::{OpenOptions, SqliteStore};

use crate::subject::{File, block_on, commit, refused, running};

/// One fault, armed by the test.
#[derive(Debug, Default)]
struct Armed(Mutex<Option<(Point, InjectedFault)>>);

impl Armed {
    fn arm(&self, point: Point, fault: InjectedFault) {
        *self.0.lock().unwrap() = Some((point, fault));
    }
}

impl FaultPlan for Armed {
    fn reached(&self, point: Point) -> Option<InjectedFault> {
        let mut armed = self.0.lock().unwrap();
        match *armed {
            Some((wanted, fault)) if wanted == point => {
                *armed = None;
                Some(fault)
            }
            _ => None,
        }
    }
}

fn store_with(file: &File) -> (SqliteStore, Arc<Armed>) {
    let plan = Arc::new(Armed::default());
    let options = OpenOptions::default().create();
    let store =
        SqliteStore::open_with_fault_plan(file.path(), options, Arc::clone(&plan) as _).unwrap();
    (store, plan)
}

#[test]
fn a_full_disk_writes_nothing_and_the_same_request_persists_once_there_is_space() {
    // F8, K41
    for point in [Point::AfterChunks, Point::AfterSnapshot, Point::AfterHead] {
        let file = File::new();
        let (store, plan) = store_with(&file);
        let mut session = running(&store, 1);
        let next = session.commit(Lifecycle::Running, "x").unwrap();
        plan.arm(point, InjectedFault::DiskFull);
        let error = refused(&store, &next);
        assert_eq!(error.code(), "storage_full");
        assert_eq!(error.performed(), Performed::No);
        let head = block_on(store.head(session.session_id())).unwrap().unwrap();
        assert_eq!(head.generation, 1);
        assert_eq!(commit(&store, &next).generation, 2);
    }
}

#[test]
fn an_error_at_commit_is_neither_success_nor_failure_until_resolved() {
    // Row 14, STO-6, STO-21, F7, K40
    for (fault, committed) in [
        (InjectedFault::CommitErrorBefore, false),
        (InjectedFault::CommitErrorAfter, true),
    ] {
        let file = File::new();
        let (store, plan) = store_with(&file);
        let mut session = running(&store, 1);
        let next = session.commit(Lifecycle::Running, "x").unwrap();
        plan.arm(Point::BeforeCommit, fault);
        let error = refused(&store, &next);
        assert_eq!(error.code(), "commit_outcome_unknown");
        assert_eq!(error.retry(), Retry::Unknown);
        assert_eq!(error.performed(), Performed::Unknown);
        let resolved = block_on(store.resolve(next.snapshot_id())).unwrap();
        assert_eq!(matches!(resolved, Resolved::Committed(_)), committed);
        // No durable receipt until the store is opened again; reads go on.
        assert_eq!(refused(&store, &next).code(), "persistence_failed");
        let head = block_on(store.head(session.session_id())).unwrap().unwrap();
        assert_eq!(head.generation, if committed { 2 } else { 1 });
        drop(store);
        let receipt = commit(&file.open(), &next);
        assert_eq!((receipt.generation, receipt.replayed), (2, committed));
    }
}

#[test]
fn one_unknown_outcome_is_told_to_everyone_in_the_group() {
    let file = File::new();
    let (store, plan) = store_with(&file);
    let store = Arc::new(store);
    let mut sessions: Vec<ScriptedSession> = (0..8).map(|seed| running(&*store, seed)).collect();
    plan.arm(Point::BeforeCommit, InjectedFault::CommitErrorBefore);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut waiting = Vec::new();
        for session in &mut sessions {
            let next = session.commit(Lifecycle::Running, "x").unwrap();
            let store = Arc::clone(&store);
            waiting.push(tokio::spawn(async move { store.commit(next).await }));
        }
        for outcome in waiting {
            let error = outcome.await.unwrap().unwrap_err();
            let code = error.code().to_owned();
            // Those that came after the group find the connection closed.
            assert!(
                ["commit_outcome_unknown", "persistence_failed"].contains(&code.as_str()),
                "{code}"
            );
        }
    });
    let store = file.open();
    for session in &sessions {
        let head = block_on(store.head(session.session_id())).unwrap().unwrap();
        assert_eq!(head.generation, 1);
    }
}

#[test]
fn a_commit_dropped_at_any_poll_is_whole_or_nothing_and_the_store_goes_on() {
    // STO-7, F16, K44
    let file = File::new();
    let store = file.open();
    let polled = AtomicU32::new(0);
    for polls in 0..200 {
        let mut session = running(&store, 1_000 + polls);
        let next = session.commit(Lifecycle::Running, "dropped").unwrap();
        {
            let mut future = store.commit(Arc::clone(&next));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls % 7 {
                polled.fetch_add(1, Ordering::SeqCst);
                if let Poll::Ready(outcome) = Future::poll(future.as_mut(), &mut context) {
                    outcome.unwrap();
                    break;
                }
            }
        }
        // The next call works, and repeating finds out.
        let receipt = commit(&store, &next);
        assert_eq!(receipt.generation, 2);
        let access = store.groups().chunk_access().unwrap();
        let deep = block_on(access.verify(next.snapshot_id(), VerifyDepth::Deep)).unwrap();
        assert!(deep.intact());
    }
    assert!(polled.load(Ordering::SeqCst) > 0);
    assert_eq!(file.number("SELECT count(*) FROM snapshot"), 3 * 200);
}
