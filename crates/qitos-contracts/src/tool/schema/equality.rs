//! Equality of JSON values as JSON Schema means it: `1` and `1.0` are equal.

use serde_json::{Number, Value};

use super::number::as_integer;
use crate::canonical_json::{write_f64, write_str};

/// Bytes that are equal exactly for equal values.
pub(super) fn equality_key(value: &Value) -> Vec<u8> {
    let mut key = Vec::new();
    append(value, &mut key);
    key
}

fn append(value: &Value, key: &mut Vec<u8>) {
    match value {
        Value::Null => key.push(b'n'),
        Value::Bool(true) => key.push(b't'),
        Value::Bool(false) => key.push(b'f'),
        Value::Number(number) => append_number(number, key),
        Value::String(text) => write_str(text, key),
        Value::Array(items) => {
            key.push(b'[');
            for item in items {
                append(item, key);
                key.push(b',');
            }
            key.push(b']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            key.push(b'{');
            for (name, member) in sorted {
                write_str(name, key);
                append(member, key);
                key.push(b',');
            }
            key.push(b'}');
        }
    }
}

fn append_number(number: &Number, key: &mut Vec<u8>) {
    if let Some(integer) = as_integer(number) {
        key.extend_from_slice(integer.to_string().as_bytes());
    } else if write_f64(number.as_f64().unwrap_or(0.0), key).is_err() {
        key.push(b'?');
    }
}
