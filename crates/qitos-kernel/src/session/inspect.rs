//! Looking at a session: reads only, works in any state, for any reader (SES-64).

use qitos_contracts::checkpoint::{CheckpointStore, SessionError, SessionErrorCode, VerifyDepth};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::SessionId;
use qitos_contracts::snapshot::ComponentSpec;
use serde_json::{Value, json};

use super::restore::{ask, reader_of};
use super::session_error;

fn not_found() -> SessionError {
    session_error(
        SessionErrorCode::SessionNotFound,
        "the store has no session of this id",
    )
}

/// What is durable of a session: head, lifecycle, budget, batch, last view, integrity, storage.
///
/// # Errors
/// `session_not_found`; the store's codes. A damaged chunk is reported in `snapshot_integrity`, not hidden.
///
/// # Cancel safety
/// Dropping it means nothing happened.
pub async fn inspect(
    store: &dyn CheckpointStore,
    session: &SessionId,
) -> Result<Value, SessionError> {
    let head = store.head(session).await?.ok_or_else(not_found)?;
    let capabilities = store.capabilities();
    let integrity = match store.groups().chunk_access {
        Some(access) => match access.verify(&head.snapshot_id, VerifyDepth::Root).await {
            Ok(verification) => json!({
                "intact": verification.intact(),
                "root_digest": verification.root_digest,
                "newest_intact": verification.newest_intact,
            }),
            Err(error) => json!({"intact": false, "code": error.code()}),
        },
        None => Value::Null,
    };
    let (mut reader, root) = reader_of(store, &head.snapshot_id).await?;
    let mut found = Vec::new();
    for spec in [
        ComponentSpec::ENGINE_PROGRESS,
        ComponentSpec::BUDGET_CAPABILITY,
        ComponentSpec::TOOL_BATCH,
        ComponentSpec::TOOL_EFFECTS,
        ComponentSpec::SANDBOX,
        ComponentSpec::FORK_LINEAGE,
    ] {
        let payload = ask(store, &head.snapshot_id, &mut reader, |reader| {
            reader.component(&spec)
        })
        .await?;
        found.push(payload.unwrap_or(Value::Null));
    }
    let mut found = found.into_iter();
    let mut next = || found.next().unwrap_or(Value::Null);
    let (progress, budget, batch, effects, sandbox, lineage) =
        (next(), next(), next(), next(), next(), next());
    let view = ask(store, &head.snapshot_id, &mut reader, |reader| {
        reader.map_blob(&ComponentSpec::CONVERSATION, "/last_request_view")
    })
    .await?
    .and_then(|bytes| qitos_contracts::canonical_json::read_canonical(&bytes).ok());
    let items = ask(store, &head.snapshot_id, &mut reader, |reader| {
        reader.log_count(&ComponentSpec::CONVERSATION, "/exchange_log/items")
    })
    .await?;
    let part = |key: &str| progress.get(key).cloned().unwrap_or(Value::Null);
    Ok(json!({
        "head": {
            "session_id": head.session_id,
            "snapshot_id": head.snapshot_id,
            "checkpoint_id": head.checkpoint_id,
            "generation": head.generation,
            "owner_run_id": head.owner_run_id,
            "lifecycle": head.lifecycle.as_str(),
        },
        "lifecycle": head.lifecycle.as_str(),
        "owner": {"run_id": head.owner_run_id, "owner_generation": part("owner_generation")},
        "lease": {"until_ms": head.lease_until_ms},
        "store_kind": capabilities.store_kind(),
        "durability_class": capabilities.durability_class().as_str(),
        "snapshot_integrity": integrity,
        "budget": budget,
        "counters": part("counters"),
        "phase": part("phase"),
        "step": part("next_step"),
        "last_stop": part("last_stop"),
        "pause_safety": part("pause_safety"),
        "task": part("task"),
        "tool_batch": batch,
        "tool_effects": effects,
        "sandbox": sandbox,
        "work_graph": Value::Null,
        "fork_lineage": lineage,
        "last_request_view": view,
        "storage": {"root_bytes": root.bytes().len(), "log_lengths": {"conversation": items}},
        "created_at": root.created_at(),
    }))
}

/// The newest `count` items of a session's log, as stored; costs what it returns.
///
/// # Errors
/// `session_not_found`; the store's codes.
///
/// # Cancel safety
/// Dropping it means nothing happened.
pub async fn log_tail(
    store: &dyn CheckpointStore,
    session: &SessionId,
    count: u64,
) -> Result<Vec<Value>, SessionError> {
    let head = store.head(session).await?.ok_or_else(not_found)?;
    let (mut reader, _) = reader_of(store, &head.snapshot_id).await?;
    let items = ask(store, &head.snapshot_id, &mut reader, |reader| {
        reader.log_tail(&ComponentSpec::CONVERSATION, "/exchange_log/items", count)
    })
    .await?;
    Ok(items
        .iter()
        .filter_map(|item| qitos_contracts::canonical_json::read_canonical(item).ok())
        .collect())
}
