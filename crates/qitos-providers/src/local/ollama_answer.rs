//! A whole answer of Ollama: reading, judging, decoding (PRV-49, PRV-102).

use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::{DecodedResponse, Finish, FinishReason, ResponsePart, TokenUsage};
use serde_json::{Map, Value};

use super::server::OllamaMode;
use crate::call::{check_item_size, is_plain_id, take_text};
use crate::classify_failure::ProviderFault;
use crate::token_count::TokenCount;
use crate::verdict::{Defect, FailedAnswer, PartialCounts, Violation};

/// A whole answer, not yet judged.
#[derive(Debug, Default)]
pub(super) struct Answer {
    model: String,
    pub(super) text: String,
    thinking: String,
    calls: usize,
    done: bool,
    done_reason: String,
    usage: Option<TokenUsage>,
}

impl Answer {
    /// Reads the answer's object; moves its strings instead of copying them.
    pub(super) fn from_value(value: Value, mode: OllamaMode) -> Result<Answer, Box<FailedAnswer>> {
        let Value::Object(mut whole) = value else {
            return Err(Box::new(Defect::Envelope.into()));
        };
        if let Some(error) = whole.get("error").filter(|error| !error.is_null()) {
            let fault = Defect::Fault(ProviderFault::in_stream(error));
            return Err(Box::new(fault.into()));
        }
        let usage = usage_of(&whole);
        read(&mut whole, mode, usage).map_err(|defect| {
            Box::new(FailedAnswer {
                defect,
                counts: PartialCounts::default(),
                usage,
            })
        })
    }

    /// The verdict: `done` must be true, and its reason one that ends an answer (PRV-102).
    pub(super) fn validate(&self) -> Result<(), Box<FailedAnswer>> {
        self.verdict().map_err(|defect| {
            let characters = |text: &str| text.chars().count() as u64;
            Box::new(FailedAnswer {
                defect,
                counts: PartialCounts {
                    text_characters: characters(&self.text),
                    reasoning_characters: characters(&self.thinking),
                    tool_calls: self.calls as u64,
                },
                usage: self.usage,
            })
        })
    }

    fn verdict(&self) -> Result<(), Defect> {
        if !self.done {
            return Err(Violation::MissingTerminal.into());
        }
        // Servers before the reason was added say only that they are done.
        if !matches!(self.done_reason.as_str(), "" | "stop" | "length") {
            return Err(Violation::UnknownTerminal.into());
        }
        if self.calls > 0 {
            // No tool was offered, so nobody may run it (PRV-69 says the same of another dialect).
            return Err(Violation::UnsupportedClientAction.into());
        }
        let texts = [self.text.as_str(), self.thinking.as_str()];
        check_item_size(texts.into_iter(), std::iter::empty())
    }

    /// The normal form of a judged answer (PRV-18).
    pub(super) fn normal_form(self, provider_request_id: Option<String>) -> DecodedResponse {
        let mut parts = Vec::with_capacity(2);
        if !self.thinking.is_empty() {
            parts.push(ResponsePart::Reasoning {
                block_type: "thinking".into(),
                text: Some(self.thinking.into()),
                replayable: false,
            });
        }
        if !self.text.is_empty() {
            parts.push(ResponsePart::Content(ContentBlock::text(self.text)));
        }
        let mut provider_metadata = Map::new();
        if let Some(id) = provider_request_id.filter(|id| is_plain_id(id)) {
            provider_metadata.insert("provider_request_id".to_owned(), id.into());
        }
        let reason = match self.done_reason.as_str() {
            "length" => FinishReason::Length,
            _ => FinishReason::Stop,
        };
        let raw = if self.done_reason.is_empty() {
            "done".to_owned()
        } else {
            self.done_reason
        };
        DecodedResponse {
            parts,
            usage: self.usage,
            finish: Finish { reason, raw },
            model_name: Some(self.model).filter(|name| !name.is_empty()),
            provider_metadata,
            continuation: None,
        }
    }
}

fn read(
    whole: &mut Map<String, Value>,
    mode: OllamaMode,
    usage: Option<TokenUsage>,
) -> Result<Answer, Defect> {
    let mut answer = Answer {
        model: take_text(whole, "model")?,
        done: match whole.get("done") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(done)) => *done,
            Some(_) => return Err(Defect::Malformed),
        },
        done_reason: take_text(whole, "done_reason")?,
        usage,
        ..Answer::default()
    };
    match mode {
        OllamaMode::Chat => {
            let Some(Value::Object(mut message)) = whole.remove("message") else {
                return Err(Defect::Malformed);
            };
            answer.text = take_text(&mut message, "content")?;
            answer.thinking = take_text(&mut message, "thinking")?;
            answer.calls = match message.get("tool_calls") {
                None | Some(Value::Null) => 0,
                Some(Value::Array(calls)) => calls.len(),
                Some(_) => return Err(Defect::Malformed),
            };
        }
        OllamaMode::Generate => {
            if !whole.contains_key("response") {
                return Err(Defect::Malformed);
            }
            answer.text = take_text(whole, "response")?;
            answer.thinking = take_text(whole, "thinking")?;
        }
    }
    Ok(answer)
}

/// Counts that are not there are unknown, never 0; a prompt taken from the cache has none (PRV-70, PRV-71).
fn usage_of(whole: &Map<String, Value>) -> Option<TokenUsage> {
    let count = |key: &str| {
        let count = serde_json::from_value::<TokenCount>(whole.get(key)?.clone());
        count.ok()?.0
    };
    let mut usage = TokenUsage {
        prompt_tokens: count("prompt_eval_count"),
        completion_tokens: count("eval_count"),
        ..TokenUsage::default()
    };
    usage.total_tokens = usage.total();
    Some(usage).filter(TokenUsage::is_known)
}
