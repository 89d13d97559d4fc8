//! Restoring a resting session and recovering one whose owner died (section 10).

use std::sync::Arc;

use qitos_contracts::checkpoint::{
    CheckpointStore, Head, Receipt, SessionError, SessionErrorCode, StoreError,
};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{RunId, SessionId, SnapshotId, WorkAttemptId};
use qitos_contracts::limits::CHUNKS_PER_READ;
use qitos_contracts::snapshot::{
    ComponentRegistry, ComponentSpec, Lifecycle, Read, Root, SnapshotError, SnapshotReader,
    SnapshotWriter,
};
use serde_json::Value;

use super::{Session, capture_of, invalid, now, session_error, writer_parts};
use crate::agent::Task;
use crate::components::{Payloads, Restored, read_durable};
use crate::engine::Engine;
use crate::machine::{Delta, Machine};
use crate::writer::Writer;

/// What a restore may accept.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreOptions {
    /// Go on under another configuration digest; budgets are then those of this engine (CFG-14).
    pub accept_config_change: bool,
    /// Go on although tools were added, as long as nothing open names a changed one (REG-8).
    pub additive_tools: bool,
}

/// When a session may be taken from an owner that did not let go of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Takeover {
    /// Once its lease has expired; needs a store with leases.
    #[default]
    WhenLeaseExpired,
    /// Now; fencing keeps the store safe either way (SES-32).
    Force,
}

impl Engine {
    /// Claims a paused or waiting session under a new run (SES-46).
    ///
    /// # Errors
    /// `session_not_found`, `invalid_lifecycle_operation`, `corrupt_snapshot` and the decoding codes,
    /// `config_digest_mismatch`, `resolver_type_mismatch` (also for other tools, with reason
    /// `tool_manifest_mismatch`), `generation_conflict` if somebody else claimed it first. Nothing is written before
    /// the claim (SES-49).
    ///
    /// # Cancel safety
    /// Dropping it before the claim means nothing happened, after it the session is `restoring` and can be
    /// recovered.
    ///
    /// # Durability
    /// The claim is durable when this returns.
    pub async fn restore(
        &self,
        session: &SessionId,
        options: RestoreOptions,
    ) -> Result<Session, SessionError> {
        let rests = |lifecycle| matches!(lifecycle, Lifecycle::Paused | Lifecycle::WaitingInput);
        self.claim(session, options, rests, "restore").await
    }

    /// Claims a session whose owner died (SES-52); what had begun and has no durable outcome is unknown.
    ///
    /// # Errors
    /// As [`restore`](Self::restore); `owner_active`; `unsupported_capability` for
    /// [`Takeover::WhenLeaseExpired`] on a store without leases.
    ///
    /// # Cancel safety
    /// As [`restore`](Self::restore).
    pub async fn recover(
        &self,
        session: &SessionId,
        takeover: Takeover,
        options: RestoreOptions,
    ) -> Result<Session, SessionError> {
        if takeover == Takeover::WhenLeaseExpired {
            let store = self.durable_store()?;
            let head = self.head_of(&store, session).await?;
            store.groups().leases().map_err(SessionError::from)?;
            let now_ms = self.0.clock.now().as_micros() / 1_000;
            if let Some(left) = head
                .lease_until_ms
                .map(|until| until - now_ms)
                .filter(|left| *left > 0)
            {
                return Err(session_error(
                    SessionErrorCode::OwnerActive,
                    "the owner's lease has not expired",
                )
                .with("remaining_ms", left));
            }
        }
        let stranded = |lifecycle| {
            matches!(
                lifecycle,
                Lifecycle::Created
                    | Lifecycle::Running
                    | Lifecycle::PauseRequested
                    | Lifecycle::Pausing
                    | Lifecycle::Restoring
            )
        };
        self.claim(session, options, stranded, "recover").await
    }

    pub(super) fn durable_store(&self) -> Result<Arc<dyn CheckpointStore>, SessionError> {
        self.0.store.clone().ok_or_else(|| {
            session_error(
                SessionErrorCode::UnsupportedCapability,
                "this engine has no store",
            )
        })
    }

    pub(super) async fn head_of(
        &self,
        store: &Arc<dyn CheckpointStore>,
        session: &SessionId,
    ) -> Result<Head, SessionError> {
        store.head(session).await?.ok_or_else(|| {
            session_error(
                SessionErrorCode::SessionNotFound,
                "the store has no session of this id",
            )
        })
    }

    async fn claim(
        &self,
        session: &SessionId,
        options: RestoreOptions,
        allowed: impl Fn(Lifecycle) -> bool,
        operation: &str,
    ) -> Result<Session, SessionError> {
        let parts = &self.0;
        let store = self.durable_store()?;
        let head = self.head_of(&store, session).await?;
        if !allowed(head.lifecycle) {
            return Err(invalid(operation, head.lifecycle));
        }
        let loaded = load(&*store, &head.snapshot_id).await?;
        let restored = loaded.restored;
        self.check_equipment(&restored, options)?;
        let state = parts
            .agent
            .load(&restored.state_schema, restored.state.clone())
            .map_err(|error| {
                session_error(
                    SessionErrorCode::ResolverTypeMismatch,
                    "the agent cannot take up the stored state",
                )
                .with("agent_code", error.code)
            })?;
        let task = task_of(&restored.task);
        let attempt = WorkAttemptId::generate(&*parts.ids);
        let mut fixed = capture_of(parts, &task, restored.work_item_id.clone(), attempt);
        fixed.parent_run = Some(restored.run.clone());
        fixed.fork_source.clone_from(&restored.fork_source);
        fixed.task = restored.task;
        fixed.engine_config = restored.engine_config;
        fixed.execution_options = restored.execution_options;
        if !options.accept_config_change {
            fixed.runtime_composition = restored.runtime_composition;
        }
        let mut durable = restored.durable;
        durable.run = RunId::generate(&*parts.ids);
        durable.owner_generation += 1;
        durable.lifecycle = Lifecycle::Restoring;
        if options.accept_config_change {
            durable.budget = parts.budget.clone();
        }
        let mut machine = Machine::from_durable(
            durable,
            parts.policy.clone(),
            !parts.critics.is_empty(),
            now(parts),
        );
        machine.now.active_ms = machine.durable.counters.active_ms;
        machine.recover(machine.now);
        let mut facts = writer_parts(parts, Arc::clone(&store), session.clone(), fixed);
        facts.created_at = loaded.root.created_at();
        facts.references = loaded.root.resolver_references().clone();
        let read = receipt_of(&head, &loaded.root, &*store);
        let mut writer = Writer::claim(facts, loaded.writer, read);
        let delta = machine.take_delta().unwrap_or_else(|| Delta {
            dirty: true,
            ..Delta::default()
        });
        writer.commit(&machine, &delta).await.map_err(lost_claim)?;
        Ok(Session::around(
            Arc::clone(parts),
            task,
            machine,
            Some(writer),
            state,
        ))
    }

    /// Steps 7 and 8: configuration, state, tools.
    fn check_equipment(
        &self,
        restored: &Restored,
        options: RestoreOptions,
    ) -> Result<(), SessionError> {
        let parts = &self.0;
        let stored = restored
            .runtime_composition
            .pointer("/launch_metadata/config_digest")
            .and_then(Value::as_str)
            .and_then(|text| text.parse::<Digest>().ok());
        if stored.is_some() && stored != parts.config_digest && !options.accept_config_change {
            let text = |digest: Option<Digest>| {
                digest.map_or_else(|| "none".to_owned(), |digest| digest.to_hex())
            };
            return Err(session_error(
                SessionErrorCode::ConfigDigestMismatch,
                "the session was made under another configuration",
            )
            .with("stored", text(stored))
            .with("given", text(parts.config_digest)));
        }
        if restored.agent_id != parts.agent.name() {
            return Err(session_error(
                SessionErrorCode::ResolverTypeMismatch,
                "the session belongs to another agent",
            ));
        }
        let same_tools = restored.manifest_digest == parts.registry.manifest_digest();
        if !same_tools && !options.additive_tools && !options.accept_config_change {
            return Err(session_error(
                SessionErrorCode::ResolverTypeMismatch,
                "the session was made with other tools",
            )
            .with("reason", "tool_manifest_mismatch")
            .with("stored", restored.manifest_digest.to_hex())
            .with("given", parts.registry.manifest_digest().to_hex()));
        }
        Ok(())
    }
}

/// Of N simultaneous claims one wins; the rest hear it in the session's words (SES-48).
fn lost_claim(error: SessionError) -> SessionError {
    match error.error_code {
        SessionErrorCode::SupersededOwner | SessionErrorCode::GenerationConflict => session_error(
            SessionErrorCode::GenerationConflict,
            "another process claimed the session first",
        ),
        _ => error,
    }
}

pub(super) fn task_of(task: &Value) -> Task {
    Task {
        objective: task
            .get("objective")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        metadata: task
            .get("metadata")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
    }
}

fn receipt_of(head: &Head, root: &Root, store: &dyn CheckpointStore) -> Receipt {
    let capabilities = store.capabilities();
    Receipt {
        session_id: head.session_id.clone(),
        snapshot_id: head.snapshot_id.clone(),
        checkpoint_id: head.checkpoint_id.clone(),
        generation: head.generation,
        owner_run_id: head.owner_run_id.clone(),
        lifecycle: head.lifecycle,
        durable: capabilities.durability_class().is_durable(),
        store_kind: capabilities.store_kind().to_owned(),
        durability_class: capabilities.durability_class(),
        root_digest: root.digest(),
        replayed: false,
        bytes_written: 0,
        chunks_written: 0,
    }
}

pub(super) struct Loaded {
    root: Root,
    pub(super) restored: Restored,
    writer: SnapshotWriter,
}

/// Asks the reader until the answer is there, fetching what it needs.
pub(super) async fn ask<T>(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
    reader: &mut SnapshotReader,
    question: impl Fn(&mut SnapshotReader) -> Result<Read<T>, SnapshotError>,
) -> Result<T, SessionError> {
    loop {
        match question(reader).map_err(StoreError::from)? {
            Read::Ready(answer) => return Ok(answer),
            Read::Need(digests) => {
                let access = store.groups().chunk_access()?;
                let mut chunks = Vec::with_capacity(digests.len());
                for part in digests.chunks(CHUNKS_PER_READ) {
                    chunks.extend(access.get_chunks(snapshot, part).await?);
                }
                reader.feed(chunks).map_err(StoreError::from)?;
            }
        }
    }
}

pub(super) async fn reader_of(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
) -> Result<(SnapshotReader, Root), SessionError> {
    let stored = store.snapshot(snapshot).await?.ok_or_else(|| {
        session_error(
            SessionErrorCode::CorruptSnapshot,
            "the head names a snapshot that is not there",
        )
    })?;
    let root = stored.verified()?;
    let reader = SnapshotReader::open(root.clone(), &ComponentRegistry::standard())
        .map_err(StoreError::from)?;
    Ok((reader, root))
}

pub(super) async fn load(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
) -> Result<Loaded, SessionError> {
    let (mut reader, root) = reader_of(store, snapshot).await?;
    let reader = &mut reader;
    let mut payloads = Vec::new();
    for spec in [
        ComponentSpec::AGENT_STATE,
        ComponentSpec::ENGINE_PROGRESS,
        ComponentSpec::BUDGET_CAPABILITY,
        ComponentSpec::TRACE_LINEAGE,
        ComponentSpec::FORK_LINEAGE,
        ComponentSpec::CONVERSATION,
        ComponentSpec::TOOL_BATCH,
        ComponentSpec::TOOL_EFFECTS,
    ] {
        payloads.push(ask(store, snapshot, reader, |reader| reader.component(&spec)).await?);
    }
    let mut payloads = payloads.into_iter();
    let mut next = || payloads.next().flatten();
    let required = |value: Option<Value>| {
        value.ok_or_else(|| {
            session_error(
                SessionErrorCode::MissingRequiredComponent,
                "a component is missing",
            )
        })
    };
    let payloads = Payloads {
        agent_state: required(next())?,
        progress: required(next())?,
        budget: required(next())?,
        trace: required(next())?,
        lineage: next(),
        conversation: required(next())?,
        batch: required(next())?,
        effects: next(),
    };
    let restored = read_durable(root.session_id(), payloads).map_err(|error| {
        session_error(
            SessionErrorCode::CorruptSnapshot,
            "a component does not decode",
        )
        .with("component", error.component)
        .with("place", error.place)
    })?;
    let mut writer = ask(store, snapshot, reader, SnapshotWriter::from_root).await?;
    let known = restored
        .receipts
        .iter()
        .map(|(key, record)| (key.as_str(), record.as_slice()));
    writer
        .load_keyed(&ComponentSpec::CONVERSATION, "/steering_receipts", known)
        .map_err(StoreError::from)?;
    Ok(Loaded {
        root,
        restored,
        writer,
    })
}
