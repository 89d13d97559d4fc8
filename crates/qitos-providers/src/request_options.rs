//! Checks of request options that every dialect shares (PRV-80, PRV-82, PRV-83).

use qitos_contracts::model::CodecError;
use serde_json::{Map, Value, json};

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

/// `codec_transport_options_invalid`, with the option's name and never its value.
pub(crate) fn invalid(option: &str) -> CodecError {
    CodecError::OptionsInvalid {
        option: option.to_owned(),
    }
}

/// The options that every dialect knows.
pub(crate) fn check_sampling(
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
) -> Result<(), CodecError> {
    if max_tokens == Some(0) {
        return Err(invalid("max_tokens"));
    }
    if temperature.is_some_and(|value| !value.is_finite() || value < 0.0) {
        return Err(invalid("temperature"));
    }
    if top_p.is_some_and(|value| !(0.0..=1.0).contains(&value)) {
        return Err(invalid("top_p"));
    }
    Ok(())
}

/// Further keys of the body: none that the client sets itself, none that looks like a credential.
pub(crate) fn check_extra_body(
    extra_body: &Map<String, Value>,
    own_keys: &[&str],
) -> Result<(), CodecError> {
    if let Some(key) = extra_body
        .keys()
        .find(|key| own_keys.contains(&key.as_str()))
    {
        return Err(invalid(&format!("extra_body.{key}")));
    }
    if extra_body.keys().any(|key| looks_secret(key)) || extra_body.values().any(holds_secret) {
        return Err(invalid("extra_body"));
    }
    Ok(())
}

fn looks_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_KEYS.contains(&key.as_str())
}

/// Whether a key somewhere inside looks like a credential.
pub(crate) fn holds_secret(value: &Value) -> bool {
    match value {
        Value::Object(object) => object
            .iter()
            .any(|(key, value)| looks_secret(key) || holds_secret(value)),
        Value::Array(list) => list.iter().any(holds_secret),
        _ => false,
    }
}

/// A forced call cannot be thought about first on servers that have the switch (PRV-83).
pub(crate) fn stop_thinking(head: &mut Map<String, Value>) {
    if let Some(flag) = head.get_mut("enable_thinking") {
        *flag = false.into();
    }
    if let Some(Value::Object(kwargs)) = head.get_mut("chat_template_kwargs")
        && let Some(flag) = kwargs.get_mut("enable_thinking")
    {
        *flag = false.into();
    }
    if let Some(thinking) = head.get_mut("thinking") {
        *thinking = json!({"type": "disabled"});
    }
}
