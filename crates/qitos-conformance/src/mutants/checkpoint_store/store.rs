//! A right store with one flaw.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use async_trait::async_trait;
use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, ChunkAccess, Commit, Fork, ForkReceipt, ForkRequest, Groups, Head,
    Inbox, InboxAppend, InboxEntry, InboxReceipt, LineagePage, Page, Receipt, Resolved,
    StoreCapabilities, StoreError, StoredSnapshot, Verification, VerifyDepth,
};
use qitos_contracts::digest::Digest;
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{ForkOperationId, SessionId, SnapshotId};
use qitos_contracts::snapshot::{Chunk, ChunkKind};

use super::flaw::Flaw;

#[derive(Debug, Default)]
pub(super) struct Memory {
    first_heads: HashMap<SessionId, Head>,
    last_commits: HashMap<SessionId, Arc<Commit>>,
    unseen: HashSet<SnapshotId>,
    claimed: HashSet<SessionId>,
    in_commit: bool,
    commits: u64,
    pending: Option<Arc<Commit>>,
}

/// A right store with one flaw.
#[derive(Debug)]
pub struct MutantStore {
    inner: Arc<dyn CheckpointStore>,
    flaw: Flaw,
    capabilities: StoreCapabilities,
    memory: Arc<Mutex<Memory>>,
}

impl MutantStore {
    pub(super) fn new(
        inner: Arc<dyn CheckpointStore>,
        flaw: Flaw,
        memory: Arc<Mutex<Memory>>,
    ) -> Self {
        let mut capabilities = inner.capabilities().clone();
        if flaw == Flaw::ClaimsTooMuch {
            capabilities = capabilities.with(Capability::Lease);
        }
        MutantStore {
            inner,
            flaw,
            capabilities,
            memory,
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receipt for something that never happened.
    fn lie(&self, commit: &Commit) -> Receipt {
        let capabilities = self.inner.capabilities();
        Receipt {
            session_id: commit.session_id().clone(),
            snapshot_id: commit.snapshot_id().clone(),
            checkpoint_id: commit.checkpoint_id().clone(),
            generation: commit.generation(),
            owner_run_id: commit.owner_run_id().clone(),
            lifecycle: commit.lifecycle(),
            durable: capabilities.durability_class().is_durable(),
            store_kind: capabilities.store_kind().into(),
            durability_class: capabilities.durability_class(),
            root_digest: commit.root().digest(),
            replayed: false,
            bytes_written: commit.sent_bytes(),
            chunks_written: commit.chunks().len() as u64,
        }
    }

    /// Whether the flaw turns this refusal into a success.
    async fn hides(&self, commit: &Commit, error: &StoreError) -> bool {
        let code = error.code();
        match self.flaw {
            Flaw::CreatesTwice => code == "generation_conflict" && commit.expected().is_none(),
            Flaw::IgnoresGenerations => {
                matches!(
                    error,
                    StoreError::GenerationConflict {
                        actual: Some(_),
                        ..
                    }
                )
            }
            Flaw::AdvancesNothing => {
                matches!(error, StoreError::GenerationConflict { actual: None, .. })
            }
            Flaw::IgnoresCheckpoints => {
                code == "checkpoint_conflict" && !self.is_known(commit.snapshot_id()).await
            }
            Flaw::AcceptsReusedIds => {
                code == "checkpoint_conflict"
                    && (self.is_known(commit.snapshot_id()).await || commit.expected().is_none())
            }
            Flaw::IgnoresOwners | Flaw::LetsGuessesIn => code == "owner_conflict",
            Flaw::AcceptsForeignParents => code == "corrupt_snapshot",
            Flaw::AcceptsAnyTransition => code == "invalid_lifecycle_operation",
            Flaw::LetsFencedOwnersCommit => {
                code == "generation_conflict"
                    && match self.inner.head(commit.session_id()).await {
                        Ok(Some(head)) => head.owner_run_id != *commit.owner_run_id(),
                        _ => false,
                    }
            }
            Flaw::LetsEverybodyWin => code == "generation_conflict",
            Flaw::LosesCountInAStorm => {
                let mut memory = self.memory();
                memory.commits += 1;
                code == "generation_conflict" && memory.commits.is_multiple_of(2)
            }
            Flaw::AcceptsHoles => code == "missing_chunk",
            _ => false,
        }
    }

    async fn is_known(&self, snapshot: &SnapshotId) -> bool {
        matches!(
            self.inner.resolve(snapshot).await,
            Ok(Resolved::Committed(_))
        )
    }

    fn remember(&self, commit: &Arc<Commit>, head: Option<Head>) {
        let mut memory = self.memory();
        if let Some(head) = head {
            memory
                .first_heads
                .entry(commit.session_id().clone())
                .or_insert(head);
        }
        memory
            .last_commits
            .insert(commit.session_id().clone(), Arc::clone(commit));
        memory.unseen.insert(commit.snapshot_id().clone());
    }

    async fn persisted(&self, commit: &Arc<Commit>, mut receipt: Receipt) -> Receipt {
        let head = self.inner.head(commit.session_id()).await.ok().flatten();
        self.remember(commit, head);
        match self.flaw {
            Flaw::CreatesAtOne if commit.expected().is_none() => receipt.generation = 1,
            Flaw::HidesReplays => receipt.replayed = false,
            Flaw::GrowsWithHistory => {
                receipt.bytes_written = commit
                    .sent_bytes()
                    .min(receipt.bytes_written + receipt.generation);
                receipt.bytes_written += receipt.generation;
            }
            _ => {}
        }
        receipt
    }
}

/// Pending once, so that a dropped future was begun and not finished.
async fn pause_once() {
    let mut polled = false;
    poll_fn(|context| {
        if polled {
            return Poll::Ready(());
        }
        polled = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[async_trait]
impl CheckpointStore for MutantStore {
    fn capabilities(&self) -> &StoreCapabilities {
        &self.capabilities
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        match self.flaw {
            Flaw::StaysBusyWhenDropped => {
                if self.memory().in_commit {
                    return Err(StoreError::PersistenceFailed {
                        operation: "commit",
                        detail: "an earlier one was never finished".into(),
                    });
                }
                self.memory().in_commit = true;
                pause_once().await;
                let result = self.inner.commit(commit).await;
                self.memory().in_commit = false;
                return result;
            }
            Flaw::ReceiptsEarly => {
                let earlier = self.memory().pending.replace(Arc::clone(&commit));
                if let Some(earlier) = earlier {
                    self.inner.commit(earlier).await?;
                }
                return Ok(self.lie(&commit));
            }
            Flaw::ForgetsOldRequests => {
                if let Ok(Some(head)) = self.inner.head(commit.session_id()).await
                    && head.generation > commit.generation()
                {
                    return Err(StoreError::GenerationConflict {
                        expected: commit.expected().map(|expected| expected.generation),
                        actual: Some(head.generation),
                    });
                }
            }
            Flaw::ChecksOwnersFirst => {
                if let (Ok(Some(head)), Some(expected)) = (
                    self.inner.head(commit.session_id()).await,
                    commit.expected(),
                ) && head.owner_run_id != expected.owner_run_id
                {
                    return Err(StoreError::OwnerConflict);
                }
            }
            _ => {}
        }
        match self.inner.commit(Arc::clone(&commit)).await {
            Ok(receipt) => Ok(self.persisted(&commit, receipt).await),
            Err(error) => {
                if self.hides(&commit, &error).await {
                    Ok(self.lie(&commit))
                } else {
                    Err(error)
                }
            }
        }
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        self.inner.resolve(snapshot).await
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        let mut head = self.inner.head(session).await?;
        match self.flaw {
            Flaw::ForgetsToMoveTheHead => {
                if let Some(first) = self.memory().first_heads.get(session) {
                    head = Some(first.clone());
                }
            }
            Flaw::ForksAndClaims if self.memory().claimed.contains(session) => {
                if let Some(head) = &mut head {
                    head.generation += 1;
                }
            }
            _ => {}
        }
        Ok(head)
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        if self.flaw == Flaw::ShowsHeadsEarly && self.memory().unseen.remove(snapshot) {
            return Ok(None);
        }
        let mut found = match (self.flaw, self.inner.snapshot(snapshot).await) {
            (Flaw::TrustsStoredRoots, Err(_)) => None,
            (_, found) => found?,
        };
        if let Some(stored) = &mut found {
            let newest = self.memory().last_commits.get(&stored.session_id).cloned();
            match (self.flaw, newest) {
                (Flaw::UpdatesOldSnapshots, Some(newest)) => stored.lifecycle = newest.lifecycle(),
                (Flaw::ReplacesOldRoots, Some(newest)) => {
                    stored.root = Arc::clone(newest.root_bytes());
                }
                _ => {}
            }
        }
        Ok(found)
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        let mut found = match (self.flaw, page.before_generation()) {
            (Flaw::IgnoresPageLimits, _) => {
                let mut whole = LineagePage::default();
                let mut next = Page::newest(1_000);
                loop {
                    let more = self.inner.lineage(session, next).await?;
                    whole.entries.extend(more.entries);
                    match more.next_before_generation {
                        Some(before) => next = Page::newest(1_000).before(before),
                        None => return Ok(whole),
                    }
                }
            }
            (Flaw::PagesByOffset, Some(before)) => {
                // What the cursor was when the session had as many entries as now.
                let newest = self
                    .inner
                    .head(session)
                    .await?
                    .map_or(0, |head| head.generation);
                let first = self.memory().commits;
                let moved = newest.saturating_sub(first);
                let page = Page::newest(page.limit()).before(before + moved);
                return self.inner.lineage(session, page).await;
            }
            _ => self.inner.lineage(session, page).await?,
        };
        match self.flaw {
            Flaw::ListsOldestFirst => found.entries.reverse(),
            Flaw::PagesByOffset => {
                let newest = self
                    .inner
                    .head(session)
                    .await?
                    .map_or(0, |head| head.generation);
                self.memory().commits = newest;
            }
            Flaw::ForksByCopying => {
                for entry in &mut found.entries {
                    if entry.parent_checkpoint_id.is_none() {
                        entry.bytes += self.memory().commits * 64;
                    }
                }
            }
            Flaw::OrdersByTime => found.entries.sort_by_key(|entry| {
                (
                    std::cmp::Reverse(entry.captured_at),
                    std::cmp::Reverse(entry.generation),
                )
            }),
            Flaw::OrdersEqualTimesById => found
                .entries
                .sort_by(|left, right| left.snapshot_id.cmp(&right.snapshot_id)),
            _ => {}
        }
        Ok(found)
    }

    fn groups(&self) -> Groups<'_> {
        let inner = self.inner.groups();
        Groups {
            chunk_access: inner.chunk_access.map(|_| self as &dyn ChunkAccess),
            inbox: inner.inbox.map(|_| self as &dyn Inbox),
            fork: inner.fork.map(|_| self as &dyn Fork),
            leases: inner.leases,
            retention: inner.retention,
        }
    }
}

fn with_other_bytes(chunk: &Chunk, change: impl FnOnce(&str) -> String) -> Chunk {
    let text = String::from_utf8_lossy(chunk.bytes());
    Chunk::new(chunk.kind(), change(&text).into_bytes().into())
}

#[async_trait]
impl ChunkAccess for MutantStore {
    async fn get_chunks(
        &self,
        snapshot: &SnapshotId,
        digests: &[Digest],
    ) -> Result<Vec<Chunk>, StoreError> {
        let access = self.inner.groups().chunk_access()?;
        let read = access.get_chunks(snapshot, digests).await;
        match self.flaw {
            Flaw::SkipsMissingChunks => Ok(read.unwrap_or_default()),
            Flaw::DropsNulCharacters => Ok(read?
                .iter()
                .map(|chunk| with_other_bytes(chunk, |text| text.replace("\\u0000", "")))
                .collect()),
            Flaw::ReordersItems => Ok(read?
                .into_iter()
                .map(|chunk| {
                    match serde_json::from_slice::<Vec<serde_json::Value>>(chunk.bytes()) {
                        Ok(mut items) if chunk.kind() == ChunkKind::Leaf && items.len() > 1 => {
                            items.reverse();
                            let text = serde_json::to_string(&items).unwrap_or_default();
                            with_other_bytes(&chunk, |_| text)
                        }
                        _ => chunk,
                    }
                })
                .collect()),
            _ => read,
        }
    }

    async fn verify(
        &self,
        snapshot: &SnapshotId,
        depth: VerifyDepth,
    ) -> Result<Verification, StoreError> {
        let access = self.inner.groups().chunk_access()?;
        let mut found = access.verify(snapshot, depth).await?;
        if self.flaw == Flaw::MistrustsRewrites {
            found.damage = Some(StoreError::OwnerConflict);
        }
        Ok(found)
    }
}

#[async_trait]
impl Fork for MutantStore {
    async fn fork(&self, request: Arc<ForkRequest>) -> Result<ForkReceipt, StoreError> {
        let fork = self.inner.groups().fork()?;
        let known = fork.get(&request.operation_id).await?;
        match self.flaw {
            Flaw::ForksOnce if known.is_some() => {
                return Err(StoreError::DuplicateForkOperation {
                    operation: request.operation_id.clone(),
                });
            }
            Flaw::ForksBlindly => {
                if let Some(known) = known {
                    return Ok(known);
                }
            }
            Flaw::ForksHeadsOnly => {
                let head = self.inner.head(&request.source_session_id).await?;
                if head.is_some_and(|head| head.snapshot_id != request.source_snapshot_id) {
                    return Err(StoreError::SnapshotNotFound {
                        snapshot: request.source_snapshot_id.clone(),
                    });
                }
            }
            _ => {}
        }
        let forked = fork.fork(Arc::clone(&request)).await;
        let capabilities = self.inner.capabilities();
        match (self.flaw, forked) {
            (Flaw::ForksAtOne, Ok(mut receipt)) => {
                receipt.owner_generation = 1;
                Ok(receipt)
            }
            (Flaw::ForksAnything, Err(StoreError::OperationNotAllowed { .. })) => Ok(request
                .receipt(
                    capabilities.durability_class().is_durable(),
                    capabilities.store_kind(),
                )),
            (Flaw::ForksAndClaims, Ok(receipt)) => {
                self.memory()
                    .claimed
                    .insert(request.source_session_id.clone());
                Ok(receipt)
            }
            (Flaw::ForksByCopying, Ok(receipt)) => {
                let head = self.inner.head(&request.source_session_id).await?;
                self.memory().commits = head.map_or(0, |head| head.generation);
                Ok(receipt)
            }
            (_, forked) => forked,
        }
    }

    async fn get(&self, operation: &ForkOperationId) -> Result<Option<ForkReceipt>, StoreError> {
        self.inner.groups().fork()?.get(operation).await
    }
}

#[async_trait]
impl Inbox for MutantStore {
    async fn append(
        &self,
        session: &SessionId,
        entry: InboxAppend,
    ) -> Result<InboxReceipt, StoreError> {
        let inbox = self.inner.groups().inbox()?;
        let receipt = inbox.append(session, entry.clone()).await?;
        if self.flaw == Flaw::AppendsTwice && receipt.replayed {
            let again = format!("{}-again", entry.item_id());
            if let Ok(item_id) = again.parse() {
                let copy = InboxAppend::new(item_id, entry.kind(), entry.payload().to_vec())?;
                return inbox.append(session, copy).await;
            }
        }
        Ok(receipt)
    }

    async fn take(&self, session: &SessionId, limit: u32) -> Result<Vec<InboxEntry>, StoreError> {
        self.inner.groups().inbox()?.take(session, limit).await
    }
}
