//! Lineage, snapshots, chunks, verification; what a reader sees while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qitos_contracts::checkpoint::{CheckpointStore, Page, VerifyDepth};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::{
    ComponentRegistry, ComponentSpec, Lifecycle, Read, SnapshotReader,
};
use qitos_kit::scripted_session::ScriptedSession;

use crate::subject::{File, block_on, commit, for_each_store, running};

#[test]
fn lineage_is_newest_first_in_pages_and_keeps_what_each_commit_said() {
    for_each_store(|store| {
        // STO-10, STO-11, STO-12
        let mut session = running(store, 1);
        for turn in 0..8 {
            let lifecycle = if turn % 2 == 0 {
                Lifecycle::Paused
            } else {
                session.claim();
                Lifecycle::Restoring
            };
            commit(store, &session.commit(lifecycle, "x").unwrap());
        }
        let all = block_on(store.lineage(session.session_id(), Page::default())).unwrap();
        let generations: Vec<u64> = all.entries.iter().map(|entry| entry.generation).collect();
        assert_eq!(generations, (0..10).rev().collect::<Vec<_>>());
        assert_eq!(all.next_before_generation, None);
        assert_eq!(all.entries[9].lifecycle, Lifecycle::Created);
        assert_eq!(all.entries[9].parent_checkpoint_id, None);
        assert_eq!(
            all.entries[0].parent_checkpoint_id.as_ref(),
            Some(&all.entries[1].checkpoint_id)
        );
        assert_ne!(all.entries[0].owner_run_id, all.entries[9].owner_run_id);
        let mut paged = Vec::new();
        let mut page = Page::newest(3);
        loop {
            let part = block_on(store.lineage(session.session_id(), page)).unwrap();
            paged.extend(part.entries);
            // A commit between pages moves nothing.
            commit(store, &session.commit(Lifecycle::Restoring, "y").unwrap());
            let Some(before) = part.next_before_generation else {
                break;
            };
            page = Page::newest(3).before(before);
        }
        assert_eq!(paged, all.entries);
        assert_eq!(
            block_on(store.lineage(session.session_id(), Page::newest(0))).unwrap(),
            qitos_contracts::checkpoint::LineagePage::default()
        );
        let unknown = ScriptedSession::new(99);
        let none = block_on(store.lineage(unknown.session_id(), Page::default())).unwrap();
        assert!(none.entries.is_empty());
    });
}

#[test]
fn what_was_committed_is_read_back_byte_for_byte() {
    for_each_store(|store| {
        // STO-4, STO-9, STO-24, K34
        let mut session = running(store, 2);
        let texts = [
            "\u{0} \u{1f600} bearer abc /etc/passwd".to_owned(),
            "0123456789abcdef".repeat(1_000),
            "x".repeat(1 << 20),
        ];
        let mut last = None;
        for text in &texts {
            let next = session.commit(Lifecycle::Running, text).unwrap();
            commit(store, &next);
            last = Some(next);
        }
        let last = last.unwrap();
        let stored = block_on(store.snapshot(last.snapshot_id()))
            .unwrap()
            .unwrap();
        assert_eq!(&stored.root, last.root_bytes());
        let access = store.groups().chunk_access().unwrap();
        let mut reader =
            SnapshotReader::open(stored.verified().unwrap(), &ComponentRegistry::standard())
                .unwrap();
        let items = loop {
            let asked = reader.log_tail(&ComponentSpec::CONVERSATION, "/exchange_log/items", 3);
            match asked.unwrap() {
                Read::Ready(items) => break items,
                Read::Need(digests) => reader
                    .feed(block_on(access.get_chunks(last.snapshot_id(), &digests)).unwrap())
                    .unwrap(),
            }
        };
        let read: Vec<String> = items
            .iter()
            .map(|item| {
                let value: serde_json::Value = serde_json::from_slice(item).unwrap();
                value["text"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(read, texts);
        assert_eq!(
            block_on(store.snapshot(&"snapshot_0123456789abcdef".parse().unwrap())).unwrap(),
            None
        );
    });
}

#[test]
fn an_intact_snapshot_verifies_and_the_count_of_chunks_read_is_bounded() {
    for_each_store(|store| {
        // STO-51
        let mut session = running(store, 3);
        for _ in 0..40 {
            commit(store, &session.commit(Lifecycle::Running, "x").unwrap());
        }
        let snapshot = &session.parent().unwrap().snapshot_id;
        let access = store.groups().chunk_access().unwrap();
        let shallow = block_on(access.verify(snapshot, VerifyDepth::Root)).unwrap();
        assert!(shallow.intact());
        assert_eq!(shallow.chunks, 0);
        let deep = block_on(access.verify(snapshot, VerifyDepth::Deep)).unwrap();
        assert!(deep.intact());
        assert_eq!(deep.root_digest, session.parent().unwrap().root_digest);
        assert!(deep.chunks > 42, "{deep:?}");
        let unknown = "snapshot_0123456789abcdef".parse().unwrap();
        let error = block_on(access.verify(&unknown, VerifyDepth::Deep)).unwrap_err();
        assert_eq!(error.code(), "snapshot_not_found");
        let too_many = vec![deep.root_digest; 1_025];
        let error = block_on(access.get_chunks(snapshot, &too_many)).unwrap_err();
        assert_eq!(error.code(), "size_limit_exceeded");
        let error = block_on(access.get_chunks(snapshot, &too_many[..1_024])).unwrap_err();
        assert_eq!(error.code(), "corrupt_snapshot");
    });
}

#[test]
fn readers_never_see_a_head_without_its_snapshot() {
    // STO-1, K15
    let file = File::new();
    let store = Arc::new(file.open());
    let mut session = running(&*store, 4);
    let id = session.session_id().clone();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (id, done) = (id.clone(), Arc::clone(&done));
            let store = file.open();
            std::thread::spawn(move || {
                block_on(async {
                    let mut last = 0;
                    while !done.load(Ordering::SeqCst) {
                        let head = store.head(&id).await.unwrap().unwrap();
                        assert!(head.generation >= last);
                        last = head.generation;
                        let stored = store.snapshot(&head.snapshot_id).await.unwrap().unwrap();
                        assert_eq!(stored.generation, head.generation);
                        let access = store.groups().chunk_access().unwrap();
                        let deep = access
                            .verify(&head.snapshot_id, VerifyDepth::Deep)
                            .await
                            .unwrap();
                        assert!(deep.intact(), "{deep:?}");
                    }
                });
            })
        })
        .collect();
    for _ in 0..300 {
        commit(&*store, &session.commit(Lifecycle::Running, "x").unwrap());
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
}

#[test]
fn sessions_of_one_group_succeed_and_fail_alone() {
    // STO-29: many requests in one transaction, each with its own savepoint.
    let file = File::new();
    let store = Arc::new(file.open());
    let sessions: Vec<ScriptedSession> = (0..64).map(|seed| running(&*store, 100 + seed)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut waiting = Vec::new();
        for (index, session) in sessions.iter().enumerate() {
            let mut session = session.clone();
            if index % 3 == 0 {
                // Every third is stale by one generation.
                session.commit(Lifecycle::Running, "skipped").unwrap();
            }
            let next = session.commit(Lifecycle::Running, "x").unwrap();
            let store = Arc::clone(&store);
            waiting.push(tokio::spawn(async move { store.commit(next).await }));
        }
        for (index, outcome) in waiting.into_iter().enumerate() {
            let outcome = outcome.await.unwrap();
            if index % 3 == 0 {
                assert_eq!(outcome.unwrap_err().code(), "generation_conflict");
            } else {
                assert_eq!(outcome.unwrap().generation, 2);
            }
        }
    });
    for (index, session) in sessions.iter().enumerate() {
        let head = block_on(store.head(session.session_id())).unwrap().unwrap();
        assert_eq!(head.generation, if index % 3 == 0 { 1 } else { 2 });
        let access = store.groups().chunk_access().unwrap();
        assert!(
            block_on(access.verify(&head.snapshot_id, VerifyDepth::Deep))
                .unwrap()
                .intact()
        );
    }
}

#[test]
fn sessions_are_listed_newest_first_in_pages() {
    let file = File::new();
    let store = file.open();
    let mut ids = Vec::new();
    for seed in 1..=5 {
        let mut session = running(&store, seed);
        if seed == 2 {
            commit(&store, &session.commit(Lifecycle::Paused, "x").unwrap());
        }
        ids.push(session.session_id().clone());
    }
    ids.reverse();
    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = block_on(store.sessions(before, None, 2)).unwrap();
        listed.extend(page.heads.into_iter().map(|line| line.head.session_id));
        before = page.next_before;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(listed, ids);
    let paused = block_on(store.sessions(None, Some(Lifecycle::Paused), 5)).unwrap();
    assert_eq!(paused.heads.len(), 1);
    assert_eq!(paused.heads[0].head.session_id, ids[3]);
    assert_eq!(paused.next_before, None);
    assert!(
        block_on(store.sessions(None, None, 0))
            .unwrap()
            .heads
            .is_empty()
    );
}
