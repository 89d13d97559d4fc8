//! Request options of a Responses model, checked once at construction (section 7).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value};

use crate::request_options::{check_extra_body, check_sampling, invalid};

/// Keys that the client sets itself (PRV-82), and those that would put a second history beside the log or
/// leave the server at work after the client is gone.
const OWN_KEYS: [&str; 15] = [
    "background",
    "conversation",
    "extra_body",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "previous_response_id",
    "stream",
    "stream_options",
    "tools",
];

/// What every request of one model carries besides the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponsesOptions {
    /// Output limit of one answer; reaches the wire unchanged as `max_output_tokens` (PRV-80).
    pub max_tokens: Option<u64>,
    /// Sampling temperature; not sent if absent, because some models refuse it.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Further keys for the top level of the body (PRV-82), such as `reasoning`, or `store: false`.
    ///
    /// With `store: false` encrypted reasoning is asked for; an `include` given here replaces that.
    pub extra_body: Map<String, Value>,
    /// The tool to name when a call is forced; any tool if absent.
    pub forced_tool: Option<String>,
    /// Send the strict form of a tool's schema where there is one (ARG-6).
    pub strict_tools: bool,
}

impl ResponsesOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` with the first option that is not valid; never its value.
    pub fn check(&self) -> Result<(), CodecError> {
        check_sampling(self.max_tokens, self.temperature, self.top_p)?;
        let wrong = |key: &str, has_shape: fn(&Value) -> bool| {
            let value = self.extra_body.get(key);
            value.is_some_and(|value| !has_shape(value))
        };
        if wrong("store", Value::is_boolean) {
            return Err(invalid("store"));
        }
        if wrong("include", is_list_of_texts) {
            return Err(invalid("include"));
        }
        if wrong("chat_template_kwargs", Value::is_object) {
            return Err(invalid("chat_template_kwargs"));
        }
        check_extra_body(&self.extra_body, &OWN_KEYS)
    }

    /// Whether the server stores its answers, so that a later request can start after one of them.
    pub(crate) fn server_stores(&self) -> bool {
        self.extra_body.get("store") != Some(&Value::Bool(false))
    }
}

fn is_list_of_texts(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|list| list.iter().all(Value::is_string))
}
