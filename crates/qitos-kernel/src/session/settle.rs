//! Saying what became of an effect that nobody knows, from any process (SES-53, SES-63, RES-19).

use qitos_contracts::canonical_json;
use qitos_contracts::checkpoint::{
    CheckpointStore, InboxAppend, InboxKind, SessionError, SessionErrorCode,
};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{ItemId, SessionId, SlotId};
use serde_json::{Value, json};

use super::restore::load;
use super::{Session, session_error};
use crate::machine::state::{Phase, SlotState};
use crate::machine::{Disposition, Durable};

/// Longest evidence, in bytes.
const EVIDENCE_BYTES: usize = 4_096;

/// Where an answer to an unknown effect stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettlementReceipt {
    /// Its place in the session's inbox.
    pub sequence: u64,
    /// The same answer was given before.
    pub replayed: bool,
}

/// Leaves the answer for the session's owner, which takes it at its next boundary.
///
/// The terminal of the slot stays as it is; the answer stands beside it in the ledger of effects. After `rejected` a
/// new call of the same effect may be dispatched.
///
/// # Errors
/// `unsupported_capability` without an inbox; `session_not_found`; `invalid_lifecycle_operation` if the session is
/// over, or no effect of the slot waits for an answer (reason `no_unknown_effect`, with the slots that do);
/// `size_limit_exceeded` for evidence above 4 KiB; `generation_conflict` if another answer waits for the slot.
///
/// # Cancel safety
/// Dropping it may leave the answer given; giving it again finds out.
///
/// # Durability
/// The answer is durable in the store's class when this returns, and applied in a commit of the owner.
pub async fn resolve_effect(
    store: &dyn CheckpointStore,
    session: &SessionId,
    slot: &SlotId,
    disposition: Disposition,
    evidence: &str,
) -> Result<SettlementReceipt, SessionError> {
    if evidence.len() > EVIDENCE_BYTES {
        return Err(session_error(
            SessionErrorCode::SizeLimitExceeded,
            "the evidence is over its limit of 4096 bytes",
        ));
    }
    let inbox = store.groups().inbox.ok_or_else(|| {
        session_error(
            SessionErrorCode::UnsupportedCapability,
            "the store has no inbox",
        )
    })?;
    let head = store.head(session).await?.ok_or_else(|| {
        session_error(
            SessionErrorCode::SessionNotFound,
            "the store has no session of this id",
        )
    })?;
    let durable = load(store, &head.snapshot_id).await?.restored.durable;
    let unknown = unknown_effects(&durable);
    if !unknown.contains(slot) {
        let text = "no effect of the slot waits for an answer";
        return Err(
            session_error(SessionErrorCode::InvalidLifecycleOperation, text)
                .with("reason", "no_unknown_effect")
                .with("unknown", listed(&unknown)),
        );
    }
    let answer = json!({"disposition": disposition, "evidence": evidence, "slot_id": slot});
    let entry = InboxAppend::new(item_of(slot), InboxKind::Reconcile, payload_of(&answer)?)?;
    let receipt = inbox.append(session, entry).await?;
    Ok(SettlementReceipt {
        sequence: receipt.sequence,
        replayed: receipt.replayed,
    })
}

/// The slots with an effect whose outcome nobody knows.
fn unknown_effects(durable: &Durable) -> Vec<SlotId> {
    let ledger = durable
        .effects
        .values()
        .filter(|entry| entry.is_unresolved())
        .map(|entry| entry.slot_id.clone());
    let begun = match &durable.phase {
        Phase::Acting(turn) => turn.batch.as_ref(),
        _ => None,
    }
    .into_iter()
    .flat_map(|batch| &batch.slots)
    .filter(|slot| matches!(slot.state, SlotState::Started(_)))
    .map(|slot| slot.id.clone());
    ledger.chain(begun).collect()
}

fn listed(slots: &[SlotId]) -> String {
    let names: Vec<&str> = slots.iter().map(SlotId::as_str).collect();
    names.join(", ")
}

/// One answer per slot: the same again is a replay, another one a conflict.
fn item_of(slot: &SlotId) -> ItemId {
    let digest = Digest::of(slot.as_str().as_bytes()).to_hex();
    let name = format!("settle_{}", digest.get(..32).unwrap_or_default());
    match name.parse() {
        Ok(id) => id,
        Err(_) => crate::machine::impossible("`settle_<hex>` is an item id"),
    }
}

fn payload_of(answer: &Value) -> Result<Vec<u8>, SessionError> {
    canonical_json::to_bytes(answer).map_err(|_| {
        session_error(
            SessionErrorCode::PersistenceRejected,
            "the evidence is not text that can be stored",
        )
    })
}

impl Session {
    /// Says what became of an effect of this session that nobody knows; see [`resolve_effect`].
    ///
    /// # Errors
    /// As [`resolve_effect`]; `unsupported_capability` for an ephemeral session.
    ///
    /// # Cancel safety
    /// As [`resolve_effect`].
    pub async fn resolve_effect(
        &self,
        slot: &SlotId,
        disposition: Disposition,
        evidence: &str,
    ) -> Result<SettlementReceipt, SessionError> {
        let store = self.0.parts.store.as_ref().ok_or_else(|| {
            session_error(
                SessionErrorCode::UnsupportedCapability,
                "an ephemeral session has no store",
            )
        })?;
        resolve_effect(&**store, &self.0.id, slot, disposition, evidence).await
    }
}
