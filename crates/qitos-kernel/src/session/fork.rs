//! Forking: a child session from one retained snapshot; the source is neither claimed nor changed (section 9).

use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::checkpoint::fork::ForkChild;
use qitos_contracts::checkpoint::{
    Commit, CommitRequest, ForkBoundary, ForkReceipt, ForkRequest, SessionError, SessionErrorCode,
    StoreError,
};
use qitos_contracts::ids::{ForkOperationId, SessionId, SnapshotId, WorkItemId};
use qitos_contracts::snapshot::{
    ComponentSpec, EnvelopeHeader, Lifecycle, SnapshotReader, SnapshotWriter, Timing,
};
use serde_json::{Map, Value, json};

use super::restore::{ask, reader_of};
use super::session_error;
use crate::engine::Engine;

/// Where a fork branches off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ForkFrom {
    /// The head's snapshot.
    #[default]
    Head,
    /// A retained snapshot.
    Snapshot(SnapshotId),
}

/// What a fork reads of its source: small components only, whatever the length of the history.
struct Source {
    progress: Map<String, Value>,
    work_item: WorkItemId,
    run: Value,
    writer: SnapshotWriter,
}

impl Engine {
    /// Makes a child of a session; the same operation id with the same source gives the same child (SES-41).
    ///
    /// # Errors
    /// `session_not_found`, `snapshot_not_found`, `snapshot_session_mismatch`, `invalid_lifecycle_operation` by the
    /// snapshot's own lifecycle, `unsafe_pause_boundary`, `unresolved_effect`, `incompatible_checkpoint`,
    /// `duplicate_fork_operation`, `unsupported_capability`.
    ///
    /// # Cancel safety
    /// Dropping it leaves the whole child or none; the same operation id finds it.
    ///
    /// # Durability
    /// The child is durable when this returns.
    pub async fn fork(
        &self,
        source: &SessionId,
        from: ForkFrom,
        operation: Option<ForkOperationId>,
    ) -> Result<ForkReceipt, SessionError> {
        let parts = &self.0;
        let store = self.durable_store()?;
        let forks = store.groups().fork()?;
        let operation = operation.unwrap_or_else(|| ForkOperationId::generate(&*parts.ids));
        let snapshot = match from {
            ForkFrom::Head => self.head_of(&store, source).await?.snapshot_id,
            ForkFrom::Snapshot(snapshot) => snapshot,
        };
        let Some(stored) = store.snapshot(&snapshot).await? else {
            return Err(session_error(
                SessionErrorCode::SnapshotNotFound,
                "the store has no snapshot of this id",
            ));
        };
        if stored.session_id != *source {
            let text = "the snapshot belongs to another session";
            return Err(session_error(
                SessionErrorCode::SnapshotSessionMismatch,
                text,
            ));
        }
        let (mut reader, root) = reader_of(&*store, &snapshot).await?;
        let Source {
            mut progress,
            work_item,
            run,
            mut writer,
        } = read_source(&*store, &snapshot, &mut reader).await?;
        let child = ForkChild::of(&operation);
        settle_progress(&mut progress);
        let bytes = |value: &Value| canonical_json::to_bytes(value).unwrap_or_default();
        writer
            .map_rest(
                &ComponentSpec::ENGINE_PROGRESS,
                bytes(&Value::Object(progress)),
            )
            .map_err(StoreError::from)?;
        let trace = json!({"parent_run_id": run, "run_id": child.run_id, "trace_complete": true});
        writer
            .replace(&ComponentSpec::TRACE_LINEAGE, bytes(&trace))
            .map_err(StoreError::from)?;
        let lineage = json!({
            "attempt_id": child.attempt_id,
            "source_checkpoint_id": stored.checkpoint_id,
            "source_run_id": run,
            "source_session_id": source,
            "source_snapshot_id": snapshot,
            "source_work_item_id": work_item,
            "work_item_id": child.work_item_id,
        });
        writer
            .replace(&ComponentSpec::FORK_LINEAGE, bytes(&lineage))
            .map_err(StoreError::from)?;
        let now = parts.clock.now();
        let timing = Timing {
            captured_at: now,
            pause_requested_at: Some(now),
            safe_boundary_at: Some(now),
        };
        let header = EnvelopeHeader {
            snapshot_id: child.snapshot_id.clone(),
            session_id: child.session_id.clone(),
            head_generation: 0,
            lifecycle: Lifecycle::Paused,
            created_at: now,
            timing: timing.of(Lifecycle::Paused),
            resolver_references: root.resolver_references().clone(),
            artifact_refs: Vec::new(),
            parent: None,
        };
        let sealed = writer.seal(&header).map_err(StoreError::from)?;
        let child_commit = Commit::new(CommitRequest {
            session_id: child.session_id,
            snapshot_id: child.snapshot_id,
            checkpoint_id: child.checkpoint_id,
            owner_run_id: child.run_id,
            lifecycle: Lifecycle::Paused,
            expected: None,
            root: sealed.root,
            chunks: sealed.chunks,
            consumed_inbox: None,
        })?;
        let request = ForkRequest {
            operation_id: operation,
            source_session_id: source.clone(),
            source_snapshot_id: snapshot,
            source_checkpoint_id: stored.checkpoint_id,
            source_work_item_id: work_item,
            child_work_item_id: child.work_item_id,
            child_attempt_id: child.attempt_id,
            child_commit,
            boundary: ForkBoundary::default(),
        };
        Ok(forks.fork(Arc::new(request)).await?)
    }
}

async fn read_source(
    store: &dyn qitos_contracts::checkpoint::CheckpointStore,
    snapshot: &SnapshotId,
    reader: &mut SnapshotReader,
) -> Result<Source, SessionError> {
    let lineage = ask(store, snapshot, reader, |reader| {
        reader.component(&ComponentSpec::FORK_LINEAGE)
    })
    .await?;
    let trace = ask(store, snapshot, reader, |reader| {
        reader.component(&ComponentSpec::TRACE_LINEAGE)
    })
    .await?;
    let progress = ask(store, snapshot, reader, |reader| {
        reader.rest(&ComponentSpec::ENGINE_PROGRESS)
    })
    .await?
    .and_then(|bytes| canonical_json::read_canonical(&bytes).ok());
    let (Some(lineage), Some(Value::Object(progress))) = (lineage, progress) else {
        let text = "the snapshot has no fork lineage";
        return Err(session_error(
            SessionErrorCode::IncompatibleCheckpoint,
            text,
        ));
    };
    check_safety(progress.get("pause_safety").unwrap_or(&Value::Null))?;
    let work_item = lineage
        .get("work_item_id")
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| {
            session_error(
                SessionErrorCode::CorruptSnapshot,
                "the fork lineage does not decode",
            )
        })?;
    let run = trace
        .as_ref()
        .and_then(|trace| trace.get("run_id"))
        .cloned()
        .unwrap_or(Value::Null);
    let writer = ask(store, snapshot, reader, SnapshotWriter::from_root).await?;
    Ok(Source {
        progress,
        work_item,
        run,
        writer,
    })
}

/// SES-39, SES-40.
fn check_safety(safety: &Value) -> Result<(), SessionError> {
    if safety
        .get("unresolved_effect_count")
        .and_then(Value::as_u64)
        != Some(0)
    {
        return Err(session_error(
            SessionErrorCode::UnresolvedEffect,
            "an effect has an unknown outcome",
        ));
    }
    let quiet = [
        "completed_slots_recorded",
        "open_slots_recorded",
        "framework_workers_quiesced",
    ]
    .iter()
    .all(|fact| safety.get(fact).and_then(Value::as_bool) == Some(true));
    if !quiet || safety.get("boundary").and_then(Value::as_str) == Some("in_flight_operation") {
        let text = "the snapshot does not stand at a safe boundary";
        return Err(session_error(SessionErrorCode::UnsafePauseBoundary, text));
    }
    Ok(())
}

/// SES-42: paused, a fresh owner, the clean safety record; everything else is the source's.
fn settle_progress(progress: &mut Map<String, Value>) {
    let clean = json!({
        "boundary": "after_model_result",
        "completed_slots_recorded": true,
        "framework_workers_quiesced": true,
        "open_slots_recorded": true,
        "unresolved_effect_count": 0,
    });
    for (key, value) in [
        ("lifecycle", json!("paused")),
        ("owner_generation", json!(0)),
        ("cancel", Value::Null),
        ("terminal_failure", Value::Null),
        ("pause_safety", clean),
    ] {
        progress.insert(key.into(), value);
    }
}
