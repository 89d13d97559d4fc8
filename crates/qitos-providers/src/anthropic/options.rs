//! Request options of a Messages model, checked once at construction (section 7).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value};

use crate::request_options::{check_extra_body, check_sampling, invalid};

/// Keys that the client sets itself (PRV-82).
const OWN_KEYS: [&str; 12] = [
    "extra_body",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "system",
    "tools",
];

/// What every request of one model carries besides the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct AnthropicOptions {
    /// Output limit of one answer, which the dialect demands; reaches the wire unchanged (PRV-80).
    pub max_tokens: u64,
    /// Sampling temperature; not sent if absent, because some models refuse it.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Further keys for the top level of the body, such as `thinking` (PRV-82).
    pub extra_body: Map<String, Value>,
    /// The tool to name when a call is forced; any tool if absent.
    pub forced_tool: Option<String>,
}

impl Default for AnthropicOptions {
    fn default() -> Self {
        AnthropicOptions {
            max_tokens: 2_048,
            temperature: None,
            top_p: None,
            extra_body: Map::new(),
            forced_tool: None,
        }
    }
}

impl AnthropicOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` with the first option that is not valid; never its value.
    pub fn check(&self) -> Result<(), CodecError> {
        check_sampling(Some(self.max_tokens), self.temperature, self.top_p)?;
        for option in ["chat_template_kwargs", "thinking", "tool_choice"] {
            let value = self.extra_body.get(option);
            if value.is_some_and(|value| !value.is_object()) {
                return Err(invalid(option));
            }
        }
        check_extra_body(&self.extra_body, &OWN_KEYS)
    }
}
