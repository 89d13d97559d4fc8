//! K8 to K10: repeating a request (rows 8 and 9, STO-5).

use std::sync::Arc;

use qitos_contracts::checkpoint::Receipt;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{
    checked, head_is, open, persist, persist_commit, receipt_answers, refused, resolves, unexpected,
};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K8.replay_same",
            "repeating an identical request returns the first receipt and adds no generation",
            &["STO-5", "SES-28"],
            replay_same,
        ),
        Check::new(
            "K9.replay_after_progress",
            "a request is replayed although the head moved on, also through another instance",
            &["STO-5"],
            replay_after_progress,
        ),
        Check::new(
            "K10.id_reuse_other_content",
            "a snapshot or checkpoint id that stands for other content is a checkpoint conflict",
            &["STO-2", "STO-4"],
            id_reuse_other_content,
        ),
    ]
}

/// The second receipt is the first one, marked as replayed.
fn same_receipt(first: &Receipt, second: &Receipt) -> Verdict {
    ensure!(
        second.replayed,
        "the receipt does not say that it was replayed"
    );
    let mut unmarked = second.clone();
    unmarked.replayed = first.replayed;
    ensure!(
        unmarked == *first,
        "the replayed receipt differs from the first: {second:?}"
    );
    Ok(())
}

async fn replay_same(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K8").await?;
    let mut history = History::new("K8");
    for lifecycle in [Lifecycle::Created, Lifecycle::Running] {
        let commit = checked(history.commit(Step::to(lifecycle).with_items(2))?)?;
        let first = persist_commit(&*store, &commit).await?;
        for _ in 0..3 {
            let again = store
                .commit(Arc::clone(&commit))
                .await
                .map_err(|error| unexpected("a replay", &error))?;
            receipt_answers(&*store, &commit, &again)?;
            same_receipt(&first, &again)?;
        }
        head_is(&*store, &first).await?;
    }
    Ok(())
}

async fn replay_after_progress(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K9").await?;
    let mut history = History::new("K9");
    let mut receipted = Vec::new();
    for generation in 0..5 {
        let lifecycle = if generation == 0 {
            Lifecycle::Created
        } else {
            Lifecycle::Running
        };
        let commit = checked(history.commit(Step::to(lifecycle).with_items(1))?)?;
        let receipt = persist_commit(&*store, &commit).await?;
        receipted.push((commit, receipt));
    }
    let another = open(&stage, "K9").await?;
    for store in [&store, &another] {
        for (commit, first) in &receipted {
            let again = store
                .commit(Arc::clone(commit))
                .await
                .map_err(|error| unexpected("a replay of an older commit", &error))?;
            same_receipt(first, &again)?;
            resolves(&**store, commit.snapshot_id(), Some(first.generation)).await?;
        }
    }
    let (_, last) = receipted
        .last()
        .ok_or_else(|| Failure::new("nothing was committed"))?;
    head_is(&*another, last).await
}

async fn id_reuse_other_content(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K10").await?;
    let mut history = History::new("K10");
    let first = history.commit(Step::to(Lifecycle::Created))?;
    persist(&*store, first.clone()).await?;
    // The same snapshot id in the session's next commit.
    let reused = history
        .clone()
        .commit(Step::to(Lifecycle::Running).using_snapshot(&first.snapshot_id))?;
    refused(&*store, &checked(reused)?, "checkpoint_conflict").await?;
    // The same checkpoint id with another snapshot.
    let mut reused = history
        .clone()
        .commit(Step::to(Lifecycle::Running).salted("other"))?;
    reused.checkpoint_id = first.checkpoint_id.clone();
    refused(&*store, &checked(reused)?, "checkpoint_conflict").await?;
    // Another session cannot take the ids either.
    let mut thief = History::new("K10 thief");
    let stolen = thief.commit(Step::to(Lifecycle::Created).using_snapshot(&first.snapshot_id))?;
    refused(&*store, &checked(stolen)?, "checkpoint_conflict").await?;
    // What was written first is still what stands there.
    resolves(&*store, &first.snapshot_id, Some(0)).await
}
