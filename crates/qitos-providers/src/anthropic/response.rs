//! A whole Messages answer: reading, judging, decoding (PRV-49, PRV-57, PRV-61).
//!
//! A streamed answer is assembled into the same object that a non-streamed one is, and both pass
//! [`Message::validate`]. The one difference is PRV-22: unparsable arguments fail a stream closed,
//! while a non-streamed answer keeps the call as one that cannot be executed.

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::{
    DecodedResponse, Finish, FinishReason, ReasoningMode, RequestView, ResponsePart,
};
use serde_json::{Map, Value};

use super::block::{Block, Content};
use super::continuation::State;
use super::profile::AnthropicProfile;
use super::usage::Usage;
use crate::call::{
    MAX_TOOL_SLOTS, RawCall, check_calls, check_item_size, is_plain_id, normal_call, take_text,
};
use crate::classify_failure::ProviderFault;
use crate::json_text::Lenient;
use crate::verdict::{Defect, FailedAnswer, PartialCounts, Violation, parse_object};

/// Most blocks of one answer, so that empty ones cannot pile up.
pub(crate) const MAX_BLOCKS: usize = 4_096;

/// A whole answer, not yet judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) stop_reason: String,
    pub(crate) usage: Usage,
    /// A call's input was told twice, differently.
    pub(crate) inputs_disagree: bool,
}

impl Message {
    fn calls(&self) -> impl Iterator<Item = &RawCall> + Clone {
        self.blocks.iter().filter_map(Block::call)
    }

    /// Whether every call's arguments can be read as an object, numbers included.
    pub(crate) fn inputs_are_read(&self) -> bool {
        self.calls()
            .all(|call| parse_object(&call.arguments).is_ok())
    }

    /// A defect with what had arrived.
    pub(crate) fn failed(&self, defect: Defect) -> FailedAnswer {
        let characters = |text: &str| text.chars().count() as u64;
        FailedAnswer {
            defect,
            counts: PartialCounts {
                text_characters: self
                    .blocks
                    .iter()
                    .filter_map(Block::text)
                    .map(characters)
                    .sum(),
                reasoning_characters: self
                    .blocks
                    .iter()
                    .filter_map(Block::thinking)
                    .map(characters)
                    .sum(),
                tool_calls: self.calls().count() as u64,
            },
            usage: self.usage.neutral(),
        }
    }

    /// The verdict, the same for both ways an answer comes (PRV-49).
    pub(crate) fn validate(
        &self,
        profile: &AnthropicProfile,
        streamed: bool,
    ) -> Result<FinishReason, Defect> {
        if self.stop_reason == "refusal" {
            return Err(Defect::Refusal);
        }
        let finish = self.read_finish(profile)?;
        let has_calls = self.calls().next().is_some();
        if finish == FinishReason::Length && has_calls {
            return Err(Violation::TruncatedToolInput.into());
        }
        if self.inputs_disagree {
            return Err(Violation::IncompleteToolInput.into());
        }
        check_calls(self.calls(), streamed)?;
        let texts = self
            .blocks
            .iter()
            .filter_map(|block| block.text().or_else(|| block.thinking()));
        check_item_size(texts, self.calls().map(|call| call.arguments.as_str()))?;
        match (finish, has_calls) {
            (FinishReason::ToolCalls, false) => Err(Violation::TerminalWithoutTool.into()),
            // A paused answer waits for the server's own tools, so it carries none of ours.
            (FinishReason::Stop | FinishReason::Paused, true) => {
                Err(Violation::FinishDisallowsTools.into())
            }
            (finish, _) => Ok(finish),
        }
    }

    fn read_finish(&self, profile: &AnthropicProfile) -> Result<FinishReason, Defect> {
        if let Some(finish) = profile.stop_reasons.get(&self.stop_reason) {
            return Ok(*finish);
        }
        Ok(match self.stop_reason.as_str() {
            "" => return Err(Violation::MissingTerminal.into()),
            "end_turn" | "stop_sequence" | "stop" | "eos" | "COMPLETE" | "STOP" => {
                FinishReason::Stop
            }
            "max_tokens"
            | "model_context_window_exceeded"
            | "length"
            | "model_length"
            | "MAX_TOKENS" => FinishReason::Length,
            "tool_use" | "tool_calls" | "function_call" => FinishReason::ToolCalls,
            "pause_turn" => FinishReason::Paused,
            _ => return Err(Violation::UnknownTerminal.into()),
        })
    }

    /// The object of a non-streamed answer; its calls were judged.
    pub(crate) fn into_value(self) -> Value {
        let mut whole = Map::new();
        let mut put = |key: &str, value: Value| whole.insert(key.to_owned(), value);
        put("type", "message".into());
        put("role", "assistant".into());
        for (key, name) in [("id", self.id), ("model", self.model)] {
            if !name.is_empty() {
                put(key, name.into());
            }
        }
        let blocks = self.blocks.into_iter().map(Block::into_value).collect();
        put("content", Value::Array(blocks));
        put("stop_reason", self.stop_reason.into());
        if let Some(usage) = self.usage.into_value() {
            put("usage", usage);
        }
        Value::Object(whole)
    }

    /// Reads the object of a non-streamed answer; moves its strings instead of copying them.
    pub(crate) fn from_value(value: Value) -> Result<Message, Defect> {
        let Value::Object(mut whole) = value else {
            return Err(Defect::Envelope);
        };
        let is_error = whole.get("type").and_then(Value::as_str) == Some("error");
        match whole.get("error") {
            None | Some(Value::Null) if !is_error => {}
            error => {
                let fault = ProviderFault::in_stream(error.unwrap_or(&Value::Null));
                return Err(Defect::Fault(fault));
            }
        }
        let Some(Value::Array(content)) = whole.remove("content") else {
            return Err(Defect::Malformed);
        };
        let usage = whole.remove("usage").unwrap_or_default();
        let message = Message {
            id: take_text(&mut whole, "id")?,
            model: take_text(&mut whole, "model")?,
            blocks: content
                .into_iter()
                .map(Block::from_value)
                .collect::<Result<_, _>>()?,
            stop_reason: take_text(&mut whole, "stop_reason")?,
            usage: serde_json::from_value::<Lenient<Usage>>(usage)
                .unwrap_or_default()
                .0,
            inputs_disagree: false,
        };
        if message.blocks.len() > MAX_BLOCKS || message.calls().count() > MAX_TOOL_SLOTS {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(message)
    }
}

/// The normal form of a judged answer (PRV-18).
pub(crate) fn normal_form(
    message: Message,
    finish: FinishReason,
    view: &RequestView,
    provider_request_id: Option<String>,
) -> DecodedResponse {
    let scope = view.target.scope();
    // What may never be sent back is not kept for that either.
    let replays = view.reasoning_policy.mode != ReasoningMode::Drop;
    let mut state = State::default();
    let mut parts = Vec::with_capacity(message.blocks.len());
    let mut calls = 0;
    for mut block in message.blocks {
        let part = match &block.content {
            Content::Text(text) => {
                (!text.is_empty()).then(|| ResponsePart::Content(ContentBlock::text(text.as_str())))
            }
            Content::Thinking {
                thinking,
                signature,
            } => {
                let signed = !signature.is_empty();
                (signed || !thinking.is_empty()).then(|| ResponsePart::Reasoning {
                    block_type: "thinking".into(),
                    text: (!thinking.is_empty()).then(|| thinking.as_str().into()),
                    replayable: signed && replays,
                })
            }
            Content::ToolUse(call) => {
                let part = normal_call(call.clone(), calls, &scope, view);
                calls += 1;
                Some(part)
            }
            Content::Native => {
                (block.kind() == "redacted_thinking").then(|| ResponsePart::Reasoning {
                    block_type: "redacted_thinking".into(),
                    text: None,
                    replayable: replays,
                })
            }
        };
        if let (Content::ToolUse(call), Some(ResponsePart::ToolCall { call_id, .. })) =
            (&mut block.content, &part)
        {
            state.name_as_result_will(call, call_id, view);
        }
        let kept = match &part {
            Some(ResponsePart::Reasoning { replayable, .. }) => *replayable,
            Some(_) => true,
            None => matches!(block.content, Content::Native),
        };
        if kept {
            state.keep(block);
        }
        parts.extend(part);
    }
    let mut provider_metadata = Map::new();
    let ids = [
        ("response_id", Some(message.id)),
        ("provider_request_id", provider_request_id),
    ];
    for (key, id) in ids {
        if let Some(id) = id.filter(|id| is_plain_id(id)) {
            provider_metadata.insert(key.to_owned(), id.into());
        }
    }
    DecodedResponse {
        parts,
        usage: message.usage.neutral(),
        finish: Finish {
            reason: finish,
            raw: message.stop_reason,
        },
        model_name: Some(message.model).filter(|name| !name.is_empty()),
        provider_metadata,
        continuation: state.into_payload(),
    }
}
