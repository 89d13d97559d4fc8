//! Redaction of what a model sees (PRJ-9).

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::record::privacy::{is_sensitive_key, redact_text};

/// How often each kind was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redactions {
    /// Secrets that became `[REDACTED]`.
    pub secrets: u64,
    /// Host paths that became `[REDACTED_PATH]`.
    pub host_paths: u64,
    /// Keys that became `[REDACTED_KEY_n]`.
    pub keys: u64,
}

const SECRET: &str = "[REDACTED]";

pub(super) fn redacted_text(text: &str, redactions: &mut Redactions) -> Arc<str> {
    let (redacted, counts) = redact_text(text);
    redactions.secrets += counts.secrets;
    redactions.host_paths += counts.host_paths;
    redacted.into()
}

pub(super) fn redacted_string(text: &str, redactions: &mut Redactions) -> String {
    let (redacted, counts) = redact_text(text);
    redactions.secrets += counts.secrets;
    redactions.host_paths += counts.host_paths;
    redacted.into_owned()
}

/// A copy with every string redacted, and every sensitive key together with its value.
///
/// Results hold no value deeper than their own bound, so the recursion is bounded too.
pub(super) fn redacted_value(value: &Value, redactions: &mut Redactions) -> Value {
    match value {
        Value::String(text) => Value::String(redacted_string(text, redactions)),
        Value::Array(items) => items
            .iter()
            .map(|item| redacted_value(item, redactions))
            .collect(),
        Value::Object(members) => Value::Object(redacted_map(members, redactions)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

pub(super) fn redacted_map(
    members: &Map<String, Value>,
    redactions: &mut Redactions,
) -> Map<String, Value> {
    let mut sorted: Vec<_> = members.iter().collect();
    // The numbers of renamed keys must not depend on the order of insertion.
    sorted.sort_unstable_by_key(|(key, _)| *key);
    let mut redacted = Map::new();
    let mut next_number = 1u64;
    for (key, value) in sorted {
        let sensitive = is_sensitive_key(key, value);
        let value = if sensitive {
            redactions.secrets += 1;
            Value::String(SECRET.to_owned())
        } else {
            redacted_value(value, redactions)
        };
        let (_, own) = redact_text(key);
        if !sensitive && own.secrets + own.host_paths == 0 {
            redacted.insert(key.clone(), value);
            continue;
        }
        redactions.keys += 1;
        let mut name = format!("[REDACTED_KEY_{next_number}]");
        while members.contains_key(&name) || redacted.contains_key(&name) {
            next_number += 1;
            name = format!("[REDACTED_KEY_{next_number}]");
        }
        next_number += 1;
        redacted.insert(name, value);
    }
    redacted
}
