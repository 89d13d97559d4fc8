//! A session whose commits are made up: what a test of a checkpoint store commits.

use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::checkpoint::fork::ForkChild;
use qitos_contracts::checkpoint::{
    Commit, CommitRequest, Expected, ForkBoundary, ForkRequest, StoreError,
};
use qitos_contracts::clock::Timestamp;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{
    CheckpointId, ForkOperationId, RunId, SessionId, SnapshotId, WorkAttemptId, WorkItemId,
};
use qitos_contracts::snapshot::{
    ComponentSpec, EnvelopeHeader, Lifecycle, ParentRef, ResolverReferences, SnapshotWriter, Timing,
};
use serde_json::{Value, json};

/// Makes the commits of one session, one after the other, with all required components.
///
/// Every request stands on the one before, as if that had been persisted; a clone taken before a request stands where the
/// original stood, so two clones make commits that conflict. The same seed gives the same bytes.
#[derive(Clone, Debug)]
pub struct ScriptedSession {
    seed: u64,
    drawn: u64,
    writer: SnapshotWriter,
    session_id: SessionId,
    run_id: RunId,
    work_item_id: WorkItemId,
    clock: i64,
    last: Option<Last>,
}

#[derive(Clone, Debug)]
struct Last {
    expected: Expected,
    parent: ParentRef,
}

const STARTED: i64 = 1_767_225_600_000_000;

impl ScriptedSession {
    /// A session that does not exist yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut session = ScriptedSession {
            seed,
            drawn: 0,
            writer: SnapshotWriter::new(),
            session_id: SessionId::derived(&Digest::ZERO),
            run_id: RunId::derived(&Digest::ZERO),
            work_item_id: WorkItemId::derived(&Digest::ZERO),
            clock: STARTED,
            last: None,
        };
        session.session_id = SessionId::derived(&session.draw("session"));
        session.run_id = RunId::derived(&session.draw("run"));
        session.work_item_id = WorkItemId::derived(&session.draw("work_item"));
        session
    }

    fn draw(&mut self, kind: &str) -> Digest {
        self.drawn += 1;
        Digest::of(format!("{kind} {} {}", self.seed, self.drawn).as_bytes())
    }

    /// From here on other ids are drawn: a clone that diverges makes snapshots of its own.
    #[must_use]
    pub fn diverging(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The session.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// The run in whose name commits are made.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// The head that the next request expects.
    #[must_use]
    pub fn expected(&self) -> Option<&Expected> {
        self.last.as_ref().map(|last| &last.expected)
    }

    /// The last snapshot, as a child names it.
    #[must_use]
    pub fn parent(&self) -> Option<&ParentRef> {
        self.last.as_ref().map(|last| &last.parent)
    }

    /// Takes the session over: later commits are made by a new run.
    pub fn claim(&mut self) {
        self.run_id = RunId::derived(&self.draw("run"));
    }

    /// The next request: one more log item holding `text`, and the small components.
    ///
    /// # Errors
    /// Those of the snapshot writer, such as `size_limit_exceeded`.
    pub fn request(
        &mut self,
        lifecycle: Lifecycle,
        text: &str,
    ) -> Result<CommitRequest, StoreError> {
        let generation = self
            .last
            .as_ref()
            .map_or(0, |last| last.expected.generation + 1);
        self.fill(lifecycle, generation, text)?;
        self.clock += 1_000;
        let snapshot_id = SnapshotId::derived(&self.draw("snapshot"));
        let checkpoint_id = CheckpointId::derived(&self.draw("checkpoint"));
        let sealed = self.writer.seal(&EnvelopeHeader {
            snapshot_id: snapshot_id.clone(),
            session_id: self.session_id.clone(),
            head_generation: generation,
            lifecycle,
            created_at: Timestamp::from_micros(STARTED),
            timing: Timing::captured(Timestamp::from_micros(self.clock)),
            resolver_references: ResolverReferences::none(),
            artifact_refs: Vec::new(),
            parent: self.last.as_ref().map(|last| last.parent.clone()),
        })?;
        let expected = self.last.take().map(|last| last.expected);
        self.last = Some(Last {
            expected: Expected {
                generation,
                checkpoint_id: checkpoint_id.clone(),
                owner_run_id: self.run_id.clone(),
            },
            parent: ParentRef {
                snapshot_id: snapshot_id.clone(),
                checkpoint_id: checkpoint_id.clone(),
                root_digest: sealed.root_digest,
            },
        });
        Ok(CommitRequest {
            session_id: self.session_id.clone(),
            snapshot_id,
            checkpoint_id,
            owner_run_id: self.run_id.clone(),
            lifecycle,
            expected,
            root: sealed.root,
            chunks: sealed.chunks,
            consumed_inbox: None,
        })
    }

    /// [`request`](ScriptedSession::request), checked.
    ///
    /// # Errors
    /// Those of `request`.
    pub fn commit(&mut self, lifecycle: Lifecycle, text: &str) -> Result<Arc<Commit>, StoreError> {
        Commit::new(self.request(lifecycle, text)?).map(Arc::new)
    }

    /// A fork from the last snapshot, and the session of its child, which stands after the child's first commit.
    ///
    /// # Errors
    /// `session_not_found` before the first request; those of `request`.
    pub fn fork(
        &self,
        operation: &ForkOperationId,
    ) -> Result<(ForkRequest, ScriptedSession), StoreError> {
        let Some(last) = &self.last else {
            return Err(StoreError::SessionNotFound {
                session: self.session_id.clone(),
            });
        };
        let ids = ForkChild::of(operation);
        let mut child = self.clone().diverging(self.seed ^ 0x5bd1_e995);
        child.session_id = ids.session_id;
        child.run_id = ids.run_id;
        child.work_item_id = ids.work_item_id.clone();
        child.last = None;
        let child_commit = Commit::new(child.request(Lifecycle::Paused, "forked")?)?;
        let request = ForkRequest {
            operation_id: operation.clone(),
            source_session_id: self.session_id.clone(),
            source_snapshot_id: last.parent.snapshot_id.clone(),
            source_checkpoint_id: last.parent.checkpoint_id.clone(),
            source_work_item_id: self.work_item_id.clone(),
            child_work_item_id: ids.work_item_id,
            child_attempt_id: ids.attempt_id,
            child_commit,
            boundary: ForkBoundary::Resting,
        };
        Ok((request, child))
    }

    fn fill(
        &mut self,
        lifecycle: Lifecycle,
        generation: u64,
        text: &str,
    ) -> Result<(), StoreError> {
        let attempt = WorkAttemptId::derived(&Digest::of(self.run_id.as_str().as_bytes()));
        let writer = &mut self.writer;
        if generation == 0 {
            writer.replace(
                &ComponentSpec::AGENT_STATE,
                bytes(
                    &json!({"agent_id": "scripted", "state": {}, "state_schema": "scripted/v1"}),
                )?,
            )?;
            writer.replace(
                &ComponentSpec::BUDGET_CAPABILITY,
                bytes(&json!({"max_steps": 100, "max_tool_calls": null}))?,
            )?;
            writer.replace(&ComponentSpec::TOOL_BATCH, bytes(&json!({"batch": null}))?)?;
            writer.map_blob(
                &ComponentSpec::ENGINE_PROGRESS,
                "/task",
                bytes(&json!({"text": "a task"}))?.into(),
            )?;
            writer.map_rest(
                &ComponentSpec::CONVERSATION,
                bytes(&json!({"log_schema": "qitos.exchange_log/v3"}))?,
            )?;
        }
        writer.map_rest(
            &ComponentSpec::ENGINE_PROGRESS,
            bytes(&json!({"lifecycle": lifecycle.as_str(), "next_step": generation}))?,
        )?;
        writer.replace(
            &ComponentSpec::TRACE_LINEAGE,
            bytes(&json!({
                "parent_run_id": null,
                "run_id": self.run_id.as_str(),
                "trace_complete": true
            }))?,
        )?;
        writer.replace(
            &ComponentSpec::FORK_LINEAGE,
            bytes(&json!({
                "attempt_id": attempt.to_object(),
                "work_item_id": self.work_item_id.to_object()
            }))?,
        )?;
        writer.append(
            &ComponentSpec::CONVERSATION,
            "/exchange_log/items",
            [bytes(&json!({"generation": generation, "text": text}))?],
        )?;
        Ok(())
    }
}

fn bytes(value: &Value) -> Result<Vec<u8>, StoreError> {
    canonical_json::to_bytes(value).map_err(|_| StoreError::Undecodable {
        code: "corrupt_snapshot",
    })
}
