//! Effect classes and idempotency keys (TOL-5 to TOL-8).

use serde_json::{Value, json};

use crate::canonical_json;
use crate::digest::Digest;
use crate::ids::{EffectRef, SessionId, SlotId};

/// What a call may change outside itself, known before it runs.
///
/// The author's promise, never a grant (TOL-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectClass {
    /// Changes nothing outside itself.
    Pure,
    /// May write, and says nothing about what: cut off, its outcome is unknown and it is not repeated.
    Undeclared,
    /// Names its external effect, so that the outcome can be tracked and reconciled.
    Declared(DeclaredEffect),
}

/// An external effect with a name and a key under which the backend can recognise repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredEffect {
    /// Names the external effect; computable from arguments and slot alone (TOL-6).
    pub effect_ref: EffectRef,
    /// How the idempotency key is made.
    pub key: EffectKey,
    /// The backend itself drops repeats of a key.
    pub dedupe: bool,
    /// [`reconcile`](super::Tool::reconcile) can tell the outcome later.
    pub reconcile: bool,
}

/// The idempotency key of a declared effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectKey {
    /// The default of TOL-7: the same for a resumed slot, another for a new call of the model.
    PerSlot,
    /// A key with business meaning: a later call with the same key is the same effect (TOL-8).
    Logical(String),
}

impl EffectClass {
    /// A declared effect with the default key, neither deduplicated nor reconcilable.
    #[must_use]
    pub fn declared(effect_ref: EffectRef) -> Self {
        EffectClass::Declared(DeclaredEffect {
            effect_ref,
            key: EffectKey::PerSlot,
            dedupe: false,
            reconcile: false,
        })
    }

    /// The declared reference, if there is one.
    #[must_use]
    pub fn effect_ref(&self) -> Option<&EffectRef> {
        match self {
            EffectClass::Declared(declared) => Some(&declared.effect_ref),
            EffectClass::Pure | EffectClass::Undeclared => None,
        }
    }

    /// Whether the class is [`EffectClass::Pure`].
    #[must_use]
    pub fn is_pure(&self) -> bool {
        matches!(self, EffectClass::Pure)
    }
}

/// The default idempotency key of TOL-7.
///
/// `idem:` and the SHA-256 of canonical `{session_id, batch_id, declaration index, effect_ref, tool name, args}`:
/// all of it is durable before dispatch, so a resumed slot gets the same key. Clock, randomness and attempt
/// never enter.
#[must_use]
pub fn idempotency_key(
    session: &SessionId,
    slot: &SlotId,
    effect: &DeclaredEffect,
    tool_name: &str,
    args: &Value,
) -> String {
    if let EffectKey::Logical(key) = &effect.key {
        return key.clone();
    }
    let (batch_id, index) = slot
        .as_str()
        .rsplit_once(':')
        .unwrap_or((slot.as_str(), "0"));
    let facts = json!({
        "args": args,
        "batch_id": batch_id,
        "declaration_index": index.parse::<u64>().unwrap_or(0),
        "effect_ref": effect.effect_ref.as_str(),
        "session_id": session.as_str(),
        "tool_name": tool_name,
    });
    let digest = canonical_json::digest(&facts).unwrap_or(Digest::ZERO);
    format!("idem:{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_from_durable_facts_only() {
        // TOL-7
        let session: SessionId = "session_0123456789abcdef".parse().unwrap();
        let slot: SlotId = "batch_request_0123456789abcdef01234567:0".parse().unwrap();
        let other: SlotId = "batch_request_0123456789abcdef01234567:1".parse().unwrap();
        let EffectClass::Declared(effect) = EffectClass::declared("pay:1".parse().unwrap()) else {
            unreachable!()
        };
        let key =
            |slot: &SlotId, args: Value| idempotency_key(&session, slot, &effect, "pay", &args);
        assert_eq!(key(&slot, json!({"a": 1})), key(&slot, json!({"a": 1})));
        assert_ne!(key(&slot, json!({"a": 1})), key(&other, json!({"a": 1})));
        assert_ne!(key(&slot, json!({"a": 1})), key(&slot, json!({"a": 2})));
        let logical = DeclaredEffect {
            key: EffectKey::Logical("invoice-7".into()),
            ..effect.clone()
        };
        assert_eq!(
            idempotency_key(&session, &slot, &logical, "pay", &json!({})),
            "invoice-7"
        );
    }
}
