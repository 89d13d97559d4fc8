//! Rule: text out of markup becomes JSON of the type that the tool declares, or stays text (TXT-5).

use serde_json::{Map, Value};

use crate::canonical_json::{self, ReadLimits};
use crate::decision::Action;

/// References that one property may follow; a schema's own check finds loops, this only ends here.
const MAXIMUM_REFERENCES: usize = 8;

const LIMITS: ReadLimits = ReadLimits {
    depth: 64,
    nodes: 100_000,
    bytes: crate::limits::MAX_DECISION_TEXT_BYTES,
};

/// Turns the text values of an action into JSON of their declared types (TXT-5).
///
/// A text becomes a number, boolean, `null`, list or object only if the tool's schema declares such a type
/// for that argument, does not also declare `string`, and the whole text is a valid literal of it. Everything
/// else stays a string and fails the schema where it does not fit (ARG-3). Only the first level is text:
/// nested values come out of the literal.
pub fn apply_declared_types(action: &mut Action, input_schema: &Value) {
    let Value::Object(args) = &mut action.args else {
        return;
    };
    let Some(Value::Object(properties)) = input_schema.get("properties") else {
        return;
    };
    for (key, value) in args.iter_mut() {
        let (Value::String(text), Some(property)) = (&*value, properties.get(key)) else {
            continue;
        };
        let declared = declared_types(property, input_schema);
        if declared.is_empty() || declared.contains(&"string") {
            continue;
        }
        if let Ok(literal) = canonical_json::read(text.as_bytes(), LIMITS)
            && declared.iter().any(|wanted| is_of_type(&literal, wanted))
        {
            *value = literal;
        }
    }
}

fn is_of_type(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Null => wanted == "null",
        Value::Bool(_) => wanted == "boolean",
        Value::Number(number) => {
            // `1.0` is an integer (ARG-3).
            wanted == "number"
                || (wanted == "integer"
                    && number.as_f64().is_some_and(|float| float.fract() == 0.0))
        }
        Value::Array(_) => wanted == "array",
        Value::Object(_) => wanted == "object",
        Value::String(_) => false,
    }
}

/// The type words a property allows, `anyOf` and `oneOf` branches and local references included.
fn declared_types<'schema>(property: &'schema Value, root: &'schema Value) -> Vec<&'schema str> {
    let mut types = Vec::new();
    let branches = ["anyOf", "oneOf"]
        .iter()
        .filter_map(|keyword| property.get(keyword).and_then(Value::as_array))
        .flatten();
    for schema in std::iter::once(property).chain(branches) {
        let Some(schema) = resolve(schema, root) else {
            continue;
        };
        match schema.get("type") {
            Some(Value::String(word)) => types.push(word.as_str()),
            Some(Value::Array(words)) => types.extend(words.iter().filter_map(Value::as_str)),
            _ => {
                let values = schema
                    .get("enum")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten();
                for value in values.chain(schema.get("const")) {
                    types.push(type_word(value));
                }
            }
        }
    }
    types
}

fn type_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn resolve<'schema>(
    schema: &'schema Value,
    root: &'schema Value,
) -> Option<&'schema Map<String, Value>> {
    let mut current = schema;
    for _ in 0..MAXIMUM_REFERENCES {
        match current.get("$ref").and_then(Value::as_str) {
            None => return current.as_object(),
            Some(reference) => current = root.pointer(reference.strip_prefix('#')?)?,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn txt_5_text_becomes_the_declared_type_or_stays_text() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "ratio": {"type": ["number", "null"]},
                "flag": {"type": "boolean"},
                "name": {"type": "string"},
                "either": {"type": ["string", "integer"]},
                "list": {"type": "array"},
                "nested": {"anyOf": [{"$ref": "#/$defs/Nested"}, {"type": "null"}]},
                "choice": {"enum": [1, 2]},
                "loop": {"$ref": "#/$defs/Loop"},
                "anything": {},
            },
            "$defs": {"Nested": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}},
        });
        for (key, text, wanted) in [
            ("count", "5", json!(5)),
            ("count", "5.5", json!("5.5")),
            ("count", "5.0", json!(5.0)),
            ("count", "five", json!("five")),
            ("count", "5 apples", json!("5 apples")),
            ("count", "", json!("")),
            ("ratio", "5", json!(5)),
            ("ratio", "null", json!(null)),
            ("flag", "true", json!(true)),
            ("flag", "True", json!("True")),
            ("name", "5", json!("5")),
            ("either", "5", json!("5")),
            ("list", "[1, \"2\"]", json!([1, "2"])),
            ("list", "[1", json!("[1")),
            ("nested", "{\"a\": 1}", json!({"a": 1})),
            (
                "nested",
                "{\"a\": 1, \"a\": 2}",
                json!("{\"a\": 1, \"a\": 2}"),
            ),
            ("choice", "2", json!(2)),
            ("loop", "2", json!("2")),
            ("anything", "2", json!("2")),
            ("unknown", "2", json!("2")),
        ] {
            let mut action = Action::new("tool", json!({ key: text }));
            apply_declared_types(&mut action, &schema);
            assert_eq!(action.args, json!({ key: wanted }), "{key}: {text}");
        }
    }
}
