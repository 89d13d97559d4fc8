//! What a Responses target can do (PRV-10, row Responses).

use qitos_contracts::model::{ProviderCapabilities, Target};

/// The capabilities of a Responses target.
#[must_use]
pub fn responses_capabilities(target: Target, context_window: Option<u64>) -> ProviderCapabilities {
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
            "streaming",
            "ordered_interleaving",
            "provider_metadata",
            "steering",
        ]
        .map(String::from)
        .to_vec(),
        reasoning_modes: ["preserve_if_supported", "drop", "native_item_continuation"]
            .map(String::from)
            .to_vec(),
        multimodal_types: super::write_item::CARRIED.map(String::from).to_vec(),
        supports_native_tool_calls: true,
        supports_parallel_tool_calls: true,
        supports_tool_schemas: true,
        supports_tool_choice: true,
        supports_multimodal_input: true,
        supports_reasoning_input: true,
        supports_reasoning_output: true,
        supports_continuation: true,
        supports_streaming: true,
        supports_usage: true,
        supports_cancellation: true,
        supports_structured_output: true,
        max_input_units: context_window,
        ..ProviderCapabilities::text_only(target, "responses")
    }
}
