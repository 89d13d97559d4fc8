//! Request options of a Gemini model, checked once at construction (section 7).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value};

use crate::request_options::{check_extra_body, check_sampling, invalid};

/// Keys that the client sets itself (PRV-82).
const OWN_KEYS: [&str; 14] = [
    "contents",
    "extra_body",
    "generateContentRequest",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "systemInstruction",
    "tools",
];

/// Keys inside `generationConfig` that the client sets itself.
const OWN_CONFIG_KEYS: [&str; 4] = ["candidateCount", "maxOutputTokens", "temperature", "topP"];

/// What every request of one model carries besides the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GeminiOptions {
    /// Output limit of one answer; reaches the wire unchanged (PRV-80).
    pub max_tokens: Option<u64>,
    /// Sampling temperature; not sent if absent.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Further keys for the top level of the body, such as `safetySettings`; what stands under
    /// `generationConfig`, such as `thinkingConfig`, is joined with the client's own keys there.
    pub extra_body: Map<String, Value>,
}

impl GeminiOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` with the first option that is not valid; never its value.
    pub fn check(&self) -> Result<(), CodecError> {
        check_sampling(self.max_tokens, self.temperature, self.top_p)?;
        check_extra_body(&self.extra_body, &OWN_KEYS)?;
        match self.extra_body.get("generationConfig") {
            None => Ok(()),
            Some(Value::Object(config)) => {
                let own = OWN_CONFIG_KEYS
                    .iter()
                    .find(|key| config.contains_key(**key));
                own.map_or(Ok(()), |key| {
                    Err(invalid(&format!("extra_body.generationConfig.{key}")))
                })
            }
            Some(_) => Err(invalid("extra_body.generationConfig")),
        }
    }
}
