//! Provider state of an answer: `{response_id, native_reasoning}` (PRV-32).
//!
//! Where the server stores answers, the state's id stands for the whole history up to its answer. Where it does not,
//! the native items go back in their original places among text and calls, exactly as they were sent (PRV-27).
//! Messages in front of the history are part of what the server holds, so the state also tells which ones it has seen
//! (`lead_digest`, only if there were any): equal ones are not sent again.

use std::sync::Arc;

use qitos_contracts::digest::Digest;
use qitos_contracts::log::ItemBody;
use qitos_contracts::model::{
    CodecError, CodecReport, RequestView, ResolvedContinuation, WirePayload,
};
use serde_json::{Map, Value};

use super::request;
use super::response::{Answer, Piece, is_replayable};
use super::write_item::{ItemForm, write_assistant};
use crate::verdict::Defect;

const RESPONSE_ID: &str = "response_id";
const NATIVE: &str = "native_reasoning";
const LEAD: &str = "lead_digest";

/// Longest id of a response that is kept.
const MAX_ID_BYTES: usize = 256;

/// What to keep of a judged answer; nothing if it could not be used later.
///
/// A server that says it did not store the answer cannot go on from it. Without storage, native items are kept only
/// if all of them can go back: state that is there is whole.
pub(super) fn state_of(
    answer: &Answer,
    view: &RequestView,
    server_stores: bool,
) -> Result<Option<Value>, Defect> {
    let mut native = Vec::new();
    answer.read(|piece| {
        if let Piece::Native(item) = piece {
            native.push(item.clone());
        }
    })?;
    let useful = if server_stores {
        (1..=MAX_ID_BYTES).contains(&answer.id.len()) && answer.stored != Some(false)
    } else {
        !native.is_empty() && native.iter().all(is_replayable)
    };
    if !useful {
        return Ok(None);
    }
    let mut state = Map::new();
    state.insert(RESPONSE_ID.to_owned(), answer.id.as_str().into());
    state.insert(NATIVE.to_owned(), Value::Array(native));
    if server_stores && let Some(digest) = digest_of(&request::lead(view)) {
        state.insert(LEAD.to_owned(), digest.into());
    }
    Ok(Some(Value::Object(state)))
}

fn digest_of(lead: &[Arc<[u8]>]) -> Option<String> {
    if lead.is_empty() {
        return None;
    }
    Some(Digest::of(&lead.join(&b","[..])).to_string())
}

const WRONG_FORM: CodecError = CodecError::EncodeFailed {
    reason: "the provider state is not of this codec",
};

/// Goes on from an answer that the server holds: the history up to it is left out.
pub(super) fn start_after(
    payload: &mut WirePayload,
    resolved: &ResolvedContinuation,
    report: &mut CodecReport,
) -> Result<(), CodecError> {
    let response_id = resolved.payload.get(RESPONSE_ID).and_then(Value::as_str);
    let response_id = response_id.filter(|id| !id.is_empty()).ok_or(WRONG_FORM)?;
    if !payload.start_after(&resolved.reference.reference_id) {
        return Ok(());
    }
    let head = payload.head_mut();
    head.insert("previous_response_id".to_owned(), response_id.into());
    let seen = resolved.payload.get(LEAD).and_then(Value::as_str);
    if seen.is_some() && seen == digest_of(payload.lead()).as_deref() {
        payload.drop_lead();
    }
    "previous_response_id".clone_into(&mut report.continuation);
    Ok(())
}

/// Puts the native items of an answer back into its wire form, once per item.
pub(super) fn put_back(
    payload: &mut WirePayload,
    resolved: &ResolvedContinuation,
    report: &mut CodecReport,
) -> Result<(), CodecError> {
    let native = resolved.payload.get(NATIVE).and_then(Value::as_array);
    let native = native.ok_or(WRONG_FORM)?;
    if !native.iter().all(Value::is_object) {
        return Err(WRONG_FORM);
    }
    if !native.iter().all(is_replayable) {
        // Captured while the server stored answers: the reasoning is there and nowhere else.
        return Err(CodecError::LossRejected {
            lossy_fields: vec!["assistant.reasoning".to_owned()],
        });
    }
    let reference_id = &resolved.reference.reference_id;
    let waiting = payload
        .waiting()
        .iter()
        .find(|state| state.reference.reference_id == *reference_id);
    let Some(waiting) = waiting else {
        return Ok(());
    };
    let ItemBody::Assistant(assistant) = &waiting.item.item().body else {
        return Err(WRONG_FORM);
    };
    let mut bytes = Vec::new();
    write_assistant(assistant, native, &mut bytes)?;
    let bytes: Arc<[u8]> = bytes.into();
    if let Some(item) = payload.settle(reference_id, Arc::clone(&bytes)) {
        let key = request::fragment_key(&ItemForm::with_state(), &report.target);
        item.keep_fragment(key, bytes);
    }
    "native_items".clone_into(&mut report.continuation);
    Ok(())
}
