//! The form of a schema for providers in strict mode, and the way back (ARG-6).

use serde_json::{Map, Value, json};

use super::compile::push_step;
use super::rule::{Additional, Node, NodeId, Nodes, ObjectRule, Rule};
use super::validate::accepts_node;

/// Why a schema has no strict form; it is then sent as it is, with this as the diagnostic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema at `{pointer}` has no strict form: {reason}")]
pub struct NoStrictForm {
    /// Where in the schema, as a JSON pointer.
    pub pointer: String,
    /// What strict mode cannot say.
    pub reason: &'static str,
}

/// Kept as they are: strict providers know them.
const KEPT: [&str; 16] = [
    "type",
    "enum",
    "const",
    "$ref",
    "title",
    "description",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
];

/// Annotations that strict providers refuse; leaving them out admits no other value.
const DROPPED: [&str; 8] = [
    "$schema",
    "$comment",
    "default",
    "examples",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Schemas that may be rewritten inside each other; compiled schemas are no deeper.
const NULLS_DEPTH: usize = 400;
/// Values that may be copied to find the alternative that a value means.
const NULLS_COPIES: usize = 200_000;

pub(super) fn strict_form(schema: &Value) -> Result<Value, NoStrictForm> {
    let mut writer = Writer {
        pointer: String::new(),
    };
    writer.schema(schema)
}

struct Writer {
    pointer: String,
}

impl Writer {
    fn refuse<T>(&self, reason: &'static str) -> Result<T, NoStrictForm> {
        Err(NoStrictForm {
            pointer: self.pointer.clone(),
            reason,
        })
    }

    fn below(&mut self, steps: &[&str], schema: &Value) -> Result<Value, NoStrictForm> {
        let length = self.pointer.len();
        for step in steps {
            push_step(&mut self.pointer, step);
        }
        let result = self.schema(schema);
        self.pointer.truncate(length);
        result
    }

    fn schema(&mut self, schema: &Value) -> Result<Value, NoStrictForm> {
        let Value::Object(keywords) = schema else {
            return self.refuse("a schema without a type");
        };
        let typed = ["type", "$ref", "anyOf", "enum", "const"];
        if !typed.iter().any(|keyword| keywords.contains_key(*keyword)) {
            return self.refuse("a schema without a type");
        }
        let mut strict = Map::new();
        for (keyword, value) in keywords {
            let form = match keyword.as_str() {
                "properties" | "required" | "additionalProperties" | "nullable" => continue,
                "items" => self.below(&["items"], value)?,
                "anyOf" => self.list("anyOf", value)?,
                "$defs" => self.definitions(value)?,
                name if KEPT.contains(&name) => value.clone(),
                name if DROPPED.contains(&name) => continue,
                _ => {
                    push_step(&mut self.pointer, keyword);
                    return self.refuse("a keyword that strict mode does not know");
                }
            };
            strict.insert(keyword.clone(), form);
        }
        if names_type(keywords, "array") && !keywords.contains_key("items") {
            return self.refuse("a list of anything");
        }
        if names_type(keywords, "object") || keywords.contains_key("properties") {
            self.object(keywords, &mut strict)?;
        }
        let strict = Value::Object(strict);
        let nullable = keywords.get("nullable") == Some(&Value::Bool(true));
        Ok(if nullable { or_null(strict) } else { strict })
    }

    fn list(&mut self, keyword: &str, value: &Value) -> Result<Value, NoStrictForm> {
        let Value::Array(schemas) = value else {
            return self.refuse("not a list");
        };
        let mut forms = Vec::with_capacity(schemas.len());
        for (index, schema) in schemas.iter().enumerate() {
            forms.push(self.below(&[keyword, &index.to_string()], schema)?);
        }
        Ok(Value::Array(forms))
    }

    fn definitions(&mut self, value: &Value) -> Result<Value, NoStrictForm> {
        let mut forms = Map::new();
        for (name, schema) in value.as_object().into_iter().flatten() {
            forms.insert(name.clone(), self.below(&["$defs", name], schema)?);
        }
        Ok(Value::Object(forms))
    }

    /// Closes an object and requires all of its properties.
    fn object(
        &mut self,
        keywords: &Map<String, Value>,
        strict: &mut Map<String, Value>,
    ) -> Result<(), NoStrictForm> {
        match keywords.get("additionalProperties") {
            None | Some(Value::Bool(false)) => {}
            Some(_) => return self.refuse("an object with names that are not fixed"),
        }
        let closed = keywords.contains_key("additionalProperties");
        let properties = keywords.get("properties").and_then(Value::as_object);
        if properties.is_none_or(Map::is_empty) && !closed {
            return self.refuse("an object with names that are not fixed");
        }
        let required: Vec<&str> = keywords
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut forms = Map::new();
        for (name, schema) in properties.into_iter().flatten() {
            let form = self.below(&["properties", name], schema)?;
            let form = if required.contains(&name.as_str()) {
                form
            } else {
                or_null(form)
            };
            forms.insert(name.clone(), form);
        }
        // A required name without a schema of its own may hold anything.
        if required.iter().any(|name| !forms.contains_key(*name)) {
            return self.refuse("a required field without a schema");
        }
        let names: Vec<Value> = forms.keys().map(|name| name.as_str().into()).collect();
        strict.insert("required".into(), Value::Array(names));
        strict.insert("properties".into(), Value::Object(forms));
        strict.insert("additionalProperties".into(), Value::Bool(false));
        Ok(())
    }
}

fn names_type(keywords: &Map<String, Value>, name: &str) -> bool {
    match keywords.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().any(|entry| entry.as_str() == Some(name)),
        _ => false,
    }
}

/// The schema that also takes null.
fn or_null(schema: Value) -> Value {
    let null = || json!({ "type": "null" });
    let Value::Object(mut keywords) = schema else {
        return schema;
    };
    if names_type(&keywords, "null") && !keywords.contains_key("enum") {
        return Value::Object(keywords);
    }
    let plain = ["enum", "const", "$ref", "anyOf"]
        .iter()
        .all(|keyword| !keywords.contains_key(*keyword));
    if plain {
        let types = match keywords.get("type") {
            Some(Value::Array(names)) => {
                let mut names = names.clone();
                names.push("null".into());
                names
            }
            Some(single) => vec![single.clone(), "null".into()],
            None => return Value::Object(keywords),
        };
        keywords.insert("type".into(), Value::Array(types));
        return Value::Object(keywords);
    }
    let only_branches = keywords.keys().all(|keyword| {
        matches!(
            keyword.as_str(),
            "anyOf" | "title" | "description" | "$defs"
        )
    });
    if only_branches && let Some(Value::Array(branches)) = keywords.get_mut("anyOf") {
        if !branches.contains(&null()) {
            branches.push(null());
        }
        return Value::Object(keywords);
    }
    let mut outer = Map::new();
    if let Some(description) = keywords.remove("description") {
        outer.insert("description".into(), description);
    }
    let branches = vec![Value::Object(keywords), null()];
    outer.insert("anyOf".into(), Value::Array(branches));
    Value::Object(outer)
}

/// Removes the nulls of optional fields that are not nullable, wherever the schema sees an object.
pub(super) fn remove_nulls(nodes: &Nodes, value: &mut Value) {
    let mut remover = Remover {
        nodes,
        depth_left: NULLS_DEPTH,
        copies_left: NULLS_COPIES,
    };
    remover.node(Nodes::ROOT, value);
}

/// When a bound is reached the nulls that are left stay, and validation refuses them.
struct Remover<'schema> {
    nodes: &'schema Nodes,
    depth_left: usize,
    /// Values that may still be copied to try an alternative.
    copies_left: usize,
}

impl<'schema> Remover<'schema> {
    fn node(&mut self, id: NodeId, value: &mut Value) {
        let (Some(node), Some(depth_left)) = (self.nodes.get(id), self.depth_left.checked_sub(1))
        else {
            return;
        };
        self.depth_left = depth_left;
        for rule in &node.rules {
            match rule {
                Rule::Reference(target) => self.node(*target, value),
                Rule::Object(object) => self.object(node, object, value),
                Rule::Array(array) => {
                    for (index, item) in value.as_array_mut().into_iter().flatten().enumerate() {
                        if let Some(id) = array.prefix.get(index).copied().or(array.items) {
                            self.node(id, item);
                        }
                    }
                }
                Rule::AllOf(ids) => {
                    for id in ids {
                        self.node(*id, value);
                    }
                }
                Rule::AnyOf(ids) | Rule::OneOf(ids) => self.branch(ids, value),
                _ => {}
            }
        }
        self.depth_left += 1;
    }

    fn object(&mut self, node: &Node, object: &ObjectRule, value: &mut Value) {
        let Value::Object(members) = value else {
            return;
        };
        let required = |name: &str| {
            node.rules.iter().any(|rule| match rule {
                Rule::Required(names) => names.iter().any(|required| required == name),
                _ => false,
            })
        };
        members.retain(|name, member| {
            let Some(id) = object.properties.get(name) else {
                return true;
            };
            !member.is_null() || required(name) || accepts_node(self.nodes, *id, member)
        });
        let additional = match object.additional {
            Additional::Schema(id) => Some(id),
            _ => None,
        };
        for (name, member) in members.iter_mut() {
            if let Some(id) = object.properties.get(name).copied().or(additional) {
                self.node(id, member);
            }
        }
    }

    /// Takes the first alternative that fits once its nulls are gone.
    fn branch(&mut self, ids: &[NodeId], value: &mut Value) {
        if !value.is_object() && !value.is_array() {
            return;
        }
        let size = size_of(value);
        for id in ids {
            let Some(copies_left) = self.copies_left.checked_sub(size) else {
                return;
            };
            self.copies_left = copies_left;
            let mut candidate = value.clone();
            self.node(*id, &mut candidate);
            if accepts_node(self.nodes, *id, &candidate) {
                *value = candidate;
                return;
            }
        }
    }
}

/// Values inside `value`, itself included.
fn size_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size_of).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size_of).sum::<usize>(),
        _ => 1,
    }
}
