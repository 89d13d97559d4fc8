//! A whole `generateContent` answer: reading, judging, decoding (PRV-49, PRV-102, PRV-103).

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::{
    DecodedResponse, Finish, FinishReason, RequestView, ResponsePart, TokenUsage,
};
use serde_json::{Map, Value};

use super::continuation;
use crate::call::{
    MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS, RawCall, check_item_size, is_plain_id, normal_call,
    take_text,
};
use crate::classify_failure::ProviderFault;
use crate::token_count::TokenCount;
use crate::verdict::{Defect, FailedAnswer, PartialCounts, Violation};

/// One part of an answer.
enum Part {
    Text(String),
    Thought(String),
    /// A call, and the id that newer servers give it.
    Call(RawCall, String),
}

/// A whole answer, not yet judged.
pub(super) struct Answer {
    id: String,
    model: String,
    parts: Vec<Part>,
    /// The parts as they came, if one of them is signed.
    signed: Option<Vec<Value>>,
    finish: String,
    blocked: bool,
    usage: Option<TokenUsage>,
}

/// A part is reasoning only if it says so; a signature changes nothing (PRV-103).
pub(super) fn is_thought(part: &Value) -> bool {
    part.get("thought") == Some(&Value::Bool(true)) && part.get("functionCall").is_none()
}

impl Answer {
    /// Reads the answer's object; moves its strings instead of copying them, signed answers apart.
    pub(super) fn from_value(value: Value) -> Result<Answer, Box<FailedAnswer>> {
        let Value::Object(mut whole) = value else {
            return Err(failed(Defect::Envelope, None));
        };
        if let Some(error) = whole.get("error").filter(|error| !error.is_null()) {
            return Err(failed(Defect::Fault(ProviderFault::in_stream(error)), None));
        }
        let usage = whole.get("usageMetadata").and_then(usage_of);
        read(&mut whole, usage).map_err(|defect| failed(defect, usage))
    }

    /// The verdict (PRV-102).
    pub(super) fn validate(&self) -> Result<(), Box<FailedAnswer>> {
        self.verdict().map_err(|defect| {
            Box::new(FailedAnswer {
                defect,
                counts: self.partial_counts(),
                usage: self.usage,
            })
        })
    }

    fn verdict(&self) -> Result<(), Defect> {
        if self.blocked {
            return Err(Defect::Refusal);
        }
        match self.finish.as_str() {
            "STOP" | "MAX_TOKENS" => {}
            "" => return Err(Violation::MissingTerminal.into()),
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => {
                return Err(Defect::Refusal);
            }
            "MALFORMED_FUNCTION_CALL" => return Err(Violation::IncompleteToolInput.into()),
            _ => return Err(Violation::UnknownTerminal.into()),
        }
        if self.finish == "MAX_TOKENS" && self.calls().next().is_some() {
            return Err(Violation::TruncatedToolInput.into());
        }
        if self.calls().any(|call| call.name.is_empty()) {
            return Err(Violation::ToolIdentityMissing.into());
        }
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) | Part::Thought(text) => Some(text.as_str()),
            Part::Call(..) => None,
        });
        check_item_size(texts, self.calls().map(|call| call.arguments.as_str()))
    }

    fn calls(&self) -> impl Iterator<Item = &RawCall> + Clone {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call, _) => Some(call),
            _ => None,
        })
    }

    fn partial_counts(&self) -> PartialCounts {
        let mut counts = PartialCounts::default();
        for part in &self.parts {
            match part {
                Part::Text(text) => counts.text_characters += text.chars().count() as u64,
                Part::Thought(text) => counts.reasoning_characters += text.chars().count() as u64,
                Part::Call(..) => counts.tool_calls += 1,
            }
        }
        counts
    }

    /// The joined text.
    pub(super) fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The normal form of a judged answer (PRV-18).
    pub(super) fn normal_form(
        self,
        view: &RequestView,
        provider_request_id: Option<String>,
    ) -> DecodedResponse {
        let scope = view.target.scope();
        let reason = match (self.finish.as_str(), self.calls().next().is_some()) {
            ("MAX_TOKENS", _) => FinishReason::Length,
            (_, true) => FinishReason::ToolCalls,
            (_, false) => FinishReason::Stop,
        };
        let mut call_index = 0;
        let parts = self
            .parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => ResponsePart::Content(ContentBlock::text(text)),
                Part::Thought(text) => ResponsePart::Reasoning {
                    block_type: "thought".into(),
                    text: Some(text.into()),
                    replayable: true,
                },
                Part::Call(call, wire_id) => {
                    let mut part = normal_call(call, call_index, &scope, view);
                    call_index += 1;
                    if let ResponsePart::ToolCall { metadata, .. } = &mut part
                        && is_plain_id(&wire_id)
                    {
                        metadata.insert("wire_id".to_owned(), wire_id.into());
                    }
                    part
                }
            })
            .collect();
        let mut provider_metadata = Map::new();
        let ids = [
            ("response_id", Some(self.id)),
            ("provider_request_id", provider_request_id),
        ];
        for (key, id) in ids {
            if let Some(id) = id.filter(|id| is_plain_id(id)) {
                provider_metadata.insert(key.to_owned(), id.into());
            }
        }
        DecodedResponse {
            parts,
            usage: self.usage,
            finish: Finish {
                reason,
                raw: self.finish,
            },
            model_name: Some(self.model).filter(|name| !name.is_empty()),
            provider_metadata,
            continuation: self.signed.map(continuation::keep),
        }
    }
}

fn failed(defect: Defect, usage: Option<TokenUsage>) -> Box<FailedAnswer> {
    Box::new(FailedAnswer {
        defect,
        counts: PartialCounts::default(),
        usage,
    })
}

fn read(whole: &mut Map<String, Value>, usage: Option<TokenUsage>) -> Result<Answer, Defect> {
    let mut answer = Answer {
        id: take_text(whole, "responseId")?,
        model: take_text(whole, "modelVersion")?,
        parts: Vec::new(),
        signed: None,
        finish: String::new(),
        blocked: false,
        usage,
    };
    if let Some(Value::Object(feedback)) = whole.get_mut("promptFeedback") {
        answer.blocked = !take_text(feedback, "blockReason")?.is_empty();
    }
    let mut candidates = match whole.remove("candidates") {
        Some(Value::Array(candidates)) => candidates,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err(Defect::Malformed),
    };
    if candidates.len() > 1 {
        return Err(Violation::ExtraChoice.into());
    }
    let mut candidate = match candidates.pop() {
        Some(Value::Object(candidate)) => candidate,
        // A blocked prompt has no candidate, and that is its verdict.
        None if answer.blocked => return Ok(answer),
        _ => return Err(Defect::Malformed),
    };
    match candidate.get("index") {
        None | Some(Value::Null) => {}
        Some(index) if index.as_u64() == Some(0) => {}
        Some(_) => return Err(Violation::ExtraChoice.into()),
    }
    answer.finish = take_text(&mut candidate, "finishReason")?;
    let parts = match candidate.remove("content") {
        // An answer that was all thought, or none, has no content.
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(mut content)) => match content.remove("parts") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(parts)) => parts,
            Some(_) => return Err(Defect::Malformed),
        },
        Some(_) => return Err(Defect::Malformed),
    };
    if parts.iter().any(continuation::is_signed) {
        answer.signed = Some(parts.clone());
    }
    for part in parts {
        if let Some(part) = read_part(part)? {
            answer.parts.push(part);
        }
    }
    if answer.calls().count() > MAX_TOOL_SLOTS {
        return Err(Violation::LimitExceeded.into());
    }
    Ok(answer)
}

/// Keys of a part that are no content of their own.
const SIDE_KEYS: [&str; 5] = [
    "partMetadata",
    "text",
    "thought",
    "thoughtSignature",
    "videoMetadata",
];

/// One part, or nothing if it only carries a signature.
fn read_part(part: Value) -> Result<Option<Part>, Defect> {
    let thought = is_thought(&part);
    let Value::Object(mut part) = part else {
        return Err(Defect::Malformed);
    };
    if !matches!(
        part.get("thoughtSignature"),
        None | Some(Value::Null | Value::String(_))
    ) {
        return Err(Defect::Malformed);
    }
    match part.remove("functionCall") {
        None | Some(Value::Null) => {}
        // One part holds one thing; text beside a call would vanish.
        Some(Value::Object(call)) if take_text(&mut part, "text")?.is_empty() => {
            return read_call(call).map(Some);
        }
        Some(_) => return Err(Defect::Malformed),
    }
    // Content that nothing here can show must not vanish from the answer.
    let unknown =
        |(key, value): (&String, &Value)| !SIDE_KEYS.contains(&key.as_str()) && !value.is_null();
    if part.iter().any(unknown) {
        return Err(Defect::Malformed);
    }
    let text = take_text(&mut part, "text")?;
    Ok(match (text.is_empty(), thought) {
        (true, _) => None,
        (false, true) => Some(Part::Thought(text)),
        (false, false) => Some(Part::Text(text)),
    })
}

fn read_call(mut call: Map<String, Value>) -> Result<Part, Defect> {
    let arguments = match call.remove("args") {
        None | Some(Value::Null) => String::new(),
        Some(arguments) => serde_json::to_string(&arguments).map_err(|_| Defect::Malformed)?,
    };
    if arguments.len() > MAX_ARGUMENT_BYTES {
        return Err(Violation::LimitExceeded.into());
    }
    let wire_id = take_text(&mut call, "id")?;
    let call = RawCall {
        // The log's id is made by us (PRV-25).
        id: String::new(),
        name: take_text(&mut call, "name")?,
        arguments,
    };
    Ok(Part::Call(call, wire_id))
}

/// `usageMetadata` in the neutral names; thoughts are output that the candidates' count leaves out (PRV-70 to PRV-74).
fn usage_of(metadata: &Value) -> Option<TokenUsage> {
    let count = |key: &str| {
        let count = serde_json::from_value::<TokenCount>(metadata.get(key)?.clone());
        count.ok()?.0
    };
    let thoughts = count("thoughtsTokenCount");
    let mut usage = TokenUsage {
        prompt_tokens: count("promptTokenCount"),
        completion_tokens: count("candidatesTokenCount")
            .map(|candidates| candidates.saturating_add(thoughts.unwrap_or(0))),
        total_tokens: count("totalTokenCount"),
        cached_tokens: count("cachedContentTokenCount"),
        cache_creation_tokens: None,
        reasoning_tokens: thoughts,
    };
    usage.total_tokens = usage.total();
    Some(usage).filter(TokenUsage::is_known)
}
