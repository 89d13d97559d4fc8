//! Request options of a Chat model, checked once at construction (section 7).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value};

use crate::request_options::{check_extra_body, check_sampling, holds_secret, invalid};

/// Keys that the client sets itself (PRV-82).
const OWN_KEYS: [&str; 11] = [
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
    "tools",
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
        check_sampling(self.max_tokens, self.temperature, self.top_p)?;
        let kwargs = self
            .chat_template_kwargs
            .as_ref()
            .or_else(|| self.extra_body.get("chat_template_kwargs"));
        if kwargs.is_some_and(|value| !value.is_object()) {
            return Err(invalid("chat_template_kwargs"));
        }
        check_extra_body(&self.extra_body, &OWN_KEYS)?;
        if kwargs.is_some_and(holds_secret) {
            return Err(invalid("extra_body"));
        }
        Ok(())
    }
}
