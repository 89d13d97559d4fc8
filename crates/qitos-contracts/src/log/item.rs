//! What an entry of the log holds.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::ids::{BatchId, CallId, ExchangeId, ItemId};
use crate::tool::result::ToolResult;

/// One entry of the exchange log.
#[derive(Clone, Debug)]
pub struct Item {
    /// Unique in log and queue (LOG-1).
    pub item_id: ItemId,
    /// The exchange it belongs to.
    pub exchange_id: ExchangeId,
    /// What it says.
    pub body: ItemBody,
}

/// The four kinds of entries.
#[derive(Clone, Debug)]
pub enum ItemBody {
    /// What a user said.
    User(UserItem),
    /// What was said while the agent worked, or what the engine says to repair a turn.
    Steering(SteeringItem),
    /// What the model answered.
    Assistant(AssistantItem),
    /// What a call gave.
    ToolResult(ToolResultItem),
}

impl ItemBody {
    /// The word of the log format.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            ItemBody::User(_) => "user",
            ItemBody::Steering(_) => "steering",
            ItemBody::Assistant(_) => "assistant",
            ItemBody::ToolResult(_) => "tool_result",
        }
    }
}

/// A block of content: `{type, text, url, data, mime_type, detail, metadata}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContentBlock {
    /// `text`, `image_url`, `image_base64`, `image_file`.
    pub block_type: Arc<str>,
    /// Text of a text block.
    pub text: Option<Arc<str>>,
    /// Address of an image.
    pub url: Option<Arc<str>>,
    /// Base64 of an image.
    pub data: Option<Arc<str>>,
    /// Media type.
    pub mime_type: Option<Arc<str>>,
    /// Provider's detail level.
    pub detail: Option<Arc<str>>,
    /// Free facts.
    pub metadata: Map<String, Value>,
}

impl ContentBlock {
    /// A text block.
    #[must_use]
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        ContentBlock {
            block_type: "text".into(),
            text: Some(text.into()),
            ..ContentBlock::default()
        }
    }
}

/// A user's words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserItem {
    /// The content.
    pub content: Vec<ContentBlock>,
    /// Free facts.
    pub metadata: Map<String, Value>,
}

/// Words that arrived while the agent worked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SteeringItem {
    /// The content.
    pub content: Vec<ContentBlock>,
    /// Free facts; `source` = `engine.repair` for the engine's own feedback (TXT-7).
    pub metadata: Map<String, Value>,
}

/// A model's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssistantItem {
    /// In the provider's order.
    pub parts: Vec<AssistantPart>,
    /// References to provider state kept elsewhere.
    pub continuation_attachments: Vec<ContinuationAttachment>,
    /// Free facts.
    pub metadata: Map<String, Value>,
}

impl AssistantItem {
    /// The calls in declaration order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCallPart> {
        self.parts.iter().filter_map(|part| match part {
            AssistantPart::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The text of all content parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                AssistantPart::Content(block) => block.text.as_deref(),
                _ => None,
            })
            .collect()
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AssistantPart {
    /// Text or other content.
    Content(ContentBlock),
    /// Reasoning that the provider keeps.
    ReasoningReference(ReasoningReference),
    /// Reasoning that we keep.
    ReasoningBlock(ReasoningBlock),
    /// A declared call.
    ToolCall(ToolCallPart),
}

/// Reasoning kept by the provider or the continuation resolver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningReference {
    /// `provider:api_mode`.
    pub provider_scope: Arc<str>,
    /// The reference.
    pub reference_id: Arc<str>,
    /// The attachment that holds it.
    pub attachment_id: Option<Arc<str>>,
}

/// Reasoning kept in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningBlock {
    /// `provider:api_mode`.
    pub provider_scope: Arc<str>,
    /// The reference.
    pub reference_id: Arc<str>,
    /// The attachment that holds its opaque bytes.
    pub attachment_id: Option<Arc<str>>,
    /// The provider's word for it, such as `reasoning_content` or `thinking`.
    pub block_type: Arc<str>,
    /// Its readable text.
    pub summary: Option<Arc<str>>,
}

/// A reference to opaque provider state (PRV-29); never the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ContinuationAttachment {
    /// Identity inside the item.
    pub attachment_id: Arc<str>,
    /// The persisted reference.
    pub reference: crate::model::ContinuationReference,
}

/// How the arguments of a call were read (LOG-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseStatus {
    /// Nobody tried.
    NotAttempted,
    /// An object is there.
    Parsed,
    /// The text is no JSON.
    MalformedRaw,
    /// JSON, but no object.
    ParsedInvalid,
}

impl ParseStatus {
    /// The word of the log format.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ParseStatus::NotAttempted => "not_attempted",
            ParseStatus::Parsed => "parsed",
            ParseStatus::MalformedRaw => "malformed_raw",
            ParseStatus::ParsedInvalid => "parsed_invalid",
        }
    }
}

/// A declared call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallPart {
    /// `provider:api_mode`, `text` or `agent` (LOG-2).
    pub provider_scope: Arc<str>,
    /// Unique in the log together with the scope.
    pub call_id: CallId,
    /// The batch of this answer.
    pub batch_id: BatchId,
    /// The name as the model wrote it.
    pub name: Arc<str>,
    /// The provider's text, unchanged.
    pub raw_arguments: Arc<str>,
    /// The object, with [`ParseStatus::Parsed`] only.
    pub parsed_arguments: Option<Arc<Value>>,
    /// How the text was read.
    pub parse_status: ParseStatus,
    /// Why it could not be read.
    pub parse_error: Option<Arc<str>>,
    /// Free facts, such as the wire id (PRV-24).
    pub metadata: Map<String, Value>,
}

/// What a call gave.
#[derive(Clone, Debug)]
pub struct ToolResultItem {
    /// Scope of the declaration.
    pub provider_scope: Arc<str>,
    /// Id of the declaration.
    pub call_id: CallId,
    /// Batch of the declaration.
    pub batch_id: BatchId,
    /// The slot's one terminal result.
    pub result: Arc<ToolResult>,
    /// Closed by the engine, not by the tool (LOG-8).
    pub synthetic: bool,
    /// Why it was closed so.
    pub closure_reason: Option<Arc<str>>,
}
