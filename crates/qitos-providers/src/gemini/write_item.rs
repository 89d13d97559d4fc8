//! Rule: how one log item looks on the Gemini wire.
//!
//! Written directly as JSON text, once per item; requests share the bytes (PRV-12).

use qitos_contracts::canonical_json::{ArrayWriter, ObjectWriter};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ItemBody, ItemList, SealedItem, ToolCallPart,
    ToolResultItem,
};
use qitos_contracts::model::{CodecError, ProviderCapabilities};
use serde_json::Value;

use super::capabilities::IMAGE_TYPES;
use crate::call::{TEXT_SCOPE, replayable_arguments};
use crate::result_text::result_text;

/// What a target can carry; part of the fragments' key.
#[derive(Clone, Debug, Hash)]
pub(super) struct ItemForm {
    /// Earlier thoughts stay away, as declared.
    drops_reasoning: bool,
    image_types: Vec<String>,
}

impl ItemForm {
    pub(super) fn of(capabilities: &ProviderCapabilities, drops_reasoning: bool) -> Self {
        let carried = |kind: &&str| {
            capabilities
                .multimodal_types
                .iter()
                .any(|have| have == kind)
        };
        ItemForm {
            drops_reasoning,
            image_types: IMAGE_TYPES
                .into_iter()
                .filter(carried)
                .map(String::from)
                .collect(),
        }
    }

    /// The form of this dialect's own capabilities.
    pub(super) fn own(drops_reasoning: bool) -> Self {
        ItemForm {
            drops_reasoning,
            image_types: IMAGE_TYPES.map(String::from).to_vec(),
        }
    }

    fn carries(&self, block: &ContentBlock) -> bool {
        &*block.block_type == "text"
            || self
                .image_types
                .iter()
                .any(|kind| **kind == *block.block_type)
    }
}

/// Finds the batch that a result belongs to, walking the list forwards at most once.
pub(super) struct Batches<'items> {
    items: &'items ItemList,
    place: Option<usize>,
}

/// The calls of one answer and the results that stand between it and the asked one.
struct Batch<'items> {
    calls: Vec<&'items ToolCallPart>,
    results: Vec<&'items ToolResultItem>,
}

impl<'items> Batches<'items> {
    pub(super) fn new(items: &'items ItemList) -> Self {
        Batches { items, place: None }
    }

    /// The results of the newest batch are all there; the wire takes no open one (CTX-28).
    pub(super) fn check_last_is_complete(&self) -> Result<(), CodecError> {
        let last = self.items.len().checked_sub(1);
        let Some(place) = last.filter(|place| self.native_result(*place).is_some()) else {
            return Ok(());
        };
        let batch = self.batch_at(place)?;
        if batch.results.len() == batch.calls.len() {
            Ok(())
        } else {
            Err(CodecError::ClosureViolation)
        }
    }

    fn native_result(&self, place: usize) -> Option<&'items ToolResultItem> {
        match &self.items.get(place)?.item().body {
            ItemBody::ToolResult(result) if &*result.provider_scope != TEXT_SCOPE => Some(result),
            _ => None,
        }
    }

    /// The batch up to and with `item`.
    fn of(&mut self, item: &SealedItem) -> Result<Batch<'items>, CodecError> {
        let is_it = |place: &usize| {
            self.items
                .get(*place)
                .is_some_and(|candidate| std::ptr::eq(&**candidate, item))
        };
        let length = self.items.len();
        let found = match self.place {
            Some(place) => (place..length).find(is_it),
            // What is not encoded yet is usually the newest.
            None => (0..length).rev().find(is_it),
        };
        let place = found.ok_or(CodecError::ClosureViolation)?;
        self.place = Some(place);
        self.batch_at(place)
    }

    fn batch_at(&self, place: usize) -> Result<Batch<'items>, CodecError> {
        let mut results = Vec::new();
        let mut at = place;
        while let Some(result) = self.native_result(at) {
            results.push(result);
            at = at.checked_sub(1).ok_or(CodecError::ClosureViolation)?;
        }
        let declaring = self.items.get(at).map(|item| &item.item().body);
        let Some(ItemBody::Assistant(assistant)) = declaring else {
            return Err(CodecError::ClosureViolation);
        };
        let calls = native_calls(assistant).collect();
        Ok(Batch { calls, results })
    }
}

fn native_calls(assistant: &AssistantItem) -> impl Iterator<Item = &ToolCallPart> {
    assistant
        .calls()
        .filter(|call| &*call.provider_scope != TEXT_SCOPE)
}

/// Writes one item: one content, or nothing for a result that is not the last of its batch.
pub(super) fn write_item(
    item: &SealedItem,
    form: &ItemForm,
    scope: &str,
    batches: &mut Batches<'_>,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    match &item.item().body {
        ItemBody::User(user) => write_user(&user.content, form, out),
        ItemBody::Steering(steering) => write_user(&steering.content, form, out),
        ItemBody::Assistant(assistant) => write_assistant(assistant, form, scope, out),
        ItemBody::ToolResult(result) if &*result.provider_scope == TEXT_SCOPE => {
            let text = result_text(&result.result);
            write_text("user", &format!("Observation: {text}"), out);
            Ok(())
        }
        ItemBody::ToolResult(_) => write_results(&batches.of(item)?, out),
    }
}

/// `{"parts":[{"text": text}],"role": role}`.
pub(super) fn write_text(role: &str, text: &str, out: &mut Vec<u8>) {
    write_content(role, out, |parts| {
        write_text_part(text, parts);
        Ok(())
    })
    // Writing text cannot fail.
    .unwrap_or_default();
}

fn write_content(
    role: &str,
    out: &mut Vec<u8>,
    write_parts: impl FnOnce(&mut ArrayWriter<'_>) -> Result<(), CodecError>,
) -> Result<(), CodecError> {
    let mut object = ObjectWriter::new(out);
    let mut parts = object.key("parts").array();
    write_parts(&mut parts)?;
    parts.end();
    object.key("role").str(role);
    object.end();
    Ok(())
}

fn write_text_part(text: &str, parts: &mut ArrayWriter<'_>) {
    let mut part = parts.item().object();
    part.key("text").str(text);
    part.end();
}

fn write_user(
    content: &[ContentBlock],
    form: &ItemForm,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    write_content("user", out, |parts| {
        let mut empty = true;
        // A block that is not carried was declared as a loss before anything is written.
        for block in content.iter().filter(|block| form.carries(block)) {
            empty = false;
            if &*block.block_type == "text" {
                write_text_part(block.text.as_deref().unwrap_or_default(), parts);
            } else {
                write_image(block, parts)?;
            }
        }
        if empty {
            // A content needs a part.
            write_text_part("", parts);
        }
        Ok(())
    })
}

fn write_image(block: &ContentBlock, parts: &mut ArrayWriter<'_>) -> Result<(), CodecError> {
    let mut part = parts.item().object();
    let inline = block
        .url
        .as_deref()
        .and_then(|url| url.strip_prefix("data:")?.split_once(";base64,"));
    let data = match (inline, &block.data) {
        (Some(inline), _) => Some(inline),
        (None, Some(data)) if block.url.is_none() => {
            Some((block.mime_type.as_deref().unwrap_or("image/png"), &**data))
        }
        _ => None,
    };
    match (data, &block.url) {
        (Some((mime_type, data)), _) => {
            let mut image = part.key("inlineData").object();
            image.key("data").str(data);
            image.key("mimeType").str(mime_type);
            image.end();
        }
        (None, Some(url)) => {
            let mut image = part.key("fileData").object();
            image.key("fileUri").str(url);
            if let Some(mime_type) = &block.mime_type {
                image.key("mimeType").str(mime_type);
            }
            image.end();
        }
        (None, None) => {
            return Err(CodecError::EncodeFailed {
                reason: "an image block has neither url nor data",
            });
        }
    }
    part.end();
    Ok(())
}

/// An answer without provider state: its parts in their order.
fn write_assistant(
    assistant: &AssistantItem,
    form: &ItemForm,
    scope: &str,
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    write_content("model", out, |parts| {
        let mut empty = true;
        for part in &assistant.parts {
            match part {
                AssistantPart::Content(block) => {
                    let Some(text) = block.text.as_deref() else {
                        continue;
                    };
                    write_text_part(text, parts);
                }
                AssistantPart::ReasoningBlock(block)
                    if !form.drops_reasoning
                        && *block.provider_scope == *scope
                        && &*block.block_type == "thought" =>
                {
                    let mut thought = parts.item().object();
                    let text = block.summary.as_deref().unwrap_or_default();
                    thought.key("text").str(text);
                    thought.key("thought").bool(true);
                    thought.end();
                }
                AssistantPart::ReasoningBlock(_) | AssistantPart::ReasoningReference(_) => continue,
                AssistantPart::ToolCall(call) if &*call.provider_scope == TEXT_SCOPE => continue,
                AssistantPart::ToolCall(call) => write_call(call, parts)?,
            }
            empty = false;
        }
        if empty {
            write_text_part("", parts);
        }
        Ok(())
    })
}

fn write_call(call: &ToolCallPart, parts: &mut ArrayWriter<'_>) -> Result<(), CodecError> {
    let mut part = parts.item().object();
    let mut function = part.key("functionCall").object();
    function
        .key("args")
        .raw(replayable_arguments(call).as_bytes());
    if let Some(id) = wire_id(call) {
        function.key("id").str(id);
    }
    function.key("name").str(&call.name);
    function.end();
    part.end();
    Ok(())
}

/// The id that the provider gave a call, if it gave one.
fn wire_id(call: &ToolCallPart) -> Option<&str> {
    call.metadata.get("wire_id").and_then(Value::as_str)
}

/// All results of a batch as one content, in declaration order; nothing before the last one is there.
fn write_results(batch: &Batch<'_>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    if batch.results.len() < batch.calls.len() {
        return Ok(());
    }
    write_content("user", out, |parts| {
        for call in &batch.calls {
            let result = batch
                .results
                .iter()
                .find(|result| result.call_id == call.call_id)
                .ok_or(CodecError::ClosureViolation)?;
            let mut part = parts.item().object();
            let mut function = part.key("functionResponse").object();
            if let Some(id) = wire_id(call) {
                function.key("id").str(id);
            }
            function.key("name").str(&call.name);
            let mut response = function.key("response").object();
            let key = if result.result.success_flag() {
                "output"
            } else {
                "error"
            };
            response.key(key).str(&result_text(&result.result));
            response.end();
            function.end();
            part.end();
        }
        Ok(())
    })
}
