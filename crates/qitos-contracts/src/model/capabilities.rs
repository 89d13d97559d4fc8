//! What a model is and can do (PRV-8, PRV-10).

use std::fmt;

use serde::{Deserialize, Serialize};

/// `{provider, model, transport, api_mode}`: four non-empty strings, declared by the adapter (PRV-8).
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    provider: String,
    model: String,
    transport: String,
    api_mode: String,
}

/// A part of a target is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the target's {part} is empty")]
pub struct TargetError {
    /// Which one.
    pub part: &'static str,
}

impl Target {
    /// A target of four non-empty strings.
    ///
    /// # Errors
    /// Names the first empty part.
    pub fn new(
        provider: &str,
        model: &str,
        transport: &str,
        api_mode: &str,
    ) -> Result<Self, TargetError> {
        for (part, text) in [
            ("provider", provider),
            ("model", model),
            ("transport", transport),
            ("api_mode", api_mode),
        ] {
            if text.trim().is_empty() {
                return Err(TargetError { part });
            }
        }
        Ok(Target {
            provider: provider.into(),
            model: model.into(),
            transport: transport.into(),
            api_mode: api_mode.into(),
        })
    }

    /// Who answers.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The model's name.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// How requests travel.
    #[must_use]
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// The dialect.
    #[must_use]
    pub fn api_mode(&self) -> &str {
        &self.api_mode
    }

    /// `provider:api_mode`, the scope of call ids (PRV-21).
    #[must_use]
    pub fn scope(&self) -> String {
        format!("{}:{}", self.provider, self.api_mode)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}/{}/{}/{}",
            self.provider, self.model, self.transport, self.api_mode
        )
    }
}

/// Features of PRV-10a; others are `x.<name>`.
const FEATURES: [&str; 13] = [
    "text",
    "multimodal",
    "tool_calls",
    "tool_results",
    "tool_schemas",
    "parallel_tool_calls",
    "artifact_references",
    "reasoning",
    "continuation",
    "streaming",
    "ordered_interleaving",
    "provider_metadata",
    "steering",
];
const REASONING_MODES: [&str; 5] = [
    "preserve_if_supported",
    "drop",
    "inline_replay",
    "signed_block_replay",
    "native_item_continuation",
];
const MULTIMODAL_TYPES: [&str; 4] = ["text", "image_url", "image_base64", "image_file"];
const API_STYLES: [&str; 6] = [
    "chat_completions",
    "responses",
    "messages",
    "generate_content",
    "generate",
    "compatibility",
];

/// `qitos.provider_capabilities/v2` (PRV-10). Read back and built values pass the same [`check`](Self::check).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the thirteen booleans of the record"
)]
pub struct ProviderCapabilities {
    /// `qitos.provider_capabilities/v2`.
    pub schema_version: String,
    /// Whose capabilities these are.
    pub target: Target,
    /// The dialect's family.
    pub api_style: String,
    /// Features of PRV-10a.
    pub supported_features: Vec<String>,
    /// Reasoning modes.
    pub reasoning_modes: Vec<String>,
    /// Kinds of content.
    pub multimodal_types: Vec<String>,
    /// Calls as API objects.
    pub supports_native_tool_calls: bool,
    /// Several calls in one answer.
    pub supports_parallel_tool_calls: bool,
    /// Tool schemas as API objects.
    pub supports_tool_schemas: bool,
    /// A forced tool choice.
    pub supports_tool_choice: bool,
    /// Content other than text.
    pub supports_multimodal_input: bool,
    /// Reasoning can be sent back.
    pub supports_reasoning_input: bool,
    /// Reasoning can be received.
    pub supports_reasoning_output: bool,
    /// Provider-side state.
    pub supports_continuation: bool,
    /// The whole history can be sent instead.
    pub supports_stateless_replay: bool,
    /// Verified streaming.
    pub supports_streaming: bool,
    /// Usage is reported.
    pub supports_usage: bool,
    /// Dropping the request stops it (PRV-96).
    pub supports_cancellation: bool,
    /// Schemas for the answer.
    pub supports_structured_output: bool,
    /// Declared input capacity.
    pub max_input_units: Option<u64>,
    /// Declared output capacity.
    pub max_output_units: Option<u64>,
}

/// Capabilities that contradict themselves or use unknown words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the capabilities are not valid: {reason}")]
pub struct CapabilityError {
    /// What is wrong.
    pub reason: String,
}

impl ProviderCapabilities {
    /// Schema id.
    pub const SCHEMA: &'static str = "qitos.provider_capabilities/v2";

    /// Text in, text out, nothing else claimed.
    #[must_use]
    pub fn text_only(target: Target, api_style: &str) -> Self {
        ProviderCapabilities {
            schema_version: Self::SCHEMA.into(),
            target,
            api_style: api_style.into(),
            supported_features: ["text", "tool_results", "steering"]
                .map(String::from)
                .to_vec(),
            reasoning_modes: vec!["drop".into()],
            multimodal_types: vec!["text".into()],
            supports_native_tool_calls: false,
            supports_parallel_tool_calls: false,
            supports_tool_schemas: false,
            supports_tool_choice: false,
            supports_multimodal_input: false,
            supports_reasoning_input: false,
            supports_reasoning_output: false,
            supports_continuation: false,
            supports_stateless_replay: true,
            supports_streaming: false,
            supports_usage: false,
            supports_cancellation: false,
            supports_structured_output: false,
            max_input_units: None,
            max_output_units: None,
        }
    }

    /// Whether a feature is listed.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.supported_features.iter().any(|have| have == feature)
    }

    /// Checks the record against itself (PRV-10).
    ///
    /// # Errors
    /// Names the first contradiction, unknown word, repetition or unit of zero.
    pub fn check(&self) -> Result<(), CapabilityError> {
        let fail = |reason: String| Err(CapabilityError { reason });
        if self.schema_version != Self::SCHEMA {
            return fail("unknown schema version".into());
        }
        if !API_STYLES.contains(&self.api_style.as_str()) {
            return fail(format!("unknown api style `{}`", self.api_style));
        }
        let lists: [(&str, &[String], &[&str], bool); 3] = [
            (
                "supported_features",
                &self.supported_features,
                &FEATURES,
                true,
            ),
            (
                "reasoning_modes",
                &self.reasoning_modes,
                &REASONING_MODES,
                false,
            ),
            (
                "multimodal_types",
                &self.multimodal_types,
                &MULTIMODAL_TYPES,
                false,
            ),
        ];
        for (name, list, known, open) in lists {
            if list.is_empty() {
                return fail(format!("{name} is empty"));
            }
            for (index, word) in list.iter().enumerate() {
                let extension =
                    open && word.strip_prefix("x.").is_some_and(|rest| !rest.is_empty());
                if !known.contains(&word.as_str()) && !extension {
                    return fail(format!("unknown word `{word}` in {name}"));
                }
                if list.iter().take(index).any(|earlier| earlier == word) {
                    return fail(format!("`{word}` stands twice in {name}"));
                }
            }
        }
        let pairs = [
            ("tool_calls", self.supports_native_tool_calls),
            ("parallel_tool_calls", self.supports_parallel_tool_calls),
            ("tool_schemas", self.supports_tool_schemas),
            ("multimodal", self.supports_multimodal_input),
            ("continuation", self.supports_continuation),
            ("streaming", self.supports_streaming),
        ];
        for (feature, flag) in pairs {
            if self.has(feature) != flag {
                return fail(format!("feature `{feature}` and its flag disagree"));
            }
        }
        if self.has("reasoning")
            != (self.supports_reasoning_input || self.supports_reasoning_output)
        {
            return fail("feature `reasoning` and its flags disagree".into());
        }
        if (self.supports_parallel_tool_calls || self.supports_tool_choice)
            && !self.supports_native_tool_calls
        {
            return fail("parallel calls and tool choice need native calls".into());
        }
        if self.max_input_units == Some(0) || self.max_output_units == Some(0) {
            return fail("a capacity of zero".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> ProviderCapabilities {
        ProviderCapabilities::text_only(
            Target::new("p", "m", "t", "chat_completions").unwrap(),
            "chat_completions",
        )
    }

    #[test]
    fn capabilities_round_trip_and_contradictions_are_refused() {
        // PRV-10, check `capabilities_round_trip`
        let capabilities = text();
        capabilities.check().unwrap();
        let json = serde_json::to_string(&capabilities).unwrap();
        assert_eq!(
            serde_json::from_str::<ProviderCapabilities>(&json).unwrap(),
            capabilities
        );
        assert!(
            serde_json::from_str::<ProviderCapabilities>(
                &json.replace("\"api_style\"", "\"more\"")
            )
            .is_err()
        );
        let broken: [fn(&mut ProviderCapabilities); 7] = [
            |c| c.supports_streaming = true,
            |c| c.supports_tool_choice = true,
            |c| c.max_input_units = Some(0),
            |c| c.supported_features.push("text".into()),
            |c| c.supported_features.push("x.".into()),
            |c| c.reasoning_modes.clear(),
            |c| c.api_style = "soap".into(),
        ];
        for change in broken {
            let mut capabilities = text();
            change(&mut capabilities);
            assert!(capabilities.check().is_err());
        }
        assert!(Target::new("p", " ", "t", "a").is_err());
    }
}
