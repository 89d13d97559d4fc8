//! The checks that need files or processes reject a store that breaks their rule.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_conformance::checkpoint_store::{Damage, StoreSubject, conformance, serve_writer};
use qitos_conformance::mutants::checkpoint_store::{Flaw, MutantSubject};
use qitos_conformance::report::Status;
use qitos_conformance::run::RunOptions;
use qitos_conformance::runtime::ThreadRuntime;
use qitos_contracts::checkpoint::{CheckpointStore, StoreCapabilities, StoreError};

use crate::conformance::{FOLDER, Subject, subject};

/// The same store, with a writer that is wrong.
struct WrongWriter(Subject);

#[async_trait]
impl StoreSubject for WrongWriter {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> StoreCapabilities {
        self.0.capabilities()
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        self.0.open(place).await
    }

    fn child_process(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command
            .args([
                "wrong_stores::a_child_serves_a_wrong_writer",
                "--exact",
                "--nocapture",
            ])
            .env(FOLDER, self.0.folder());
        Some(command)
    }

    fn damage(&self) -> Option<&dyn Damage> {
        self.0.damage()
    }
}

#[test]
fn a_child_serves_a_wrong_writer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let right = Arc::new(subject(folder.as_ref()));
    let wrong = MutantSubject::new(right, Flaw::ReceiptsEarly);
    serve_writer(&wrong, &ThreadRuntime).unwrap();
}

fn rejects(subject: Arc<dyn StoreSubject>, flaw: Flaw) {
    let options = RunOptions::default().only(flaw.rejected_by());
    let report = conformance(subject, &options);
    let check = report.check(flaw.rejected_by()).unwrap();
    println!("{flaw:?}: {}", check.detail());
    assert_eq!(check.status(), Status::Fail, "{flaw:?}: {}", check.detail());
}

#[test]
fn a_store_that_receipts_before_it_stores_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Arc::new(WrongWriter(subject(folder.path())));
    rejects(writer, Flaw::ReceiptsEarly);
}

#[test]
fn a_store_that_overlooks_damage_is_rejected() {
    for flaw in [Flaw::TrustsStoredRoots, Flaw::SkipsMissingChunks] {
        let folder = tempfile::tempdir().unwrap();
        let right = Arc::new(subject(folder.path()));
        rejects(Arc::new(MutantSubject::new(right, flaw)), flaw);
    }
}
