//! The verified response and its normal form (section 2).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::log::{ContentBlock, ParseStatus};

/// A response whose terminal was seen, as the dialect's non-streaming JSON object.
///
/// A streamed answer is assembled into that same object after its terminal was verified, so
/// [`decode`](super::ProviderCodec::decode) validates both alike (PRV-49). Debug prints no content.
#[derive(Clone, PartialEq)]
pub struct RawResponse {
    /// The dialect's response object.
    pub body: Value,
    /// It came as a stream.
    pub streamed: bool,
    /// Texts for people, such as `unclean_close`.
    pub warnings: Vec<String>,
    /// `[A-Za-z0-9_-]{1,128}`, if the provider gave one.
    pub provider_request_id: Option<String>,
}

impl RawResponse {
    /// A response that came whole.
    #[must_use]
    pub fn whole(body: Value) -> Self {
        RawResponse {
            body,
            streamed: false,
            warnings: Vec::new(),
            provider_request_id: None,
        }
    }
}

impl fmt::Debug for RawResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RawResponse")
            .field("streamed", &self.streamed)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// How an answer ended (PRV-26).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The output limit cut it.
    Length,
    /// It wants tools.
    ToolCalls,
    /// It will go on when asked again.
    Paused,
}

/// How an answer ended, with the provider's own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The reason.
    pub reason: FinishReason,
    /// The provider's word, also when streaming (TXT-11).
    pub raw: String,
}

impl Finish {
    /// `length` and `paused` cut the answer short (PRV-26).
    #[must_use]
    pub fn truncated(&self) -> bool {
        matches!(self.reason, FinishReason::Length | FinishReason::Paused)
    }
}

/// A part of an answer, in the provider's order (PRV-18).
#[derive(Clone, PartialEq)]
pub enum ResponsePart {
    /// Text or other content.
    Content(ContentBlock),
    /// Reasoning with readable text or a reference.
    Reasoning {
        /// The provider's word for it.
        block_type: Arc<str>,
        /// Readable text.
        text: Option<Arc<str>>,
        /// It can be sent back (PRV-34).
        replayable: bool,
    },
    /// A call.
    ToolCall {
        /// The provider's id, or our substitute (PRV-24, PRV-25).
        call_id: Arc<str>,
        /// The name as the model wrote it.
        name: Arc<str>,
        /// The provider's text.
        raw_arguments: Arc<str>,
        /// The object, with [`ParseStatus::Parsed`] only (PRV-21).
        parsed_arguments: Option<Arc<Value>>,
        /// How the text was read.
        parse_status: ParseStatus,
        /// Why it could not be read.
        parse_error: Option<Arc<str>>,
        /// Such as the wire id, or `wire_arguments_empty`.
        metadata: Map<String, Value>,
    },
}

impl fmt::Debug for ResponsePart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponsePart::Content(block) => write!(formatter, "Content({})", block.block_type),
            ResponsePart::Reasoning { block_type, .. } => {
                write!(formatter, "Reasoning({block_type})")
            }
            ResponsePart::ToolCall { call_id, name, .. } => {
                write!(formatter, "ToolCall({call_id}, {name})")
            }
        }
    }
}

/// Usage of one attempt; what is not known is absent, never 0 (PRV-70 to PRV-74).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenUsage {
    /// Input tokens, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub completion_tokens: Option<u64>,
    /// The provider's total, or the sum if both parts are known (PRV-71).
    pub total_tokens: Option<u64>,
    /// Subset of the input.
    pub cached_tokens: Option<u64>,
    /// Subset of the input.
    pub cache_creation_tokens: Option<u64>,
    /// Subset of the output.
    pub reasoning_tokens: Option<u64>,
}

impl TokenUsage {
    /// The total, given or computed (PRV-71).
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total_tokens
            .or_else(|| Some(self.prompt_tokens?.saturating_add(self.completion_tokens?)))
    }

    /// Whether anything is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        *self != TokenUsage::default()
    }
}

/// The normal form of an answer (PRV-18). Debug prints no content.
#[derive(Clone, PartialEq)]
pub struct DecodedResponse {
    /// Parts in the provider's order.
    pub parts: Vec<ResponsePart>,
    /// Usage, if any of it is known.
    pub usage: Option<TokenUsage>,
    /// How it ended.
    pub finish: Finish,
    /// The model that answered.
    pub model_name: Option<String>,
    /// Allow-listed scalars only.
    pub provider_metadata: Map<String, Value>,
    /// Opaque provider state to keep, in the codec's own form.
    pub continuation: Option<Value>,
}

impl DecodedResponse {
    /// The joined text; equals the joined deltas (PRV-19).
    #[must_use]
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                ResponsePart::Content(block) => block.text.as_deref(),
                _ => None,
            })
            .collect()
    }

    /// How many calls it declares.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.parts
            .iter()
            .filter(|part| matches!(part, ResponsePart::ToolCall { .. }))
            .count()
    }
}

impl fmt::Debug for DecodedResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DecodedResponse")
            .field("parts", &self.parts)
            .field("usage", &self.usage)
            .field("finish", &self.finish)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_needs_both_parts() {
        // PRV-70, PRV-71
        let mut usage = TokenUsage {
            prompt_tokens: Some(3),
            ..TokenUsage::default()
        };
        assert_eq!(usage.total(), None);
        usage.completion_tokens = Some(0);
        assert_eq!(usage.total(), Some(3));
        usage.total_tokens = Some(9);
        assert_eq!(usage.total(), Some(9));
        assert!(!TokenUsage::default().is_known());
    }
}
