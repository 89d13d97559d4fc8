//! The canonical form of an item, written directly and read strictly.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::item::{
    AssistantItem, AssistantPart, ContentBlock, ContinuationAttachment, Item, ItemBody,
    ParseStatus, ReasoningBlock, ReasoningReference, SteeringItem, ToolCallPart, ToolResultItem,
    UserItem,
};
use crate::canonical_json::{ArrayWriter, CanonicalError, ObjectWriter};
use crate::model::ContinuationReference;
use crate::tool::result::ToolResult;

impl Item {
    /// Appends the canonical JSON of the item.
    ///
    /// # Errors
    /// Metadata or arguments hold a number that canonical JSON refuses; `buffer` then holds half an item.
    pub fn write_canonical(&self, buffer: &mut Vec<u8>) -> Result<(), CanonicalError> {
        let mut object = ObjectWriter::new(buffer);
        match &self.body {
            ItemBody::User(UserItem { content, metadata })
            | ItemBody::Steering(SteeringItem { content, metadata }) => {
                write_blocks(object.key("content").array(), content)?;
                object.key("exchange_id").str(self.exchange_id.as_str());
                object.key("item_id").str(self.item_id.as_str());
                object.key("kind").str(self.body.kind());
                write_map(&mut object, "metadata", metadata)?;
            }
            ItemBody::Assistant(assistant) => {
                let mut attachments = object.key("continuation_attachments").array();
                for attachment in &assistant.continuation_attachments {
                    let mut entry = attachments.item().object();
                    entry.key("attachment_id").str(&attachment.attachment_id);
                    entry.key("reference").serialize(&attachment.reference)?;
                    entry.end();
                }
                attachments.end();
                object.key("exchange_id").str(self.exchange_id.as_str());
                object.key("item_id").str(self.item_id.as_str());
                object.key("kind").str("assistant");
                write_map(&mut object, "metadata", &assistant.metadata)?;
                let mut parts = object.key("parts").array();
                for part in &assistant.parts {
                    write_part(parts.item().object(), part)?;
                }
                parts.end();
            }
            ItemBody::ToolResult(result) => {
                object.key("batch_id").str(result.batch_id.as_str());
                object.key("call_id").str(result.call_id.as_str());
                object
                    .key("closure_reason")
                    .optional_str(result.closure_reason.as_deref());
                object.key("exchange_id").str(self.exchange_id.as_str());
                object.key("item_id").str(self.item_id.as_str());
                object.key("kind").str("tool_result");
                object.key("provider_scope").str(&result.provider_scope);
                object.key("result").raw(result.result.canonical_bytes());
                object.key("synthetic").bool(result.synthetic);
            }
        }
        object.end();
        Ok(())
    }
}

fn write_map(
    object: &mut ObjectWriter<'_>,
    key: &str,
    map: &Map<String, Value>,
) -> Result<(), CanonicalError> {
    if map.is_empty() {
        object.key(key).raw(b"{}");
        Ok(())
    } else {
        object.key(key).serialize(map)
    }
}

fn write_blocks(mut array: ArrayWriter<'_>, blocks: &[ContentBlock]) -> Result<(), CanonicalError> {
    for block in blocks {
        write_block(array.item().object(), block)?;
    }
    array.end();
    Ok(())
}

fn write_block(mut object: ObjectWriter<'_>, block: &ContentBlock) -> Result<(), CanonicalError> {
    object.key("data").optional_str(block.data.as_deref());
    object.key("detail").optional_str(block.detail.as_deref());
    write_map(&mut object, "metadata", &block.metadata)?;
    object
        .key("mime_type")
        .optional_str(block.mime_type.as_deref());
    object.key("text").optional_str(block.text.as_deref());
    object.key("type").str(&block.block_type);
    object.key("url").optional_str(block.url.as_deref());
    object.end();
    Ok(())
}

fn write_part(mut object: ObjectWriter<'_>, part: &AssistantPart) -> Result<(), CanonicalError> {
    match part {
        AssistantPart::Content(block) => {
            write_block(object.key("block").object(), block)?;
            object.key("kind").str("content");
        }
        AssistantPart::ReasoningReference(reference) => {
            object
                .key("attachment_id")
                .optional_str(reference.attachment_id.as_deref());
            object.key("kind").str("reasoning_reference");
            object.key("provider_scope").str(&reference.provider_scope);
            object.key("reference_id").str(&reference.reference_id);
        }
        AssistantPart::ReasoningBlock(block) => {
            object
                .key("attachment_id")
                .optional_str(block.attachment_id.as_deref());
            object.key("block_type").str(&block.block_type);
            object.key("kind").str("reasoning_block");
            object.key("provider_scope").str(&block.provider_scope);
            object.key("reference_id").str(&block.reference_id);
            object.key("summary").optional_str(block.summary.as_deref());
        }
        AssistantPart::ToolCall(call) => {
            object.key("batch_id").str(call.batch_id.as_str());
            object.key("call_id").str(call.call_id.as_str());
            object.key("kind").str("tool_call");
            write_map(&mut object, "metadata", &call.metadata)?;
            object.key("name").str(&call.name);
            object
                .key("parse_error")
                .optional_str(call.parse_error.as_deref());
            object.key("parse_status").str(call.parse_status.as_str());
            match &call.parsed_arguments {
                Some(arguments) => object.key("parsed_arguments").value(arguments)?,
                None => object.key("parsed_arguments").null(),
            }
            object.key("provider_scope").str(&call.provider_scope);
            object.key("raw_arguments").str(&call.raw_arguments);
        }
    }
    object.end();
    Ok(())
}

/// An item that does not have the form of the log: `invalid_exchange_item`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an item of the log is not valid at `{field}`")]
pub struct InvalidItem {
    /// The field, without its value.
    pub field: &'static str,
}

/// Takes fields out of an object and refuses what is left over.
struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    fn new(value: Value, field: &'static str) -> Result<Self, InvalidItem> {
        match value {
            Value::Object(map) => Ok(Fields { map }),
            _ => Err(InvalidItem { field }),
        }
    }

    fn take(&mut self, field: &'static str) -> Result<Value, InvalidItem> {
        self.map.remove(field).ok_or(InvalidItem { field })
    }

    fn text(&mut self, field: &'static str) -> Result<String, InvalidItem> {
        match self.take(field)? {
            Value::String(text) => Ok(text),
            _ => Err(InvalidItem { field }),
        }
    }

    fn optional_text(&mut self, field: &'static str) -> Result<Option<Arc<str>>, InvalidItem> {
        match self.take(field)? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.into())),
            _ => Err(InvalidItem { field }),
        }
    }

    fn parse<T: std::str::FromStr>(&mut self, field: &'static str) -> Result<T, InvalidItem> {
        self.text(field)?.parse().map_err(|_| InvalidItem { field })
    }

    fn map(&mut self, field: &'static str) -> Result<Map<String, Value>, InvalidItem> {
        match self.take(field)? {
            Value::Object(map) => Ok(map),
            _ => Err(InvalidItem { field }),
        }
    }

    fn array(&mut self, field: &'static str) -> Result<Vec<Value>, InvalidItem> {
        match self.take(field)? {
            Value::Array(items) => Ok(items),
            _ => Err(InvalidItem { field }),
        }
    }

    fn finish(self) -> Result<(), InvalidItem> {
        if self.map.is_empty() {
            Ok(())
        } else {
            Err(InvalidItem { field: "unknown" })
        }
    }
}

impl Item {
    /// Reads the canonical form back; unknown and missing fields are refused.
    ///
    /// # Errors
    /// `invalid_exchange_item` naming the field, never its value.
    pub fn from_value(value: Value) -> Result<Item, InvalidItem> {
        let mut fields = Fields::new(value, "item")?;
        let item_id = fields.parse("item_id")?;
        let exchange_id = fields.parse("exchange_id")?;
        let body = match fields.text("kind")?.as_str() {
            "user" => ItemBody::User(UserItem {
                content: read_blocks(&mut fields)?,
                metadata: fields.map("metadata")?,
            }),
            "steering" => ItemBody::Steering(SteeringItem {
                content: read_blocks(&mut fields)?,
                metadata: fields.map("metadata")?,
            }),
            "assistant" => ItemBody::Assistant(read_assistant(&mut fields)?),
            "tool_result" => ItemBody::ToolResult(ToolResultItem {
                provider_scope: fields.text("provider_scope")?.into(),
                call_id: fields.parse("call_id")?,
                batch_id: fields.parse("batch_id")?,
                result: Arc::new(
                    ToolResult::from_value(fields.take("result")?)
                        .map_err(|_| InvalidItem { field: "result" })?,
                ),
                synthetic: match fields.take("synthetic")? {
                    Value::Bool(synthetic) => synthetic,
                    _ => return Err(InvalidItem { field: "synthetic" }),
                },
                closure_reason: fields.optional_text("closure_reason")?,
            }),
            _ => return Err(InvalidItem { field: "kind" }),
        };
        fields.finish()?;
        Ok(Item {
            item_id,
            exchange_id,
            body,
        })
    }
}

fn read_blocks(fields: &mut Fields) -> Result<Vec<ContentBlock>, InvalidItem> {
    fields
        .array("content")?
        .into_iter()
        .map(read_block)
        .collect()
}

fn read_block(value: Value) -> Result<ContentBlock, InvalidItem> {
    let mut fields = Fields::new(value, "block")?;
    let block = ContentBlock {
        block_type: fields.text("type")?.into(),
        text: fields.optional_text("text")?,
        url: fields.optional_text("url")?,
        data: fields.optional_text("data")?,
        mime_type: fields.optional_text("mime_type")?,
        detail: fields.optional_text("detail")?,
        metadata: fields.map("metadata")?,
    };
    fields.finish()?;
    Ok(block)
}

fn read_assistant(fields: &mut Fields) -> Result<AssistantItem, InvalidItem> {
    let parts = fields
        .array("parts")?
        .into_iter()
        .map(read_part)
        .collect::<Result<_, _>>()?;
    let continuation_attachments = fields
        .array("continuation_attachments")?
        .into_iter()
        .map(|value| {
            let mut entry = Fields::new(value, "continuation_attachments")?;
            let attachment_id = entry.text("attachment_id")?.into();
            let reference: ContinuationReference = serde_json::from_value(entry.take("reference")?)
                .map_err(|_| InvalidItem {
                    field: "continuation_attachments",
                })?;
            entry.finish()?;
            Ok(ContinuationAttachment {
                attachment_id,
                reference,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(AssistantItem {
        parts,
        continuation_attachments,
        metadata: fields.map("metadata")?,
    })
}

fn read_part(value: Value) -> Result<AssistantPart, InvalidItem> {
    let mut fields = Fields::new(value, "parts")?;
    let part = match fields.text("kind")?.as_str() {
        "content" => AssistantPart::Content(read_block(fields.take("block")?)?),
        "reasoning_reference" => AssistantPart::ReasoningReference(ReasoningReference {
            provider_scope: fields.text("provider_scope")?.into(),
            reference_id: fields.text("reference_id")?.into(),
            attachment_id: fields.optional_text("attachment_id")?,
        }),
        "reasoning_block" => AssistantPart::ReasoningBlock(ReasoningBlock {
            provider_scope: fields.text("provider_scope")?.into(),
            reference_id: fields.text("reference_id")?.into(),
            attachment_id: fields.optional_text("attachment_id")?,
            block_type: fields.text("block_type")?.into(),
            summary: fields.optional_text("summary")?,
        }),
        "tool_call" => AssistantPart::ToolCall(read_call(&mut fields)?),
        _ => return Err(InvalidItem { field: "parts" }),
    };
    fields.finish()?;
    Ok(part)
}

fn read_call(fields: &mut Fields) -> Result<ToolCallPart, InvalidItem> {
    let parse_status = match fields.text("parse_status")?.as_str() {
        "not_attempted" => ParseStatus::NotAttempted,
        "parsed" => ParseStatus::Parsed,
        "malformed_raw" => ParseStatus::MalformedRaw,
        "parsed_invalid" => ParseStatus::ParsedInvalid,
        _ => {
            return Err(InvalidItem {
                field: "parse_status",
            });
        }
    };
    let parsed_arguments = match fields.take("parsed_arguments")? {
        Value::Null => None,
        value @ Value::Object(_) => Some(Arc::new(value)),
        _ => {
            return Err(InvalidItem {
                field: "parsed_arguments",
            });
        }
    };
    if parsed_arguments.is_some() != (parse_status == ParseStatus::Parsed) {
        return Err(InvalidItem {
            field: "parsed_arguments",
        });
    }
    Ok(ToolCallPart {
        provider_scope: fields.text("provider_scope")?.into(),
        call_id: fields.parse("call_id")?,
        batch_id: fields.parse("batch_id")?,
        name: fields.text("name")?.into(),
        raw_arguments: fields.text("raw_arguments")?.into(),
        parsed_arguments,
        parse_status,
        parse_error: fields.optional_text("parse_error")?,
        metadata: fields.map("metadata")?,
    })
}
