//! K21 to K27: forks (section 9).

use std::sync::Arc;

use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, Fork, ForkReceipt, ForkRequest, Head, Page, StoreError,
};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{head, head_is_whole, open, persist, present_head, unexpected, whole_snapshot};
use super::history::{History, Position, Step};
use super::subject::{StoreSubject, needs};
use crate::check::{Check, Failure, Need, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    let forking = |id, sentence, rules, body| -> Check<dyn StoreSubject> {
        let body: fn(Stage<dyn StoreSubject>) -> Body = body;
        Check::new(id, sentence, rules, body).needing(needs::FORK)
    };
    vec![
        forking(
            "K21.fork_basic",
            "a fork makes a paused child at generation 0 with the source's content",
            &["SES-36", "STO-10"],
            |stage| Box::pin(fork_basic(stage)),
        ),
        forking(
            "K22.fork_idempotent",
            "the same operation with the same source is the same child and receipt, whoever calls",
            &["SES-41"],
            |stage| Box::pin(fork_idempotent(stage)),
        ),
        forking(
            "K23.fork_other_source",
            "the same operation with another source is refused; a wrong source is named",
            &["SES-38", "SES-41"],
            |stage| Box::pin(fork_other_source(stage)),
        ),
        forking(
            "K24.fork_history",
            "an older snapshot can be forked, by its own lifecycle and not by the head's",
            &["SES-36", "SES-37"],
            |stage| Box::pin(fork_history(stage)),
        ),
        forking(
            "K25.fork_unsafe",
            "a snapshot whose lifecycle allows no fork is refused unless its boundary was pinned",
            &["SES-37", "SES-45"],
            |stage| Box::pin(fork_unsafe(stage)),
        ),
        forking(
            "K26.fork_source_untouched",
            "a fork leaves the source's head, rows and bytes alone and claims no ownership",
            &["SES-36"],
            |stage| Box::pin(fork_source_untouched(stage)),
        ),
        forking(
            "K27.child_survives_source_delete",
            "after the fork the child needs nothing from the source",
            &["SES-44", "STO-45"],
            |stage| Box::pin(child_survives_source_delete(stage)),
        )
        .needing(&[
            Need::Claim("checkpoint.session.atomic_fork/v1"),
            Need::Claim("checkpoint.session.delete/v1"),
        ]),
    ]
}

type Body = std::pin::Pin<Box<dyn Future<Output = Verdict>>>;

fn forks(store: &dyn CheckpointStore) -> Result<&dyn Fork, Failure> {
    store.groups().fork.ok_or_else(|| {
        Failure::new(format!(
            "{} is claimed without its group",
            Capability::AtomicFork
        ))
    })
}

/// A fork that must succeed and whose receipt must answer its request.
async fn forked(
    store: &dyn CheckpointStore,
    request: &Arc<ForkRequest>,
) -> Result<ForkReceipt, Failure> {
    let receipt = forks(store)?
        .fork(Arc::clone(request))
        .await
        .map_err(|error| unexpected("a valid fork", &error))?;
    let capabilities = store.capabilities();
    let expected = request.receipt(
        capabilities.durability_class().is_durable(),
        capabilities.store_kind(),
    );
    ensure!(
        receipt == expected,
        "the receipt does not answer the fork: {receipt:?}"
    );
    Ok(receipt)
}

async fn fork_refused(
    store: &dyn CheckpointStore,
    request: &Arc<ForkRequest>,
    code: &str,
) -> Result<StoreError, Failure> {
    let session = request.child_commit.session_id();
    let before = head(store, session).await?;
    match forks(store)?.fork(Arc::clone(request)).await {
        Ok(_) => Err(Failure::new(format!("a fork succeeded instead of {code}"))),
        Err(error) => {
            ensure!(
                error.code() == code,
                "expected {code}, the store said {}: {error}",
                error.code()
            );
            ensure!(
                head(store, session).await? == before,
                "a refused fork left a child"
            );
            Ok(error)
        }
    }
}

/// A session that ran and rests `paused`, the positions of all its snapshots, and its head.
async fn resting(
    store: &dyn CheckpointStore,
    name: &str,
) -> Result<(History, Vec<Position>, Head), Failure> {
    let mut history = History::new(name);
    let mut positions = Vec::new();
    for lifecycle in [
        Lifecycle::Created,
        Lifecycle::Running,
        Lifecycle::Paused,
        Lifecycle::Restoring,
        Lifecycle::Running,
        Lifecycle::Paused,
    ] {
        persist(store, history.commit(Step::to(lifecycle).with_items(2))?).await?;
        positions.push(history.position()?);
    }
    let head = present_head(store, history.session()).await?;
    Ok((history, positions, head))
}

async fn fork_basic(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K21").await?;
    let (history, _, _) = resting(&*store, "K21").await?;
    let operation = History::operation("K21");
    let none = forks(&*store)?
        .get(&operation)
        .await
        .map_err(|error| unexpected("get of an unknown operation", &error))?;
    ensure!(none.is_none(), "an unknown operation has a receipt");
    let request = Arc::new(history.fork_here(&operation)?);
    let receipt = forked(&*store, &request).await?;
    let child = head_is_whole(&*store, &receipt.child_session_id).await?;
    ensure!(
        child.generation == 0
            && child.lifecycle == Lifecycle::Paused
            && child.owner_run_id == receipt.child_run_id
            && child.snapshot_id == receipt.child_snapshot_id
            && child.checkpoint_id == receipt.child_checkpoint_id,
        "the child does not start paused at generation 0 with its own ids: {child:?}"
    );
    let own = store
        .lineage(&receipt.child_session_id, Page::default())
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    ensure!(
        own.entries.len() == 1
            && own
                .entries
                .iter()
                .all(|entry| entry.parent_checkpoint_id.is_none()),
        "the child lists more than its own snapshot"
    );
    let stored = forks(&*store)?
        .get(&operation)
        .await
        .map_err(|error| unexpected("get", &error))?;
    ensure!(
        stored.as_ref() == Some(&receipt),
        "the stored receipt is another: {stored:?}"
    );
    // The child is a session of its own: it can go on.
    let mut child = history.child_of(&request)?;
    child.change_owner("child run");
    persist(&*store, child.commit(Step::to(Lifecycle::Restoring))?).await?;
    persist(
        &*store,
        child.commit(Step::to(Lifecycle::Running).with_items(2))?,
    )
    .await?;
    Ok(())
}

async fn fork_idempotent(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K22").await?;
    let (mut history, _, _) = resting(&*store, "K22").await?;
    let request = Arc::new(history.fork_here(&History::operation("K22"))?);
    let first = forked(&*store, &request).await?;
    let child = present_head(&*store, &first.child_session_id).await?;
    // Again, after the source moved on, and through another instance.
    persist(&*store, history.commit(Step::to(Lifecycle::Restoring))?).await?;
    let another = open(&stage, "K22").await?;
    for store in [&store, &another] {
        let again = forked(&**store, &request).await?;
        ensure!(again == first, "the second receipt is another");
        ensure!(
            present_head(&**store, &first.child_session_id).await? == child,
            "repeating the fork moved its child"
        );
    }
    // Racing callers get the one child, too.
    let (history, _, _) = resting(&*store, "K22 race").await?;
    let request = Arc::new(history.fork_here(&History::operation("K22 race"))?);
    let receipts = stage.on_threads(4, move |_, stage| {
        let request = Arc::clone(&request);
        async move {
            let store = open(&stage, "K22").await?;
            forked(&*store, &request).await
        }
    })?;
    ensure!(
        receipts
            .windows(2)
            .all(|pair| matches!(pair, [one, two] if one == two)),
        "racing calls of one operation made different children"
    );
    Ok(())
}

async fn fork_other_source(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K23").await?;
    let (history, positions, _) = resting(&*store, "K23").await?;
    let (other, _, _) = resting(&*store, "K23 other").await?;
    let operation = History::operation("K23");
    let first = Arc::new(history.fork_here(&operation)?);
    forked(&*store, &first).await?;
    let mut elsewhere = other.fork_here(&operation)?;
    elsewhere.child_commit = first.child_commit.clone();
    fork_refused(&*store, &Arc::new(elsewhere), "duplicate_fork_operation").await?;
    // Sources that are not there, or not what the request says.
    let request = history.fork_here(&History::operation("K23 fresh"))?;
    let unknown = History::new("K23 unknown").commit(Step::to(Lifecycle::Created))?;
    let mut wrong = request.clone();
    wrong.source_snapshot_id = unknown.snapshot_id;
    fork_refused(&*store, &Arc::new(wrong), "snapshot_not_found").await?;
    let mut wrong = request.clone();
    wrong.source_session_id = other.session().clone();
    fork_refused(&*store, &Arc::new(wrong), "snapshot_session_mismatch").await?;
    let mut wrong = request.clone();
    let older = positions
        .first()
        .ok_or_else(|| Failure::new("no positions"))?;
    wrong.source_checkpoint_id = older.checkpoint_id.clone();
    fork_refused(&*store, &Arc::new(wrong), "checkpoint_conflict").await?;
    forked(&*store, &Arc::new(request)).await?;
    Ok(())
}

async fn fork_history(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K24").await?;
    let (mut history, positions, _) = resting(&*store, "K24").await?;
    // The head runs again; its older paused snapshots still are what they were.
    persist(&*store, history.commit(Step::to(Lifecycle::Restoring))?).await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let paused: Vec<&Position> = positions
        .iter()
        .filter(|position| position.lifecycle == Lifecycle::Paused)
        .collect();
    ensure!(paused.len() == 2, "the history should have rested twice");
    for (number, position) in paused.into_iter().enumerate() {
        let operation = History::operation(&format!("K24 {number}"));
        let request = Arc::new(history.fork_at(position, &operation)?);
        let receipt = forked(&*store, &request).await?;
        ensure!(
            receipt.source_snapshot_id == position.snapshot_id,
            "the fork branched off elsewhere"
        );
        head_is_whole(&*store, &receipt.child_session_id).await?;
    }
    Ok(())
}

async fn fork_unsafe(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K25").await?;
    let (history, positions, _) = resting(&*store, "K25").await?;
    // The head rests, yet its snapshots of other states allow no fork.
    for position in &positions {
        let name = format!("K25 {}", position.generation);
        let request = Arc::new(history.fork_at(position, &History::operation(&name))?);
        match position.lifecycle {
            Lifecycle::Paused => {
                forked(&*store, &request).await?;
            }
            _ => {
                fork_refused(&*store, &request, "invalid_lifecycle_operation").await?;
            }
        }
    }
    let running = positions
        .iter()
        .find(|position| position.lifecycle == Lifecycle::Running)
        .ok_or_else(|| Failure::new("the history never ran"))?;
    let mut pinned = history.fork_at(running, &History::operation("K25 pinned"))?;
    pinned.boundary = qitos_contracts::checkpoint::ForkBoundary::Pinned;
    forked(&*store, &Arc::new(pinned)).await?;
    Ok(())
}

async fn fork_source_untouched(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K26").await?;
    let (mut history, positions, head_before) = resting(&*store, "K26").await?;
    let mut before = Vec::new();
    for position in &positions {
        before.push(whole_snapshot(&*store, &position.snapshot_id).await?.0);
    }
    let lineage_before = store
        .lineage(history.session(), Page::default())
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    let request = Arc::new(history.fork_here(&History::operation("K26"))?);
    let receipt = forked(&*store, &request).await?;
    let mut child = history.child_of(&request)?;
    persist(
        &*store,
        child.commit(Step::to(Lifecycle::Restoring).with_items(3))?,
    )
    .await?;
    ensure!(
        present_head(&*store, history.session()).await? == head_before,
        "the fork changed the source's head"
    );
    for (position, stored) in positions.iter().zip(&before) {
        let (now, _) = whole_snapshot(&*store, &position.snapshot_id).await?;
        ensure!(now == *stored, "the fork changed a snapshot of the source");
    }
    let lineage = store
        .lineage(history.session(), Page::default())
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    ensure!(
        lineage == lineage_before,
        "the fork changed the source's lineage"
    );
    ensure!(
        receipt.child_session_id != *history.session(),
        "the child is the source"
    );
    // The source's owner goes on as if nothing had happened.
    persist(&*store, history.commit(Step::to(Lifecycle::Restoring))?).await?;
    Ok(())
}

async fn child_survives_source_delete(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K27").await?;
    let (history, _, head) = resting(&*store, "K27").await?;
    let request = Arc::new(history.fork_here(&History::operation("K27"))?);
    let receipt = forked(&*store, &request).await?;
    let retention = store
        .groups()
        .retention
        .ok_or_else(|| Failure::new("delete is claimed without its group"))?;
    retention
        .delete_session(history.session(), head.generation)
        .await
        .map_err(|error| unexpected("delete_session", &error))?;
    retention
        .collect()
        .await
        .map_err(|error| unexpected("collect", &error))?;
    head_is_whole(&*store, &receipt.child_session_id).await?;
    let mut child = history.child_of(&request)?;
    persist(
        &*store,
        child.commit(Step::to(Lifecycle::Restoring).with_items(1))?,
    )
    .await?;
    Ok(())
}
