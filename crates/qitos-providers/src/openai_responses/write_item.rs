//! Rule: how one log item looks among the input items of a Responses request.
//!
//! Written directly as JSON text, once per item; requests share the bytes (PRV-12). An answer is as many items as it
//! has parts, in its own order.

use qitos_contracts::canonical_json::{ObjectWriter, write};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ItemBody, ToolCallPart, ToolResultItem,
};
use qitos_contracts::model::{CodecError, ProviderCapabilities};
use serde_json::Value;

use crate::call::{TEXT_SCOPE, replayable_arguments, wire_id};
use crate::image_url::image_url;

/// Content that the dialect carries.
pub(super) const CARRIED: [&str; 4] = ["text", "image_url", "image_base64", "image_file"];

/// What changes an item's bytes beside the item; part of the fragments' key.
#[derive(Clone, Debug, Hash)]
pub(super) struct ItemForm {
    /// Answers are written with the native items that their state holds.
    with_state: bool,
    image_types: Vec<String>,
}

impl ItemForm {
    pub(super) fn of(capabilities: &ProviderCapabilities, with_state: bool) -> Self {
        ItemForm {
            with_state,
            image_types: capabilities.multimodal_types.clone(),
        }
    }

    /// The form of answers that were given their state back.
    pub(super) fn with_state() -> Self {
        ItemForm {
            with_state: true,
            image_types: CARRIED.map(String::from).to_vec(),
        }
    }

    fn carries(&self, block: &ContentBlock) -> bool {
        self.image_types
            .iter()
            .any(|kind| **kind == *block.block_type)
    }
}

/// Writes one item: zero or more input items; an answer without its state.
pub(super) fn write_item(
    body: &ItemBody,
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    match body {
        ItemBody::User(user) => write_user(&user.content, form, out),
        ItemBody::Steering(steering) => write_user(&steering.content, form, out),
        ItemBody::Assistant(assistant) => write_assistant(assistant, &[], out),
        ItemBody::ToolResult(result) => {
            write_result(result, out);
            Ok(())
        }
    }
}

/// `{"content": text, "role": role}`.
pub(super) fn write_message(role: &str, text: &str, out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    object.key("content").str(text);
    object.key("role").str(role);
    object.end();
}

fn write_user(
    content: &[ContentBlock],
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    if let [block] = content
        && &*block.block_type == "text"
    {
        write_message("user", block.text.as_deref().unwrap_or_default(), out);
        return Ok(());
    }
    let mut object = ObjectWriter::new(out);
    let mut list = object.key("content").array();
    // A block that is not carried was declared as a loss before anything is written.
    for block in content.iter().filter(|block| form.carries(block)) {
        let mut part = list.item().object();
        if &*block.block_type == "text" {
            part.key("text")
                .str(block.text.as_deref().unwrap_or_default());
            part.key("type").str("input_text");
        } else {
            if let Some(detail) = &block.detail {
                part.key("detail").str(detail);
            }
            part.key("image_url").str(&image_url(block)?);
            part.key("type").str("input_image");
        }
        part.end();
    }
    list.end();
    object.key("role").str("user");
    object.end();
    Ok(())
}

/// Writes an answer: messages and calls from the log, native items as they were sent, in the answer's order.
///
/// The k-th reasoning part of the log stands where the k-th native item stood. If their numbers differ, somebody
/// changed the answer's parts; the native items then go first, in their order.
pub(super) fn write_assistant(
    assistant: &AssistantItem,
    native: &[Value],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let places = assistant.parts.iter().filter(|part| {
        matches!(
            part,
            AssistantPart::ReasoningBlock(_) | AssistantPart::ReasoningReference(_)
        )
    });
    let in_place = places.count() == native.len();
    let mut native = native.iter();
    let start = out.len();
    let separate = |out: &mut Vec<u8>| {
        if out.len() > start {
            out.push(b',');
        }
    };
    if !in_place {
        for item in native.by_ref() {
            separate(out);
            write_native(item, out)?;
        }
    }
    for part in &assistant.parts {
        match part {
            AssistantPart::Content(block) => {
                if let Some(text) = block.text.as_deref().filter(|text| !text.is_empty()) {
                    separate(out);
                    write_text(text, block, out);
                }
            }
            AssistantPart::ToolCall(call) if &*call.provider_scope != TEXT_SCOPE => {
                separate(out);
                write_call(call, out);
            }
            AssistantPart::ToolCall(_) => {}
            AssistantPart::ReasoningBlock(_) | AssistantPart::ReasoningReference(_) => {
                if let Some(item) = native.next() {
                    separate(out);
                    write_native(item, out)?;
                }
            }
        }
    }
    Ok(())
}

fn write_native(item: &Value, out: &mut Vec<u8>) -> Result<(), CodecError> {
    write(item, out).map_err(|_| CodecError::EncodeFailed {
        reason: "a native item cannot be written",
    })
}

fn write_text(text: &str, block: &ContentBlock, out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    object.key("content").str(text);
    if let Some(phase) = block.metadata.get("phase").and_then(Value::as_str) {
        object.key("phase").str(phase);
    }
    object.key("role").str("assistant");
    object.end();
}

fn write_call(call: &ToolCallPart, out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    object.key("arguments").str(replayable_arguments(call));
    object
        .key("call_id")
        .str(wire_id(call.call_id.as_str(), call.batch_id.as_str()));
    object.key("name").str(&call.name);
    object.key("type").str("function_call");
    object.end();
}

fn write_result(result: &ToolResultItem, out: &mut Vec<u8>) {
    let text = crate::result_text::result_text(&result.result);
    if &*result.provider_scope == TEXT_SCOPE {
        write_message("user", &format!("Observation: {text}"), out);
        return;
    }
    let mut object = ObjectWriter::new(out);
    object
        .key("call_id")
        .str(wire_id(result.call_id.as_str(), result.batch_id.as_str()));
    object.key("output").str(&text);
    object.key("type").str("function_call_output");
    object.end();
}
