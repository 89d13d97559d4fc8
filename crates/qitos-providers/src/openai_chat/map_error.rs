//! Defects of a Chat answer as typed failures.

use qitos_contracts::model::{ProviderFailure, Target, TokenUsage};

use super::chunk::Usage;
use super::stream::FailedAnswer;
use crate::failure;

/// The failure that a judged answer gives, with its counts.
pub(crate) fn of_answer(
    target: &Target,
    answer: &FailedAnswer,
    provider_request_id: Option<&str>,
) -> ProviderFailure {
    let mut failure = failure::of_defect(target, &answer.defect);
    add_counts(&mut failure, answer);
    failure.redacted_details.provider_request_id = provider_request_id.map(str::to_owned);
    failure
}

/// What had arrived before the failure (PRV-43, PRV-75).
pub(crate) fn add_counts(failure: &mut ProviderFailure, answer: &FailedAnswer) {
    let details = &mut failure.redacted_details;
    details.partial_text_characters = answer.counts.text_characters;
    details.partial_reasoning_characters = answer.counts.reasoning_characters;
    details.partial_tool_calls = answer.counts.tool_calls;
    details.usage = token_usage(answer.usage);
}

/// The neutral names; none if nothing is known (PRV-70).
pub(crate) fn token_usage(usage: Usage) -> Option<TokenUsage> {
    let usage = TokenUsage {
        prompt_tokens: usage.prompt,
        completion_tokens: usage.completion,
        total_tokens: usage.total,
        cached_tokens: usage.cached,
        cache_creation_tokens: None,
        reasoning_tokens: usage.reasoning,
    };
    let usage = TokenUsage {
        total_tokens: usage.total(),
        ..usage
    };
    Some(usage).filter(TokenUsage::is_known)
}
