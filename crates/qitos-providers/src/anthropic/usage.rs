//! Token counts as the dialect reports them (PRV-73, PRV-74).

use qitos_contracts::model::TokenUsage;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::token_count::TokenCount;

/// Token counts; each unknown unless the provider said a number (PRV-70).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    input_tokens: TokenCount,
    #[serde(default)]
    output_tokens: TokenCount,
    #[serde(default)]
    cache_creation_input_tokens: TokenCount,
    #[serde(default)]
    cache_read_input_tokens: TokenCount,
}

impl Usage {
    /// Per field the largest value seen: reports are cumulative, and compatible servers repeat a field as 0 (PRV-73).
    pub(crate) fn grow(&mut self, new: Usage) {
        let larger = |old: &mut TokenCount, new: TokenCount| old.0 = old.0.max(new.0);
        larger(&mut self.input_tokens, new.input_tokens);
        larger(&mut self.output_tokens, new.output_tokens);
        larger(
            &mut self.cache_creation_input_tokens,
            new.cache_creation_input_tokens,
        );
        larger(
            &mut self.cache_read_input_tokens,
            new.cache_read_input_tokens,
        );
    }

    /// The neutral names. The dialect counts cached input apart, so the prompt is the sum; without
    /// `input_tokens` nobody can tell how large it is (PRV-74).
    pub(crate) fn neutral(self) -> Option<TokenUsage> {
        let created = self.cache_creation_input_tokens.0;
        let read = self.cache_read_input_tokens.0;
        let mut usage = TokenUsage {
            prompt_tokens: self.input_tokens.0.map(|input| {
                input
                    .saturating_add(created.unwrap_or(0))
                    .saturating_add(read.unwrap_or(0))
            }),
            completion_tokens: self.output_tokens.0,
            total_tokens: None,
            cached_tokens: read,
            cache_creation_tokens: created,
            reasoning_tokens: None,
        };
        usage.total_tokens = usage.total();
        Some(usage).filter(TokenUsage::is_known)
    }

    /// The dialect's own object, if anything is known.
    pub(crate) fn into_value(self) -> Option<Value> {
        let object: Map<String, Value> = [
            (
                "cache_creation_input_tokens",
                self.cache_creation_input_tokens,
            ),
            ("cache_read_input_tokens", self.cache_read_input_tokens),
            ("input_tokens", self.input_tokens),
            ("output_tokens", self.output_tokens),
        ]
        .into_iter()
        .filter_map(|(name, count)| Some((name.to_owned(), count.0?.into())))
        .collect();
        Some(object)
            .filter(|object| !object.is_empty())
            .map(Value::Object)
    }
}
