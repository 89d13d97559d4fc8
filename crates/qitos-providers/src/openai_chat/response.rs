//! A whole Chat Completions answer: reading, judging, decoding (PRV-49, PRV-57, PRV-61, PRV-62).
//!
//! A streamed answer is assembled into the same object that a non-streamed one is, and both pass
//! [`Completion::validate`]. The one difference is PRV-22: unparsable arguments fail a stream closed,
//! while a non-streamed answer keeps the call as one that cannot be executed.

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::{DecodedResponse, Finish, FinishReason, RequestView, ResponsePart};
use serde_json::{Map, Value, json};

use super::chunk::Usage;
use super::profile::ChatProfile;
use crate::call::{
    MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS, RawCall, check_calls, check_item_size, is_plain_id,
    normal_call, take_text,
};
use crate::classify_failure::{FaultClass, ProviderFault};
use crate::verdict::{Defect, PartialCounts, Violation};

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
        check_calls(self.calls.iter(), streamed)?;
        check_item_size(
            [&self.text, &self.reasoning_content, &self.reasoning]
                .into_iter()
                .map(String::as_str),
            self.calls.iter().map(|call| call.arguments.as_str()),
        )?;
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
            let calls = self.calls.into_iter().map(call_value).collect();
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

fn call_value(call: RawCall) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), call.name.into());
    function.insert("arguments".to_owned(), call.arguments.into());
    let mut value = Map::new();
    value.insert("id".to_owned(), call.id.into());
    value.insert("type".to_owned(), "function".into());
    value.insert("function".to_owned(), Value::Object(function));
    Value::Object(value)
}

fn take_calls(calls: Option<Value>) -> Result<Vec<RawCall>, Defect> {
    let calls = match calls {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(calls)) => calls,
        Some(_) => return Err(Defect::Malformed),
    };
    if calls.len() > MAX_TOOL_SLOTS {
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
    if call.arguments.len() > MAX_ARGUMENT_BYTES {
        return Err(Violation::LimitExceeded.into());
    }
    Ok(call)
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
        usage: completion.usage.neutral(),
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
