//! `qit conformance`: a built-in implementation against its contract.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos::checkpoint::sqlite::fault_point::{
    AbortAt, Point, file_of_place, flip_chunk_bit, flip_root_bit, remove_chunk,
};
use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::checkpoint::{
    Capability, CheckpointStore, DurabilityClass, MemoryCheckpointStore, StoreCapabilities,
    StoreError,
};
use qitos::contracts::digest::Digest;
use qitos::contracts::ids::SnapshotId;
use qitos::contracts::tool::function::Toolset as _;
use qitos::presets::DemoNotes;
use qitos_conformance::checkpoint_store::{self, Damage, DamageLayer, StoreSubject, serve_writer};
use qitos_conformance::report::Report;
use qitos_conformance::run::RunOptions;
use qitos_conformance::runtime::{Runtime, ThreadRuntime};
use qitos_conformance::{provider as provider_suite, tool};
use serde_json::json;

use crate::answer::{Answer, Outcome};
use crate::args::{Conformance, Mechanism};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::tool_engine;

mod provider;

/// Runs the suite and reports on every check; exit 1 when a claimed check failed.
pub(crate) async fn perform(arguments: &Conformance) -> Outcome {
    let mut options = RunOptions::default();
    options.only.clone_from(&arguments.only);
    let builtin = arguments.builtin.clone();
    let suite: Box<dyn FnOnce() -> Result<Report, Failure> + Send> =
        match (arguments.mechanism, builtin.as_str()) {
            (Mechanism::Tool, "kit") => Box::new(move || {
                // What the tools declare, and that the kernel runs calls as the contract says.
                let tools = Arc::new(DemoNotes).tools();
                let declared = tool::tools_conformance(&builtin, tools, &options);
                let kernel = tool::engine_conformance(tool_engine::subject(), &options);
                Ok(declared.followed_by(kernel))
            }),
            (Mechanism::CheckpointStore, "memory") => Box::new(move || {
                let subject = Arc::new(MemorySubject::default());
                Ok(checkpoint_store::conformance(subject, &options))
            }),
            (Mechanism::CheckpointStore, "sqlite") => Box::new(move || {
                let folder = Folder::new()?;
                let subject = Arc::new(SqliteSubject {
                    folder: folder.0.clone(),
                });
                Ok(checkpoint_store::conformance(subject, &options))
            }),
            (Mechanism::Provider, name) => {
                let subject = provider::subject(name)?;
                let runtime = TokioRuntime(tokio::runtime::Handle::current());
                options = options.on(Arc::new(runtime));
                Box::new(move || Ok(provider_suite::conformance(subject, &options)))
            }
            (Mechanism::Tool, _) => return Err(unknown(&builtin, &["kit"])),
            (Mechanism::CheckpointStore, _) => {
                return Err(unknown(&builtin, &["sqlite", "memory"]));
            }
            (mechanism, _) => return Err(not_yet(mechanism)),
        };
    // The suite blocks; the threads of the async runtime must not wait for it.
    let report = tokio::task::spawn_blocking(suite).await.map_err(|_| {
        Failure::new(
            ExitCode::NoResult,
            "conformance_failed",
            "the suite did not finish",
            "",
        )
    })??;
    let exit = if report.failed() > 0 || report.passed() == 0 {
        ExitCode::NoResult
    } else {
        ExitCode::Done
    };
    Ok(Answer::new(report.to_string(), json!(report)).exiting(exit))
}

fn unknown(name: &str, names: &[&str]) -> Failure {
    Failure::usage(
        format!("there is no built-in implementation `{name}` of this mechanism"),
        format!("built in: {}", names.join(", ")),
    )
}

fn not_yet(mechanism: Mechanism) -> Failure {
    let name = match mechanism {
        Mechanism::EventSink => "event-sink",
        Mechanism::Sandbox => "sandbox",
        _ => "evaluator",
    };
    Failure::usage(
        format!("the suite of mechanism `{name}` is not part of this release"),
        "suites that can be run: those of `provider`, `tool` and `checkpoint-store`",
    )
}

/// Drives checks on this program's runtime: the clients' time limits need its timer.
struct TokioRuntime(tokio::runtime::Handle);

impl Runtime for TokioRuntime {
    fn block_on(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        self.0.block_on(future);
    }
}

/// The hidden command behind the hook `child_process`.
pub(crate) fn serve(folder: &Path) -> Outcome {
    let subject = SqliteSubject {
        folder: folder.to_owned(),
    };
    serve_writer(&subject, &ThreadRuntime)
        .map_err(|error| Failure::usage("the writer stopped", error.to_string()))?;
    Ok(Answer::new("", json!({"served": true})))
}

#[derive(Debug, Default)]
struct MemorySubject {
    places: Mutex<std::collections::HashMap<String, Arc<MemoryCheckpointStore>>>,
}

#[async_trait]
impl StoreSubject for MemorySubject {
    fn name(&self) -> &str {
        "memory"
    }

    fn capabilities(&self) -> StoreCapabilities {
        MemoryCheckpointStore::new().capabilities().clone()
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let store = places.entry(place.into()).or_default();
        Ok(Arc::clone(store) as Arc<dyn CheckpointStore>)
    }
}

/// A folder of store files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file("make a temporary folder", &error);
        let ids = qitos::kernel::system::SystemIds;
        let number = qitos::contracts::clock::IdSource::next_id(&ids);
        let path = std::env::temp_dir().join(format!("qit-conformance-{number:032x}"));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(failed)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug)]
struct SqliteSubject {
    folder: PathBuf,
}

impl SqliteSubject {
    fn path(&self, place: &str) -> PathBuf {
        file_of_place(&self.folder, place)
    }
}

#[async_trait]
impl StoreSubject for SqliteSubject {
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
        Ok(Arc::new(
            SqliteStore::open(self.path(place), options).await?,
        ))
    }

    fn child_process(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.arg("conformance-writer").arg(&self.folder);
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
        let Some(point) = Point::named(kill_point) else {
            // The check then sees a writer that does not die.
            return self.open(place).await;
        };
        let options = OpenOptions::default().create();
        let plan = Arc::new(AbortAt(point));
        let store = SqliteStore::open_with_fault_plan(self.path(place), options, plan)?;
        Ok(Arc::new(store))
    }

    fn damage(&self) -> Option<&dyn Damage> {
        Some(self)
    }
}

impl Damage for SqliteSubject {
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
