//! Section 7, row by row, and the rules below the table.

use std::sync::Arc;

use qitos_contracts::checkpoint::{
    CheckpointStore, Commit, CommitRequest, DurabilityClass, PersistenceReceiptStatus, Resolved,
    StoreError,
};
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::snapshot::{Chunk, ChunkKind, Lifecycle};
use qitos_kit::scripted_session::ScriptedSession;

use crate::subject::{block_on, commit, for_each_store, refused, running};

fn tampered(
    session: &ScriptedSession,
    lifecycle: Lifecycle,
    change: impl FnOnce(&mut CommitRequest),
) -> Arc<Commit> {
    let mut request = session
        .clone()
        .diverging(4_711)
        .request(lifecycle, "tampered")
        .unwrap();
    change(&mut request);
    Arc::new(Commit::new(request).unwrap())
}

/// Refused with this code and outcome, and the head is what it was.
#[track_caller]
fn refuses(
    store: &dyn CheckpointStore,
    wrong: &Arc<Commit>,
    code: &str,
    outcome: PersistenceReceiptStatus,
) -> StoreError {
    let before = block_on(store.head(wrong.session_id())).unwrap();
    let error = refused(store, wrong);
    assert_eq!(error.code(), code);
    assert_eq!(error.outcome(), outcome);
    assert_eq!(error.performed(), Performed::No);
    assert_eq!(block_on(store.head(wrong.session_id())).unwrap(), before);
    assert_eq!(
        block_on(store.resolve(wrong.snapshot_id())).unwrap(),
        Resolved::NotCommitted
    );
    error
}

#[test]
fn rows_1_and_3_a_chain_of_commits_has_no_gap() {
    for_each_store(|store| {
        let mut session = ScriptedSession::new(1);
        for generation in 0..20 {
            let lifecycle = if generation == 0 {
                Lifecycle::Created
            } else {
                Lifecycle::Running
            };
            let next = session.commit(lifecycle, "x").unwrap();
            let receipt = commit(store, &next);
            assert_eq!(receipt.generation, generation);
            assert_eq!(receipt.snapshot_id, *next.snapshot_id());
            assert_eq!(receipt.root_digest, next.root().digest());
            assert_eq!(receipt.lifecycle, lifecycle);
            assert!(!receipt.replayed);
            let head = block_on(store.head(session.session_id())).unwrap().unwrap();
            assert_eq!(head.generation, generation);
            assert_eq!(head.checkpoint_id, receipt.checkpoint_id);
            assert_eq!(&head.owner_run_id, session.run_id());
            assert_eq!(head.lifecycle, lifecycle);
        }
    });
}

#[test]
fn row_2_creating_an_existing_session_conflicts() {
    for_each_store(|store| {
        running(store, 2);
        let again = ScriptedSession::new(2)
            .diverging(9)
            .commit(Lifecycle::Created, "again")
            .unwrap();
        let error = refuses(
            store,
            &again,
            "generation_conflict",
            PersistenceReceiptStatus::Conflict,
        );
        assert_eq!(
            error,
            StoreError::GenerationConflict {
                expected: None,
                actual: Some(1)
            }
        );
    });
}

#[test]
fn row_4_advancing_an_unknown_session_conflicts() {
    for_each_store(|store| {
        let mut session = ScriptedSession::new(3);
        session.commit(Lifecycle::Created, "never sent").unwrap();
        let next = session.commit(Lifecycle::Running, "x").unwrap();
        let error = refuses(
            store,
            &next,
            "generation_conflict",
            PersistenceReceiptStatus::Conflict,
        );
        assert_eq!(
            error,
            StoreError::GenerationConflict {
                expected: Some(0),
                actual: None
            }
        );
        assert_eq!(block_on(store.head(session.session_id())).unwrap(), None);
    });
}

#[test]
fn row_5_a_stale_generation_conflicts_and_a_head_behind_is_told() {
    for_each_store(|store| {
        let mut session = running(store, 4);
        let stale = session
            .clone()
            .diverging(1)
            .commit(Lifecycle::Running, "stale")
            .unwrap();
        commit(store, &session.commit(Lifecycle::Running, "first").unwrap());
        refuses(
            store,
            &stale,
            "generation_conflict",
            PersistenceReceiptStatus::Conflict,
        );

        // SES-35: the writer is ahead of what the store holds.
        session.commit(Lifecycle::Running, "lost").unwrap();
        let ahead = session.commit(Lifecycle::Running, "ahead").unwrap();
        let error = refused(store, &ahead);
        assert_eq!(error.metadata()["direction"], "behind");
    });
}

#[test]
fn rows_6_and_7_checkpoint_and_owner_are_compared_in_this_order() {
    for_each_store(|store| {
        let session = running(store, 5);
        let other = ScriptedSession::new(77).run_id().clone();
        let wrong_checkpoint = tampered(&session, Lifecycle::Running, |request| {
            let expected = request.expected.as_mut().unwrap();
            expected.checkpoint_id = "checkpoint_00000000000000000000000000000000"
                .parse()
                .unwrap();
            expected.owner_run_id = other.clone();
        });
        refuses(
            store,
            &wrong_checkpoint,
            "checkpoint_conflict",
            PersistenceReceiptStatus::Conflict,
        );
        let wrong_owner = tampered(&session, Lifecycle::Created, |request| {
            request.expected.as_mut().unwrap().owner_run_id = other.clone();
        });
        // STO-2: the owner is checked before the lifecycle, which is illegal too.
        let error = refuses(
            store,
            &wrong_owner,
            "owner_conflict",
            PersistenceReceiptStatus::Conflict,
        );
        assert!(!error.recoverable());
    });
}

#[test]
fn row_8_an_identical_request_is_answered_with_its_first_receipt() {
    for_each_store(|store| {
        let mut session = ScriptedSession::new(6);
        let create = session.commit(Lifecycle::Created, "x").unwrap();
        let first = commit(store, &create);
        let mut expected = first.clone();
        expected.replayed = true;
        assert_eq!(commit(store, &create), expected);
        let next = session.commit(Lifecycle::Running, "y").unwrap();
        let second = commit(store, &next);
        // STO-5: also after progress.
        assert_eq!(commit(store, &create), expected);
        expected = second;
        expected.replayed = true;
        assert_eq!(commit(store, &next), expected);
        assert_eq!(
            block_on(store.resolve(next.snapshot_id())).unwrap(),
            Resolved::Committed(expected)
        );
        let head = block_on(store.head(session.session_id())).unwrap();
        assert_eq!(head.unwrap().generation, 1);
    });
}

#[test]
fn row_9_an_id_never_stands_for_other_content() {
    for_each_store(|store| {
        let mut session = running(store, 7);
        let taken = session.commit(Lifecycle::Running, "taken").unwrap();
        commit(store, &taken);
        // The same snapshot id with a different request.
        let mut request = session
            .clone()
            .request(Lifecycle::Running, "other")
            .unwrap();
        request.checkpoint_id = taken.checkpoint_id().clone();
        let same_checkpoint = Arc::new(Commit::new(request).unwrap());
        refuses(
            store,
            &same_checkpoint,
            "checkpoint_conflict",
            PersistenceReceiptStatus::Conflict,
        );
        let mut other = ScriptedSession::new(7);
        other.commit(Lifecycle::Created, "made").unwrap();
        other.commit(Lifecycle::Running, "runs").unwrap();
        let same_snapshot = other.commit(Lifecycle::Running, "not taken").unwrap();
        assert_eq!(same_snapshot.snapshot_id(), taken.snapshot_id());
        assert_eq!(refused(store, &same_snapshot).code(), "checkpoint_conflict");
    });
}

#[test]
fn row_10_what_the_payload_says_equals_what_the_request_says() {
    // STO-3, before any store is touched.
    let mut session = ScriptedSession::new(8);
    session.commit(Lifecycle::Created, "x").unwrap();
    let base = session.request(Lifecycle::Running, "y").unwrap();
    let other = ScriptedSession::new(9);
    let changes: [fn(&mut CommitRequest, &ScriptedSession); 4] = [
        |request, other| request.session_id = other.session_id().clone(),
        |request, _| {
            request.snapshot_id = "snapshot_00000000000000000000000000000000".parse().unwrap();
        },
        |request, _| request.lifecycle = Lifecycle::Paused,
        |request, _| request.expected.as_mut().unwrap().generation = 7,
    ];
    for change in changes {
        let mut request = base.clone();
        change(&mut request, &other);
        assert_eq!(Commit::new(request).unwrap_err().code(), "corrupt_snapshot");
    }
    let mut request = base.clone();
    request.expected = None;
    assert_eq!(Commit::new(request).unwrap_err().code(), "corrupt_snapshot");
    // SES-10: `superseded` is no lifecycle that can be committed.
    let mut request = base.clone();
    let text = String::from_utf8(request.root.to_vec()).unwrap();
    request.root = text
        .replace(
            "\"lifecycle\":\"running\",\"parent\"",
            "\"lifecycle\":\"superseded\",\"parent\"",
        )
        .into_bytes()
        .into();
    assert_ne!(request.root, base.root);
    assert_eq!(Commit::new(request).unwrap_err().code(), "corrupt_snapshot");
}

#[test]
fn row_10_the_parent_named_by_the_root_is_the_head() {
    for_each_store(|store| {
        let mut session = running(store, 10);
        let mut stranger = session.clone().diverging(3);
        stranger.commit(Lifecycle::Running, "elsewhere").unwrap();
        commit(store, &session.commit(Lifecycle::Running, "here").unwrap());
        // Its root stands on a snapshot that the store never saw, its expectations are the head's.
        let mut request = stranger.request(Lifecycle::Running, "z").unwrap();
        request.expected = session.expected().cloned();
        let wrong = Arc::new(Commit::new(request).unwrap());
        refuses(
            store,
            &wrong,
            "corrupt_snapshot",
            PersistenceReceiptStatus::Rejected,
        );
    });
}

#[test]
fn row_11_an_illegal_step_is_rejected() {
    for_each_store(|store| {
        // SES-12
        let mut session = running(store, 11);
        let illegal = session
            .clone()
            .diverging(1)
            .commit(Lifecycle::Restoring, "x")
            .unwrap();
        refuses(
            store,
            &illegal,
            "invalid_lifecycle_operation",
            PersistenceReceiptStatus::Rejected,
        );
        commit(
            store,
            &session.commit(Lifecycle::Completed, "done").unwrap(),
        );
        let after = session.commit(Lifecycle::Running, "more").unwrap();
        refuses(
            store,
            &after,
            "invalid_lifecycle_operation",
            PersistenceReceiptStatus::Rejected,
        );
    });
}

#[test]
fn row_15_a_chunk_neither_sent_nor_held_is_named() {
    for_each_store(|store| {
        // STO-50
        let session = running(store, 12);
        let whole = tampered(&session, Lifecycle::Running, |_| {});
        for left_out in 0..whole.chunks().len() {
            let mut missing = None;
            let cut = tampered(&session, Lifecycle::Running, |request| {
                missing = Some(request.chunks.remove(left_out).digest());
            });
            let error = refuses(
                store,
                &cut,
                "missing_chunk",
                PersistenceReceiptStatus::Rejected,
            );
            assert_eq!(
                error,
                StoreError::MissingChunk {
                    digests: vec![missing.unwrap()]
                }
            );
        }
        commit(store, &whole);
    });
}

#[test]
fn another_session_of_the_same_store_gives_no_chunk() {
    for_each_store(|store| {
        // STO-46: families never share chunks.
        running(store, 13);
        let mut session = ScriptedSession::new(14);
        let mut request = session.request(Lifecycle::Created, "made").unwrap();
        request.chunks.clear();
        let bare = Arc::new(Commit::new(request).unwrap());
        assert_eq!(refused(store, &bare).code(), "missing_chunk");
    });
}

#[test]
fn the_bounds_of_a_commit_hold_at_the_limit() {
    // Section 17: 8 MiB of one chunk, 64 MiB in all.
    let mut session = ScriptedSession::new(15);
    let base = session.request(Lifecycle::Created, "x").unwrap();
    let with = |lengths: &[usize]| {
        let mut request = base.clone();
        request.chunks.extend(
            lengths
                .iter()
                .map(|length| Chunk::new(ChunkKind::Blob, vec![b'1'; *length].into())),
        );
        Commit::new(request)
    };
    let most = 8 << 20;
    for length in [most - 1, most] {
        assert!(with(&[length]).is_ok(), "{length}");
    }
    assert_eq!(with(&[most + 1]).unwrap_err().code(), "size_limit_exceeded");
    let used = Commit::new(base.clone()).unwrap().sent_bytes() as usize;
    let rest = (64 << 20) - 7 * most - used;
    let mut lengths = [most; 8];
    for (last, fits) in [(rest - 1, true), (rest, true), (rest + 1, false)] {
        lengths[7] = last;
        assert_eq!(with(&lengths).is_ok(), fits, "{last}");
    }
}

#[test]
fn a_claim_fences_the_old_owner() {
    for_each_store(|store| {
        // SES-32, SES-47, F14
        let mut owner = running(store, 16);
        commit(store, &owner.commit(Lifecycle::Paused, "rest").unwrap());
        let mut successor = owner.clone().diverging(2);
        successor.claim();
        commit(
            store,
            &successor.commit(Lifecycle::Restoring, "claimed").unwrap(),
        );
        let late = owner.commit(Lifecycle::Running, "late").unwrap();
        assert_eq!(refused(store, &late).code(), "generation_conflict");
        let head = block_on(store.head(owner.session_id())).unwrap().unwrap();
        assert_eq!(&head.owner_run_id, successor.run_id());
        // A writer that knows the head but not the owner is fenced by the owner.
        let thief = tampered(&successor, Lifecycle::Running, |request| {
            request.expected.as_mut().unwrap().owner_run_id = owner.run_id().clone();
        });
        assert_eq!(refused(store, &thief).code(), "owner_conflict");
    });
}

#[test]
fn receipts_tell_the_class() {
    // STO-8
    for_each_store(|store| {
        let receipt = commit(
            store,
            &ScriptedSession::new(17)
                .commit(Lifecycle::Created, "x")
                .unwrap(),
        );
        let class = store.capabilities().durability_class();
        assert_eq!(receipt.durability_class, class);
        assert_eq!(receipt.durable, class != DurabilityClass::Volatile);
        assert_eq!(receipt.store_kind, store.capabilities().store_kind());
    });
}

#[test]
fn a_busy_store_may_be_asked_again() {
    let busy = StoreError::StoreBusy { waited_ms: 1 };
    assert_eq!(busy.retry(), Retry::AfterDelay);
    assert!(busy.recoverable());
}
