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
use qitos_store_sqlite::fault_point::{
    AbortAt, Point, file_of_place, flip_chunk_bit, flip_root_bit, remove_chunk,
};
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
        file_of_place(&self.folder, place)
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
        Point::names_of_a_commit()
    }

    async fn open_killing(
        &self,
        place: &str,
        kill_point: &str,
    ) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let point = Point::named(kill_point).unwrap();
        let options = OpenOptions::default().create();
        SqliteStore::open_with_fault_plan(self.path(place), options, Arc::new(AbortAt(point)))
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
        let file = self.path(place);
        match layer {
            DamageLayer::Root => flip_root_bit(&file, snapshot, position),
            DamageLayer::Chunk(digest) => flip_chunk_bit(&file, &digest, position),
        }
    }

    fn remove_chunk(&self, place: &str, digest: &Digest) -> Result<(), String> {
        remove_chunk(&self.path(place), digest)
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
