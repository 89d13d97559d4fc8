//! K15 to K17: readers see whole commits, and what was written never changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qitos_contracts::snapshot::Lifecycle;

use super::expect::{
    checked, head, head_is_whole, open, persist, refused, unexpected, whole_snapshot,
};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K15.atomic_visibility",
            "no reader ever sees a head without its verified snapshot, or a head that goes back",
            &["STO-1"],
            atomic_visibility,
        )
        .within(Duration::from_secs(300)),
        Check::new(
            "K16.isolation_of_returned_data",
            "what a caller holds is not changed by later commits",
            &["STO-9"],
            isolation_of_returned_data,
        ),
        Check::new(
            "K17.immutability",
            "no call changes the bytes of a stored snapshot",
            &["STO-4"],
            immutability,
        ),
    ]
}

const READERS: usize = 4;

async fn atomic_visibility(stage: Stage<dyn StoreSubject>) -> Verdict {
    let commits = stage.subject().effort().of(1_000);
    let writer_done = Arc::new(AtomicBool::new(false));
    let store = open(&stage, "K15").await?;
    let mut first = History::new("K15");
    let session = first.session().clone();
    persist(&*store, first.commit(Step::to(Lifecycle::Created))?).await?;
    let done = Arc::clone(&writer_done);
    let seen = stage.on_threads(READERS + 1, move |number, stage| {
        let (done, session, mut history) = (Arc::clone(&done), session.clone(), first.clone());
        async move {
            let store = open(&stage, "K15").await?;
            if number == 0 {
                let written = async {
                    for _ in 0..commits {
                        let step = Step::to(Lifecycle::Running).with_items(1);
                        persist(&*store, history.commit(step)?).await?;
                    }
                    Ok(0)
                }
                .await;
                done.store(true, Ordering::SeqCst);
                return written;
            }
            let (mut reads, mut newest) = (0u64, 0u64);
            // The last round runs after the writer's end, so every reader sees the final head.
            loop {
                let last_round = done.load(Ordering::SeqCst);
                let head = head_is_whole(&*store, &session).await?;
                ensure!(
                    head.generation >= newest,
                    "the head went back from {newest} to {}",
                    head.generation
                );
                newest = head.generation;
                reads += 1;
                if last_round {
                    break;
                }
            }
            ensure!(
                newest == commits,
                "after {commits} commits a reader sees generation {newest}"
            );
            Ok(reads)
        }
    })?;
    ensure!(
        seen.iter().skip(1).all(|reads| *reads > 1),
        "a reader did not overlap with the writer: {seen:?}"
    );
    Ok(())
}

async fn isolation_of_returned_data(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K16").await?;
    let mut history = History::new("K16");
    let created = persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let head_then = head(&*store, history.session()).await?;
    let (snapshot_then, _) = whole_snapshot(&*store, &created.snapshot_id).await?;
    let copies = (created.clone(), head_then.clone(), snapshot_then.clone());
    for _ in 0..3 {
        let step = Step::to(Lifecycle::Running).with_items(3);
        persist(&*store, history.commit(step)?).await?;
    }
    ensure!(
        copies == (created.clone(), head_then, snapshot_then.clone()),
        "a returned value changed in its caller's hands"
    );
    let (now, _) = whole_snapshot(&*store, &created.snapshot_id).await?;
    ensure!(
        now == snapshot_then,
        "the record of an older snapshot changed"
    );
    Ok(())
}

async fn immutability(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K17").await?;
    let mut history = History::new("K17");
    let mut written = Vec::new();
    for generation in 0..6 {
        let lifecycle = if generation == 0 {
            Lifecycle::Created
        } else {
            Lifecycle::Running
        };
        let position = history.clone();
        let commit = checked(history.commit(Step::to(lifecycle).with_items(2))?)?;
        store
            .commit(Arc::clone(&commit))
            .await
            .map_err(|error| unexpected("a valid commit", &error))?;
        written.push((position, commit));
    }
    for (position, commit) in &written {
        // Repeats, conflicts and stolen ids: all of them leave the bytes alone.
        store
            .commit(Arc::clone(commit))
            .await
            .map_err(|error| unexpected("a replay", &error))?;
        let rewrite = position.clone().commit(
            Step::to(commit.lifecycle())
                .with_items(1)
                .salted("rewrite")
                .using_snapshot(commit.snapshot_id()),
        )?;
        refused(&*store, &checked(rewrite)?, "checkpoint_conflict").await?;
    }
    for (_, commit) in &written {
        let (stored, _) = whole_snapshot(&*store, commit.snapshot_id()).await?;
        ensure!(
            stored.root[..] == commit.root_bytes()[..]
                && stored.generation == commit.generation()
                && stored.lifecycle == commit.lifecycle()
                && stored.owner_run_id == *commit.owner_run_id()
                && stored.checkpoint_id == *commit.checkpoint_id(),
            "the snapshot of generation {} is not what was committed",
            commit.generation()
        );
    }
    let unknown = History::new("K17 unknown").commit(Step::to(Lifecycle::Created))?;
    let found = store
        .snapshot(&unknown.snapshot_id)
        .await
        .map_err(|error| unexpected("an unknown snapshot", &error))?;
    if found.is_some() {
        return Err(Failure::new("a snapshot that was never written was found"));
    }
    Ok(())
}
