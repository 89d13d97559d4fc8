//! Expectations shared by the checks.

use std::sync::Arc;

use qitos_contracts::checkpoint::{
    CheckpointStore, Commit, CommitRequest, Head, Receipt, Resolved, StoreError, StoredSnapshot,
};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{SessionId, SnapshotId};
use qitos_contracts::snapshot::Root;

use super::StorePointer;
use super::subject::StoreSubject;
use crate::check::{Failure, Stage, Verdict, ensure};

/// Opens the store of one check.
pub(super) async fn open(
    stage: &Stage<dyn StoreSubject>,
    place: &str,
) -> Result<StorePointer, Failure> {
    stage
        .subject()
        .open(place)
        .await
        .map_err(|error| unexpected("open", &error))
}

/// A failure that names an operation and the code it gave.
pub(super) fn unexpected(operation: &str, error: &StoreError) -> Failure {
    Failure::new(format!("{operation} gave {}: {error}", error.code()))
}

/// A checked commit.
pub(super) fn checked(request: CommitRequest) -> Result<Arc<Commit>, Failure> {
    Commit::new(request)
        .map(Arc::new)
        .map_err(|error| unexpected("building a valid commit", &error))
}

/// Commits a request that must be persisted, and compares its receipt with it.
pub(super) async fn persist(
    store: &dyn CheckpointStore,
    request: CommitRequest,
) -> Result<Receipt, Failure> {
    persist_commit(store, &checked(request)?).await
}

/// Commits what must be persisted, and compares its receipt with it.
pub(super) async fn persist_commit(
    store: &dyn CheckpointStore,
    commit: &Arc<Commit>,
) -> Result<Receipt, Failure> {
    let receipt = store
        .commit(Arc::clone(commit))
        .await
        .map_err(|error| unexpected("a valid commit", &error))?;
    receipt_answers(store, commit, &receipt)?;
    ensure!(
        !receipt.replayed,
        "the receipt of a first commit says that it was replayed"
    );
    Ok(receipt)
}

/// A receipt must state the facts of its commit, and no more durability than the instance claims (STO-8).
pub(super) fn receipt_answers(
    store: &dyn CheckpointStore,
    commit: &Commit,
    receipt: &Receipt,
) -> Verdict {
    ensure!(
        receipt.session_id == *commit.session_id()
            && receipt.snapshot_id == *commit.snapshot_id()
            && receipt.checkpoint_id == *commit.checkpoint_id()
            && receipt.owner_run_id == *commit.owner_run_id()
            && receipt.lifecycle == commit.lifecycle()
            && receipt.root_digest == commit.root().digest(),
        "the receipt does not answer its commit: {receipt:?}"
    );
    ensure!(
        receipt.generation == commit.generation(),
        "the receipt says generation {} for generation {}",
        receipt.generation,
        commit.generation()
    );
    let capabilities = store.capabilities();
    ensure!(
        receipt.durable == receipt.durability_class.is_durable()
            && receipt.durability_class >= capabilities.durability_class()
            && receipt.store_kind == capabilities.store_kind(),
        "the receipt's durability ({}, {}) is not that of the instance ({})",
        receipt.durable,
        receipt.durability_class.as_str(),
        capabilities.durability_class().as_str()
    );
    Ok(())
}

/// A request that must be refused with `code`, leaving the head as it was.
pub(super) async fn refused(
    store: &dyn CheckpointStore,
    commit: &Arc<Commit>,
    code: &str,
) -> Result<StoreError, Failure> {
    let session = commit.session_id();
    let before = head(store, session).await?;
    let error = match store.commit(Arc::clone(commit)).await {
        Ok(receipt) => {
            return Err(Failure::new(format!(
                "generation {} was persisted instead of {code}",
                receipt.generation
            )));
        }
        Err(error) => error,
    };
    ensure!(
        error.code() == code,
        "expected {code}, the store said {}: {error}",
        error.code()
    );
    let after = head(store, session).await?;
    ensure!(before == after, "a refused commit changed the head");
    Ok(error)
}

/// The head, or none.
pub(super) async fn head(
    store: &dyn CheckpointStore,
    session: &SessionId,
) -> Result<Option<Head>, Failure> {
    store
        .head(session)
        .await
        .map_err(|error| unexpected("head", &error))
}

/// The head of a session that must exist.
pub(super) async fn present_head(
    store: &dyn CheckpointStore,
    session: &SessionId,
) -> Result<Head, Failure> {
    head(store, session)
        .await?
        .ok_or_else(|| Failure::new("the session has no head"))
}

/// The head must be what the receipt says.
pub(super) async fn head_is(store: &dyn CheckpointStore, receipt: &Receipt) -> Verdict {
    let head = present_head(store, &receipt.session_id).await?;
    ensure!(
        head.session_id == receipt.session_id
            && head.generation == receipt.generation
            && head.snapshot_id == receipt.snapshot_id
            && head.checkpoint_id == receipt.checkpoint_id
            && head.owner_run_id == receipt.owner_run_id
            && head.lifecycle == receipt.lifecycle,
        "the head is not at the last receipt (generation {}, receipted {})",
        head.generation,
        receipt.generation
    );
    Ok(())
}

/// A stored snapshot that must exist and be whole.
pub(super) async fn whole_snapshot(
    store: &dyn CheckpointStore,
    id: &SnapshotId,
) -> Result<(StoredSnapshot, Root), Failure> {
    let stored = store
        .snapshot(id)
        .await
        .map_err(|error| unexpected("snapshot", &error))?
        .ok_or_else(|| Failure::new(format!("snapshot {id} is not in the store")))?;
    let root = stored
        .verified()
        .map_err(|error| unexpected("verifying a snapshot", &error))?;
    Ok((stored, root))
}

/// The head must point to a whole snapshot that says the same.
pub(super) async fn head_is_whole(
    store: &dyn CheckpointStore,
    session: &SessionId,
) -> Result<Head, Failure> {
    let head = present_head(store, session).await?;
    let (stored, _) = whole_snapshot(store, &head.snapshot_id).await?;
    ensure!(
        stored.session_id == head.session_id
            && stored.checkpoint_id == head.checkpoint_id
            && stored.generation == head.generation
            && stored.owner_run_id == head.owner_run_id
            && stored.lifecycle == head.lifecycle,
        "head and snapshot of generation {} do not agree",
        head.generation
    );
    Ok(head)
}

/// `resolve` must know whether the snapshot was committed (STO-6).
pub(super) async fn resolves(
    store: &dyn CheckpointStore,
    id: &SnapshotId,
    committed: Option<u64>,
) -> Verdict {
    let resolved = store
        .resolve(id)
        .await
        .map_err(|error| unexpected("resolve", &error))?;
    let generation = match resolved {
        Resolved::Committed(receipt) => Some(receipt.generation),
        Resolved::NotCommitted => None,
    };
    ensure!(
        generation == committed,
        "resolve says {generation:?}, committed is {committed:?}"
    );
    Ok(())
}
