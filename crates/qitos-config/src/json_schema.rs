//! The list of fields as JSON Schema, draft 2020-12 (CFG-34).

use serde_json::{Map, Value, json};

use crate::credential_key::{CLIENT_KEYS, credential_pattern};
use crate::endpoint;
use crate::field::{Field, NAME_PATTERN, Shape, Text, WhenAbsent};
use crate::section::{Sections, UNSAFE_HOST_KEYS};
use crate::text_rule::{GUEST_PATH_PATTERN, INTERPOLATION_PATTERN};

/// The JSON Schema of `agent.yaml`, made from the list that the reader follows.
///
/// It gives the reader's verdict except where the reader looks at two fields at once, at the file system or at the
/// spelling of a number (CFG-35).
#[must_use]
pub fn json_schema() -> Value {
    let mut root = section(Sections::fields());
    if let Some(root) = root.as_object_mut() {
        root.insert(
            "$schema".into(),
            "https://json-schema.org/draft/2020-12/schema".into(),
        );
        root.insert("$id".into(), "urn:qitos:schema:agent".into());
        root.insert("title".into(), "agent.yaml of QitOS".into());
        root.insert("$defs".into(), definitions());
    }
    root
}

fn section(fields: &[Field]) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        properties.insert(field.name.to_owned(), property(field));
        if field.default == WhenAbsent::Required {
            required.push(Value::from(field.name));
        }
    }
    let mut schema = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
        schema.insert("required".into(), Value::Array(required));
    }
    schema
}

fn property(field: &Field) -> Value {
    let mut schema = match &field.shape {
        Shape::Section(fields) => section(fields()),
        Shape::Text(kind) => text(*kind),
        Shape::Choice(words) => json!({"enum": words}),
        Shape::Integer { min, max, nullable } => {
            let mut schema = json!({"type": or_null("integer", *nullable), "minimum": min});
            let max = max.unwrap_or(i64::MAX.unsigned_abs());
            insert(&mut schema, "maximum", max.into());
            schema
        }
        Shape::Number { min, max, nullable } => {
            let mut schema = json!({"type": or_null("number", *nullable), "minimum": min});
            if let Some(max) = max {
                insert(&mut schema, "maximum", (*max).into());
            }
            schema
        }
        Shape::Flag => json!({"type": "boolean"}),
        Shape::AlwaysTrue => json!({"const": true}),
        Shape::Texts { item, unique } => {
            let mut schema = json!({"type": "array", "items": text(*item)});
            if *unique {
                insert(&mut schema, "uniqueItems", true.into());
            }
            schema
        }
        Shape::FreeMap => json!({"$ref": "#/$defs/free_map"}),
        Shape::ExtraBody => json!({
            "$ref": "#/$defs/provider_map",
            "propertyNames": {"not": {"enum": CLIENT_KEYS}},
        }),
        Shape::Dataset => json!({
            "type": "array",
            "items": {"anyOf": [
                text(Text::NonBlank { max_chars: usize::MAX }),
                {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["task"],
                    "properties": {
                        "task": text(Text::NonBlank { max_chars: usize::MAX }),
                        "expected": {"$ref": "#/$defs/free_value"},
                        "metadata": {"$ref": "#/$defs/free_map"},
                    },
                },
            ]},
        }),
    };
    insert(&mut schema, "description", field.doc.trim().into());
    if field.name == "environment" {
        insert(
            &mut schema,
            "if",
            json!({"required": ["type"], "properties": {"type": {"const": "unsafe_host"}}}),
        );
        insert(
            &mut schema,
            "then",
            json!({"propertyNames": {"enum": UNSAFE_HOST_KEYS}}),
        );
    }
    let default = match field.default {
        WhenAbsent::Required | WhenAbsent::Absent | WhenAbsent::Section => return schema,
        WhenAbsent::Null => Value::Null,
        WhenAbsent::Text(text) => text.into(),
        WhenAbsent::Integer(value) => value.into(),
        WhenAbsent::Number(value) => value.into(),
        WhenAbsent::Flag(flag) => flag.into(),
        WhenAbsent::EmptyList => json!([]),
        WhenAbsent::EmptyMap => json!({}),
    };
    insert(&mut schema, "default", default);
    schema
}

fn insert(schema: &mut Value, key: &str, value: Value) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert(key.to_owned(), value);
    }
}

fn or_null(kind: &str, nullable: bool) -> Value {
    if nullable {
        json!([kind, "null"])
    } else {
        kind.into()
    }
}

fn text(kind: Text) -> Value {
    let mut schema = match kind {
        Text::Any => json!({}),
        Text::NonBlank { max_chars } => {
            let mut schema = json!({"pattern": "\\S"});
            if max_chars < usize::MAX {
                insert(&mut schema, "maxLength", max_chars.into());
            }
            schema
        }
        Text::Name => json!({"pattern": NAME_PATTERN}),
        Text::Token { empty: true } => json!({"pattern": "^\\S*$", "maxLength": 256}),
        Text::Token { empty: false } => json!({"pattern": "^\\S+$", "maxLength": 256}),
        Text::Path | Text::Glob => json!({"pattern": "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$"}),
        Text::GuestPath => json!({"pattern": GUEST_PATH_PATTERN}),
        Text::Endpoint => json!({"pattern": endpoint::PATTERN}),
    };
    insert(&mut schema, "type", "string".into());
    // A name, a guest path or an endpoint with `${X}` in it is refused in any case.
    insert(
        &mut schema,
        "not",
        json!({"pattern": INTERPOLATION_PATTERN}),
    );
    schema
}

fn definitions() -> Value {
    let value = |map: &str, value: &str| {
        json!({"anyOf": [
            {"type": ["null", "boolean"]},
            {"type": "integer", "minimum": i64::MIN, "maximum": u64::MAX},
            {"type": "number"},
            {"type": "string", "not": {"pattern": INTERPOLATION_PATTERN}},
            {"type": "array", "items": {"$ref": format!("#/$defs/{value}")}},
            {"$ref": format!("#/$defs/{map}")},
        ]})
    };
    json!({
        "free_map": {
            "type": "object",
            "propertyNames": {"not": {"pattern": INTERPOLATION_PATTERN}},
            "additionalProperties": {"$ref": "#/$defs/free_value"},
        },
        "free_value": value("free_map", "free_value"),
        "provider_map": {
            "type": "object",
            "propertyNames": {"not": {"anyOf": [
                {"pattern": INTERPOLATION_PATTERN},
                {"pattern": credential_pattern()},
            ]}},
            "additionalProperties": {"$ref": "#/$defs/provider_value"},
        },
        "provider_value": value("provider_map", "provider_value"),
    })
}
