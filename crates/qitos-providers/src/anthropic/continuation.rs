//! The blocks of a turn that the log cannot hold, kept and put back in their original positions (PRV-32, A14).

use qitos_contracts::canonical_json::ObjectWriter;
use qitos_contracts::model::{
    CodecError, CodecReport, RequestView, ResolvedContinuation, WirePayload,
};
use serde_json::{Map, Value};

use super::block::{Block, Content};
use super::request::fragment_key;
use super::write_item::ItemForm;
use crate::call::{RawCall, wire_id};
use crate::verdict::means_no_arguments;

/// The blocks of one turn in order.
#[derive(Debug, Default)]
pub(crate) struct State {
    blocks: Vec<Block>,
    /// A block is there whose bytes the log does not hold.
    needed: bool,
}

impl State {
    /// Adds a block that goes back as it came.
    pub(crate) fn keep(&mut self, mut block: Block) {
        self.needed |= match &mut block.content {
            Content::Thinking { .. } | Content::Native => true,
            Content::Text(_) => is_cited(&block.rest),
            Content::ToolUse(call) => {
                // The dialect demands an input.
                if means_no_arguments(&call.arguments) {
                    "{}".clone_into(&mut call.arguments);
                }
                false
            }
        };
        self.blocks.push(block);
    }

    /// Gives a call the id that its result will carry on the wire, should that be another (PRV-24).
    pub(crate) fn name_as_result_will(
        &self,
        call: &mut RawCall,
        call_id: &str,
        view: &RequestView,
    ) {
        let batch_id = format!("batch_{}", view.request_id);
        let sent = wire_id(call_id, &batch_id);
        if sent != call.id {
            sent.clone_into(&mut call.id);
        }
    }

    /// The payload to keep; none if the log alone gives the same blocks.
    pub(crate) fn into_payload(self) -> Option<Value> {
        if !self.needed {
            return None;
        }
        let blocks = self.blocks.into_iter().map(Block::into_value).collect();
        let mut payload = Map::new();
        payload.insert("content".to_owned(), Value::Array(blocks));
        Some(Value::Object(payload))
    }
}

fn is_cited(rest: &Map<String, Value>) -> bool {
    rest.get("citations")
        .and_then(Value::as_array)
        .is_some_and(|citations| !citations.is_empty())
}

/// Writes the turn that `resolved` holds in the place that waits for it.
///
/// # Errors
/// `codec_encode_failed` if the state does not have the form of [`State::into_payload`].
pub(crate) fn put_back(
    payload: &mut WirePayload,
    resolved: &ResolvedContinuation,
    report: &mut CodecReport,
) -> Result<(), CodecError> {
    let invalid = CodecError::EncodeFailed {
        reason: "the kept state is no turn of this dialect",
    };
    let blocks = resolved
        .payload
        .get("content")
        .and_then(Value::as_array)
        .filter(|blocks| !blocks.is_empty())
        .ok_or(invalid.clone())?;
    let mut message = Vec::new();
    let mut object = ObjectWriter::new(&mut message);
    let mut list = object.key("content").array();
    for block in blocks {
        let kind = block.get("type").and_then(Value::as_str);
        if kind.is_none_or(str::is_empty) {
            return Err(invalid);
        }
        // The server writes blank texts and refuses them when they come back.
        let text = block.get("text").and_then(Value::as_str);
        if kind == Some("text") && text.is_none_or(|text| text.trim().is_empty()) {
            continue;
        }
        list.item().value(block).map_err(|_| invalid.clone())?;
    }
    list.end();
    object.key("role").str("assistant");
    object.end();
    let reference = &resolved.reference;
    let message: std::sync::Arc<[u8]> = message.into();
    if let Some(item) = payload.settle(&reference.reference_id, message.clone()) {
        let scope = format!("{}:{}", reference.provider, reference.api_mode);
        item.keep_fragment(fragment_key(&ItemForm::usual(scope)), message);
        "signed_block_replay".clone_into(&mut report.continuation);
    }
    Ok(())
}
