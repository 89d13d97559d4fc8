//! The store against the executable contract.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_conformance::checkpoint_store::{
    Damage, DamageLayer, StoreSubject, conformance, serve_writer,
};
use qitos_conformance::run::RunOptions;
use qitos_conformance::runtime::ThreadRuntime;
use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, DurabilityClass, StoreCapabilities, StoreError,
};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::SnapshotId;
use qitos_store_sqlite::fault_point::{FaultPlan, InjectedFault, Point};
use qitos_store_sqlite::{OpenOptions, SqliteStore};

pub(crate) const FOLDER: &str = "QITOS_STORE_TEST_FOLDER";

/// A folder of store files.
pub(crate) struct Subject {
    folder: PathBuf,
}

impl Subject {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, place: &str) -> PathBuf {
        let name: String = place
            .chars()
            .map(|letter| {
                if letter.is_ascii_alphanumeric() {
                    letter
                } else {
                    '_'
                }
            })
            .collect();
        self.folder.join(name).with_extension("db")
    }

    fn connection(&self, place: &str) -> Result<rusqlite::Connection, String> {
        let connection =
            rusqlite::Connection::open(self.path(place)).map_err(|error| error.to_string())?;
        connection
            .execute_batch("PRAGMA foreign_keys = OFF; PRAGMA busy_timeout = 5000")
            .map_err(|error| error.to_string())?;
        Ok(connection)
    }
}

/// Ends the process at a point.
#[derive(Debug)]
struct Die(Point);

impl FaultPlan for Die {
    fn reached(&self, point: Point) -> Option<InjectedFault> {
        if point == self.0 {
            std::process::abort();
        }
        None
    }
}

#[async_trait]
impl StoreSubject for Subject {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities::new("sqlite", DurabilityClass::PowerLoss)
            .with(Capability::AtomicFork)
            .with(Capability::Incremental)
            .with(Capability::Inbox)
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let options = OpenOptions::default().create();
        let store = SqliteStore::open(self.path(place), options).await?;
        Ok(Arc::new(store))
    }

    fn child_process(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "conformance::a_child_serves_the_writer",
                "--exact",
                "--nocapture",
            ])
            .env(FOLDER, &self.folder);
        Some(command)
    }

    fn kill_points(&self) -> Vec<String> {
        Point::OF_A_COMMIT
            .iter()
            .map(|point| format!("{point:?}"))
            .collect()
    }

    async fn open_killing(
        &self,
        place: &str,
        kill_point: &str,
    ) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let point = Point::OF_A_COMMIT
            .into_iter()
            .find(|point| format!("{point:?}") == kill_point)
            .unwrap();
        let options = OpenOptions::default().create();
        SqliteStore::open_with_fault_plan(self.path(place), options, Arc::new(Die(point)))
            .map(|store| Arc::new(store) as Arc<dyn CheckpointStore>)
    }

    fn damage(&self) -> Option<&dyn Damage> {
        Some(self)
    }
}

impl Damage for Subject {
    fn flip_bit(
        &self,
        place: &str,
        snapshot: &SnapshotId,
        layer: DamageLayer,
        position: u64,
    ) -> Result<(), String> {
        let connection = self.connection(place)?;
        let (table, column, place, key) = match layer {
            DamageLayer::Root => (
                "snapshot",
                "root",
                "snapshot_id = ?1",
                rusqlite::types::Value::Text(snapshot.to_string()),
            ),
            DamageLayer::Chunk(digest) => (
                "chunk",
                "body",
                "digest = ?1",
                rusqlite::types::Value::Blob(digest.as_bytes().to_vec()),
            ),
        };
        let mut bytes: Vec<u8> = connection
            .query_row(
                &format!("SELECT {column} FROM {table} WHERE {place}"),
                [&key],
                |row| row.get(0),
            )
            .map_err(|error| error.to_string())?;
        let bits = bytes.len() as u64 * 8;
        let at = usize::try_from(position % bits).unwrap();
        bytes[at / 8] ^= 1 << (at % 8);
        connection
            .execute(
                &format!("UPDATE {table} SET {column} = ?2 WHERE {place}"),
                rusqlite::params![key, bytes],
            )
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn remove_chunk(&self, place: &str, digest: &Digest) -> Result<(), String> {
        self.connection(place)?
            .execute("DELETE FROM chunk WHERE digest = ?1", [digest.as_bytes()])
            .map(drop)
            .map_err(|error| error.to_string())
    }
}

pub(crate) fn subject(folder: &Path) -> Subject {
    Subject {
        folder: folder.to_owned(),
    }
}

#[test]
fn the_sqlite_store_keeps_the_checkpoint_store_contract() {
    let folder = tempfile::tempdir().unwrap();
    let report = conformance(Arc::new(subject(folder.path())), &RunOptions::default());
    println!("{report}");
    report.conforms().unwrap();
}

#[test]
fn a_child_serves_the_writer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    serve_writer(&subject(Path::new(&folder)), &ThreadRuntime).unwrap();
}
