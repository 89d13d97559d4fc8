//! Rule: how signed parts come back (PRV-32, PRV-103).
//!
//! What is kept of an answer with a `thoughtSignature` is the list of its parts as they came. It goes back as a
//! whole, so every signature returns in the part that it came in, at the place where it stood.

use std::sync::Arc;

use qitos_contracts::model::{CodecError, CodecReport, ResolvedContinuation, WirePayload};
use serde_json::{Value, json};

use super::request::{fragment_key, reasoning_is_dropped};
use super::response::is_thought;
use super::write_item::ItemForm;

/// The payload of the continuation: the parts in their order.
pub(super) fn keep(parts: Vec<Value>) -> Value {
    json!({ "parts": parts })
}

/// Whether a part carries a signature that the provider wants back.
pub(super) fn is_signed(part: &Value) -> bool {
    part.get("thoughtSignature")
        .is_some_and(|signature| !signature.is_null())
}

/// Writes the kept parts in the place of the item that they belong to.
pub(super) fn put_back(
    payload: &mut WirePayload,
    resolved: &ResolvedContinuation,
    report: &mut CodecReport,
) -> Result<(), CodecError> {
    const WRONG: CodecError = CodecError::EncodeFailed {
        reason: "the continuation state does not have the form of this codec",
    };
    let parts = resolved
        .payload
        .get("parts")
        .and_then(Value::as_array)
        .filter(|parts| !parts.is_empty() && parts.iter().all(Value::is_object))
        .ok_or(WRONG)?;
    let drops_reasoning = reasoning_is_dropped(&report.lossy_fields);
    let kept: Vec<&Value> = parts
        .iter()
        .filter(|part| !(drops_reasoning && is_thought(part)))
        .collect();
    let mut bytes = b"{\"parts\":".to_vec();
    serde_json::to_writer(&mut bytes, &kept).map_err(|_| WRONG)?;
    bytes.extend_from_slice(b",\"role\":\"model\"}");
    let bytes: Arc<[u8]> = bytes.into();
    if let Some(item) = payload.settle(&resolved.reference.reference_id, Arc::clone(&bytes)) {
        let form = ItemForm::own(drops_reasoning);
        item.keep_fragment(fragment_key(&form, &report.target), bytes);
        if report.reasoning == "preserved" {
            "signed_block_replay".clone_into(&mut report.reasoning);
        }
        "signed_block_replay".clone_into(&mut report.continuation);
    }
    Ok(())
}
