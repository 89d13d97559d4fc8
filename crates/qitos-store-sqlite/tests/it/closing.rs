//! An end that can be waited for (CFG-27 rests on it).

use std::path::PathBuf;

use qitos_contracts::checkpoint::CheckpointStore;
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;
use qitos_store_sqlite::{OpenOptions, SqliteStore};

use crate::subject::{File, block_on, commit, refused, running};

fn beside(file: &File) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(file.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path != file.path())
        .collect();
    found.sort();
    found
}

#[test]
fn a_closed_store_leaves_one_file_and_repeats_its_receipt() {
    let file = File::new();
    let store = file.open();
    let session = running(&store, 1);
    assert_eq!(beside(&file).len(), 2, "-wal and -shm while it is open");
    let receipt = block_on(store.close());
    assert!(receipt.log_removed);
    assert_eq!(beside(&file), Vec::<PathBuf>::new());
    assert_eq!(block_on(store.close()), receipt);
    let head = block_on(file.open().head(session.session_id())).unwrap();
    assert_eq!(head.unwrap().generation, 1);
}

#[test]
fn a_store_that_only_reads_closes_too() {
    let file = File::new();
    let session = running(&file.open(), 1);
    file.by_hand("UPDATE meta SET value = '2' WHERE key = 'writer_min'; PRAGMA user_version = 2");
    let store = file.open();
    assert!(
        block_on(store.head(session.session_id()))
            .unwrap()
            .is_some()
    );
    block_on(store.close());
    let error = block_on(store.head(session.session_id())).unwrap_err();
    assert_eq!(error.code(), "persistence_failed");
}

#[test]
fn what_was_queued_is_finished_and_what_comes_later_is_refused_and_not_written() {
    let file = File::new();
    let store = file.open();
    let mut session = running(&store, 1);
    let queued = session.commit(Lifecycle::Running, "queued").unwrap();
    let (written, one, other) = block_on(async {
        let writing = store.commit(queued.clone());
        tokio::join!(biased; writing, store.close(), store.close())
    });
    assert_eq!(written.unwrap().generation, 2);
    assert_eq!(one, other);
    let late = session.commit(Lifecycle::Running, "late").unwrap();
    assert_eq!(refused(&store, &late).code(), "persistence_failed");
    let error = block_on(store.snapshot(queued.snapshot_id())).unwrap_err();
    assert_eq!(error.code(), "persistence_failed");
    let error = block_on(store.resolve(late.snapshot_id())).unwrap_err();
    assert_eq!(error.code(), "persistence_failed");
    let again = file.open();
    let head = block_on(again.head(session.session_id())).unwrap().unwrap();
    assert_eq!(head.generation, 2);
    commit(&again, &late);
}

#[test]
fn a_close_that_nobody_waits_for_still_happens_and_may_be_waited_for_later() {
    let file = File::new();
    let store = file.open();
    let mut session = running(&store, 1);
    block_on(async {
        let closing = store.close();
        tokio::pin!(closing);
        // Polled once and dropped.
        let first = std::future::poll_fn(|context| {
            std::task::Poll::Ready(closing.as_mut().poll(context).is_ready())
        });
        first.await;
    });
    let late = session.commit(Lifecycle::Running, "late").unwrap();
    assert_eq!(refused(&store, &late).code(), "persistence_failed");
    assert!(block_on(store.close()).log_removed);
    assert_eq!(beside(&file), Vec::<PathBuf>::new());
}

#[test]
fn the_log_stays_while_another_store_has_the_file_open() {
    let file = File::new();
    let other = file.open();
    running(&other, 2);
    let store = SqliteStore::open_blocking(file.path(), OpenOptions::default()).unwrap();
    let session = running(&store, 1);
    let seen = block_on(other.head(session.session_id())).unwrap();
    assert!(seen.is_some());
    assert!(!block_on(store.close()).log_removed);
    assert_eq!(block_on(other.head(session.session_id())).unwrap(), seen);
    assert!(block_on(other.close()).log_removed);
}
