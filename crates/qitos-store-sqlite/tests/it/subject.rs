//! What the tests run against.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qitos_contracts::checkpoint::{CheckpointStore, Commit, Receipt, StoreError};
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::in_memory::MemoryCheckpointStore;
use qitos_kit::scripted_session::ScriptedSession;
use qitos_store_sqlite::{OpenOptions, SqliteStore};

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// A store file that goes with its folder.
pub(crate) struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        File {
            _folder: folder,
            path,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open(&self) -> SqliteStore {
        open(&self.path)
    }

    /// A connection that changes what it likes, as a person with a tool would.
    pub(crate) fn by_hand(&self, sql: &str) {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection
            .execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}"))
            .unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open_blocking(path, OpenOptions::default().create()).unwrap()
}

/// Runs a test of the contract against both stores.
pub(crate) fn for_each_store(test: impl Fn(&dyn CheckpointStore)) {
    test(&MemoryCheckpointStore::new());
    let file = File::new();
    test(&file.open());
}

#[track_caller]
pub(crate) fn commit(store: &dyn CheckpointStore, commit: &Arc<Commit>) -> Receipt {
    block_on(store.commit(Arc::clone(commit))).unwrap()
}

#[track_caller]
pub(crate) fn refused(store: &dyn CheckpointStore, commit: &Arc<Commit>) -> StoreError {
    block_on(store.commit(Arc::clone(commit))).unwrap_err()
}

/// A session that was created and runs.
pub(crate) fn running(store: &dyn CheckpointStore, seed: u64) -> ScriptedSession {
    let mut session = ScriptedSession::new(seed);
    commit(store, &session.commit(Lifecycle::Created, "made").unwrap());
    commit(store, &session.commit(Lifecycle::Running, "runs").unwrap());
    session
}
