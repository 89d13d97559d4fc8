//! Which keys hold secrets (TRJ-30; look-alike folding is not built yet).

use serde_json::Value;

use super::is_marker_text;
use super::normalize::scan_copy;

/// What of a value the key rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Null, a boolean or a marker: never sensitive.
    Exempt,
    /// A string.
    Text,
    /// A non-empty list of strings without markers.
    TextList,
    /// A number, an object, another list.
    Other,
}

impl Shape {
    pub(super) fn of(value: &Value) -> Shape {
        match value {
            Value::Null | Value::Bool(_) => Shape::Exempt,
            Value::String(text) if is_marker_text(text) => Shape::Exempt,
            Value::String(_) => Shape::Text,
            Value::Array(items)
                if !items.is_empty()
                    && items
                        .iter()
                        .all(|item| item.as_str().is_some_and(|text| !is_marker_text(text))) =>
            {
                Shape::TextList
            }
            _ => Shape::Other,
        }
    }
}

/// What a key says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyVerdict {
    Ordinary,
    Sensitive,
    ProviderRaw,
    ArtifactBody,
    /// Its descendants' `token` and `tokens` are words of a text, not credentials.
    LogProbabilities,
}

const COUNTING_WORDS: [&str; 18] = [
    "count", "counts", "length", "len", "size", "limit", "budget", "usage", "type", "kind", "ref",
    "policy", "present", "required", "enabled", "expires", "expiry", "ttl",
];
const VOCABULARY_TOKENS: [&str; 9] = [
    "bos", "eos", "pad", "unk", "sep", "cls", "mask", "stop", "special",
];
const SENSITIVE_PARTS: [&str; 15] = [
    "apikey",
    "authorization",
    "cookie",
    "credentials",
    "password",
    "privatekey",
    "refreshtoken",
    "secret",
    "setcookie",
    "passwd",
    "passphrase",
    "accesskey",
    "signingkey",
    "encryptionkey",
    "connectionstring",
];
const SENSITIVE_WORDS: [&str; 6] = ["auth", "pwd", "otp", "jwt", "bearer", "credential"];
const PROVIDER_RAW_PARTS: [&str; 4] = [
    "providerraw",
    "providerresponse",
    "rawprovider",
    "rawresponse",
];
const ARTIFACT_BODY_PARTS: [&str; 4] = [
    "artifactbody",
    "artifactcontent",
    "artifactpayload",
    "blobbody",
];

/// Judges one key of an object.
pub(super) fn judge(key: &str, shape: Shape, under_log_probabilities: bool) -> KeyVerdict {
    let text = scan_copy(key);
    let compact = compact(&text);
    if sensitive(&text, &compact, shape, under_log_probabilities) {
        return KeyVerdict::Sensitive;
    }
    let contains = |parts: &[&str]| parts.iter().any(|part| compact.contains(part));
    if contains(&PROVIDER_RAW_PARTS) {
        KeyVerdict::ProviderRaw
    } else if contains(&ARTIFACT_BODY_PARTS) {
        KeyVerdict::ArtifactBody
    } else if matches!(compact.as_str(), "logprobs" | "toplogprobs") {
        KeyVerdict::LogProbabilities
    } else {
        KeyVerdict::Ordinary
    }
}

/// Whether a value of this shape under the name `key` is a secret.
pub(super) fn is_sensitive(key: &str, shape: Shape) -> bool {
    let text = scan_copy(key);
    sensitive(&text, &compact(&text), shape, false)
}

/// Lower case, letters and digits of ASCII alone.
pub(super) fn compact(text: &str) -> String {
    text.chars()
        .flat_map(char::to_lowercase)
        .filter(char::is_ascii_alphanumeric)
        .collect()
}

/// The steps of TRJ-30, in its order.
fn sensitive(text: &str, compact: &str, shape: Shape, under_log_probabilities: bool) -> bool {
    if shape == Shape::Exempt || COUNTING_WORDS.contains(&last_word(text).as_str()) {
        return false;
    }
    let singular = compact.strip_suffix('s').unwrap_or(compact);
    if singular
        .strip_suffix("token")
        .is_some_and(|head| VOCABULARY_TOKENS.contains(&head))
    {
        return false;
    }
    if SENSITIVE_PARTS.iter().any(|part| compact.contains(part)) {
        return true;
    }
    if shape == Shape::Text && SENSITIVE_WORDS.contains(&compact) {
        return true;
    }
    if under_log_probabilities && matches!(compact, "token" | "tokens") {
        return false;
    }
    compact.ends_with("token")
        || (compact.ends_with("tokens") && matches!(shape, Shape::Text | Shape::TextList))
}

/// The last word, split at non-alphanumerics and where the case changes, in lower case.
fn last_word(text: &str) -> String {
    let mut word = String::new();
    let mut previous: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if !character.is_alphanumeric() {
            // A trailing separator ends no word.
            if characters.peek().is_some_and(|next| next.is_alphanumeric()) {
                word.clear();
            }
            previous = None;
            continue;
        }
        let starts_word = character.is_uppercase()
            && previous.is_some_and(|before| {
                !before.is_uppercase() || characters.peek().is_some_and(|next| next.is_lowercase())
            });
        if starts_word {
            word.clear();
        }
        word.extend(character.to_lowercase());
        previous = Some(character);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_follow_separators_and_case() {
        for (text, word) in [
            ("token_count", "count"),
            ("tokenCount", "count"),
            ("cookie-policy", "policy"),
            ("HTTPSecret", "secret"),
            ("password", "password"),
            ("a__", "a"),
            ("", ""),
            ("API_KEY", "key"),
        ] {
            assert_eq!(last_word(text), word, "{text}");
        }
    }

    #[test]
    fn the_steps_are_taken_in_order() {
        // TRJ-30
        for (key, shape, expected) in [
            ("token_count", Shape::Other, false),
            ("eos_token", Shape::Text, false),
            ("special_tokens", Shape::TextList, false),
            ("api-key", Shape::Text, true),
            ("auth", Shape::Text, true),
            ("auth", Shape::Other, false),
            ("access_token", Shape::Other, true),
            ("max_tokens", Shape::Other, false),
            ("api_tokens", Shape::TextList, true),
            ("password", Shape::Exempt, false),
        ] {
            assert_eq!(is_sensitive(key, shape), expected, "{key}");
        }
        assert_eq!(judge("token", Shape::Text, true), KeyVerdict::Ordinary);
        assert_eq!(judge("token", Shape::Text, false), KeyVerdict::Sensitive);
    }
}
