//! What opening makes, proves and refuses.

use std::time::Duration;

use qitos_contracts::checkpoint::{Capability, CheckpointStore, DurabilityClass};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;
use qitos_store_sqlite::{OpenOptions, SqliteStore};

use crate::subject::{File, block_on, commit, running};

#[test]
fn a_new_store_has_its_identity_settings_and_mode() {
    // STO-25, STO-30, STO-37, STO-44
    let file = File::new();
    let store = file.open();
    running(&store, 1);
    assert_eq!(file.number("PRAGMA application_id"), 0x5154_4F53);
    assert_eq!(file.number("PRAGMA user_version"), 1);
    assert_eq!(file.number("PRAGMA auto_vacuum"), 2);
    let connection = rusqlite::Connection::open(file.path()).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    let uuid: String = connection
        .query_row(
            "SELECT value FROM meta WHERE key = 'store_uuid'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(uuid.len(), 32);
    #[cfg(unix)]
    for suffix in ["", "-wal", "-shm"] {
        use std::os::unix::fs::PermissionsExt;
        let path = format!("{}{suffix}", file.path().display());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
}

#[test]
fn the_class_is_what_the_settings_prove() {
    // STO-8, section 13
    let file = File::new();
    assert_eq!(
        file.open().capabilities().durability_class(),
        DurabilityClass::PowerLoss
    );
    let crash = OpenOptions::default().with_class(DurabilityClass::ProcessCrash);
    let store = SqliteStore::open_blocking(file.path(), crash).unwrap();
    assert_eq!(
        store.capabilities().durability_class(),
        DurabilityClass::ProcessCrash
    );
}

#[test]
fn a_capability_is_claimed_exactly_when_its_group_is_there() {
    // STO-59, K67
    let file = File::new();
    let store = file.open();
    let groups = store.groups();
    for (capability, group) in [
        (Capability::Incremental, groups.chunk_access().err()),
        (Capability::Inbox, groups.inbox().err()),
        (Capability::AtomicFork, groups.fork().err()),
        (Capability::Lease, groups.leases().err()),
        (Capability::Retention, groups.retention().err()),
    ] {
        assert_eq!(store.capabilities().claims(capability), group.is_none());
        if let Some(error) = group {
            assert_eq!(error.code(), "unsupported_capability");
            assert_eq!(error.capability(), Some(capability.name()));
        }
    }
    assert!(!store.capabilities().claims(Capability::Delete));
}

#[test]
fn nothing_is_made_unless_asked_for() {
    let file = File::new();
    let error = SqliteStore::open_blocking(file.path(), OpenOptions::default()).unwrap_err();
    assert_eq!(error.code(), "persistence_failed");
    assert!(!file.path().exists());
    let opened = block_on(SqliteStore::open(
        file.path(),
        OpenOptions::default().create(),
    ));
    opened.unwrap();
    block_on(SqliteStore::open(file.path(), OpenOptions::default())).unwrap();
}

#[test]
fn a_migrated_store_is_opened_without_touching_its_schema() {
    // STO-41
    let file = File::new();
    file.open();
    let before = file.number("PRAGMA schema_version");
    file.open();
    assert_eq!(file.number("PRAGMA schema_version"), before);
}

#[test]
fn a_lock_held_by_another_process_is_waited_for_then_named_and_then_forgotten() {
    // STO-26, F23, K69. The engine's own timeout of 5 s is the shortest bound.
    let file = File::new();
    let options = OpenOptions::default()
        .create()
        .with_busy_bound(Duration::from_millis(1));
    let store = SqliteStore::open_blocking(file.path(), options).unwrap();
    let mut session = running(&store, 1);
    let next = session.commit(Lifecycle::Running, "x").unwrap();
    let other = rusqlite::Connection::open(file.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = block_on(store.commit(next.clone())).unwrap_err();
    assert_eq!(error.code(), "store_busy");
    assert!(error.recoverable());
    // Readers are not disturbed.
    let head = block_on(store.head(session.session_id())).unwrap().unwrap();
    assert_eq!(head.generation, 1);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(commit(&store, &next).generation, 2);
}

#[test]
fn a_store_that_is_dropped_leaves_its_one_file() {
    // The last connection to close must be one that may remove the log; which thread is last must not be chance.
    let file = File::new();
    let beside = file.path().with_file_name("sessions.db-wal");
    for seed in 1..20 {
        let store = file.open();
        running(&store, seed);
        drop(store);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while beside.exists() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!beside.exists());
    }
}

#[test]
fn a_store_that_is_open_for_reading_takes_no_commit_and_leaves_the_log_of_its_writer() {
    // SES-64
    let file = File::new();
    let writing = file.open();
    let mut session = running(&writing, 1);
    let bytes = |suffix: &str| std::fs::read(format!("{}{suffix}", file.path().display())).unwrap();
    let before = (bytes(""), bytes("-wal"));
    let options = OpenOptions::default().read_only();
    let reading = SqliteStore::open_blocking(file.path(), options).unwrap();
    let head = block_on(reading.head(session.session_id())).unwrap();
    assert_eq!(head, block_on(writing.head(session.session_id())).unwrap());
    let next = session.commit(Lifecycle::Running, "more").unwrap();
    let refused = block_on(reading.commit(next)).unwrap_err();
    assert_eq!(refused.code(), "persistence_failed");
    drop(reading);
    assert_eq!((bytes(""), bytes("-wal")), before);
}
