//! The thread that owns the writer's connection: one transaction for whatever is queued (STO-7, STO-29).
//!
//! Requests come through a bounded channel and are answered through their own reply channel after COMMIT. A caller
//! that stops waiting changes nothing: the thread finishes or rolls back alone.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use qitos_contracts::checkpoint::{
    Commit, DurabilityClass, ForkReceipt, ForkRequest, InboxAppend, InboxReceipt, Receipt,
    StoreError,
};
use qitos_contracts::ids::{SessionId, SnapshotId};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::connection::Deadline;
use crate::fault_point::{Faults, InjectedFault, Point};
use crate::keys::Keys;
use crate::map_error::{engine_code, is_busy, map_error};
use crate::reference_cache::ReferenceCache;
use crate::transaction::{Applied, Context};

/// Requests that may wait for the writer; more wait with their callers.
pub(crate) const QUEUE: usize = 1_024;
/// Requests that share one transaction at most.
const GROUP_REQUESTS: usize = 256;
/// Bytes that requests of one transaction bring at most; a single larger request goes alone.
const GROUP_BYTES: u64 = 64 * 1024 * 1024;

/// Something to be written.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Commit(Arc<Commit>),
    Fork(Arc<ForkRequest>),
    Append(SessionId, Arc<InboxAppend>),
}

impl Work {
    fn bytes(&self) -> u64 {
        match self {
            Work::Commit(commit) => commit.sent_bytes(),
            Work::Fork(request) => request.child_commit.sent_bytes(),
            Work::Append(_, entry) => entry.payload().len() as u64,
        }
    }

    /// What to resolve when the outcome is unknown.
    fn unknown(&self) -> StoreError {
        let snapshot: Option<&SnapshotId> = match self {
            Work::Commit(commit) => Some(commit.snapshot_id()),
            Work::Fork(request) => Some(request.child_commit.snapshot_id()),
            Work::Append(..) => None,
        };
        match snapshot {
            Some(snapshot) => StoreError::CommitOutcomeUnknown {
                snapshot: snapshot.clone(),
            },
            // Appending again finds out by the item id.
            None => StoreError::PersistenceFailed {
                operation: "append",
                detail: "the outcome is unknown; append the same item again".into(),
            },
        }
    }
}

/// What was written, or found.
#[derive(Debug)]
pub(crate) enum Answer {
    Receipt(Receipt),
    Fork(ForkReceipt),
    Inbox(InboxReceipt),
}

type Outcome = Result<Answer, StoreError>;

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Outcome>,
}

/// The writer's state; lives on its own thread.
#[derive(Debug)]
pub(crate) struct Writer {
    /// None after an error at COMMIT: the connection's state is not known, so it is gone (STO-21).
    connection: Option<Connection>,
    class: DurabilityClass,
    busy_bound: Duration,
    references: ReferenceCache,
    keys: Keys,
    faults: Faults,
}

/// What became of a group.
enum Attempt {
    Settled(Vec<Outcome>),
    /// The engine rolled the whole transaction back; each request is tried alone.
    TransactionLost,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        class: DurabilityClass,
        busy_bound: Duration,
        faults: Faults,
    ) -> Self {
        Writer {
            connection: Some(connection),
            class,
            busy_bound,
            references: ReferenceCache::default(),
            keys: Keys::default(),
            faults,
        }
    }

    /// Serves until every sender is gone, then waits for the readers.
    ///
    /// The writer's connection closes last: only a connection that may write removes the log beside the file.
    pub(crate) fn serve(
        mut self,
        mut queue: mpsc::Receiver<Request>,
        readers: Vec<JoinHandle<()>>,
    ) {
        while let Some(first) = queue.blocking_recv() {
            let mut group = vec![first];
            let mut bytes = group
                .iter()
                .map(|request| request.work.bytes())
                .sum::<u64>();
            while group.len() < GROUP_REQUESTS && bytes < GROUP_BYTES {
                let Ok(next) = queue.try_recv() else { break };
                bytes = bytes.saturating_add(next.work.bytes());
                group.push(next);
            }
            self.run(group);
        }
        for reader in readers {
            // A reader that panicked is gone too.
            let _ = reader.join();
        }
    }

    fn run(&mut self, group: Vec<Request>) {
        let work: Vec<Work> = group.iter().map(|request| request.work.clone()).collect();
        let outcomes = match self.attempt_afresh(&work) {
            Attempt::Settled(outcomes) => outcomes,
            Attempt::TransactionLost => work
                .iter()
                .map(
                    |alone| match self.attempt_afresh(std::slice::from_ref(alone)) {
                        Attempt::Settled(mut outcomes) => {
                            outcomes.pop().unwrap_or_else(lost_outcome)
                        }
                        Attempt::TransactionLost => lost_outcome(),
                    },
                )
                .collect(),
        };
        for (request, outcome) in group.into_iter().zip(outcomes) {
            // A caller that went away has its answer in the store (STO-5, STO-6).
            let _ = request.reply.send(outcome);
        }
        self.faults.pass(Point::AfterReply);
    }

    /// Attempts, and forgets what a rollback may have taken back.
    fn attempt_afresh(&mut self, group: &[Work]) -> Attempt {
        let attempt = self.attempt(group);
        let kept =
            matches!(&attempt, Attempt::Settled(outcomes) if outcomes.iter().all(Result::is_ok));
        if !kept {
            self.keys.forget();
        }
        attempt
    }

    fn attempt(&mut self, group: &[Work]) -> Attempt {
        let Some(connection) = self.connection.take() else {
            let closed = StoreError::PersistenceFailed {
                operation: "commit",
                detail: "closed after an error at COMMIT; open the store again".into(),
            };
            return settled_alike(group, &closed);
        };
        self.faults.pass(Point::BeforeBegin);
        let began = Deadline::after(self.busy_bound).retry(|| run(&connection, "BEGIN IMMEDIATE"));
        if let Err(error) = began {
            self.connection = Some(connection);
            return settled_alike(group, &error);
        }
        self.faults.pass(Point::AfterBegin);
        let shared = group.len() > 1;
        let mut wrote = Vec::with_capacity(group.len());
        let mut outcomes = Vec::with_capacity(group.len());
        for work in group {
            let applied = self.apply_in_savepoint(&connection, work, shared);
            let lost = connection.is_autocommit();
            let (outcome, dirty) = match applied {
                Ok(applied) if !lost => (Ok(applied.answer), applied.wrote),
                Ok(_) => (lost_outcome(), false),
                Err(error) => (Err(error), false),
            };
            outcomes.push(outcome);
            wrote.push(dirty);
            if lost {
                self.connection = Some(connection);
                return if shared {
                    Attempt::TransactionLost
                } else {
                    Attempt::Settled(outcomes)
                };
            }
        }
        if !wrote.contains(&true) {
            // Nothing to make durable. If even this fails the connection goes, and with it the transaction.
            if connection.execute_batch("ROLLBACK").is_ok() {
                self.connection = Some(connection);
            }
            return Attempt::Settled(outcomes);
        }
        match self.finish(connection) {
            Finish::Durable => {}
            Finish::Nothing(error) => replace(&mut outcomes, &wrote, |_| error.clone(), group),
            Finish::Unknown => replace(&mut outcomes, &wrote, Work::unknown, group),
        }
        Attempt::Settled(outcomes)
    }

    /// COMMIT, and what its failure means (rows 13 and 14, STO-21).
    fn finish(&mut self, connection: Connection) -> Finish {
        let injected = self.faults.reached(Point::BeforeCommit);
        let committed = match injected {
            Some(InjectedFault::CommitErrorBefore) => {
                let _ = connection.execute_batch("ROLLBACK");
                return Finish::Unknown;
            }
            _ => run(&connection, "COMMIT"),
        };
        let Err(error) = committed else {
            if injected == Some(InjectedFault::CommitErrorAfter) {
                return Finish::Unknown;
            }
            self.connection = Some(connection);
            self.faults.pass(Point::AfterCommit);
            return Finish::Durable;
        };
        let full = engine_code(&error) == Some(rusqlite::ErrorCode::DiskFull);
        if !(is_busy(&error) || full) {
            // The connection is dropped: after a failed sync its next success would prove nothing.
            return Finish::Unknown;
        }
        // Neither a lock nor a full disk lets the commit record be written.
        if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
            return Finish::Unknown;
        }
        self.connection = Some(connection);
        Finish::Nothing(map_error("commit", &error))
    }

    fn apply_in_savepoint(
        &mut self,
        connection: &Connection,
        work: &Work,
        shared: bool,
    ) -> Result<Applied<Answer>, StoreError> {
        if !shared {
            return self.apply(connection, work);
        }
        let step = |sql: &str| run(connection, sql).map_err(|error| map_error("write", &error));
        step("SAVEPOINT request")?;
        let applied = self.apply(connection, work);
        if connection.is_autocommit() {
            return applied;
        }
        if applied.is_err() {
            // One request's conflict rolls back alone.
            step("ROLLBACK TO request")?;
            self.keys.forget();
        }
        step("RELEASE request")?;
        applied
    }

    fn apply(
        &mut self,
        connection: &Connection,
        work: &Work,
    ) -> Result<Applied<Answer>, StoreError> {
        let mut context = Context {
            connection,
            class: self.class,
            references: &mut self.references,
            keys: &mut self.keys,
            faults: &self.faults,
        };
        match work {
            Work::Commit(commit) => context
                .commit(commit)
                .map(|applied| applied.map(Answer::Receipt)),
            Work::Fork(request) => context
                .fork(request)
                .map(|applied| applied.map(Answer::Fork)),
            Work::Append(session, entry) => context
                .append(session, entry)
                .map(|applied| applied.map(Answer::Inbox)),
        }
    }
}

/// One statement of every transaction, parsed once.
fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

enum Finish {
    Durable,
    Nothing(StoreError),
    Unknown,
}

fn settled_alike(group: &[Work], error: &StoreError) -> Attempt {
    Attempt::Settled(group.iter().map(|_| Err(error.clone())).collect())
}

fn lost_outcome() -> Outcome {
    Err(StoreError::PersistenceFailed {
        operation: "commit",
        detail: "the engine rolled the transaction back".into(),
    })
}

/// What was true only after COMMIT gets the error of the COMMIT.
fn replace(
    outcomes: &mut [Outcome],
    wrote: &[bool],
    error: impl Fn(&Work) -> StoreError,
    group: &[Work],
) {
    for ((outcome, wrote), work) in outcomes.iter_mut().zip(wrote).zip(group) {
        if *wrote {
            *outcome = Err(error(work));
        }
    }
}
