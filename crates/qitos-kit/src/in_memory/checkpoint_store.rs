//! A checkpoint store in memory: the same answers as a durable one, durability class `volatile`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use qitos_contracts::checkpoint::decide_commit::{
    CommitFacts, Placement, Recorded, SessionFact, Verdict, decide_closure, decide_commit,
};
use qitos_contracts::checkpoint::decide_fork::{ForkFacts, ForkVerdict, decide_fork};
use qitos_contracts::checkpoint::inbox::decide_append;
use qitos_contracts::checkpoint::verify_snapshot::{
    SnapshotSource, known_references, verify_snapshot,
};
use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, ChunkAccess, Commit, DurabilityClass, Fork, ForkReceipt,
    ForkRequest, Groups, Head, Inbox, InboxAppend, InboxEntry, InboxReceipt, Layer, LineageEntry,
    LineagePage, Page, Receipt, Resolved, StoreCapabilities, StoreError, StoredSnapshot,
    Verification, VerifyDepth,
};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{CheckpointId, ForkOperationId, ItemId, SessionId, SnapshotId};
use qitos_contracts::limits::{CHUNKS_PER_READ, LINEAGE_PAGE};
use qitos_contracts::snapshot::{Chunk, KnownReferences};

const STORE_KIND: &str = "memory";

/// A volatile checkpoint store.
///
/// Every method finishes at its first poll under one lock, so a future is never dropped half-way. Receipts say
/// `durable: false` (STO-8).
#[derive(Debug)]
pub struct MemoryCheckpointStore {
    capabilities: StoreCapabilities,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionId, Session>,
    snapshots: HashMap<SnapshotId, Snapshot>,
    checkpoints: HashSet<CheckpointId>,
    chunks: HashMap<(u64, Digest), Chunk>,
    forks: HashMap<ForkOperationId, ForkReceipt>,
    families: u64,
}

#[derive(Debug)]
struct Session {
    family: u64,
    head: Head,
    root_digest: Digest,
    /// What the head's root, maps and logs reference.
    known: KnownReferences,
    lineage: BTreeMap<u64, SnapshotId>,
    inbox: Vec<InboxEntry>,
    inbox_items: HashMap<ItemId, usize>,
    consumed: usize,
}

#[derive(Debug)]
struct Snapshot {
    family: u64,
    stored: StoredSnapshot,
    recorded: Recorded,
}

impl Default for MemoryCheckpointStore {
    fn default() -> Self {
        MemoryCheckpointStore::new()
    }
}

impl MemoryCheckpointStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        MemoryCheckpointStore {
            capabilities: StoreCapabilities::new(STORE_KIND, DurabilityClass::Volatile)
                .with(Capability::AtomicFork)
                .with(Capability::Incremental)
                .with(Capability::Inbox),
            state: Mutex::default(),
        }
    }

    /// No code of this file panics under the lock, and every change is complete before the next may fail.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn session_fact(&self, session: &SessionId) -> SessionFact {
        match self.sessions.get(session) {
            None => SessionFact::Unknown,
            Some(found) => SessionFact::Known {
                head: found.head.clone(),
                root_digest: found.root_digest,
            },
        }
    }

    fn commit_facts(&self, commit: &Commit) -> CommitFacts {
        CommitFacts {
            by_snapshot: self
                .snapshots
                .get(commit.snapshot_id())
                .map(|snapshot| snapshot.recorded.clone()),
            checkpoint_id_taken: self.checkpoints.contains(commit.checkpoint_id()),
            session: self.session_fact(commit.session_id()),
            inbox_length: Some(
                self.sessions
                    .get(commit.session_id())
                    .map_or(0, |session| session.inbox.len() as u64),
            ),
        }
    }

    fn commit(&mut self, commit: &Commit) -> Result<Receipt, StoreError> {
        let placement = match decide_commit(commit, &self.commit_facts(commit))? {
            Verdict::Replay(receipt) => return Ok(receipt),
            Verdict::Persist(placement) => placement,
        };
        let none = KnownReferences::default();
        let session = self.sessions.get(commit.session_id());
        let parent = session.map_or(&none, |session| &session.known);
        // A new family takes the next number; it holds no chunk yet.
        let family = session.map_or(self.families + 1, |session| session.family);
        let known = decide_closure(commit, parent, |digest| self.required_chunk(family, digest))?;
        self.families = self.families.max(family);
        Ok(self.persist(commit, placement, known, family))
    }

    fn fork(&mut self, request: &ForkRequest) -> Result<ForkReceipt, StoreError> {
        let source = self.snapshots.get(&request.source_snapshot_id);
        let facts = ForkFacts {
            recorded: self.forks.get(&request.operation_id).cloned(),
            source: source.map(|source| source.stored.clone()),
            child: self.commit_facts(&request.child_commit),
        };
        let placement = match decide_fork(request, &facts)? {
            ForkVerdict::Found(receipt) => return Ok(receipt),
            ForkVerdict::Create(placement) => placement,
        };
        let Some(source) = source else {
            return Err(StoreError::SnapshotNotFound {
                snapshot: request.source_snapshot_id.clone(),
            });
        };
        let family = source.family;
        let root = source.stored.verified()?;
        let parent = known_references(&root, |digest| self.required_chunk(family, digest))?;
        let known = decide_closure(&request.child_commit, &parent, |digest| {
            self.required_chunk(family, digest)
        })?;
        self.persist(&request.child_commit, placement, known, family);
        let receipt = request.receipt(false, STORE_KIND);
        self.forks
            .insert(request.operation_id.clone(), receipt.clone());
        Ok(receipt)
    }

    /// Cannot fail: everything was decided before.
    fn persist(
        &mut self,
        commit: &Commit,
        placement: Placement,
        known: KnownReferences,
        family: u64,
    ) -> Receipt {
        let root = commit.root();
        let mut bytes_written = commit.root_bytes().len() as u64;
        let mut chunks_written = 0;
        for chunk in commit.chunks() {
            let key = (family, chunk.digest());
            if self.chunks.insert(key, chunk.clone()).is_none() {
                bytes_written += chunk.bytes().len() as u64;
                chunks_written += 1;
            }
        }
        let receipt = Receipt {
            session_id: commit.session_id().clone(),
            snapshot_id: commit.snapshot_id().clone(),
            checkpoint_id: commit.checkpoint_id().clone(),
            generation: placement.generation,
            owner_run_id: commit.owner_run_id().clone(),
            lifecycle: commit.lifecycle(),
            durable: false,
            store_kind: STORE_KIND.into(),
            durability_class: DurabilityClass::Volatile,
            root_digest: root.digest(),
            replayed: false,
            bytes_written,
            chunks_written,
        };
        let stored = StoredSnapshot {
            session_id: commit.session_id().clone(),
            snapshot_id: commit.snapshot_id().clone(),
            checkpoint_id: commit.checkpoint_id().clone(),
            generation: placement.generation,
            owner_run_id: commit.owner_run_id().clone(),
            lifecycle: commit.lifecycle(),
            parent_checkpoint_id: placement.parent_checkpoint_id,
            root: Arc::clone(commit.root_bytes()),
            root_digest: root.digest(),
            captured_at: root.timing().captured_at,
        };
        let snapshot = Snapshot {
            family,
            stored,
            recorded: Recorded {
                request_digest: commit.request_digest(),
                receipt: receipt.clone(),
            },
        };
        self.snapshots
            .insert(commit.snapshot_id().clone(), snapshot);
        self.checkpoints.insert(commit.checkpoint_id().clone());
        let head = Head {
            session_id: commit.session_id().clone(),
            snapshot_id: commit.snapshot_id().clone(),
            checkpoint_id: commit.checkpoint_id().clone(),
            generation: placement.generation,
            owner_run_id: commit.owner_run_id().clone(),
            lifecycle: commit.lifecycle(),
            lease_until_ms: None,
        };
        let session = self
            .sessions
            .entry(commit.session_id().clone())
            .or_insert_with(|| Session {
                family,
                head: head.clone(),
                root_digest: root.digest(),
                known: KnownReferences::default(),
                lineage: BTreeMap::new(),
                inbox: Vec::new(),
                inbox_items: HashMap::new(),
                consumed: 0,
            });
        session.head = head;
        session.root_digest = root.digest();
        session.known = known;
        session
            .lineage
            .insert(placement.generation, commit.snapshot_id().clone());
        if let Some(consumed) = commit.consumed_inbox() {
            let consumed = usize::try_from(consumed).unwrap_or(usize::MAX);
            session.consumed = session.consumed.max(consumed.saturating_add(1));
        }
        receipt
    }

    fn append(
        &mut self,
        session: &SessionId,
        entry: &InboxAppend,
    ) -> Result<InboxReceipt, StoreError> {
        let fact = self.session_fact(session);
        let found = self.sessions.get_mut(session);
        let (earlier, waiting, length) = match &found {
            None => (None, 0, 0),
            Some(found) => {
                let earlier = found
                    .inbox_items
                    .get(entry.item_id())
                    .and_then(|at| found.inbox.get(*at))
                    .map(|earlier| {
                        let same =
                            earlier.kind == entry.kind() && earlier.payload == entry.payload();
                        (earlier.sequence, same)
                    });
                let length = found.inbox.len();
                let waiting = length.saturating_sub(found.consumed);
                (earlier, waiting as u64, length as u64)
            }
        };
        let receipt = decide_append(session, &fact, earlier, waiting, length)?;
        if let (Some(found), false) = (found, receipt.replayed) {
            found
                .inbox_items
                .insert(entry.item_id().clone(), found.inbox.len());
            found.inbox.push(InboxEntry {
                sequence: receipt.sequence,
                item_id: entry.item_id().clone(),
                kind: entry.kind(),
                payload: entry.payload().to_vec(),
            });
        }
        Ok(receipt)
    }

    fn required_chunk(&self, family: u64, digest: &Digest) -> Result<Chunk, StoreError> {
        self.chunks
            .get(&(family, *digest))
            .cloned()
            .ok_or(StoreError::CorruptSnapshot {
                snapshot: None,
                layer: Layer::Chunk,
                reason: "a chunk is not in the store",
                digest: Some(*digest),
            })
    }
}

/// What verification reads, for one family.
struct Source<'state> {
    state: &'state State,
    family: u64,
}

impl SnapshotSource for Source<'_> {
    fn snapshot(&mut self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        let found = self.state.snapshots.get(snapshot);
        Ok(found.map(|found| found.stored.clone()))
    }

    fn chunk(&mut self, digest: &Digest) -> Result<Chunk, StoreError> {
        self.state.required_chunk(self.family, digest)
    }

    fn older(
        &mut self,
        session: &SessionId,
        generation: u64,
    ) -> Result<Option<SnapshotId>, StoreError> {
        Ok(self.state.sessions.get(session).and_then(|session| {
            let (_, older) = session.lineage.range(..generation).next_back()?;
            Some(older.clone())
        }))
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpointStore {
    fn capabilities(&self) -> &StoreCapabilities {
        &self.capabilities
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        self.state().commit(&commit)
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        Ok(match self.state().snapshots.get(snapshot) {
            None => Resolved::NotCommitted,
            Some(found) => {
                let mut receipt = found.recorded.receipt.clone();
                receipt.replayed = true;
                Resolved::Committed(receipt)
            }
        })
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        let state = self.state();
        Ok(state.sessions.get(session).map(|found| found.head.clone()))
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        let found = self
            .state()
            .snapshots
            .get(snapshot)
            .map(|found| found.stored.clone());
        if let Some(stored) = &found {
            stored.verified()?;
        }
        Ok(found)
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        let state = self.state();
        let limit = page.limit() as usize;
        let (Some(found), 1..) = (state.sessions.get(session), limit) else {
            return Ok(LineagePage::default());
        };
        let before = page.before_generation().unwrap_or(u64::MAX);
        let mut entries: Vec<LineageEntry> = found
            .lineage
            .range(..before)
            .rev()
            .take(limit + 1)
            .filter_map(|(_, snapshot)| state.snapshots.get(snapshot))
            .map(|snapshot| LineageEntry {
                snapshot_id: snapshot.stored.snapshot_id.clone(),
                checkpoint_id: snapshot.stored.checkpoint_id.clone(),
                generation: snapshot.stored.generation,
                owner_run_id: snapshot.stored.owner_run_id.clone(),
                lifecycle: snapshot.stored.lifecycle,
                parent_checkpoint_id: snapshot.stored.parent_checkpoint_id.clone(),
                root_digest: snapshot.stored.root_digest,
                captured_at: snapshot.stored.captured_at,
                bytes: snapshot.recorded.receipt.bytes_written,
            })
            .collect();
        let more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().map(|entry| entry.generation);
        Ok(LineagePage {
            next_before_generation: last.filter(|_| more),
            entries,
        })
    }

    fn groups(&self) -> Groups<'_> {
        Groups {
            chunk_access: Some(self),
            inbox: Some(self),
            leases: None,
            fork: Some(self),
            retention: None,
        }
    }
}

#[async_trait]
impl ChunkAccess for MemoryCheckpointStore {
    async fn get_chunks(
        &self,
        snapshot: &SnapshotId,
        digests: &[Digest],
    ) -> Result<Vec<Chunk>, StoreError> {
        if digests.len() > CHUNKS_PER_READ {
            return Err(StoreError::SizeLimitExceeded {
                what: "chunks of one read",
                limit: CHUNKS_PER_READ as u64,
                actual: digests.len() as u64,
            });
        }
        let state = self.state();
        let Some(found) = state.snapshots.get(snapshot) else {
            return Err(StoreError::SnapshotNotFound {
                snapshot: snapshot.clone(),
            });
        };
        digests
            .iter()
            .map(|digest| state.required_chunk(found.family, digest))
            .collect::<Result<_, _>>()
            .map_err(|error| error.in_snapshot(snapshot))
    }

    async fn verify(
        &self,
        snapshot: &SnapshotId,
        depth: VerifyDepth,
    ) -> Result<Verification, StoreError> {
        let state = self.state();
        let family = state.snapshots.get(snapshot).map(|found| found.family);
        let mut source = Source {
            state: &state,
            family: family.unwrap_or_default(),
        };
        verify_snapshot(&mut source, snapshot, depth)
    }
}

#[async_trait]
impl Fork for MemoryCheckpointStore {
    async fn fork(&self, request: Arc<ForkRequest>) -> Result<ForkReceipt, StoreError> {
        self.state().fork(&request)
    }

    async fn get(&self, operation: &ForkOperationId) -> Result<Option<ForkReceipt>, StoreError> {
        Ok(self.state().forks.get(operation).cloned())
    }
}

#[async_trait]
impl Inbox for MemoryCheckpointStore {
    async fn append(
        &self,
        session: &SessionId,
        entry: InboxAppend,
    ) -> Result<InboxReceipt, StoreError> {
        self.state().append(session, &entry)
    }

    async fn take(&self, session: &SessionId, limit: u32) -> Result<Vec<InboxEntry>, StoreError> {
        let state = self.state();
        let Some(found) = state.sessions.get(session) else {
            return Ok(Vec::new());
        };
        Ok(found
            .inbox
            .iter()
            .skip(found.consumed)
            .take((limit as usize).min(LINEAGE_PAGE))
            .cloned()
            .collect())
    }
}
