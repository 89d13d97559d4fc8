//! Rule: how one log item looks on the Messages wire.
//!
//! Written directly as JSON text, once per item; requests share the bytes (PRV-12). What stands here
//! is the form without provider state; a turn with state is written by `continuation.rs`.

use qitos_contracts::canonical_json::{ObjectWriter, ValueWriter};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ItemBody, SealedItem, ToolCallPart, ToolResultItem,
};
use qitos_contracts::model::{CodecError, ProviderCapabilities, ReasoningMode, RequestView};
use qitos_contracts::tool::result::TerminalStatus;

use super::batch::Batches;
use crate::call::{TEXT_SCOPE, replayable_arguments, wire_id};
use crate::result_text::result_text;

/// What a target can carry; part of the fragments' key.
#[derive(Clone, Debug, Hash)]
pub(crate) struct ItemForm {
    /// Scope of the ids that the target made itself; others may not fit its pattern.
    scope: String,
    /// Signed reasoning goes back (PRV-32).
    pub(crate) replays_reasoning: bool,
    /// Images go as base64.
    carries_images: bool,
}

impl ItemForm {
    pub(crate) fn of(view: &RequestView, capabilities: &ProviderCapabilities) -> Self {
        ItemForm {
            scope: view.target.scope(),
            replays_reasoning: capabilities.supports_reasoning_input
                && view.reasoning_policy.mode != ReasoningMode::Drop,
            carries_images: capabilities
                .multimodal_types
                .iter()
                .any(|kind| kind == "image_base64"),
        }
    }

    /// The form of a request whose policy and capabilities are the usual ones; under others a turn
    /// with state is written anew for each request.
    pub(crate) fn usual(scope: String) -> Self {
        ItemForm {
            scope,
            replays_reasoning: true,
            carries_images: true,
        }
    }
}

/// Writes one item: one message, or nothing if nothing of an answer can be sent back or an earlier
/// result of the batch was written with this one.
pub(crate) fn write_item(
    item: &SealedItem,
    batches: &mut Batches<'_>,
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    match &item.item().body {
        ItemBody::User(user) => write_user(&user.content, form, out),
        ItemBody::Steering(steering) => write_user(&steering.content, form, out),
        ItemBody::Assistant(assistant) => write_assistant(assistant, form, out),
        ItemBody::ToolResult(result) if &*result.provider_scope == TEXT_SCOPE => {
            let text = result_text(&result.result);
            write_user_text(&format!("Observation: {text}"), out);
            Ok(())
        }
        ItemBody::ToolResult(result) => {
            write_results(&batches.results(item, result)?, form, out);
            Ok(())
        }
    }
}

/// `{"content": text, "role": "user"}`.
pub(crate) fn write_user_text(text: &str, out: &mut Vec<u8>) {
    let mut object = ObjectWriter::new(out);
    object.key("content").str(text);
    object.key("role").str("user");
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
        write_user_text(block.text.as_deref().unwrap_or_default(), out);
        return Ok(());
    }
    let mut object = ObjectWriter::new(out);
    let mut list = object.key("content").array();
    for block in content {
        match &*block.block_type {
            "text" => write_text(list.item(), block.text.as_deref().unwrap_or_default()),
            "image_base64" if form.carries_images => write_image(list.item(), block)?,
            // A block that is not carried was declared as a loss before anything is written.
            _ => {}
        }
    }
    list.end();
    object.key("role").str("user");
    object.end();
    Ok(())
}

fn write_text(value: ValueWriter<'_>, text: &str) {
    let mut block = value.object();
    block.key("text").str(text);
    block.key("type").str("text");
    block.end();
}

fn write_image(value: ValueWriter<'_>, block: &ContentBlock) -> Result<(), CodecError> {
    let data = block.data.as_deref().ok_or(CodecError::EncodeFailed {
        reason: "an image block has no data",
    })?;
    let mut image = value.object();
    let mut source = image.key("source").object();
    source.key("data").str(data);
    source
        .key("media_type")
        .str(block.mime_type.as_deref().unwrap_or("image/png"));
    source.key("type").str("base64");
    source.end();
    image.key("type").str("image");
    image.end();
    Ok(())
}

/// Texts and calls in the provider's order; blank texts are left out, because the server refuses them.
fn write_assistant(
    assistant: &AssistantItem,
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let start = out.len();
    let mut object = ObjectWriter::new(out);
    let mut list = object.key("content").array();
    let mut written = 0;
    for part in &assistant.parts {
        match part {
            AssistantPart::Content(block) => {
                let text = block.text.as_deref().unwrap_or_default();
                if text.trim().is_empty() {
                    continue;
                }
                write_text(list.item(), text);
            }
            AssistantPart::ToolCall(call) if &*call.provider_scope != TEXT_SCOPE => {
                write_call(list.item(), call, form)?;
            }
            _ => continue,
        }
        written += 1;
    }
    list.end();
    object.key("role").str("assistant");
    object.end();
    if written == 0 {
        out.truncate(start);
    }
    Ok(())
}

fn write_call(
    value: ValueWriter<'_>,
    call: &ToolCallPart,
    form: &ItemForm,
) -> Result<(), CodecError> {
    let mut block = value.object();
    let id = wire_id(call.call_id.as_str(), call.batch_id.as_str());
    block
        .key("id")
        .str(&fitting_id(id, &call.provider_scope, form));
    let input = block.key("input");
    match &call.parsed_arguments {
        Some(parsed) => input.value(parsed).map_err(|_| CodecError::EncodeFailed {
            reason: "the arguments of a call are not JSON",
        })?,
        None => input.raw(replayable_arguments(call).as_bytes()),
    }
    block.key("name").str(&call.name);
    block.key("type").str("tool_use");
    block.end();
    Ok(())
}

/// The server takes `[A-Za-z0-9_-]` in ids; its own go back as they came.
fn fitting_id<'a>(id: &'a str, scope: &str, form: &ItemForm) -> std::borrow::Cow<'a, str> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    if scope == form.scope || id.chars().all(fits) {
        return id.into();
    }
    id.chars()
        .map(|character| if fits(character) { character } else { '_' })
        .collect()
}

fn write_results(results: &[&ToolResultItem], form: &ItemForm, out: &mut Vec<u8>) {
    if results.is_empty() {
        return;
    }
    let mut object = ObjectWriter::new(out);
    let mut list = object.key("content").array();
    for result in results {
        let text = result_text(&result.result);
        let id = wire_id(result.call_id.as_str(), result.batch_id.as_str());
        let mut block = list.item().object();
        if !text.is_empty() {
            block.key("content").str(&text);
        }
        if result.result.status() != TerminalStatus::Success {
            block.key("is_error").bool(true);
        }
        block
            .key("tool_use_id")
            .str(&fitting_id(id, &result.provider_scope, form));
        block.key("type").str("tool_result");
        block.end();
    }
    list.end();
    object.key("role").str("user");
    object.end();
}
