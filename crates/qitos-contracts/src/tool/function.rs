//! A Rust function as a tool: what the `#[tool]` and `#[toolset]` attributes generate calls of (section 1.3).
//!
//! Programs need only [`Toolset`] and [`ToolRegistry::register_toolset`] from here; the rest is public because
//! generated code stands in other crates.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::registry::{RegistryError, ToolRegistry};
use super::{DeclaredEffect, EffectClass, EffectKey, ErrorKind, Returned, Tool, ToolError};
pub use crate::ids::{EffectRef, SlotId};

/// Tools that share one object; `#[toolset]` on an `impl` block makes one.
pub trait Toolset: Send + Sync + 'static {
    /// The namespace: tools are registered as `<namespace>.<name>` (REG-2).
    fn namespace(&self) -> Option<&str>;

    /// The tools, in the order of their methods.
    fn tools(self: Arc<Self>) -> Vec<Arc<dyn Tool>>;
}

impl ToolRegistry {
    /// Adds all tools of a toolset, under its namespace if it has one (REG-2).
    ///
    /// # Errors
    /// As [`register`](Self::register), for the first tool that is refused; those before it stay.
    pub fn register_toolset(
        &mut self,
        toolset: Arc<impl Toolset + ?Sized>,
    ) -> Result<&mut Self, RegistryError> {
        let namespace = toolset.namespace().map(str::to_owned);
        for tool in toolset.tools() {
            match &namespace {
                Some(namespace) => self.register_in(namespace, tool)?,
                None => self.register_shared(tool)?,
            };
        }
        Ok(self)
    }
}

/// Makes the schema that a generator derived from a Rust type a tool's input schema (MAC-5).
///
/// The dialect and the type's own name are dropped, and every object with named properties is closed, also
/// where its author did not ask for that: an argument that nobody reads is a mistake of the model.
#[must_use]
pub fn input_schema(generated: Value) -> Value {
    let mut schema = generated;
    if let Value::Object(root) = &mut schema {
        root.remove("$schema");
        root.remove("title");
        // A type without fields has a schema without them; the root is an object all the same (ARG-1).
        root.entry("type").or_insert_with(|| "object".into());
        root.entry("properties")
            .or_insert_with(|| Map::new().into());
    }
    let definitions = schema.get("$defs").cloned().unwrap_or(Value::Null);
    close_objects(&mut schema, &definitions);
    schema
}

/// Keywords whose value is one schema, a list of schemas, or schemas by name.
const SUBSCHEMAS: [&str; 14] = [
    "$defs",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "contains",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
];

fn close_objects(schema: &mut Value, definitions: &Value) {
    let Value::Object(object) = schema else {
        return;
    };
    inline_tagged_variant(object, definitions);
    for keyword in SUBSCHEMAS {
        match object.get_mut(keyword) {
            Some(Value::Array(list)) => {
                list.iter_mut()
                    .for_each(|item| close_objects(item, definitions));
            }
            Some(Value::Object(named))
                if matches!(keyword, "$defs" | "properties" | "patternProperties") =>
            {
                named
                    .values_mut()
                    .for_each(|item| close_objects(item, definitions));
            }
            Some(single) => close_objects(single, definitions),
            None => {}
        }
    }
    // Closing one part of a composition would refuse what the other parts allow.
    let open = [
        "additionalProperties",
        "unevaluatedProperties",
        "$ref",
        "anyOf",
        "oneOf",
        "allOf",
    ];
    if object.contains_key("properties")
        && !open.iter().any(|keyword| object.contains_key(*keyword))
    {
        object.insert("additionalProperties".into(), Value::Bool(false));
    }
}

/// A tagged variant is its tag's property beside a reference to the content. Both closed, nothing would fit;
/// so the content moves in.
fn inline_tagged_variant(object: &mut Map<String, Value>, definitions: &Value) {
    let Some(Value::String(reference)) = object.get("$ref") else {
        return;
    };
    if !object.contains_key("properties") {
        return;
    }
    let content = reference
        .strip_prefix("#/$defs/")
        .and_then(|name| definitions.get(name));
    let Some(Value::Object(content)) = content else {
        return;
    };
    let content = content.clone();
    object.remove("$ref");
    for (keyword, value) in content {
        match (keyword.as_str(), object.get_mut(&keyword), value) {
            ("properties", Some(Value::Object(own)), Value::Object(more)) => own.extend(more),
            ("required", Some(Value::Array(own)), Value::Array(more)) => own.extend(more),
            ("title" | "additionalProperties", _, _) | (_, Some(_), _) => {}
            (_, None, value) => {
                object.insert(keyword, value);
            }
        }
    }
}

/// Reads a call's arguments as the function's parameters.
///
/// # Errors
/// `error/execution` `invalid_arguments_shape` if they are no object (serde would read a list as a struct);
/// `invalid_argument_value` where the schema allows what the Rust type does not hold, such
/// as an integer beyond its width. The message does not quote the value (ARG-7).
pub fn read_arguments<T: DeserializeOwned>(args: &Value) -> Result<T, ToolError> {
    if !args.is_object() {
        return Err(
            ToolError::new("invalid_arguments_shape", "the arguments are not an object")
                .with_kind(ErrorKind::Execution),
        );
    }
    T::deserialize(args).map_err(|_| {
        ToolError::new(
            "invalid_argument_value",
            "an argument is outside what its type can hold",
        )
        .with_kind(ErrorKind::Execution)
        .with_hint("Check the ranges and variants in the tool's schema.")
    })
}

/// Makes a function's output a result; `()` is a success with `null` (TOL-12).
///
/// # Errors
/// `error/execution` `invalid_tool_output` if the output has no JSON form.
pub fn returned<T: Serialize + ?Sized>(output: &T) -> Result<Returned, ToolError> {
    serde_json::to_value(output)
        .map(Returned::Value)
        .map_err(|_| {
            ToolError::new("invalid_tool_output", "the output has no JSON form")
                .with_kind(ErrorKind::Execution)
        })
}

/// One piece of an effect reference or logical key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// Fixed text.
    Text(&'static str),
    /// The value of a required argument: text, number or boolean.
    Argument(&'static str),
    /// The slot.
    Slot,
}

/// The declared effect of one call, from templates over arguments and slot (TOL-6, TOL-8).
///
/// # Errors
/// `error/execution` `validation_failed` if an argument has no plain text form or the reference is none.
pub fn declared_effect(
    reference: &[TemplatePart],
    logical_key: Option<&[TemplatePart]>,
    args: &Value,
    slot: &SlotId,
) -> Result<EffectClass, ToolError> {
    let refused = || {
        ToolError::new(
            "validation_failed",
            "the effect cannot be named from these arguments",
        )
        .with_kind(ErrorKind::Execution)
    };
    let effect_ref: EffectRef = render(reference, args, slot)
        .and_then(|text| text.parse().ok())
        .ok_or_else(refused)?;
    let key = match logical_key {
        None => EffectKey::PerSlot,
        Some(parts) => EffectKey::Logical(
            render(parts, args, slot)
                .filter(|key| !key.is_empty())
                .ok_or_else(refused)?,
        ),
    };
    Ok(EffectClass::Declared(DeclaredEffect {
        effect_ref,
        key,
        dedupe: false,
        reconcile: false,
    }))
}

fn render(parts: &[TemplatePart], args: &Value, slot: &SlotId) -> Option<String> {
    let mut text = String::new();
    for part in parts {
        match part {
            TemplatePart::Text(fixed) => text.push_str(fixed),
            TemplatePart::Slot => text.push_str(slot.as_str()),
            TemplatePart::Argument(name) => match args.get(name)? {
                Value::String(value) => text.push_str(value),
                Value::Number(value) => text.push_str(&value.to_string()),
                Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            },
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mac_5_every_object_with_properties_is_closed() {
        let schema = input_schema(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Arguments",
            "type": "object",
            "properties": {
                "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Inner"}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
                "title": {"type": "string"},
            },
            "$defs": {"Inner": {"type": "object", "properties": {"b": {}}}},
        }));
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "map": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Inner"}},
                    "list": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"a": {}}, "additionalProperties": false}
                    },
                    "title": {"type": "string"},
                },
                "$defs": {"Inner": {"type": "object", "properties": {"b": {}}, "additionalProperties": false}},
            })
        );
    }

    #[test]
    fn a_tagged_variant_takes_its_content_in_so_that_both_can_be_closed() {
        let schema = input_schema(json!({
            "type": "object",
            "oneOf": [{
                "$ref": "#/$defs/Circle",
                "type": "object",
                "properties": {"kind": {"const": "circle"}},
                "required": ["kind"],
            }],
            "$defs": {"Circle": {
                "title": "Circle", "type": "object", "properties": {"radius": {}}, "required": ["radius"],
            }},
        }));
        assert_eq!(
            schema["oneOf"][0],
            json!({
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {}},
                "required": ["kind", "radius"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn tol_12_unit_is_a_success_with_null() {
        assert!(matches!(returned(&()), Ok(Returned::Value(Value::Null))));
        assert!(matches!(
            returned(&json!({"status": "failed"})),
            Ok(Returned::Value(Value::Object(_)))
        ));
    }

    #[test]
    fn tol_6_an_effect_is_named_from_arguments_and_slot_alone() {
        let slot: SlotId = "batch_request_0123456789abcdef01234567:0".parse().unwrap();
        let parts = [TemplatePart::Text("invoice:"), TemplatePart::Argument("id")];
        let effect = |args: Value| {
            declared_effect(&parts, Some(&[TemplatePart::Argument("id")]), &args, &slot)
        };
        let EffectClass::Declared(declared) = effect(json!({"id": 7})).unwrap() else {
            unreachable!()
        };
        assert_eq!(declared.effect_ref.as_str(), "invoice:7");
        assert_eq!(declared.key, EffectKey::Logical("7".into()));
        for wrong in [
            json!({}),
            json!({"id": null}),
            json!({"id": [1]}),
            json!({"id": "a b"}),
            json!({"id": "é"}),
        ] {
            assert_eq!(
                effect(wrong.clone()).unwrap_err().code,
                "validation_failed",
                "{wrong}"
            );
        }
        let by_slot = declared_effect(&[TemplatePart::Slot], None, &json!({}), &slot).unwrap();
        assert_eq!(by_slot.effect_ref().unwrap().as_str(), slot.as_str());
    }

    #[test]
    fn arguments_beyond_their_type_are_refused_without_quoting_them() {
        let error = read_arguments::<std::collections::BTreeMap<String, u8>>(&json!({"a": 300}));
        let error = error.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.kind),
            ("invalid_argument_value", ErrorKind::Execution)
        );
        assert!(!error.message.contains("300"));
        let error = read_arguments::<(u8,)>(&json!([3])).unwrap_err();
        assert_eq!(error.code, "invalid_arguments_shape");
    }
}
