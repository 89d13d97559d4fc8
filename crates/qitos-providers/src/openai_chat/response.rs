//! A whole Chat Completions answer: reading, judging, decoding (PRV-49, PRV-57, PRV-61, PRV-62).
//!
//! A streamed answer is assembled into the same object that a non-streamed one is, and both pass
//! [`Completion::validate`]. The one difference is PRV-22: unparsable arguments fail a stream closed,
//! while a non-streamed answer keeps the call as one that cannot be executed.

use std::sync::Arc;

use qitos_contracts::ids::CallId;
use qitos_contracts::limits::LOG_ITEM_BYTES;
use qitos_contracts::log::{ContentBlock, ParseStatus};
use qitos_contracts::model::{DecodedResponse, Finish, FinishReason, RequestView, ResponsePart};
use serde_json::{Map, Value, json};

use super::chunk::Usage;
use super::map_error::token_usage;
use super::profile::ChatProfile;
use crate::classify_failure::{FaultClass, ProviderFault};
use crate::verdict::{Defect, Violation, is_complete_object, means_no_arguments, parse_object};

/// Largest log item, in canonical bytes (session.md section 17).
const MAX_ITEM_BYTES: usize = LOG_ITEM_BYTES as usize;

/// What the verdict needs to know of the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestFacts {
    /// Names of the tools that were offered.
    pub(crate) declared_tools: Vec<String>,
    /// Whether a tool call was forced; servers then end with `stop` (PRV-C8).
    pub(crate) forced_tool: bool,
}

/// How an answer ended, as far as it is a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatFinish {
    Stop,
    Length,
    ToolCalls,
}

/// One call as the provider wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// A whole answer, not yet judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) text: String,
    pub(crate) refused: bool,
    pub(crate) reasoning_content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<RawCall>,
    pub(crate) finish: String,
    pub(crate) usage: Usage,
}

/// How much of a failed answer had arrived, in Unicode scalar values (PRV-43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialCounts {
    pub(crate) text_characters: u64,
    pub(crate) reasoning_characters: u64,
    pub(crate) tool_calls: u64,
}

/// What a successful verdict adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validated {
    pub(crate) finish: ChatFinish,
    /// Calls came with finish `stop` and were accepted (PRV-C8).
    pub(crate) stop_carried_calls: bool,
}

impl Completion {
    pub(crate) fn partial_counts(&self) -> PartialCounts {
        let characters = |text: &str| text.chars().count() as u64;
        PartialCounts {
            text_characters: characters(&self.text),
            reasoning_characters: characters(&self.reasoning_content) + characters(&self.reasoning),
            tool_calls: self.calls.len() as u64,
        }
    }

    /// The verdict, the same for both ways an answer comes (PRV-49).
    pub(crate) fn validate(
        &self,
        facts: &RequestFacts,
        profile: &ChatProfile,
        streamed: bool,
    ) -> Result<Validated, Defect> {
        if self.refused || self.finish == "content_filter" {
            return Err(Defect::Refusal);
        }
        let finish = self.read_finish(profile)?;
        if finish == ChatFinish::Length && !self.calls.is_empty() {
            return Err(Violation::TruncatedToolInput.into());
        }
        self.check_calls(streamed)?;
        self.check_item_size()?;
        let forced = facts.forced_tool || profile.stop_may_carry_tool_calls;
        match (finish, self.calls.is_empty()) {
            (ChatFinish::ToolCalls, true) => Err(Violation::TerminalWithoutTool.into()),
            (ChatFinish::Stop, false) if forced => Ok(Validated {
                finish: ChatFinish::ToolCalls,
                stop_carried_calls: true,
            }),
            (ChatFinish::Stop, false) => Err(Violation::FinishDisallowsTools.into()),
            (finish, _) => Ok(Validated {
                finish,
                stop_carried_calls: false,
            }),
        }
    }

    fn read_finish(&self, profile: &ChatProfile) -> Result<ChatFinish, Defect> {
        if let Some(finish) = profile.finish_of(&self.finish) {
            return Ok(finish);
        }
        match self.finish.as_str() {
            "" => Err(Violation::MissingTerminal.into()),
            "stop" | "eos" | "end_turn" | "stop_sequence" | "COMPLETE" | "STOP" => {
                Ok(ChatFinish::Stop)
            }
            "length"
            | "max_tokens"
            | "model_length"
            | "model_context_window_exceeded"
            | "MAX_TOKENS" => Ok(ChatFinish::Length),
            "tool_calls" | "tool_use" | "function_call" => Ok(ChatFinish::ToolCalls),
            "insufficient_system_resource" => Err(Defect::Fault(ProviderFault::of_finish(
                FaultClass::Overloaded,
                "insufficient_system_resource",
            ))),
            "abort" => Err(Defect::Fault(ProviderFault::of_finish(
                FaultClass::ServerErrorFinal,
                "other",
            ))),
            _ => Err(Violation::UnknownTerminal.into()),
        }
    }

    fn check_calls(&self, streamed: bool) -> Result<(), Defect> {
        if streamed
            && !self
                .calls
                .iter()
                .all(|call| is_complete_object(&call.arguments))
        {
            return Err(Violation::IncompleteToolInput.into());
        }
        let nameless = |call: &RawCall| call.id.is_empty() || call.name.is_empty();
        if self.calls.iter().any(nameless) {
            return Err(Violation::ToolIdentityMissing.into());
        }
        let repeated = self.calls.iter().enumerate().any(|(position, call)| {
            self.calls
                .iter()
                .take(position)
                .any(|earlier| earlier.id == call.id)
        });
        if repeated {
            return Err(Violation::ToolIdentityConflict.into());
        }
        Ok(())
    }

    /// The assistant item must fit one log item (PRV-60). Arguments count twice: raw and parsed.
    fn check_item_size(&self) -> Result<(), Defect> {
        let texts = [&self.text, &self.reasoning_content, &self.reasoning];
        let arguments = self.calls.iter().map(|call| &call.arguments);
        let raw: usize = texts.iter().map(|text| text.len()).sum::<usize>()
            + 2 * arguments.clone().map(String::len).sum::<usize>();
        // An escape makes at most six bytes of one.
        if raw.saturating_mul(6) <= MAX_ITEM_BYTES {
            return Ok(());
        }
        let written: usize = texts.iter().map(|text| escaped_bytes(text)).sum::<usize>()
            + arguments.map(|text| 2 * escaped_bytes(text)).sum::<usize>();
        if written > MAX_ITEM_BYTES - MAX_ITEM_BYTES / 64 {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(())
    }

    /// The object of a non-streamed answer.
    pub(crate) fn into_value(self) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), self.text.into());
        if !self.reasoning_content.is_empty() {
            message.insert(
                "reasoning_content".to_owned(),
                self.reasoning_content.into(),
            );
        }
        if !self.reasoning.is_empty() {
            message.insert("reasoning".to_owned(), self.reasoning.into());
        }
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter().map(RawCall::into_value).collect();
            message.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        let mut choice = Map::new();
        choice.insert("index".to_owned(), 0.into());
        choice.insert("message".to_owned(), Value::Object(message));
        choice.insert("finish_reason".to_owned(), self.finish.into());
        let mut whole = Map::new();
        whole.insert("object".to_owned(), "chat.completion".into());
        if !self.id.is_empty() {
            whole.insert("id".to_owned(), self.id.into());
        }
        if !self.model.is_empty() {
            whole.insert("model".to_owned(), self.model.into());
        }
        whole.insert(
            "choices".to_owned(),
            Value::Array(vec![Value::Object(choice)]),
        );
        if let Some(usage) = usage_value(self.usage) {
            whole.insert("usage".to_owned(), usage);
        }
        Value::Object(whole)
    }

    /// Reads the object of a non-streamed answer; moves its strings instead of copying them.
    pub(crate) fn from_value(value: Value) -> Result<Completion, Defect> {
        let Value::Object(mut whole) = value else {
            return Err(Defect::Envelope);
        };
        match whole.get("error") {
            None | Some(Value::Null) => {}
            Some(error) => return Err(Defect::Fault(ProviderFault::in_stream(error))),
        }
        if whole.get("object").and_then(Value::as_str) == Some("error") {
            let fault = ProviderFault::in_stream(&Value::Object(whole));
            return Err(Defect::Fault(fault));
        }
        let Some(Value::Array(mut choices)) = whole.remove("choices") else {
            return Err(Defect::Malformed);
        };
        if choices.len() > 1 {
            return Err(Violation::ExtraChoice.into());
        }
        let Some(Value::Object(mut choice)) = choices.pop() else {
            return Err(Defect::Malformed);
        };
        match choice.get("index") {
            None | Some(Value::Null) => {}
            Some(index) if index.as_u64() == Some(0) => {}
            Some(_) => return Err(Violation::ExtraChoice.into()),
        }
        if let Some(error @ (Value::Object(_) | Value::String(_))) = choice.get("error") {
            return Err(Defect::Fault(ProviderFault::in_stream(error)));
        }
        let Some(Value::Object(mut message)) = choice.remove("message") else {
            return Err(Defect::Malformed);
        };
        let mut completion = Completion {
            id: take_text(&mut whole, "id")?,
            model: take_text(&mut whole, "model")?,
            finish: take_text(&mut choice, "finish_reason")?,
            refused: !take_text(&mut message, "refusal")?.is_empty(),
            reasoning_content: take_text(&mut message, "reasoning_content")?,
            reasoning: take_text(&mut message, "reasoning")?,
            ..Completion::default()
        };
        completion.take_content(message.remove("content"))?;
        completion.calls = take_calls(message.remove("tool_calls"))?;
        if let Some(usage) = whole.remove("usage") {
            completion.usage = serde_json::from_value(usage).unwrap_or_default();
        }
        Ok(completion)
    }

    fn take_content(&mut self, content: Option<Value>) -> Result<(), Defect> {
        match content {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => self.text = text,
            Some(Value::Array(pieces)) => {
                for piece in pieces {
                    let Value::Object(mut piece) = piece else {
                        return Err(Defect::Malformed);
                    };
                    match piece.get("type").and_then(Value::as_str) {
                        Some("text") => self.text.push_str(&take_text(&mut piece, "text")?),
                        Some("thinking") => match piece.remove("thinking") {
                            Some(Value::String(text)) => self.reasoning_content.push_str(&text),
                            Some(Value::Array(inner)) => {
                                for piece in inner {
                                    let text = piece.get("text").and_then(Value::as_str);
                                    self.reasoning_content
                                        .push_str(text.ok_or(Defect::Malformed)?);
                                }
                            }
                            _ => return Err(Defect::Malformed),
                        },
                        _ => return Err(Defect::Malformed),
                    }
                }
            }
            Some(_) => return Err(Defect::Malformed),
        }
        Ok(())
    }
}

impl RawCall {
    fn into_value(self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), self.name.into());
        function.insert("arguments".to_owned(), self.arguments.into());
        let mut call = Map::new();
        call.insert("id".to_owned(), self.id.into());
        call.insert("type".to_owned(), "function".into());
        call.insert("function".to_owned(), Value::Object(function));
        Value::Object(call)
    }
}

fn take_text(object: &mut Map<String, Value>, key: &str) -> Result<String, Defect> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Defect::Malformed),
    }
}

fn take_calls(calls: Option<Value>) -> Result<Vec<RawCall>, Defect> {
    let calls = match calls {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(Defect::Malformed),
    };
    if calls.len() > super::tool_slots::MAX_TOOL_SLOTS {
        return Err(Violation::LimitExceeded.into());
    }
    calls.into_iter().map(take_call).collect()
}

fn take_call(call: Value) -> Result<RawCall, Defect> {
    let Value::Object(mut call) = call else {
        return Err(Defect::Malformed);
    };
    let Some(Value::Object(mut function)) = call.remove("function") else {
        return Err(Defect::Malformed);
    };
    let call = RawCall {
        id: take_text(&mut call, "id")?,
        name: take_text(&mut function, "name")?,
        arguments: take_text(&mut function, "arguments")?,
    };
    if call.arguments.len() > super::tool_slots::MAX_ARGUMENT_BYTES {
        return Err(Violation::LimitExceeded.into());
    }
    Ok(call)
}

fn escaped_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..=31 => 6,
            _ => 1,
        })
        .sum()
}

fn usage_value(usage: Usage) -> Option<Value> {
    if usage == Usage::default() {
        return None;
    }
    let mut object = Map::new();
    for (name, count) in [
        ("prompt_tokens", usage.prompt),
        ("completion_tokens", usage.completion),
        ("total_tokens", usage.total),
    ] {
        if let Some(count) = count {
            object.insert(name.to_owned(), count.into());
        }
    }
    if let Some(cached) = usage.cached {
        let details = json!({ "cached_tokens": cached });
        object.insert("prompt_tokens_details".to_owned(), details);
    }
    if let Some(reasoning) = usage.reasoning {
        let details = json!({ "reasoning_tokens": reasoning });
        object.insert("completion_tokens_details".to_owned(), details);
    }
    Some(Value::Object(object))
}

/// The normal form of a judged answer (PRV-18).
pub(crate) fn normal_form(
    completion: Completion,
    validated: Validated,
    view: &RequestView,
    provider_request_id: Option<String>,
) -> DecodedResponse {
    let mut parts = Vec::with_capacity(1 + completion.calls.len());
    for (block_type, text) in [
        ("reasoning_content", completion.reasoning_content),
        ("reasoning", completion.reasoning),
    ] {
        if !text.is_empty() {
            parts.push(ResponsePart::Reasoning {
                block_type: block_type.into(),
                text: Some(text.into()),
                replayable: true,
            });
        }
    }
    if !completion.text.is_empty() {
        parts.push(ResponsePart::Content(ContentBlock::text(completion.text)));
    }
    if !completion.calls.is_empty() {
        let scope = view.target.scope();
        for (index, call) in completion.calls.into_iter().enumerate() {
            parts.push(normal_call(call, index, &scope, view));
        }
    }
    let mut provider_metadata = Map::new();
    let ids = [
        ("response_id", Some(completion.id)),
        ("provider_request_id", provider_request_id),
    ];
    for (key, id) in ids {
        if let Some(id) = id.filter(|id| is_plain_id(id)) {
            provider_metadata.insert(key.to_owned(), id.into());
        }
    }
    if validated.stop_carried_calls {
        provider_metadata.insert("stop_carried_tool_calls".to_owned(), true.into());
    }
    DecodedResponse {
        parts,
        usage: token_usage(completion.usage),
        finish: Finish {
            reason: match validated.finish {
                ChatFinish::Stop => FinishReason::Stop,
                ChatFinish::Length => FinishReason::Length,
                ChatFinish::ToolCalls => FinishReason::ToolCalls,
            },
            raw: completion.finish,
        },
        model_name: Some(completion.model).filter(|name| !name.is_empty()),
        provider_metadata,
        continuation: None,
    }
}

fn normal_call(call: RawCall, index: usize, scope: &str, view: &RequestView) -> ResponsePart {
    let mut metadata = Map::new();
    let call_id = internal_id(&call.id, index, scope, view);
    if call_id != call.id {
        metadata.insert("wire_id".to_owned(), call.id.into());
    }
    let mut raw_arguments = call.arguments;
    if means_no_arguments(&raw_arguments) {
        metadata.insert("wire_arguments_empty".to_owned(), true.into());
        raw_arguments = "{}".to_owned();
    }
    let (parsed_arguments, parse_status, parse_error) = match parse_object(&raw_arguments) {
        Ok(object) => (Some(Arc::new(object)), ParseStatus::Parsed, None),
        Err(true) => (
            None,
            ParseStatus::ParsedInvalid,
            Some("arguments_not_object".into()),
        ),
        Err(false) => (
            None,
            ParseStatus::MalformedRaw,
            Some("malformed_arguments_json".into()),
        ),
    };
    ResponsePart::ToolCall {
        call_id: call_id.into(),
        name: call.name.into(),
        raw_arguments: raw_arguments.into(),
        parsed_arguments,
        parse_status,
        parse_error,
        metadata,
    }
}

/// The id under which the log keeps a call (PRV-24).
///
/// Where part of the log is left out of the view, nobody can tell here whether an id was used there,
/// so every id is made unique; the wire id goes back all the same.
fn internal_id(wire_id: &str, index: usize, scope: &str, view: &RequestView) -> String {
    if wire_id.parse::<CallId>().is_err() {
        return format!("call_{}_{index}", view.request_id);
    }
    if view.source.first_item == 0 && !view.items.declares_call(scope, wire_id) {
        return wire_id.to_owned();
    }
    let unique = format!("{wire_id}@{}", view.request_id);
    if unique.parse::<CallId>().is_err() {
        return format!("call_{}_{index}", view.request_id);
    }
    unique
}

/// `[A-Za-z0-9_-]{1,128}` (PRV-43).
pub(crate) fn is_plain_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}
