//! Section 9.

use std::sync::Arc;

use qitos_contracts::checkpoint::{CheckpointStore, ForkBoundary, ForkRequest, Page, VerifyDepth};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::ForkOperationId;
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;

use crate::subject::{File, block_on, commit, for_each_store, running};

fn operation(number: u8) -> ForkOperationId {
    format!("fork_{number:016x}").parse().unwrap()
}

#[track_caller]
fn fork_code(store: &dyn CheckpointStore, request: ForkRequest) -> String {
    let fork = store.groups().fork().unwrap();
    let before = block_on(store.head(&request.source_session_id)).unwrap();
    let child = request.child_commit.session_id().clone();
    let source = request.source_session_id.clone();
    let error = block_on(fork.fork(Arc::new(request))).unwrap_err();
    assert_eq!(block_on(store.head(&source)).unwrap(), before);
    assert_eq!(block_on(store.head(&child)).unwrap(), None);
    error.code().to_owned()
}

fn paused(store: &dyn CheckpointStore, seed: u64, items: usize) -> ScriptedSession {
    let mut session = running(store, seed);
    for _ in 0..items {
        commit(
            store,
            &session
                .commit(Lifecycle::Running, &format!("said in {seed}"))
                .unwrap(),
        );
    }
    commit(store, &session.commit(Lifecycle::Paused, "rest").unwrap());
    session
}

#[test]
fn a_child_starts_paused_at_zero_and_leaves_its_source_untouched() {
    for_each_store(|store| {
        // SES-36, K21, K26
        let mut source = paused(store, 1, 5);
        let before = block_on(store.head(source.session_id())).unwrap();
        let (request, mut child) = source.fork(&operation(1)).unwrap();
        let fork = store.groups().fork().unwrap();
        let receipt = block_on(fork.fork(Arc::new(request))).unwrap();
        assert_eq!(receipt.owner_generation, 0);
        assert_eq!(&receipt.child_session_id, child.session_id());
        assert_eq!(block_on(store.head(source.session_id())).unwrap(), before);
        let head = block_on(store.head(child.session_id())).unwrap().unwrap();
        assert_eq!((head.generation, head.lifecycle), (0, Lifecycle::Paused));
        let stored = block_on(store.snapshot(&head.snapshot_id))
            .unwrap()
            .unwrap();
        assert_eq!(stored.parent_checkpoint_id, None);
        // Both go on, each on its own way, and each is whole.
        commit(store, &child.commit(Lifecycle::Running, "child").unwrap());
        commit(store, &source.commit(Lifecycle::Running, "source").unwrap());
        let access = store.groups().chunk_access().unwrap();
        for session in [&source, &child] {
            let snapshot = &session.parent().unwrap().snapshot_id;
            let deep = block_on(access.verify(snapshot, VerifyDepth::Deep)).unwrap();
            assert!(deep.intact(), "{deep:?}");
        }
        // STO-10: a child lists only its own.
        let own = block_on(store.lineage(child.session_id(), Page::default())).unwrap();
        assert_eq!(own.entries.len(), 2);
    });
}

#[test]
fn the_same_operation_is_the_same_fork_and_another_source_is_refused() {
    for_each_store(|store| {
        // SES-41, K22, K23, F15
        let source = paused(store, 2, 2);
        let fork = store.groups().fork().unwrap();
        let (request, _) = source.fork(&operation(2)).unwrap();
        let first = block_on(fork.fork(Arc::new(request.clone()))).unwrap();
        assert_eq!(block_on(fork.fork(Arc::new(request))).unwrap(), first);
        // Whoever calls: the caller's own idea of the child does not matter.
        let (again, _) = source.clone().diverging(5).fork(&operation(2)).unwrap();
        assert_eq!(block_on(fork.fork(Arc::new(again))).unwrap(), first);
        assert_eq!(
            block_on(fork.get(&operation(2))).unwrap().as_ref(),
            Some(&first)
        );
        assert_eq!(block_on(fork.get(&operation(3))).unwrap(), None);
        let other = paused(store, 3, 1);
        let (elsewhere, _) = other.fork(&operation(2)).unwrap();
        let error = block_on(fork.fork(Arc::new(elsewhere))).unwrap_err();
        assert_eq!(error.code(), "duplicate_fork_operation");
        assert!(!error.recoverable());
    });
}

#[test]
fn a_fork_names_a_snapshot_of_its_source() {
    for_each_store(|store| {
        // SES-38
        let source = paused(store, 4, 1);
        let other = paused(store, 5, 1);
        let (request, _) = source.fork(&operation(4)).unwrap();
        let mut wrong = request.clone();
        wrong.source_snapshot_id = "snapshot_0123456789abcdef".parse().unwrap();
        assert_eq!(fork_code(store, wrong), "snapshot_not_found");
        let mut wrong = request.clone();
        wrong.source_snapshot_id = other.parent().unwrap().snapshot_id.clone();
        assert_eq!(fork_code(store, wrong), "snapshot_session_mismatch");
        let mut wrong = request;
        wrong.source_checkpoint_id = other.parent().unwrap().checkpoint_id.clone();
        assert_eq!(fork_code(store, wrong), "checkpoint_conflict");
    });
}

#[test]
fn the_snapshots_own_lifecycle_decides_not_the_heads() {
    for_each_store(|store| {
        // SES-37, SES-45, K24
        let source = running(store, 6);
        let (request, _) = source.fork(&operation(6)).unwrap();
        assert_eq!(
            fork_code(store, request.clone()),
            "invalid_lifecycle_operation"
        );
        let mut pinned = request;
        pinned.boundary = ForkBoundary::Pinned;
        let fork = store.groups().fork().unwrap();
        block_on(fork.fork(Arc::new(pinned))).unwrap();

        // A paused snapshot in the history of a session that runs again.
        let mut session = paused(store, 7, 0);
        let at_rest = session.clone();
        commit(store, &session.commit(Lifecycle::Running, "on").unwrap());
        let (history, _) = at_rest.fork(&operation(7)).unwrap();
        block_on(fork.fork(Arc::new(history))).unwrap();
    });
}

#[test]
fn a_child_may_only_use_chunks_of_its_source() {
    for_each_store(|store| {
        let source = paused(store, 8, 3);
        let other = paused(store, 9, 3);
        let (mut request, _) = source.fork(&operation(8)).unwrap();
        let (stranger, _) = other.fork(&operation(8)).unwrap();
        request.child_commit = stranger.child_commit;
        assert_eq!(fork_code(store, request), "missing_chunk");
    });
}

#[test]
fn a_fork_writes_the_same_whatever_the_length_of_the_history() {
    // STO-53, K58
    let rows = |items: usize| {
        let file = File::new();
        let store = file.open();
        let source = paused(&store, 11, items);
        let count = || {
            ["chunk", "snapshot", "session", "head", "fork"]
                .map(|table| file.number(&format!("SELECT count(*) FROM {table}")))
        };
        let before = count();
        let (request, _) = source.fork(&operation(11)).unwrap();
        block_on(store.groups().fork().unwrap().fork(Arc::new(request))).unwrap();
        let after = count();
        let mut added = [0; 5];
        for (index, slot) in added.iter_mut().enumerate() {
            *slot = after[index] - before[index];
        }
        added
    };
    let short = rows(3);
    assert_eq!(short, rows(203));
    assert_eq!(short[1..], [1, 1, 1, 1]);
}
