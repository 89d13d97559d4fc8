//! Document and list of fields to values: types and bounds checked, unknown keys refused, defaults filled.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::credential_key::{self, looks_like_credential};
use crate::describe_error::{ConfigError, ConfigErrorCode, ErrorList, nearest};
use crate::document::{Entry, Kind, Node, Position};
use crate::field::{Field, Shape, Text, WhenAbsent};
use crate::scalar::{self, Scalar};
use crate::text_rule::{self, interpolates};

const CREDENTIAL_HINT: &str = "keep secrets out of the configuration: put the key into the credentials file and name it in model.credential.ref";

/// Walks a document beside the list of fields.
pub(crate) struct Decoder<'a> {
    errors: &'a mut ErrorList,
    /// Where each value stands that was written, by dotted path.
    positions: BTreeMap<String, Position>,
}

/// `path.key`, with keys that are no plain words in quotes so that a path is never ambiguous.
fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.len() <= 64
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/'));
    let key = if plain {
        key.to_owned()
    } else {
        let short: String = key.chars().take(64).collect();
        format!("{short:?}")
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(errors: &'a mut ErrorList) -> Self {
        Decoder {
            errors,
            positions: BTreeMap::new(),
        }
    }

    pub(crate) fn into_positions(self) -> BTreeMap<String, Position> {
        self.positions
    }

    fn wrong(&mut self, field: &str, position: Option<Position>, message: &str, remediation: &str) {
        self.errors.push(ConfigError::new(
            ConfigErrorCode::ConfigSchemaInvalid,
            field,
            position,
            message,
            remediation,
        ));
    }

    /// Reports a value of the wrong type without repeating it.
    fn mismatch(&mut self, path: &str, node: &Node, expected: &str) {
        match node.kind {
            Kind::Reported => {}
            Kind::TooDeep => self.errors.push(ConfigError::new(
                ConfigErrorCode::ConfigSyntaxInvalid,
                path,
                node.position,
                "nested deeper than 32 levels",
                "flatten the value",
            )),
            _ => self.wrong(
                path,
                node.position,
                &format!("expected {expected}, found {}", node.describe()),
                &format!("write {expected}"),
            ),
        }
    }

    /// Decodes a mapping with exactly the keys of `fields`.
    pub(crate) fn section(
        &mut self,
        fields: &'static [Field],
        node: &Node,
        path: &str,
    ) -> Map<String, Value> {
        let mut values = Map::new();
        let Kind::Mapping(entries) = &node.kind else {
            self.mismatch(path, node, "a mapping");
            return values;
        };
        for entry in entries {
            let Some(field) = fields.iter().find(|field| field.name == entry.key) else {
                self.unknown(fields, entry, path);
                continue;
            };
            let path = join(path, field.name);
            if let Some(position) = entry.value.position.or(entry.position) {
                self.positions.insert(path.clone(), position);
            }
            if let Some(value) = self.value(&field.shape, &entry.value, &path) {
                values.insert(field.name.to_owned(), value);
            }
        }
        for field in fields {
            if entries.iter().any(|entry| entry.key == field.name) {
                continue;
            }
            if field.default == WhenAbsent::Required {
                let path = join(path, field.name);
                let remediation = format!("add it: {}", field.doc.trim());
                self.wrong(
                    &path,
                    node.position,
                    "a required key is missing",
                    &remediation,
                );
            } else if let Some(value) = default_of(field) {
                values.insert(field.name.to_owned(), value);
            }
        }
        values
    }

    fn unknown(&mut self, fields: &'static [Field], entry: &Entry, path: &str) {
        let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
        let allowed = names.join(", ");
        let remediation = if looks_like_credential(&entry.key) {
            CREDENTIAL_HINT.to_owned()
        } else if let Some(near) = nearest(&entry.key, names.into_iter()) {
            format!("did you mean {near}? allowed here: {allowed}")
        } else {
            format!("allowed here: {allowed}")
        };
        self.errors.push(ConfigError::new(
            ConfigErrorCode::ConfigUnknownField,
            join(path, &entry.key),
            entry.position,
            "no field has this key",
            remediation,
        ));
    }

    fn value(&mut self, shape: &Shape, node: &Node, path: &str) -> Option<Value> {
        match shape {
            Shape::Section(fields) => {
                let ok = matches!(node.kind, Kind::Mapping(_));
                let section = self.section(fields(), node, path);
                ok.then_some(Value::Object(section))
            }
            Shape::Text(text) => self.text(*text, node, path).map(Value::String),
            Shape::Choice(words) => self.choice(words, node, path),
            Shape::Integer { min, max, nullable } => {
                self.integer((*min, *max), *nullable, node, path)
            }
            Shape::Number { min, max, nullable } => {
                self.number((*min, *max), *nullable, node, path)
            }
            Shape::Flag => self.flag(node, path).map(Value::Bool),
            Shape::AlwaysTrue => match self.flag(node, path)? {
                true => Some(Value::Bool(true)),
                false => {
                    self.wrong(
                        path,
                        node.position,
                        "this protection cannot be switched off",
                        "remove the key, or write true",
                    );
                    None
                }
            },
            Shape::Texts { item, unique } => self.texts(*item, *unique, node, path),
            Shape::FreeMap => self.free_map(node, path, false).map(Value::Object),
            Shape::ExtraBody => self.extra_body(node, path).map(Value::Object),
            Shape::Dataset => self.dataset(node, path),
        }
    }

    fn plain_string<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n str> {
        let text = match &node.kind {
            Kind::Quoted(text) => text.as_str(),
            Kind::Plain(text) if matches!(scalar::read(text), Scalar::Text(_)) => text.as_str(),
            Kind::Plain(_) => {
                self.wrong(
                    path,
                    node.position,
                    &format!("expected a string, found {}", node.describe()),
                    "put the value in quotes",
                );
                return None;
            }
            _ => {
                self.mismatch(path, node, "a string");
                return None;
            }
        };
        self.refuse_interpolation(text, node.position, path)
            .then_some(text)
    }

    fn refuse_interpolation(&mut self, text: &str, at: Option<Position>, path: &str) -> bool {
        let found = interpolates(text);
        if found {
            self.wrong(
                path,
                at,
                "environment variables are never read into a configuration",
                "write the value out; for a secret use model.credential.ref",
            );
        }
        !found
    }

    fn text(&mut self, kind: Text, node: &Node, path: &str) -> Option<String> {
        let text = self.plain_string(node, path)?;
        match text_rule::check(kind, text) {
            Ok(()) => Some(text.to_owned()),
            Err(message) => {
                let remediation = if looks_like_credential(path.rsplit('.').next().unwrap_or("")) {
                    CREDENTIAL_HINT
                } else {
                    "change the value"
                };
                self.wrong(path, node.position, &message, remediation);
                None
            }
        }
    }

    fn choice(&mut self, words: &[&str], node: &Node, path: &str) -> Option<Value> {
        let text = self.plain_string(node, path)?;
        if words.contains(&text) {
            return Some(Value::String(text.to_owned()));
        }
        let allowed = words.join(", ");
        let remediation = match nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean {near}? allowed: {allowed}"),
            None => format!("allowed: {allowed}"),
        };
        self.wrong(
            path,
            node.position,
            "not one of the allowed words",
            &remediation,
        );
        None
    }

    fn integer(
        &mut self,
        (min, max): (u64, Option<u64>),
        nullable: bool,
        node: &Node,
        path: &str,
    ) -> Option<Value> {
        let or_null = if nullable { " or null" } else { "" };
        let expected = match max {
            Some(max) if max == min => format!("the integer {min}{or_null}"),
            Some(max) => format!("an integer from {min} to {max}{or_null}"),
            None => format!("an integer of at least {min}{or_null}"),
        };
        if let Kind::Plain(text) = &node.kind {
            match scalar::read(text) {
                Scalar::Null if nullable => return Some(Value::Null),
                Scalar::Integer(value) => {
                    // Snapshots and records hold such numbers as 64-bit signed integers.
                    let value = u64::try_from(value).ok().filter(|value| {
                        *value >= min && *value <= max.unwrap_or(i64::MAX.unsigned_abs())
                    });
                    if value.is_none() {
                        self.wrong(
                            path,
                            node.position,
                            &format!("out of range: expected {expected}"),
                            &format!("write {expected}"),
                        );
                    }
                    return value.map(|value| Value::Number(value.into()));
                }
                _ => {}
            }
        }
        self.mismatch(path, node, &expected);
        None
    }

    fn number(
        &mut self,
        (min, max): (f64, Option<f64>),
        nullable: bool,
        node: &Node,
        path: &str,
    ) -> Option<Value> {
        let or_null = if nullable { " or null" } else { "" };
        let expected = match max {
            Some(max) => format!("a number from {min} to {max}{or_null}"),
            None => format!("a number of at least {min}{or_null}"),
        };
        if let Kind::Plain(text) = &node.kind {
            let value = match scalar::read(text) {
                Scalar::Null if nullable => return Some(Value::Null),
                // Budgets and limits are far below 2^53: nothing is lost.
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "a limit beyond 2^53 is kept to the nearest float"
                )]
                Scalar::Integer(value) => Some(value as f64),
                Scalar::Number(value) => Some(value),
                _ => None,
            };
            if let Some(value) = value {
                // `-0` and `0` are the same limit; one form keeps one digest.
                let value = if value == 0.0 { 0.0 } else { value };
                let fits = value >= min && max.is_none_or(|max| value <= max);
                if !fits {
                    self.wrong(
                        path,
                        node.position,
                        &format!("out of range: expected {expected}"),
                        &format!("write {expected}"),
                    );
                    return None;
                }
                return Number::from_f64(value).map(Value::Number);
            }
        }
        self.mismatch(path, node, &expected);
        None
    }

    fn flag(&mut self, node: &Node, path: &str) -> Option<bool> {
        if let Kind::Plain(text) = &node.kind
            && let Scalar::Bool(flag) = scalar::read(text)
        {
            return Some(flag);
        }
        self.mismatch(path, node, "true or false");
        None
    }

    fn items<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Node]> {
        if let Kind::Sequence(items) = &node.kind {
            return Some(items);
        }
        self.mismatch(path, node, "a list");
        None
    }

    fn texts(&mut self, item: Text, unique: bool, node: &Node, path: &str) -> Option<Value> {
        let mut values: Vec<Value> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for (index, entry) in self.items(node, path)?.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(text) = self.text(item, entry, &path) else {
                continue;
            };
            if unique && !seen.insert(text.clone()) {
                self.wrong(
                    &path,
                    entry.position,
                    "an entry is given twice",
                    "keep one of the two",
                );
            }
            values.push(Value::String(text));
        }
        Some(Value::Array(values))
    }

    /// Any JSON-safe value.
    fn free(&mut self, node: &Node, path: &str, for_provider: bool) -> Option<Value> {
        match &node.kind {
            Kind::Quoted(text) => self
                .refuse_interpolation(text, node.position, path)
                .then(|| Value::String(text.clone())),
            Kind::Plain(text) => match scalar::read(text) {
                Scalar::Null => Some(Value::Null),
                Scalar::Bool(flag) => Some(Value::Bool(flag)),
                Scalar::Integer(value) => u64::try_from(value)
                    .map(Number::from)
                    .or_else(|_| i64::try_from(value).map(Number::from))
                    .ok()
                    .map(Value::Number),
                Scalar::Number(value) => Number::from_f64(value).map(Value::Number),
                Scalar::OutOfRange => {
                    self.mismatch(path, node, "a number that fits into 64 bits");
                    None
                }
                Scalar::Text(text) => self
                    .refuse_interpolation(text, node.position, path)
                    .then(|| Value::String(text.to_owned())),
            },
            Kind::Sequence(items) => {
                let mut values = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    values.extend(self.free(item, &format!("{path}[{index}]"), for_provider));
                }
                Some(Value::Array(values))
            }
            Kind::Mapping(_) => self.free_map(node, path, for_provider).map(Value::Object),
            Kind::Missing | Kind::Reported | Kind::TooDeep => {
                self.mismatch(path, node, "a value");
                None
            }
        }
    }

    fn free_map(
        &mut self,
        node: &Node,
        path: &str,
        for_provider: bool,
    ) -> Option<Map<String, Value>> {
        let Kind::Mapping(entries) = &node.kind else {
            self.mismatch(path, node, "a mapping");
            return None;
        };
        let mut values = Map::new();
        for entry in entries {
            let path = join(path, &entry.key);
            if !self.refuse_interpolation(&entry.key, entry.position, &path) {
                continue;
            }
            if for_provider && looks_like_credential(&entry.key) {
                self.wrong(
                    &path,
                    entry.position,
                    "this key looks like a credential",
                    CREDENTIAL_HINT,
                );
                continue;
            }
            if let Some(value) = self.free(&entry.value, &path, for_provider) {
                values.insert(entry.key.clone(), value);
            }
        }
        Some(values)
    }

    fn extra_body(&mut self, node: &Node, path: &str) -> Option<Map<String, Value>> {
        if let Kind::Mapping(entries) = &node.kind {
            for entry in entries {
                if credential_key::CLIENT_KEYS.contains(&entry.key.as_str()) {
                    self.wrong(
                        &join(path, &entry.key),
                        entry.position,
                        "the client sets this key itself",
                        "use the field of the configuration that stands for it",
                    );
                }
            }
        }
        self.free_map(node, path, true)
    }

    fn dataset(&mut self, node: &Node, path: &str) -> Option<Value> {
        let mut values = Vec::new();
        for (index, item) in self.items(node, path)?.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let task_of = Text::NonBlank {
                max_chars: usize::MAX,
            };
            let mut object = Map::new();
            let Kind::Mapping(entries) = &item.kind else {
                if let Some(task) = self.text(task_of, item, &path) {
                    object.insert("task".into(), Value::String(task));
                    values.push(Value::Object(object));
                }
                continue;
            };
            for entry in entries {
                let path = join(&path, &entry.key);
                let value = match entry.key.as_str() {
                    "task" => self.text(task_of, &entry.value, &path).map(Value::String),
                    "expected" => self.free(&entry.value, &path, false),
                    "metadata" => self.free_map(&entry.value, &path, false).map(Value::Object),
                    other => {
                        let names = ["task", "expected", "metadata"];
                        let near = nearest(other, names.into_iter())
                            .map(|near| format!("did you mean {near}? "))
                            .unwrap_or_default();
                        self.errors.push(ConfigError::new(
                            ConfigErrorCode::ConfigUnknownField,
                            path,
                            entry.position,
                            "no field has this key",
                            format!("{near}allowed here: task, expected, metadata"),
                        ));
                        None
                    }
                };
                if let Some(value) = value {
                    object.insert(entry.key.clone(), value);
                }
            }
            if !entries.iter().any(|entry| entry.key == "task") {
                self.wrong(
                    &join(&path, "task"),
                    item.position,
                    "a required key is missing",
                    "say what to do in `task`",
                );
            }
            values.push(Value::Object(object));
        }
        Some(Value::Array(values))
    }
}

fn default_of(field: &Field) -> Option<Value> {
    Some(match field.default {
        WhenAbsent::Required | WhenAbsent::Absent => return None,
        WhenAbsent::Null => Value::Null,
        WhenAbsent::Text(text) => Value::String(text.to_owned()),
        WhenAbsent::Integer(value) => Value::Number(value.into()),
        WhenAbsent::Number(value) => Value::Number(Number::from_f64(value)?),
        WhenAbsent::Flag(flag) => Value::Bool(flag),
        WhenAbsent::EmptyList => Value::Array(Vec::new()),
        WhenAbsent::EmptyMap => Value::Object(Map::new()),
        WhenAbsent::Section => match &field.shape {
            Shape::Section(fields) => Value::Object(
                fields()
                    .iter()
                    .filter_map(|field| Some((field.name.to_owned(), default_of(field)?)))
                    .collect(),
            ),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_an_error_is_never_ambiguous() {
        assert_eq!(join("", "agent"), "agent");
        assert_eq!(join("agent", "na.me"), "agent.\"na.me\"");
        assert_eq!(join("agent", "a\nb"), "agent.\"a\\nb\"");
        assert!(join("agent", &"x".repeat(1000)).len() < 100);
    }
}
