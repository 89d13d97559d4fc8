//! Request options of a Chat model, checked once at construction (section 7).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value};

/// Keys that the client sets itself (PRV-82).
const OWN_KEYS: [&str; 10] = [
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
];

/// Keys that look like a credential wherever they stand (PRV-17, `no_secret_keys_in_payload`).
const SECRET_KEYS: [&str; 12] = [
    "authorization",
    "api_key",
    "api-key",
    "apikey",
    "credential",
    "password",
    "secret",
    "cookie",
    "header",
    "headers",
    "access_token",
    "refresh_token",
];

/// What every request of one model carries besides the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatOptions {
    /// Output limit of one answer; reaches the wire unchanged (PRV-80).
    pub max_tokens: Option<u64>,
    /// Sampling temperature; not sent if absent, because some models refuse it.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Whether to sample at all, for servers that ask.
    pub do_sample: Option<bool>,
    /// Template options; end up at the top level of the body (PRV-82).
    pub chat_template_kwargs: Option<Value>,
    /// Further keys for the top level of the body.
    pub extra_body: Map<String, Value>,
    /// The tool to name when a call is forced; any tool if absent.
    pub forced_tool: Option<String>,
}

impl ChatOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` with the first option that is not valid; never its value.
    pub fn check(&self) -> Result<(), CodecError> {
        let invalid = |option: &str| {
            Err(CodecError::OptionsInvalid {
                option: option.to_owned(),
            })
        };
        if self.max_tokens == Some(0) {
            return invalid("max_tokens");
        }
        if self
            .temperature
            .is_some_and(|value| !value.is_finite() || value < 0.0)
        {
            return invalid("temperature");
        }
        if self
            .top_p
            .is_some_and(|value| !(0.0..=1.0).contains(&value))
        {
            return invalid("top_p");
        }
        let kwargs = self
            .chat_template_kwargs
            .as_ref()
            .or_else(|| self.extra_body.get("chat_template_kwargs"));
        if kwargs.is_some_and(|value| !value.is_object()) {
            return invalid("chat_template_kwargs");
        }
        let tools = ["tools"];
        if let Some(key) = self
            .extra_body
            .keys()
            .find(|key| OWN_KEYS.contains(&key.as_str()) || tools.contains(&key.as_str()))
        {
            return invalid(&format!("extra_body.{key}"));
        }
        let values = self.extra_body.values().chain(kwargs);
        if self.extra_body.keys().any(|key| looks_secret(key)) || values.clone().any(holds_secret) {
            return invalid("extra_body");
        }
        Ok(())
    }
}

fn looks_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS.contains(&key.as_str())
}

fn holds_secret(value: &Value) -> bool {
    match value {
        Value::Object(object) => object
            .iter()
            .any(|(key, value)| looks_secret(key) || holds_secret(value)),
        Value::Array(list) => list.iter().any(holds_secret),
        _ => false,
    }
}
