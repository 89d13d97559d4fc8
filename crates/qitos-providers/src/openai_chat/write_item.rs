//! Rule: how one log item looks on the Chat wire.
//!
//! Written directly as JSON text, once per item; requests share the bytes (PRV-12).

use qitos_contracts::canonical_json::{ObjectWriter, ValueWriter, write_str};
use qitos_contracts::log::{AssistantItem, AssistantPart, ContentBlock, ItemBody, ToolResultItem};
use qitos_contracts::model::{CodecError, ProviderCapabilities, ReasoningMode, RequestView};

use crate::call::{TEXT_SCOPE, replayable_arguments, wire_id};
use crate::image_url::image_url;

/// What a target can carry; part of the fragments' key.
#[derive(Clone, Debug, Hash)]
pub(crate) struct ItemForm {
    /// Reasoning goes back in the field it came in (PRV-20).
    pub(crate) replays_reasoning: bool,
    carries_calls: bool,
    image_types: Vec<String>,
}

impl ItemForm {
    pub(crate) fn of(view: &RequestView, capabilities: &ProviderCapabilities) -> Self {
        ItemForm {
            replays_reasoning: capabilities.supports_reasoning_input
                && view.reasoning_policy.mode != ReasoningMode::Drop,
            carries_calls: capabilities.supports_native_tool_calls,
            image_types: capabilities.multimodal_types.clone(),
        }
    }

    fn carries(&self, block: &ContentBlock) -> bool {
        self.image_types
            .iter()
            .any(|kind| **kind == *block.block_type)
    }
}

/// Writes one item: one message, never nothing.
pub(crate) fn write_item(
    body: &ItemBody,
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    match body {
        ItemBody::User(user) => write_user(&user.content, form, out),
        ItemBody::Steering(steering) => write_user(&steering.content, form, out),
        ItemBody::Assistant(assistant) => write_assistant(assistant, form, out),
        ItemBody::ToolResult(result) => {
            write_result(result, out);
            Ok(())
        }
    }
}

/// `{"content": text, "role": role}`.
pub(crate) fn write_message(role: &str, text: &str, out: &mut Vec<u8>) {
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
            part.key("type").str("text");
        } else {
            let url = image_url(block)?;
            let mut image = part.key("image_url").object();
            if let Some(detail) = &block.detail {
                image.key("detail").str(detail);
            }
            image.key("url").str(&url);
            image.end();
            part.key("type").str("image_url");
        }
        part.end();
    }
    list.end();
    object.key("role").str("user");
    object.end();
    Ok(())
}

fn write_assistant(
    assistant: &AssistantItem,
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let native = || {
        assistant
            .calls()
            .filter(|call| &*call.provider_scope != TEXT_SCOPE)
    };
    let has_calls = native().next().is_some();
    if has_calls && !form.carries_calls {
        return Err(CodecError::CapabilityMismatch {
            unsupported: vec!["tool_calls".to_owned()],
        });
    }
    let mut object = ObjectWriter::new(out);
    write_content(assistant, has_calls, object.key("content"));
    if form.replays_reasoning {
        for field in ["reasoning", "reasoning_content"] {
            if let Some(text) = reasoning_text(assistant, field) {
                object.key(field).str(&text);
            }
        }
    }
    object.key("role").str("assistant");
    if has_calls {
        let mut list = object.key("tool_calls").array();
        for call in native() {
            let mut entry = list.item().object();
            let mut function = entry.key("function").object();
            function.key("arguments").str(replayable_arguments(call));
            function.key("name").str(&call.name);
            function.end();
            entry
                .key("id")
                .str(wire_id(call.call_id.as_str(), call.batch_id.as_str()));
            entry.key("type").str("function");
            entry.end();
        }
        list.end();
    }
    object.end();
    Ok(())
}

fn write_content(assistant: &AssistantItem, has_calls: bool, value: ValueWriter<'_>) {
    let mut texts = assistant.parts.iter().filter_map(|part| match part {
        AssistantPart::Content(block) => block.text.as_deref(),
        _ => None,
    });
    match (texts.next(), texts.next()) {
        (None, _) if has_calls => value.null(),
        (None, _) => value.str(""),
        (Some(only), None) => value.str(only),
        (Some(_), Some(_)) => value.str(&assistant.text()),
    }
}

fn reasoning_text(assistant: &AssistantItem, field: &str) -> Option<String> {
    let mut text: Option<String> = None;
    for part in &assistant.parts {
        if let AssistantPart::ReasoningBlock(block) = part
            && &*block.block_type == field
            && let Some(summary) = &block.summary
        {
            text.get_or_insert_default().push_str(summary);
        }
    }
    text
}

fn write_result(result: &ToolResultItem, out: &mut Vec<u8>) {
    let text = crate::result_text::result_text(&result.result);
    if &*result.provider_scope == TEXT_SCOPE {
        write_message("user", &format!("Observation: {text}"), out);
        return;
    }
    out.extend_from_slice(b"{\"content\":");
    write_str(&text, out);
    out.extend_from_slice(b",\"role\":\"tool\",\"tool_call_id\":");
    write_str(
        wire_id(result.call_id.as_str(), result.batch_id.as_str()),
        out,
    );
    out.push(b'}');
}
