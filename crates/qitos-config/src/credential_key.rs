//! Keys that look like credentials, and keys that a provider client sets itself.

/// Normalised endings that make a key look like a credential.
pub(crate) const ENDINGS: &[&str] = &[
    "apikey",
    "password",
    "passwd",
    "secret",
    "secretkey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "credentials",
    "accesstoken",
    "authtoken",
    "refreshtoken",
    "bearertoken",
    "sessiontoken",
    "idtoken",
];

/// Normalised whole keys that look like credentials although their endings are common.
pub(crate) const WHOLE: &[&str] = &["token", "auth", "bearer", "cookie"];

/// Keys of the request body that the clients set themselves.
pub(crate) const CLIENT_KEYS: &[&str] = &[
    "contents",
    "input",
    "instructions",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "previous_response_id",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
];

/// Whether `key` looks like the name of a credential, however it is spelled.
pub(crate) fn looks_like_credential(key: &str) -> bool {
    let folded: String = key
        .chars()
        .filter(|character| !matches!(character, '_' | '-'))
        .map(|character| character.to_ascii_lowercase())
        .collect();
    WHOLE.contains(&folded.as_str()) || ENDINGS.iter().any(|ending| folded.ends_with(ending))
}

/// The same decision as a regular expression, for the JSON Schema.
pub(crate) fn credential_pattern() -> String {
    let spelled = |word: &str| -> String {
        word.chars()
            .map(|letter| format!("[{}{letter}]", letter.to_ascii_uppercase()))
            .collect::<Vec<_>>()
            .join("[_-]*")
    };
    let alternatives = |words: &[&str]| -> String {
        words
            .iter()
            .map(|word| spelled(word))
            .collect::<Vec<_>>()
            .join("|")
    };
    format!(
        "^[_-]*({})[_-]*$|({})[_-]*$",
        alternatives(WHOLE),
        alternatives(ENDINGS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_looking_keys_are_found_in_every_spelling() {
        // CFG-7
        for key in [
            "api_key",
            "API-KEY",
            "apiKey",
            "x-api-key",
            "token",
            "password",
            "client_secret",
            "Authorization",
            "access_token",
            "openai_api_key",
        ] {
            assert!(looks_like_credential(key), "{key}");
        }
        for key in ["max_tokens", "tokens", "keyboard", "top_k", "secretary", ""] {
            assert!(!looks_like_credential(key), "{key}");
        }
    }
}
