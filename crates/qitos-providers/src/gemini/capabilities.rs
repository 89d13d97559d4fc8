//! What a Gemini target can do (PRV-10, row Gemini).

use qitos_contracts::model::{ProviderCapabilities, Target};

/// Kinds of content that the dialect carries besides text.
pub(super) const IMAGE_TYPES: [&str; 2] = ["image_url", "image_base64"];

/// The capabilities of a Gemini target.
#[must_use]
pub fn gemini_capabilities(target: Target, context_window: Option<u64>) -> ProviderCapabilities {
    ProviderCapabilities {
        supported_features: [
            "text",
            "multimodal",
            "tool_calls",
            "tool_results",
            "tool_schemas",
            "parallel_tool_calls",
            "reasoning",
            "continuation",
            "ordered_interleaving",
            "provider_metadata",
            "steering",
        ]
        .map(String::from)
        .to_vec(),
        reasoning_modes: [
            "preserve_if_supported",
            "drop",
            "inline_replay",
            "signed_block_replay",
        ]
        .map(String::from)
        .to_vec(),
        multimodal_types: ["text"]
            .into_iter()
            .chain(IMAGE_TYPES)
            .map(String::from)
            .collect(),
        supports_native_tool_calls: true,
        supports_parallel_tool_calls: true,
        supports_tool_schemas: true,
        supports_multimodal_input: true,
        supports_reasoning_input: true,
        supports_reasoning_output: true,
        supports_continuation: true,
        supports_usage: true,
        supports_cancellation: true,
        max_input_units: context_window,
        ..ProviderCapabilities::text_only(target, "generate_content")
    }
}
