//! The store: contract methods in terms of the writer and the readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, ChunkAccess, Commit, Fork, ForkReceipt, ForkRequest, Groups, Head,
    Inbox, InboxAppend, InboxEntry, InboxReceipt, LineagePage, Page, Receipt, Resolved,
    StoreCapabilities, StoreError, StoredSnapshot, Verification, VerifyDepth,
};
use qitos_contracts::clock::Timestamp;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{ForkOperationId, SessionId, SnapshotId};
use qitos_contracts::limits::{CHUNKS_PER_READ, LINEAGE_PAGE};
use qitos_contracts::snapshot::{Chunk, Lifecycle};
use tokio::sync::{OnceCell, mpsc, oneshot};

use crate::closing::{CloseReceipt, Closing, Door};
use crate::connection;
use crate::fault_point::{FaultPlan, Faults};
use crate::options::OpenOptions;
use crate::readers::Readers;
use crate::rows;
use crate::transaction::{STORE_KIND, fork_receipt};
use crate::verify;
use crate::writer::{Answer, QUEUE, Request, Work, Writer};

/// The reference checkpoint store: one SQLite file, many sessions, many processes.
///
/// Writes go to a thread that owns the writer's connection and puts whatever is queued into one transaction; reads go
/// to threads with connections of their own. Dropping the store lets requests that are already queued finish, on
/// threads that nobody waits for; [`close`](SqliteStore::close) waits.
///
/// # Durability
/// Class `power_loss` by default: every receipt follows a synced commit (STO-25).
#[derive(Debug)]
pub struct SqliteStore {
    capabilities: StoreCapabilities,
    /// None when the file is opened for reading, or its schema lets this build only read.
    writer: Option<Door<Request>>,
    writer_min: u32,
    readers: Readers,
    closing: Closing,
    closed: OnceCell<CloseReceipt>,
    /// Connections must not be used in another process than the one that opened them (STO-29).
    process: u32,
}

impl SqliteStore {
    /// Opens a store, makes or migrates it as the options allow, and proves its class.
    ///
    /// Blocks while another process holds the file, at most as long as the options say;
    /// [`open`](SqliteStore::open) does the same on a thread of its own.
    ///
    /// # Errors
    /// `store_foreign`, `store_corrupt`, `store_schema_newer`, `store_engine_unsupported`, `unsupported_filesystem`,
    /// `store_busy`, `persistence_failed`; the file's bytes are untouched by all but the last two. `unsupported_capability` when the demanded class
    /// cannot be proved.
    pub fn open_blocking(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, StoreError> {
        Self::open_with_faults(path.as_ref(), options, Faults::default())
    }

    /// [`open_blocking`](SqliteStore::open_blocking) without blocking the caller's executor.
    ///
    /// # Errors
    /// Those of `open_blocking`.
    ///
    /// # Cancel safety
    /// The file is opened, migrated and closed again, or untouched.
    pub async fn open(path: impl Into<PathBuf>, options: OpenOptions) -> Result<Self, StoreError> {
        let path = path.into();
        let (reply, answer) = oneshot::channel();
        let failed = || StoreError::PersistenceFailed {
            operation: "open",
            detail: "the opening thread is gone".into(),
        };
        std::thread::Builder::new()
            .name("qitos-sqlite-open".into())
            .spawn(move || {
                let _ = reply.send(Self::open_blocking(&path, options));
            })
            .map_err(|_| failed())?;
        answer.await.map_err(|_| failed())?
    }

    /// Opens with a test's fault plan.
    ///
    /// # Errors
    /// Those of `open_blocking`.
    #[doc(hidden)]
    pub fn open_with_fault_plan(
        path: impl AsRef<Path>,
        options: OpenOptions,
        plan: Arc<dyn FaultPlan>,
    ) -> Result<Self, StoreError> {
        Self::open_with_faults(path.as_ref(), options, Faults::planned(plan))
    }

    fn open_with_faults(
        path: &Path,
        options: OpenOptions,
        faults: Faults,
    ) -> Result<Self, StoreError> {
        let opened = connection::open(path, &options, &faults)?;
        let (closing, alive) = Closing::of(path);
        let (readers, reading) = Readers::start(path, options.reader_threads, &alive)?;
        let capabilities = StoreCapabilities::new(STORE_KIND, opened.class)
            .with(Capability::AtomicFork)
            .with(Capability::Incremental)
            .with(Capability::Inbox);
        capabilities.require_class(options.class.min(opened.class))?;
        let writer = match opened.writer {
            None => None,
            Some(connection) => {
                let (sender, queue) = mpsc::channel(QUEUE);
                let writer = Writer::new(connection, opened.class, options.busy_bound, faults);
                std::thread::Builder::new()
                    .name("qitos-sqlite-writer".into())
                    .spawn(move || {
                        writer.serve(queue, reading);
                        drop(alive);
                    })
                    .map_err(|error| StoreError::PersistenceFailed {
                        operation: "start the writer",
                        detail: error.kind().to_string(),
                    })?;
                Some(Door::open(sender))
            }
        };
        Ok(SqliteStore {
            capabilities,
            writer,
            writer_min: opened.writer_min,
            readers,
            closing,
            closed: OnceCell::new(),
            process: std::process::id(),
        })
    }

    /// Lists the heads of sessions, newest session first.
    ///
    /// `limit` is clamped to 1,000; costs what it returns, whatever the number of sessions, unless `lifecycle` asks
    /// for a rare one. Pages are stable while others commit: a session never changes its place.
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`, `store_corrupt`.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn sessions(
        &self,
        before: Option<SessionCursor>,
        lifecycle: Option<Lifecycle>,
        limit: u32,
    ) -> Result<SessionPage, StoreError> {
        self.in_own_process()?;
        let limit = limit.min(LINEAGE_PAGE as u32);
        self.readers
            .read(move |reading| {
                let word = lifecycle.map(|lifecycle| lifecycle.as_str());
                let before = before.map(|cursor| cursor.0);
                let mut rows = rows::sessions(&reading.connection, before, word, limit + 1)?;
                let more = rows.len() > limit as usize;
                rows.truncate(limit as usize);
                let last = rows.last().map(|(number, ..)| SessionCursor(*number));
                let heads = rows
                    .into_iter()
                    .map(|(_, head, created_at)| ListedSession { head, created_at })
                    .collect();
                Ok(SessionPage {
                    heads,
                    next_before: last.filter(|_| more),
                })
            })
            .await
    }

    /// Takes no more requests, finishes those that are queued, and returns once every connection is closed.
    ///
    /// Requests that come later fail with `persistence_failed`, so nothing was written. Repeats, also at the same time,
    /// give the same receipt. A reader that is dropped instead of closed may leave `-wal` and `-shm` beside the file for
    /// a moment; after this they are gone unless another process has the file open.
    ///
    /// # Cancel safety
    /// The store closes all the same; asking again waits for the rest.
    pub async fn close(&self) -> CloseReceipt {
        let closed = self.closed.get_or_init(|| async {
            if let Some(writer) = &self.writer {
                writer.shut();
            }
            self.readers.shut();
            self.closing.finished().await
        });
        *closed.await
    }

    fn in_own_process(&self) -> Result<(), StoreError> {
        if self.process == std::process::id() {
            Ok(())
        } else {
            Err(StoreError::PersistenceFailed {
                operation: "use a connection",
                detail: "it was opened in another process".into(),
            })
        }
    }

    /// Queues a request; once queued it is carried out whether or not its caller still waits.
    async fn write(&self, work: Work) -> Result<Answer, StoreError> {
        self.in_own_process()?;
        let Some(writer) = &self.writer else {
            if self.writer_min <= crate::migrations::STORE_SCHEMA {
                return Err(StoreError::PersistenceFailed {
                    operation: "write",
                    detail: "the store is open for reading only".into(),
                });
            }
            return Err(StoreError::StoreSchemaNewer {
                needed: self.writer_min.into(),
                known: crate::migrations::STORE_SCHEMA.into(),
            });
        };
        let gone = || StoreError::PersistenceFailed {
            operation: "write",
            detail: "the writer is gone".into(),
        };
        let (reply, answer) = oneshot::channel();
        writer
            .sender()?
            .send(Request { work, reply })
            .await
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A place in the list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCursor(i64);

/// One line of the list of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedSession {
    /// The session's head.
    pub head: Head,
    /// When the session was made; evidence, never order (SES-6).
    pub created_at: Timestamp,
}

/// One page of the list of sessions, newest session first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionPage {
    /// The heads.
    pub heads: Vec<ListedSession>,
    /// The cursor of the next page; none when this page reached the oldest session.
    pub next_before: Option<SessionCursor>,
}

/// An answer of another kind than was asked for cannot happen: the writer answers each kind of work with its own.
fn mismatched() -> StoreError {
    StoreError::PersistenceFailed {
        operation: "write",
        detail: "the writer answered another question".into(),
    }
}

#[async_trait]
impl CheckpointStore for SqliteStore {
    fn capabilities(&self) -> &StoreCapabilities {
        &self.capabilities
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        match self.write(Work::Commit(commit)).await? {
            Answer::Receipt(receipt) => Ok(receipt),
            _ => Err(mismatched()),
        }
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        self.in_own_process()?;
        let snapshot = snapshot.clone();
        self.readers
            .read_fresh(move |reading| {
                let keys = reading.keys()?;
                Ok(
                    match rows::recorded(&reading.connection, &keys, &snapshot, STORE_KIND)? {
                        None => Resolved::NotCommitted,
                        Some(mut recorded) => {
                            recorded.receipt.replayed = true;
                            Resolved::Committed(recorded.receipt)
                        }
                    },
                )
            })
            .await
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        self.in_own_process()?;
        let session = session.clone();
        self.readers
            .read(move |reading| rows::head(&reading.connection, &session))
            .await
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        self.in_own_process()?;
        let snapshot = snapshot.clone();
        self.readers
            .read(move |reading| {
                let keys = reading.keys()?;
                let Some((stored, _)) = rows::snapshot(&reading.connection, &keys, &snapshot)?
                else {
                    return Ok(None);
                };
                stored.verified()?;
                Ok(Some(stored))
            })
            .await
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        self.in_own_process()?;
        if page.limit() == 0 {
            return Ok(LineagePage::default());
        }
        let session = session.clone();
        self.readers
            .read(move |reading| {
                let limit = page.limit();
                let mut entries = rows::lineage(
                    &reading.connection,
                    &session,
                    page.before_generation(),
                    limit + 1,
                )?;
                let more = entries.len() > limit as usize;
                entries.truncate(limit as usize);
                let next_before_generation = if more {
                    entries.last().map(|entry| entry.generation)
                } else {
                    None
                };
                Ok(LineagePage {
                    entries,
                    next_before_generation,
                })
            })
            .await
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
impl ChunkAccess for SqliteStore {
    async fn get_chunks(
        &self,
        snapshot: &SnapshotId,
        digests: &[Digest],
    ) -> Result<Vec<Chunk>, StoreError> {
        self.in_own_process()?;
        if digests.len() > CHUNKS_PER_READ {
            return Err(StoreError::SizeLimitExceeded {
                what: "chunks of one read",
                limit: CHUNKS_PER_READ as u64,
                actual: digests.len() as u64,
            });
        }
        let snapshot = snapshot.clone();
        let digests = digests.to_vec();
        self.readers
            .read(move |reading| {
                let keys = &*reading.keys()?;
                let family =
                    rows::family_of(&reading.connection, keys, &snapshot)?.ok_or_else(|| {
                        StoreError::SnapshotNotFound {
                            snapshot: snapshot.clone(),
                        }
                    })?;
                digests
                    .iter()
                    .map(|digest| {
                        rows::required_chunk(&reading.connection, keys, family, digest)
                            .map_err(|error| error.in_snapshot(&snapshot))
                    })
                    .collect()
            })
            .await
    }

    async fn verify(
        &self,
        snapshot: &SnapshotId,
        depth: VerifyDepth,
    ) -> Result<Verification, StoreError> {
        self.in_own_process()?;
        let snapshot = snapshot.clone();
        self.readers
            .read(move |reading| verify::verify(reading, &snapshot, depth))
            .await
    }
}

#[async_trait]
impl Fork for SqliteStore {
    async fn fork(&self, request: Arc<ForkRequest>) -> Result<ForkReceipt, StoreError> {
        match self.write(Work::Fork(request)).await? {
            Answer::Fork(receipt) => Ok(receipt),
            _ => Err(mismatched()),
        }
    }

    async fn get(&self, operation: &ForkOperationId) -> Result<Option<ForkReceipt>, StoreError> {
        self.in_own_process()?;
        let operation = operation.clone();
        self.readers
            .read(move |reading| fork_receipt(&reading.connection, &operation))
            .await
    }
}

#[async_trait]
impl Inbox for SqliteStore {
    async fn append(
        &self,
        session: &SessionId,
        entry: InboxAppend,
    ) -> Result<InboxReceipt, StoreError> {
        match self
            .write(Work::Append(session.clone(), Arc::new(entry)))
            .await?
        {
            Answer::Inbox(receipt) => Ok(receipt),
            _ => Err(mismatched()),
        }
    }

    async fn take(&self, session: &SessionId, limit: u32) -> Result<Vec<InboxEntry>, StoreError> {
        self.in_own_process()?;
        let session = session.clone();
        self.readers
            .read(move |reading| {
                rows::waiting_entries(
                    &reading.connection,
                    &session,
                    limit.min(LINEAGE_PAGE as u32),
                )
            })
            .await
    }
}
