//! A whole Responses answer: reading, judging, decoding (PRV-49, PRV-67, PRV-69).
//!
//! A streamed answer is assembled into the same object that a non-streamed one is, and both pass
//! [`Answer::validate`]. The one difference is PRV-22: unparsable arguments fail a stream closed, while a
//! non-streamed answer keeps the call as one that cannot be executed.

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::{
    DecodedResponse, Finish, FinishReason, RequestView, ResponsePart, TokenUsage,
};
use serde_json::{Map, Value, json};

use crate::call::{
    MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS, RawCall, check_calls, check_item_size, is_plain_id,
    normal_call, take_text,
};
use crate::classify_failure::ProviderFault;
use crate::token_count::count_at;
use crate::verdict::{Defect, PartialCounts, Violation};

/// Most items of one answer; each costs memory, however small it is (PRV-60).
pub(super) const MAX_OUTPUT_ITEMS: usize = 1_024;

/// Items that ask the client for something that no request of ours offers (PRV-69).
const CLIENT_ACTIONS: [&str; 6] = [
    "apply_patch_call",
    "computer_call",
    "custom_tool_call",
    "local_shell_call",
    "mcp_approval_request",
    "shell_call",
];

/// A whole answer, not yet judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) status: String,
    /// Why an `incomplete` answer is one.
    pub(super) reason: String,
    pub(super) fault: Option<ProviderFault>,
    /// Whether the server says that it keeps the answer.
    pub(super) stored: Option<bool>,
    /// The items, as sent.
    pub(super) output: Vec<Value>,
    pub(super) usage: Option<TokenUsage>,
    raw_usage: Option<Value>,
}

/// What one item of an answer holds, borrowed from it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// Text of a message.
    Text {
        text: &'a str,
        /// Which part of the work it belongs to, where the server says so.
        phase: Option<&'a str>,
    },
    /// A refusal (PRV-28).
    Refusal,
    /// A call of one of our functions.
    Call(Call<'a>),
    /// Reasoning, or something the server did itself: kept as sent (PRV-27).
    Native(&'a Value),
}

/// A function call as the server wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    whole: bool,
}

/// A text field that may be absent or null, but nothing else.
pub(super) fn text_at<'a>(object: &'a Value, key: &str) -> Result<&'a str, Defect> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Defect::Malformed),
    }
}

/// The kind of an item.
pub(super) fn kind_of(item: &Value) -> &str {
    item.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Refuses what the client would have to do without having offered it (PRV-69).
pub(super) fn check_kind(kind: &str) -> Result<(), Defect> {
    if CLIENT_ACTIONS.contains(&kind) {
        return Err(Violation::UnsupportedClientAction.into());
    }
    Ok(())
}

/// The function call that an item is, if it is one.
pub(super) fn call_of(item: &Value) -> Result<Option<Call<'_>>, Defect> {
    if kind_of(item) != "function_call" {
        return Ok(None);
    }
    Ok(Some(Call {
        id: text_at(item, "call_id")?,
        name: text_at(item, "name")?,
        arguments: text_at(item, "arguments")?,
        whole: matches!(text_at(item, "status")?, "" | "completed"),
    }))
}

/// Reads one item's pieces in order.
fn read_item<'a>(item: &'a Value, each: &mut dyn FnMut(Piece<'a>)) -> Result<(), Defect> {
    if let Some(call) = call_of(item)? {
        each(Piece::Call(call));
        return Ok(());
    }
    if kind_of(item) != "message" {
        each(Piece::Native(item));
        return Ok(());
    }
    let phase = item.get("phase").and_then(Value::as_str);
    let phase = phase.filter(|phase| is_plain_id(phase));
    match item.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => each(Piece::Text { text, phase }),
        Some(Value::Array(parts)) => {
            for part in parts {
                match kind_of(part) {
                    "output_text" | "text" => each(Piece::Text {
                        text: text_at(part, "text")?,
                        phase,
                    }),
                    "refusal" => each(Piece::Refusal),
                    // Sound and the like, which no request asks for.
                    _ => {}
                }
            }
        }
        Some(_) => return Err(Defect::Malformed),
    }
    Ok(())
}

impl Answer {
    /// Reads the object of a non-streamed answer; items stay as they are.
    pub(super) fn from_value(value: Value) -> Result<Answer, Defect> {
        let Value::Object(mut whole) = value else {
            return Err(Defect::Envelope);
        };
        let status = take_text(&mut whole, "status")?;
        let fault = match whole.get("error") {
            None | Some(Value::Null) => {
                (status == "failed").then(|| ProviderFault::in_stream(&Value::Null))
            }
            Some(error) => Some(ProviderFault::in_stream(error)),
        };
        let reason = whole
            .get("incomplete_details")
            .and_then(|details| details.get("reason"))
            .and_then(Value::as_str);
        let mut answer = Answer {
            reason: reason.unwrap_or_default().to_owned(),
            stored: whole.get("store").and_then(Value::as_bool),
            id: take_text(&mut whole, "id")?,
            model: take_text(&mut whole, "model")?,
            fault,
            ..Answer::default()
        };
        match whole.remove("output") {
            Some(Value::Array(output)) => answer.output = output,
            None | Some(Value::Null) if fault.is_some() || !status.is_empty() => {}
            _ => return Err(Defect::Malformed),
        }
        answer.status = status;
        if answer.output.len() > MAX_OUTPUT_ITEMS {
            return Err(Violation::LimitExceeded.into());
        }
        if !answer.output.iter().all(Value::is_object) {
            return Err(Defect::Malformed);
        }
        answer.raw_usage = whole.remove("usage");
        answer.usage = answer.raw_usage.as_ref().and_then(usage_of);
        Ok(answer)
    }

    /// The object of a non-streamed answer.
    pub(super) fn into_value(self) -> Value {
        let mut whole = Map::new();
        whole.insert("object".to_owned(), "response".into());
        for (key, text) in [
            ("id", self.id),
            ("model", self.model),
            ("status", self.status),
        ] {
            if !text.is_empty() {
                whole.insert(key.to_owned(), text.into());
            }
        }
        if let Some(stored) = self.stored {
            whole.insert("store".to_owned(), stored.into());
        }
        if let Some(usage) = self.raw_usage {
            whole.insert("usage".to_owned(), usage);
        }
        whole.insert("output".to_owned(), Value::Array(self.output));
        Value::Object(whole)
    }

    /// Reads the pieces of all items in the server's order.
    pub(super) fn read<'a>(&'a self, mut each: impl FnMut(Piece<'a>)) -> Result<(), Defect> {
        self.output
            .iter()
            .try_for_each(|item| read_item(item, &mut each))
    }

    /// What is there of an answer that failed its verdict; an item of another shape counts for nothing.
    pub(super) fn partial_counts(&self) -> PartialCounts {
        let characters = |text: &str| text.chars().count() as u64;
        let mut counts = PartialCounts::default();
        for item in &self.output {
            let mut found = PartialCounts::default();
            let read = read_item(item, &mut |piece| match piece {
                Piece::Text { text, .. } => found.text_characters += characters(text),
                Piece::Call(_) => found.tool_calls += 1,
                Piece::Native(item) => {
                    found.reasoning_characters += characters(&reasoning_text(item));
                }
                Piece::Refusal => {}
            });
            if read.is_ok() {
                counts.text_characters += found.text_characters;
                counts.tool_calls += found.tool_calls;
                counts.reasoning_characters += found.reasoning_characters;
            }
        }
        counts
    }

    /// The verdict, the same for both ways an answer comes (PRV-49).
    pub(super) fn validate(&self, streamed: bool) -> Result<(), Defect> {
        if let Some(fault) = self.fault {
            return Err(Defect::Fault(fault));
        }
        match (self.status.as_str(), self.reason.as_str()) {
            ("completed", _) => {}
            ("incomplete", "content_filter") => return Err(Defect::Refusal),
            ("incomplete", _) => return Err(Defect::Incomplete),
            ("" | "in_progress" | "queued", _) => return Err(Violation::MissingTerminal.into()),
            _ => return Err(Violation::UnknownTerminal.into()),
        }
        let (mut texts, mut calls) = (Vec::new(), Vec::new());
        let (mut refused, mut whole) = (false, true);
        self.read(|piece| match piece {
            Piece::Text { text, .. } => texts.push(text),
            Piece::Refusal => refused = true,
            Piece::Call(call) => {
                whole &= call.whole;
                calls.push(call);
            }
            Piece::Native(_) => {}
        })?;
        if refused {
            return Err(Defect::Refusal);
        }
        self.output
            .iter()
            .try_for_each(|item| check_kind(kind_of(item)))?;
        if !whole {
            return Err(Violation::IncompleteToolInput.into());
        }
        let too_long = |call: &Call<'_>| call.arguments.len() > MAX_ARGUMENT_BYTES;
        if calls.len() > MAX_TOOL_SLOTS || calls.iter().any(too_long) {
            return Err(Violation::LimitExceeded.into());
        }
        let arguments = calls.iter().map(|call| call.arguments);
        check_item_size(texts.iter().copied(), arguments)?;
        let raw: Vec<RawCall> = calls.into_iter().map(Call::to_raw).collect();
        check_calls(raw.iter(), streamed)
    }
}

impl Call<'_> {
    fn to_raw(self) -> RawCall {
        RawCall {
            id: self.id.to_owned(),
            name: self.name.to_owned(),
            arguments: self.arguments.to_owned(),
        }
    }
}

/// Usage under the neutral names; none if nothing is known (PRV-70, PRV-74).
pub(super) fn usage_of(usage: &Value) -> Option<TokenUsage> {
    let detail = |details: &str, key: &str| usage.get(details).and_then(|all| count_at(all, key));
    let mut neutral = TokenUsage {
        prompt_tokens: count_at(usage, "input_tokens"),
        completion_tokens: count_at(usage, "output_tokens"),
        total_tokens: count_at(usage, "total_tokens"),
        cached_tokens: detail("input_tokens_details", "cached_tokens"),
        cache_creation_tokens: None,
        reasoning_tokens: detail("output_tokens_details", "reasoning_tokens"),
    };
    neutral.total_tokens = neutral.total();
    Some(neutral).filter(TokenUsage::is_known)
}

/// The readable text of a reasoning item: its content, else its summary; parts stand apart.
fn reasoning_text(item: &Value) -> String {
    let texts = |key: &str| -> Vec<&str> {
        let parts = item.get(key).and_then(Value::as_array);
        let parts = parts.into_iter().flatten();
        parts
            .filter_map(|part| part.get("text")?.as_str())
            .filter(|text| !text.is_empty())
            .collect()
    };
    let content = texts("content");
    let parts = if content.is_empty() {
        texts("summary")
    } else {
        content
    };
    parts.join("\n\n")
}

/// Whether a native item can be sent back by itself: reasoning needs its encrypted or its raw content (PRV-34).
pub(super) fn is_replayable(item: &Value) -> bool {
    let has_text = |key: &str| {
        item.get(key)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    let has_list = |key: &str| {
        item.get(key)
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    };
    kind_of(item) != "reasoning" || has_text("encrypted_content") || has_list("content")
}

/// The normal form of a judged answer (PRV-18).
///
/// Each native item becomes one reasoning part, so that the parts keep its place: the log says where it stood,
/// the continuation holds what it was. `held`: the server keeps the answer, so all of it comes back by reference.
pub(super) fn normal_form(
    answer: Answer,
    view: &RequestView,
    held: bool,
    provider_request_id: Option<String>,
) -> Result<DecodedResponse, Defect> {
    let mut parts = Vec::with_capacity(answer.output.len());
    let scope = view.target.scope();
    let mut calls = 0;
    answer.read(|piece| match piece {
        Piece::Text { text: "", .. } | Piece::Refusal => {}
        Piece::Text { text, phase } => {
            let mut block = ContentBlock::text(text);
            if let Some(phase) = phase {
                block.metadata.insert("phase".to_owned(), phase.into());
            }
            parts.push(ResponsePart::Content(block));
        }
        Piece::Call(call) => {
            parts.push(normal_call(call.to_raw(), calls, &scope, view));
            calls += 1;
        }
        Piece::Native(item) => {
            let kind = Some(kind_of(item)).filter(|kind| is_plain_id(kind));
            let text = reasoning_text(item);
            parts.push(ResponsePart::Reasoning {
                block_type: kind.unwrap_or("native_item").into(),
                text: Some(text).filter(|text| !text.is_empty()).map(Into::into),
                replayable: held || is_replayable(item),
            });
        }
    })?;
    let mut provider_metadata = Map::new();
    let ids = [
        ("response_id", Some(answer.id)),
        ("provider_request_id", provider_request_id),
    ];
    for (key, id) in ids {
        if let Some(id) = id.filter(|id| is_plain_id(id)) {
            provider_metadata.insert(key.to_owned(), id.into());
        }
    }
    Ok(DecodedResponse {
        parts,
        usage: answer.usage,
        finish: Finish {
            reason: if calls > 0 {
                FinishReason::ToolCalls
            } else {
                FinishReason::Stop
            },
            raw: answer.status,
        },
        model_name: Some(answer.model).filter(|name| !name.is_empty()),
        provider_metadata,
        continuation: None,
    })
}

/// A message whose text only the stream carried.
pub(super) fn message_of(texts: Vec<&str>) -> Value {
    let content: Vec<Value> = texts
        .into_iter()
        .map(|text| json!({"type": "output_text", "text": text}))
        .collect();
    json!({"type": "message", "role": "assistant", "status": "completed", "content": content})
}
