//! The closure of a batch: which slots ended how (EXE-14).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::ResultError;
use super::vocabulary::SlotClosure;
use crate::canonical_json::ValueWriter;
use crate::digest::Digest;
use crate::ids::{AttemptId, BatchId};

/// Schema id of a batch closure.
pub const CLOSURE_SCHEMA: &str = "qitos.tool_batch_closure/v1";

/// The slots of one batch in declaration order (EXE-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchClosure {
    /// The batch.
    pub batch_id: BatchId,
    /// Its slots in declaration order.
    pub slots: Vec<ClosedSlot>,
}

/// One slot of a closure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedSlot {
    /// The call's id.
    pub action_id: Arc<str>,
    /// How it ended.
    pub state: SlotClosure,
    /// The attempt that gave the result.
    pub attempt_id: Option<AttemptId>,
    /// Digest of the result without its closure; written as `result:` and 64 hex digits.
    pub result_ref: Option<Digest>,
}

const REF_PREFIX: &str = "result:";

/// `result:` and the digest, as a closure names a result.
pub(super) fn reference_text(digest: &Digest) -> String {
    format!("{REF_PREFIX}{digest}")
}

impl BatchClosure {
    /// Writes the canonical object into its slot.
    pub fn write(&self, slot: ValueWriter<'_>) {
        let mut object = slot.object();
        object.key("batch_id").str(self.batch_id.as_str());
        object.key("schema_version").str(CLOSURE_SCHEMA);
        let mut slots = object.key("slots").array();
        for closed in &self.slots {
            let mut entry = slots.item().object();
            entry.key("action_id").str(&closed.action_id);
            if let Some(attempt_id) = &closed.attempt_id {
                entry.key("attempt_id").str(attempt_id.as_str());
            }
            if let Some(digest) = &closed.result_ref {
                entry.key("result_ref").str(&reference_text(digest));
            }
            entry.key("state").str(closed.state.as_str());
            entry.end();
        }
        slots.end();
        object.end();
    }

    /// Reads a closure strictly; optional keys are absent, never null.
    ///
    /// # Errors
    /// `invalid_batch_closure`.
    pub fn from_map(mut map: Map<String, Value>) -> Result<Self, ResultError> {
        let invalid = ResultError::InvalidBatchClosure;
        let (Some(Value::String(schema)), Some(Value::String(batch)), Some(Value::Array(slots))) = (
            map.remove("schema_version"),
            map.remove("batch_id"),
            map.remove("slots"),
        ) else {
            return Err(invalid);
        };
        if schema != CLOSURE_SCHEMA || !map.is_empty() {
            return Err(invalid);
        }
        Ok(BatchClosure {
            batch_id: batch.parse().map_err(|_| invalid)?,
            slots: slots.into_iter().map(read_slot).collect::<Result<_, _>>()?,
        })
    }
}

fn read_slot(value: Value) -> Result<ClosedSlot, ResultError> {
    let invalid = ResultError::InvalidBatchClosure;
    let Value::Object(mut map) = value else {
        return Err(invalid);
    };
    let (Some(Value::String(action_id)), Some(Value::String(state))) =
        (map.remove("action_id"), map.remove("state"))
    else {
        return Err(invalid);
    };
    let attempt_id = match map.remove("attempt_id") {
        None => None,
        Some(Value::String(text)) => Some(text.parse().map_err(|_| invalid)?),
        Some(_) => return Err(invalid),
    };
    let result_ref = match map.remove("result_ref") {
        None => None,
        Some(Value::String(text)) => Some(
            text.strip_prefix(REF_PREFIX)
                .and_then(|hex| hex.parse().ok())
                .ok_or(invalid)?,
        ),
        Some(_) => return Err(invalid),
    };
    if !map.is_empty() || action_id.is_empty() {
        return Err(invalid);
    }
    Ok(ClosedSlot {
        action_id: action_id.into(),
        state: SlotClosure::parse(&state).ok_or(invalid)?,
        attempt_id,
        result_ref,
    })
}
