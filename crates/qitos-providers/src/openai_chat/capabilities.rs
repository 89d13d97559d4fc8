//! What a Chat target can do (PRV-10, row Chat).

use qitos_contracts::model::{ProviderCapabilities, Target};

/// The capabilities of a Chat Completions target.
#[must_use]
pub fn chat_capabilities(target: Target, context_window: Option<u64>) -> ProviderCapabilities {
    ProviderCapabilities {
        supported_features: [
            "text",
            "multimodal",
            "tool_calls",
            "tool_results",
            "tool_schemas",
            "parallel_tool_calls",
            "streaming",
            "provider_metadata",
            "steering",
        ]
        .map(String::from)
        .to_vec(),
        multimodal_types: ["text", "image_url", "image_base64", "image_file"]
            .map(String::from)
            .to_vec(),
        supports_native_tool_calls: true,
        supports_parallel_tool_calls: true,
        supports_tool_schemas: true,
        supports_tool_choice: true,
        supports_multimodal_input: true,
        supports_streaming: true,
        supports_usage: true,
        supports_cancellation: true,
        supports_structured_output: true,
        max_input_units: context_window,
        ..ProviderCapabilities::text_only(target, "chat_completions")
    }
}
