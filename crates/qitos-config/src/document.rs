//! A document as it was written: nodes with positions and the style of each scalar.

use serde_json::{Map, Value};

use crate::limits::MAX_DEPTH;

/// Where something stands, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// One value of the document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) position: Option<Position>,
    pub(crate) kind: Kind,
}

/// What a value is, before any field is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// An unquoted scalar: `scalar::read` says what it means.
    Plain(String),
    /// A quoted or block scalar: always a string.
    Quoted(String),
    /// Nothing stands where a value belongs.
    Missing,
    Sequence(Vec<Node>),
    Mapping(Vec<Entry>),
    /// Refused and reported already.
    Reported,
    /// Nested deeper than any document may be; only code can ask for it.
    TooDeep,
}

/// One key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) position: Option<Position>,
    pub(crate) value: Node,
}

impl Node {
    /// A node from code: it has no position.
    pub(crate) fn from_code(kind: Kind) -> Self {
        Node {
            position: None,
            kind,
        }
    }

    pub(crate) fn empty_mapping() -> Self {
        Node::from_code(Kind::Mapping(Vec::new()))
    }

    /// A node saying what `value` says.
    pub(crate) fn from_json(value: &Value) -> Self {
        Node::from_json_at(value, 1)
    }

    fn from_json_at(value: &Value, depth: usize) -> Self {
        let kind = match value {
            Value::Null => Kind::Plain("null".into()),
            Value::Bool(flag) => Kind::Plain(flag.to_string()),
            Value::Number(number) => Kind::Plain(number.to_string()),
            Value::String(text) => Kind::Quoted(text.clone()),
            Value::Array(_) | Value::Object(_) if depth > MAX_DEPTH => Kind::TooDeep,
            Value::Array(items) => Kind::Sequence(
                items
                    .iter()
                    .map(|item| Node::from_json_at(item, depth + 1))
                    .collect(),
            ),
            Value::Object(map) => Kind::Mapping(
                map.iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        position: None,
                        value: Node::from_json_at(value, depth + 1),
                    })
                    .collect(),
            ),
        };
        Node::from_code(kind)
    }

    pub(crate) fn from_map(map: &Map<String, Value>) -> Self {
        Node::from_code(Kind::Mapping(
            map.iter()
                .map(|(key, value)| Entry {
                    key: key.clone(),
                    position: None,
                    value: Node::from_json_at(value, 2),
                })
                .collect(),
        ))
    }

    /// Forgets all positions: what is built from this node is no longer what stands in the file.
    pub(crate) fn forget_positions(&mut self) {
        self.position = None;
        match &mut self.kind {
            Kind::Sequence(items) => items.iter_mut().for_each(Node::forget_positions),
            Kind::Mapping(entries) => {
                for entry in entries {
                    entry.position = None;
                    entry.value.forget_positions();
                }
            }
            Kind::Plain(_) | Kind::Quoted(_) | Kind::Missing | Kind::Reported | Kind::TooDeep => {}
        }
    }

    /// The value under `key` when this is a mapping.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Mapping(entries) => entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| &entry.value),
            _ => None,
        }
    }

    /// The value under `key`, to be changed in place.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.kind {
            Kind::Mapping(entries) => entries
                .iter_mut()
                .find(|entry| entry.key == key)
                .map(|entry| &mut entry.value),
            _ => None,
        }
    }

    /// Sets `key`, replacing what stands there; a node that is no mapping becomes one.
    pub(crate) fn set(&mut self, key: &str, value: Node) {
        if !matches!(self.kind, Kind::Mapping(_)) {
            self.kind = Kind::Mapping(Vec::new());
        }
        if let Kind::Mapping(entries) = &mut self.kind {
            match entries.iter_mut().find(|entry| entry.key == key) {
                Some(entry) => entry.value = value,
                None => entries.push(Entry {
                    key: key.to_owned(),
                    position: None,
                    value,
                }),
            }
        }
    }

    /// Takes the value under `key` out, if there is one.
    pub(crate) fn take(&mut self, key: &str) -> Option<Node> {
        let Kind::Mapping(entries) = &mut self.kind else {
            return None;
        };
        let index = entries.iter().position(|entry| entry.key == key)?;
        Some(entries.remove(index).value)
    }

    /// What the node is called in an error.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Plain(text) => crate::scalar::read(text).describe(),
            Kind::Quoted(_) => "a string",
            Kind::Missing => "nothing",
            Kind::Sequence(_) => "a list",
            Kind::Mapping(_) => "a mapping",
            Kind::Reported | Kind::TooDeep => "a refused value",
        }
    }
}
