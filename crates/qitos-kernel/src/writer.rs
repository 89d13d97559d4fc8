//! The one writer of a session's head: snapshot, compare-and-set, unknown outcomes, fencing.
//!
//! The machine never sees commit ids or conflicts; this is where they live. Expectations come from the last
//! receipt alone, never from a fresh read (SES-30).

use std::sync::Arc;

use qitos_contracts::checkpoint::{
    CheckpointStore, Commit, CommitRequest, Expected, Receipt, Resolved, SessionError,
    SessionErrorCode, StoreError,
};
use qitos_contracts::clock::{Clock, IdSource, Timestamp};
use qitos_contracts::ids::{CheckpointId, RunId, SessionId, SnapshotId};
use qitos_contracts::snapshot::{
    EnvelopeHeader, ParentRef, ResolverReferences, SnapshotError, SnapshotWriter, Timing,
};

use crate::components::{self, Capture, CaptureError};
use crate::machine::state::Durable;
use crate::machine::{Delta, Machine, unresolved_effects};

/// Commits the state of one session, one snapshot after the other.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Arc<dyn CheckpointStore>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    snapshot: SnapshotWriter,
    fixed: Capture,
    session: SessionId,
    created_at: Timestamp,
    references: ResolverReferences,
    last: Option<Receipt>,
    /// Whole components are due: the first commit, or a new owner.
    whole: bool,
    /// Highest inbox sequence taken and not yet committed.
    consumed_inbox: Option<u64>,
    pause_requested_at: Option<Timestamp>,
}

/// What a writer stands on.
#[derive(Debug)]
pub(crate) struct WriterParts {
    pub(crate) store: Arc<dyn CheckpointStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) fixed: Capture,
    pub(crate) session: SessionId,
    pub(crate) created_at: Timestamp,
    pub(crate) references: ResolverReferences,
}

impl Writer {
    /// A writer for a session that has no head yet.
    pub(crate) fn create(parts: WriterParts) -> Self {
        Writer::new(parts, SnapshotWriter::new(), None)
    }

    /// A writer that goes on from what a restore read; its first commit is the claim.
    pub(crate) fn claim(parts: WriterParts, snapshot: SnapshotWriter, read: Receipt) -> Self {
        Writer::new(parts, snapshot, Some(read))
    }

    fn new(parts: WriterParts, snapshot: SnapshotWriter, last: Option<Receipt>) -> Self {
        Writer {
            store: parts.store,
            clock: parts.clock,
            ids: parts.ids,
            snapshot,
            fixed: parts.fixed,
            session: parts.session,
            created_at: parts.created_at,
            references: parts.references,
            last,
            whole: true,
            consumed_inbox: None,
            pause_requested_at: None,
        }
    }

    /// The last receipt; every expectation comes from it.
    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.last.as_ref()
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn CheckpointStore> {
        &self.store
    }

    /// Notes that inbox entries up to `sequence` are part of the next commit (SES-63).
    pub(crate) fn consume_inbox(&mut self, sequence: u64) {
        self.consumed_inbox = self.consumed_inbox.max(Some(sequence));
    }

    /// Notes when a pause was asked for.
    pub(crate) fn note_pause(&mut self) {
        self.pause_requested_at
            .get_or_insert_with(|| self.clock.now());
    }

    /// Commits what changed and gives the receipt; nothing that depends on it may happen before.
    ///
    /// # Errors
    /// The session-level code; the durable head is whatever the code says, the lifecycle stays (SES-11).
    pub(crate) async fn commit(
        &mut self,
        machine: &Machine,
        delta: &Delta,
    ) -> Result<Receipt, SessionError> {
        let durable = machine.durable();
        let unresolved = unresolved_effects(machine);
        components::capture(
            &mut self.snapshot,
            &self.fixed,
            durable,
            unresolved,
            delta,
            self.whole,
        )
        .map_err(capture_failed)?;
        let commit = Arc::new(self.seal(durable)?);
        let receipt = self.settle(&commit, &durable.run).await?;
        self.whole = false;
        self.consumed_inbox = None;
        if matches!(
            durable.lifecycle,
            qitos_contracts::snapshot::Lifecycle::Paused
        ) {
            self.pause_requested_at = None;
        }
        self.last = Some(receipt.clone());
        Ok(receipt)
    }

    fn seal(&mut self, durable: &Durable) -> Result<Commit, SessionError> {
        let snapshot_id = SnapshotId::generate(&*self.ids);
        let checkpoint_id = CheckpointId::generate(&*self.ids);
        let now = self.clock.now();
        let timing = Timing {
            captured_at: now,
            pause_requested_at: Some(self.pause_requested_at.unwrap_or(now)),
            safe_boundary_at: Some(now),
        };
        let header = EnvelopeHeader {
            snapshot_id: snapshot_id.clone(),
            session_id: self.session.clone(),
            head_generation: self.last.as_ref().map_or(0, |last| last.generation + 1),
            lifecycle: durable.lifecycle,
            created_at: self.created_at,
            timing: timing.of(durable.lifecycle),
            resolver_references: self.references.clone(),
            artifact_refs: Vec::new(),
            parent: self.last.as_ref().map(|last| ParentRef {
                snapshot_id: last.snapshot_id.clone(),
                checkpoint_id: last.checkpoint_id.clone(),
                root_digest: last.root_digest,
            }),
        };
        let sealed = self.snapshot.seal(&header).map_err(snapshot_failed)?;
        let expected = self.last.as_ref().map(|last| Expected {
            generation: last.generation,
            checkpoint_id: last.checkpoint_id.clone(),
            owner_run_id: last.owner_run_id.clone(),
        });
        Commit::new(CommitRequest {
            session_id: self.session.clone(),
            snapshot_id,
            checkpoint_id,
            owner_run_id: durable.run.clone(),
            lifecycle: durable.lifecycle,
            expected,
            root: sealed.root,
            chunks: sealed.chunks,
            consumed_inbox: self.consumed_inbox,
        })
        .map_err(SessionError::from)
    }

    /// Sends the commit until its outcome is known; the identical request may be sent any number of times (STO-5).
    async fn settle(&self, commit: &Arc<Commit>, run: &RunId) -> Result<Receipt, SessionError> {
        const TRIES: u32 = 3;
        let mut failed = None;
        for _ in 0..TRIES {
            match self.store.commit(Arc::clone(commit)).await {
                Ok(receipt) => return Ok(receipt),
                Err(StoreError::CommitOutcomeUnknown { .. }) => {
                    // STO-6: a fresh connection tells before anything else is done.
                    match self.store.resolve(commit.snapshot_id()).await {
                        Ok(Resolved::Committed(receipt)) => return Ok(receipt),
                        Ok(Resolved::NotCommitted) => {}
                        Err(error) => failed = Some(error),
                    }
                }
                Err(
                    error @ (StoreError::GenerationConflict { .. }
                    | StoreError::CheckpointConflict { .. }
                    | StoreError::OwnerConflict),
                ) => return self.classify(commit, run, error).await,
                Err(error) => return Err(error.into()),
            }
        }
        let unknown = SessionErrorCode::CommitOutcomeUnknown;
        Err(failed.map_or_else(
            || SessionError::new(unknown, "the outcome of the commit is not known"),
            SessionError::from,
        ))
    }

    /// After a conflict the head is read once, to say which one it is (SES-31).
    async fn classify(
        &self,
        commit: &Arc<Commit>,
        run: &RunId,
        error: StoreError,
    ) -> Result<Receipt, SessionError> {
        match self.store.head(&self.session).await {
            Ok(Some(head)) if head.snapshot_id == *commit.snapshot_id() => {
                match self.store.resolve(commit.snapshot_id()).await {
                    Ok(Resolved::Committed(receipt)) => Ok(receipt),
                    _ => Err(error.into()),
                }
            }
            Ok(Some(head)) if head.owner_run_id != *run => Err(SessionError::new(
                SessionErrorCode::SupersededOwner,
                "another run owns the session now; this handle writes nothing any more",
            )),
            Ok(_) => Err(error.into()),
            Err(_) => Err(error.into()),
        }
    }
}

fn capture_failed(error: CaptureError) -> SessionError {
    match error {
        CaptureError::Snapshot(error) => snapshot_failed(error),
        CaptureError::Canonical(_) => SessionError::new(
            SessionErrorCode::CorruptSnapshot,
            "a component cannot be written",
        ),
    }
}

fn snapshot_failed(error: SnapshotError) -> SessionError {
    SessionError::from(StoreError::from(error))
}
