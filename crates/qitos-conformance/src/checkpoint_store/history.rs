//! Sessions for checks: valid commits one after the other, every identity derived from a name.
//!
//! A history is a writer's belief. Cloning it before a commit makes a stale writer; changing the request it builds
//! makes one that lies. The same name gives the same bytes in every process.

use qitos_contracts::checkpoint::{
    Commit, CommitRequest, Expected, ForkBoundary, ForkRequest, Head, Receipt, StoredSnapshot,
};
use qitos_contracts::clock::Timestamp;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{
    CheckpointId, ForkOperationId, RunId, SessionId, SnapshotId, WorkAttemptId, WorkItemId,
};
use qitos_contracts::snapshot::{
    ComponentSpec, EnvelopeHeader, FlatComponent, FlatSnapshot, Lifecycle, LogCut, ParentRef,
    ResolverReferences, SnapshotError, SnapshotWriter, Timing,
};

use crate::check::{Failure, Verdict};

/// The log that grows with each step.
pub(super) const ITEMS: &str = "/exchange_log/items";
/// 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600_000_000;

fn broken(error: &SnapshotError) -> Failure {
    Failure::new(format!("the suite could not build a snapshot: {error}"))
}

/// One commit to be built.
#[derive(Clone, Debug)]
pub(super) struct Step {
    lifecycle: Lifecycle,
    items: Vec<Vec<u8>>,
    generated: u64,
    generated_bytes: usize,
    salt: String,
    snapshot: Option<SnapshotId>,
    parent_digest: Option<Digest>,
    consumed_inbox: Option<u64>,
    state: Option<Vec<u8>>,
}

impl Step {
    /// A commit that leaves the session in this lifecycle.
    pub(super) fn to(lifecycle: Lifecycle) -> Self {
        Step {
            lifecycle,
            items: Vec::new(),
            generated: 0,
            generated_bytes: 32,
            salt: String::new(),
            snapshot: None,
            parent_digest: None,
            consumed_inbox: None,
            state: None,
        }
    }

    /// Appends this many generated items.
    pub(super) fn with_items(mut self, count: u64) -> Self {
        self.generated = count;
        self
    }

    /// How large a generated item is, about.
    pub(super) fn of_bytes(mut self, bytes: usize) -> Self {
        self.generated_bytes = bytes;
        self
    }

    /// Appends these canonical values.
    pub(super) fn with_raw_items(mut self, items: Vec<Vec<u8>>) -> Self {
        self.items = items;
        self
    }

    /// Replaces the agent's state by this canonical object.
    pub(super) fn with_state(mut self, state: Vec<u8>) -> Self {
        self.state = Some(state);
        self
    }

    /// Other ids than an unsalted commit at the same place.
    pub(super) fn salted(mut self, salt: &str) -> Self {
        self.salt = salt.into();
        self
    }

    /// Uses this snapshot id.
    pub(super) fn using_snapshot(mut self, snapshot: &SnapshotId) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// Names a parent with this root digest.
    pub(super) fn with_parent_digest(mut self, digest: Digest) -> Self {
        self.parent_digest = Some(digest);
        self
    }

    /// Consumes the inbox up to this sequence.
    pub(super) fn consuming(mut self, sequence: u64) -> Self {
        self.consumed_inbox = Some(sequence);
        self
    }
}

/// Where a session stood after one commit.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) snapshot_id: SnapshotId,
    pub(super) checkpoint_id: CheckpointId,
    pub(super) generation: u64,
    pub(super) owner_run_id: RunId,
    pub(super) lifecycle: Lifecycle,
    pub(super) root_digest: Digest,
    writer: SnapshotWriter,
}

/// A session as its owner sees it.
#[derive(Clone, Debug)]
pub(super) struct History {
    name: String,
    session: SessionId,
    owner: RunId,
    writer: SnapshotWriter,
    items: u64,
    position: Option<Position>,
    model: Model,
}

/// The content of the last built commit, kept plainly, for comparison with what a store gives back.
#[derive(Clone, Debug, Default)]
struct Model {
    header: Option<EnvelopeHeader>,
    state: Vec<u8>,
    progress: (u64, String),
    items: Vec<Vec<u8>>,
}

impl History {
    /// A session that was not created yet.
    pub(super) fn new(name: &str) -> Self {
        History {
            name: name.into(),
            session: SessionId::derived(&facts(&["session", name])),
            owner: RunId::derived(&facts(&["run", name, "first"])),
            writer: SnapshotWriter::new(),
            items: 0,
            position: None,
            model: Model::default(),
        }
    }

    /// A fork operation.
    pub(super) fn operation(name: &str) -> ForkOperationId {
        ForkOperationId::derived(&facts(&["fork", name]))
    }

    pub(super) fn session(&self) -> &SessionId {
        &self.session
    }

    pub(super) fn owner(&self) -> &RunId {
        &self.owner
    }

    /// The next commit is by another run, which expects the present owner.
    pub(super) fn change_owner(&mut self, name: &str) {
        self.owner = RunId::derived(&facts(&["run", &self.name, name]));
    }

    /// The next commit is by this run.
    pub(super) fn change_owner_silently(&mut self, owner: &RunId) {
        self.owner = owner.clone();
    }

    /// What the next ordinary commit is: a create, then running.
    pub(super) fn next_lifecycle(&self) -> Lifecycle {
        match self.position {
            None => Lifecycle::Created,
            Some(_) => Lifecycle::Running,
        }
    }

    /// Where the last built commit left the session.
    pub(super) fn position(&self) -> Result<Position, Failure> {
        self.position
            .clone()
            .ok_or_else(|| Failure::new("the session was not created"))
    }

    /// The same writer, believing the head that was read.
    pub(super) fn at(&self, head: &Head, stored: &StoredSnapshot) -> Result<Self, Failure> {
        let mut moved = self.clone();
        let mut position = self.position()?;
        position.snapshot_id = head.snapshot_id.clone();
        position.checkpoint_id = head.checkpoint_id.clone();
        position.generation = head.generation;
        position.owner_run_id = head.owner_run_id.clone();
        position.lifecycle = head.lifecycle;
        position.root_digest = stored.root_digest;
        moved.position = Some(position);
        Ok(moved)
    }

    /// Believes in a receipt, as after an unknown outcome was settled.
    pub(super) fn believes(&self, receipt: &Receipt) -> bool {
        self.position.as_ref().is_some_and(|position| {
            position.snapshot_id == receipt.snapshot_id && position.generation == receipt.generation
        })
    }

    /// Builds the next commit and believes that it will be persisted.
    pub(super) fn commit(&mut self, step: Step) -> Result<CommitRequest, Failure> {
        let generation = self
            .position
            .as_ref()
            .map_or(0, |position| position.generation + 1);
        self.write_components(&step)
            .map_err(|error| broken(&error))?;
        let identity = facts(&[
            "commit",
            &self.name,
            self.session.as_str(),
            &generation.to_string(),
            &step.salt,
        ]);
        let snapshot_id = step
            .snapshot
            .unwrap_or_else(|| SnapshotId::derived(&identity));
        let checkpoint_id = CheckpointId::derived(&identity);
        let parent = self.position.as_ref().map(|position| ParentRef {
            snapshot_id: position.snapshot_id.clone(),
            checkpoint_id: position.checkpoint_id.clone(),
            root_digest: step.parent_digest.unwrap_or(position.root_digest),
        });
        let header = self.header(snapshot_id.clone(), generation, step.lifecycle, parent);
        let sealed = self.writer.seal(&header).map_err(|error| broken(&error))?;
        self.model.header = Some(header);
        let expected = self.position.as_ref().map(|position| Expected {
            generation: position.generation,
            checkpoint_id: position.checkpoint_id.clone(),
            owner_run_id: position.owner_run_id.clone(),
        });
        self.position = Some(Position {
            snapshot_id: snapshot_id.clone(),
            checkpoint_id: checkpoint_id.clone(),
            generation,
            owner_run_id: self.owner.clone(),
            lifecycle: step.lifecycle,
            root_digest: sealed.root_digest,
            writer: self.writer.clone(),
        });
        Ok(CommitRequest {
            session_id: self.session.clone(),
            snapshot_id,
            checkpoint_id,
            owner_run_id: self.owner.clone(),
            lifecycle: step.lifecycle,
            expected,
            root: sealed.root,
            chunks: sealed.chunks,
            consumed_inbox: step.consumed_inbox,
        })
    }

    /// A fork of the snapshot the session stands at.
    pub(super) fn fork_here(&self, operation: &ForkOperationId) -> Result<ForkRequest, Failure> {
        self.fork_at(&self.position()?, operation)
    }

    /// A fork of an older snapshot.
    pub(super) fn fork_at(
        &self,
        source: &Position,
        operation: &ForkOperationId,
    ) -> Result<ForkRequest, Failure> {
        let (request, _) = self.build_child(source, operation)?;
        let child_commit = Commit::new(request)
            .map_err(|error| Failure::new(format!("a valid fork child was refused: {error}")))?;
        Ok(ForkRequest {
            operation_id: operation.clone(),
            source_session_id: self.session.clone(),
            source_snapshot_id: source.snapshot_id.clone(),
            source_checkpoint_id: source.checkpoint_id.clone(),
            source_work_item_id: WorkItemId::derived(&facts(&["work", &self.name])),
            child_work_item_id: WorkItemId::derived(&facts(&["work", operation.as_str()])),
            child_attempt_id: WorkAttemptId::derived(&facts(&["attempt", operation.as_str()])),
            child_commit,
            boundary: ForkBoundary::Resting,
        })
    }

    /// The child of a fork of the present position, as its owner sees it.
    pub(super) fn child_of(&self, request: &ForkRequest) -> Result<Self, Failure> {
        let (_, child) = self.build_child(&self.position()?, &request.operation_id)?;
        Ok(child)
    }

    fn build_child(
        &self,
        source: &Position,
        operation: &ForkOperationId,
    ) -> Result<(CommitRequest, History), Failure> {
        let mut child = History::new(operation.as_str());
        child.writer = source.writer.clone();
        child.items = self.items;
        let lineage = format!(
            "{{\"source_snapshot_id\":\"{}\",\"work_item_id\":\"{operation}\"}}",
            source.snapshot_id
        );
        child
            .writer
            .replace(&ComponentSpec::FORK_LINEAGE, lineage.into_bytes())
            .map_err(|error| broken(&error))?;
        let request = child.commit(Step::to(Lifecycle::Paused))?;
        Ok((request, child))
    }

    /// The flat snapshot of the last built commit; only for histories of raw items.
    pub(super) fn flat(&self) -> Result<FlatSnapshot, Failure> {
        let header = self
            .model
            .header
            .as_ref()
            .ok_or_else(|| Failure::new("the session was not created"))?;
        let mut conversation = b"{\"exchange_log\":{\"items\":[".to_vec();
        conversation.extend_from_slice(&self.model.items.join(&b","[..]));
        conversation.extend_from_slice(b"]},\"log_chain\":\"\"}");
        let (next_step, salt) = &self.model.progress;
        let progress = format!(
            "{{\"next_step\":{next_step},\"salt\":\"{salt}\",\"task\":{{\"objective\":\"{}\"}}}}",
            self.session
        );
        let empty = || b"{}".to_vec();
        let components = vec![
            FlatComponent::new(&ComponentSpec::AGENT_STATE, self.model.state.clone()),
            FlatComponent::new(&ComponentSpec::BUDGET_CAPABILITY, empty()),
            FlatComponent::new(&ComponentSpec::TOOL_BATCH, empty()),
            FlatComponent::new(&ComponentSpec::TRACE_LINEAGE, empty()),
            FlatComponent::new(&ComponentSpec::CONVERSATION, conversation),
            FlatComponent::new(&ComponentSpec::ENGINE_PROGRESS, progress.into_bytes()),
        ];
        Ok(FlatSnapshot::new(header, Vec::new(), components))
    }

    /// Begins to cut the items' log after its first `keep`.
    pub(super) fn begin_cut(&self, keep: u64) -> Result<LogCut, Failure> {
        self.writer
            .begin_cut(&ComponentSpec::CONVERSATION, ITEMS, keep)
            .map_err(|error| broken(&error))
    }

    /// Goes on with the cut log.
    pub(super) fn apply_cut(&mut self, cut: LogCut) -> Verdict {
        self.writer
            .apply_cut(&ComponentSpec::CONVERSATION, ITEMS, cut)
            .map_err(|error| broken(&error))
    }

    fn write_components(&mut self, step: &Step) -> Result<(), SnapshotError> {
        let writer = &mut self.writer;
        if self.position.is_none()
            && writer
                .log_count(&ComponentSpec::CONVERSATION, ITEMS)
                .is_none()
        {
            for spec in [
                ComponentSpec::AGENT_STATE,
                ComponentSpec::BUDGET_CAPABILITY,
                ComponentSpec::TOOL_BATCH,
                ComponentSpec::TRACE_LINEAGE,
            ] {
                writer.replace(&spec, b"{}".to_vec())?;
            }
            writer.map_rest(
                &ComponentSpec::CONVERSATION,
                b"{\"log_chain\":\"\"}".to_vec(),
            )?;
            writer.append::<&[u8]>(&ComponentSpec::CONVERSATION, ITEMS, [])?;
            self.model.state = b"{}".to_vec();
            let task = format!("{{\"objective\":\"{}\"}}", self.session);
            writer.map_blob(
                &ComponentSpec::ENGINE_PROGRESS,
                "/task",
                task.into_bytes().into(),
            )?;
        }
        let generation = self
            .position
            .as_ref()
            .map_or(0, |position| position.generation + 1);
        let progress = format!("{{\"next_step\":{generation},\"salt\":\"{}\"}}", step.salt);
        writer.map_rest(&ComponentSpec::ENGINE_PROGRESS, progress.into_bytes())?;
        self.model.progress = (generation, step.salt.clone());
        if let Some(state) = &step.state {
            writer.replace(&ComponentSpec::AGENT_STATE, state.clone())?;
            self.model.state.clone_from(state);
        }
        for item in &step.items {
            writer.append(&ComponentSpec::CONVERSATION, ITEMS, [item])?;
            self.model.items.push(item.clone());
        }
        for _ in 0..step.generated {
            let item = generated_item(self.items, step.generated_bytes);
            writer.append(&ComponentSpec::CONVERSATION, ITEMS, [item])?;
            self.items += 1;
        }
        Ok(())
    }

    fn header(
        &self,
        snapshot_id: SnapshotId,
        generation: u64,
        lifecycle: Lifecycle,
        parent: Option<ParentRef>,
    ) -> EnvelopeHeader {
        let seconds = i64::try_from(generation).unwrap_or(i64::MAX / 2_000_000);
        let at = Timestamp::from_micros(EPOCH + seconds.saturating_mul(1_000_000));
        let timing = Timing {
            captured_at: at,
            pause_requested_at: Some(at),
            safe_boundary_at: Some(at),
        };
        EnvelopeHeader {
            snapshot_id,
            session_id: self.session.clone(),
            head_generation: generation,
            lifecycle,
            created_at: Timestamp::from_micros(EPOCH),
            timing: timing.of(lifecycle),
            resolver_references: ResolverReferences::none(),
            artifact_refs: Vec::new(),
            parent,
        }
    }
}

fn generated_item(number: u64, bytes: usize) -> Vec<u8> {
    let text: String = "conformance "
        .chars()
        .cycle()
        .take(bytes.saturating_sub(24))
        .collect();
    format!("{{\"i\":{number},\"text\":\"{text}\"}}").into_bytes()
}

fn facts(parts: &[&str]) -> Digest {
    let text = parts.join("\n");
    Digest::of(text.as_bytes())
}
