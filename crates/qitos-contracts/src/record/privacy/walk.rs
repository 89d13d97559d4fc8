//! Projects a JSON value to a view: bounded, linear, and the same when applied twice (TRJ-22 to TRJ-31).

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::key_rule::{KeyVerdict, Shape, is_sensitive, judge};
use super::value_rule::finding_in;
use super::{Finding, FindingAction, FindingCode, OMITTED, REDACTED, is_marker_text};
use crate::canonical_json::{ReadLimits, read, to_bytes};

/// What a view admits (TRJ-27).
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewLimits {
    pub(super) depth: usize,
    pub(super) members: usize,
    pub(super) items: usize,
    pub(super) characters: usize,
    pub(super) nodes: usize,
    /// Whether what stood for provider raw data stays an object.
    pub(super) provider_raw_as_object: bool,
}

pub(super) const REDACTED_PUBLIC: ViewLimits = ViewLimits {
    depth: 12,
    members: 256,
    items: 256,
    characters: 16_384,
    nodes: 20_000,
    provider_raw_as_object: true,
};
pub(super) const SAFE_DIAGNOSTIC: ViewLimits = ViewLimits {
    depth: 6,
    members: 64,
    items: 64,
    characters: 2_048,
    nodes: 4_096,
    provider_raw_as_object: false,
};

/// JSON inside strings is looked into up to this length and so many times inside each other.
const NESTED_CHARACTERS: usize = 262_144;
const NESTED_LEVELS: usize = 3;
/// A `data:` address longer than this is a body.
const INLINE_ADDRESS_CHARACTERS: usize = 256;
/// So many characters of base64 in a row are a body.
const INLINE_BODY_CHARACTERS: usize = 4_096;

/// Where the walk stands, by position only (TRJ-25).
#[derive(Clone, Copy, Debug)]
enum Place {
    Field(usize),
    Item(usize),
}

pub(super) struct Walk {
    limits: ViewLimits,
    nodes: usize,
    place: Vec<Place>,
    pub(super) findings: Vec<Finding>,
}

/// The state that goes down with the walk.
#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    nested: usize,
    log_probabilities: bool,
}

impl Walk {
    pub(super) fn new(limits: ViewLimits) -> Self {
        Walk {
            limits,
            nodes: 0,
            place: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The projection of `value`, or `None` if it stays as it is.
    pub(super) fn value(&mut self, value: &Value) -> Option<Value> {
        self.walk(
            value,
            Level {
                depth: 0,
                nested: 0,
                log_probabilities: false,
            },
        )
    }

    /// The projection of an object, or `None` if it stays as it is.
    pub(super) fn members(&mut self, members: &Map<String, Value>) -> Option<Map<String, Value>> {
        self.nodes += 1;
        self.object(
            members,
            Level {
                depth: 0,
                nested: 0,
                log_probabilities: false,
            },
        )
    }

    fn found(&mut self, code: FindingCode, action: FindingAction, count: usize) {
        let mut location = String::from("$");
        for place in &self.place {
            match place {
                Place::Field(index) => location.push_str(&format!(".field[{index}]")),
                Place::Item(index) => location.push_str(&format!(".item[{index}]")),
            }
        }
        self.findings.push(Finding {
            code,
            location,
            action,
            count: count as u64,
        });
    }

    fn omit(&mut self, code: FindingCode) -> Option<Value> {
        self.found(code, FindingAction::Omitted, 1);
        Some(OMITTED.into())
    }

    fn redact(&mut self, code: FindingCode) -> Option<Value> {
        self.found(code, FindingAction::Redacted, 1);
        Some(REDACTED.into())
    }

    fn walk(&mut self, value: &Value, level: Level) -> Option<Value> {
        // A marker is no finding and no node: a second pass then never meets a limit earlier.
        if value.as_str().is_some_and(is_marker_text) {
            return None;
        }
        self.nodes += 1;
        if self.nodes > self.limits.nodes {
            return self.omit(FindingCode::TotalNodeLimit);
        }
        if level.depth > self.limits.depth {
            return self.omit(FindingCode::DepthLimit);
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
            Value::String(text) => self.text(text, level).map(Value::String),
            Value::Array(items) => self.array(items, level).map(Value::Array),
            Value::Object(members) => self.object(members, level).map(Value::Object),
        }
    }

    fn array(&mut self, items: &[Value], level: Level) -> Option<Vec<Value>> {
        let kept = items.len().min(self.limits.items);
        let inner = Level {
            depth: level.depth + 1,
            ..level
        };
        let mut projected: Option<Vec<Value>> = None;
        for (index, item) in items.iter().take(kept).enumerate() {
            self.place.push(Place::Item(index));
            let changed = self.walk(item, inner);
            self.place.pop();
            match (changed, &mut projected) {
                (None, None) => {}
                (None, Some(output)) => output.push(item.clone()),
                (Some(new), Some(output)) => output.push(new),
                (Some(new), None) => {
                    let mut output: Vec<Value> = items.iter().take(index).cloned().collect();
                    output.push(new);
                    projected = Some(output);
                }
            }
        }
        if kept < items.len() {
            self.found(
                FindingCode::SequenceItemLimit,
                FindingAction::Dropped,
                items.len() - kept,
            );
            return projected.or_else(|| Some(items.iter().take(kept).cloned().collect()));
        }
        projected
    }

    fn object(&mut self, members: &Map<String, Value>, level: Level) -> Option<Map<String, Value>> {
        // Code-point order, so that a cut does not depend on insertion order (TRJ-24).
        let mut ordered: Vec<(&String, &Value)> = members.iter().collect();
        if !ordered.is_sorted_by_key(|(key, _)| *key) {
            ordered.sort_unstable_by_key(|(key, _)| *key);
        }
        let kept = ordered.len().min(self.limits.members);
        let pair_is_sensitive = names_a_secret(members);
        let mut next_number = 0;
        let mut changes: Vec<(usize, Option<String>, Option<Value>)> = Vec::new();
        for (index, (key, value)) in ordered.iter().take(kept).enumerate() {
            self.place.push(Place::Field(index));
            let new_key = self.key(key, members, &mut next_number);
            let new_value = self.member(key, value, level, pair_is_sensitive);
            self.place.pop();
            if new_key.is_some() || new_value.is_some() {
                changes.push((index, new_key, new_value));
            }
        }
        if kept < ordered.len() {
            self.found(
                FindingCode::MappingItemLimit,
                FindingAction::Dropped,
                ordered.len() - kept,
            );
        } else if changes.is_empty() {
            return None;
        }
        let mut changes = changes.into_iter().peekable();
        let mut projected = Map::new();
        for (index, (key, value)) in ordered.into_iter().take(kept).enumerate() {
            match changes.next_if(|(changed, ..)| *changed == index) {
                Some((_, new_key, new_value)) => projected.insert(
                    new_key.unwrap_or_else(|| key.clone()),
                    new_value.unwrap_or_else(|| value.clone()),
                ),
                None => projected.insert(key.clone(), value.clone()),
            };
        }
        Some(projected)
    }

    /// A new name for a key that itself discloses something: the lowest number unused here (TRJ-24).
    fn key(
        &mut self,
        key: &str,
        members: &Map<String, Value>,
        next_number: &mut usize,
    ) -> Option<String> {
        let code = finding_in(key)?;
        self.found(code, FindingAction::Renamed, 1);
        loop {
            let name = format!("__redacted_field_{next_number}__");
            *next_number += 1;
            if !members.contains_key(&name) {
                return Some(name);
            }
        }
    }

    fn member(
        &mut self,
        key: &str,
        value: &Value,
        level: Level,
        pair_is_sensitive: bool,
    ) -> Option<Value> {
        let shape = Shape::of(value);
        let verdict = judge(key, shape, level.log_probabilities);
        if verdict == KeyVerdict::Sensitive
            || (pair_is_sensitive && key == "value" && shape != Shape::Exempt)
        {
            return self.redact(FindingCode::SensitiveKey);
        }
        match verdict {
            KeyVerdict::ProviderRaw if shape != Shape::Exempt => self.provider_raw(value),
            KeyVerdict::ArtifactBody if shape != Shape::Exempt => {
                self.omit(FindingCode::ArtifactBody)
            }
            _ => self.walk(
                value,
                Level {
                    depth: level.depth + 1,
                    nested: level.nested,
                    log_probabilities: level.log_probabilities
                        || verdict == KeyVerdict::LogProbabilities,
                },
            ),
        }
    }

    fn provider_raw(&mut self, value: &Value) -> Option<Value> {
        if self.limits.provider_raw_as_object {
            let mut marker = Map::new();
            marker.insert("type".into(), "provider_raw".into());
            marker.insert("value".into(), OMITTED.into());
            if value.as_object() == Some(&marker) {
                return None;
            }
            self.found(FindingCode::ProviderRawPayload, FindingAction::Omitted, 1);
            return Some(Value::Object(marker));
        }
        self.omit(FindingCode::ProviderRawPayload)
    }

    fn text(&mut self, text: &str, level: Level) -> Option<String> {
        let (projected, is_json) = match self.nested_json(text, level) {
            Some(projected) => (projected, true),
            None => (None, false),
        };
        if !is_json {
            if is_inline_body(text) {
                self.found(FindingCode::InlineBlob, FindingAction::Omitted, 1);
                return Some(OMITTED.into());
            }
            if let Some(code) = finding_in(text) {
                self.found(code, FindingAction::Redacted, 1);
                return Some(REDACTED.into());
            }
        }
        let current = projected.as_deref().unwrap_or(text);
        match self.cut(current) {
            Some(cut) => {
                self.found(FindingCode::StringLengthLimit, FindingAction::Cut, 1);
                // The cut may have made a pattern match that did not before (TRJ-28).
                Some(self.text(&cut, level).unwrap_or(cut))
            }
            None => projected,
        }
    }

    /// The first N−1 characters and `…`, N in all, if there are more than N.
    fn cut(&self, text: &str) -> Option<String> {
        let limit = self.limits.characters;
        if text.len() <= limit || text.chars().nth(limit).is_none() {
            return None;
        }
        let mut cut: String = text.chars().take(limit - 1).collect();
        cut.push('…');
        Some(cut)
    }

    /// Tool arguments are JSON in a string: `Some` if `text` is such, with its new form if it has one.
    ///
    /// A text that the strict reader refuses, one with duplicate keys say, is scanned as a text.
    fn nested_json(&mut self, text: &str, level: Level) -> Option<Option<String>> {
        let trimmed = text.trim();
        if !trimmed.starts_with(['{', '['])
            || level.nested >= NESTED_LEVELS
            || (text.len() > NESTED_CHARACTERS && text.chars().nth(NESTED_CHARACTERS).is_some())
        {
            return None;
        }
        let value = read(trimmed.as_bytes(), ReadLimits::DEFAULT).ok()?;
        let inner = Level {
            depth: level.depth + 1,
            nested: level.nested + 1,
            ..level
        };
        let projected = self.walk(&value, inner);
        // The projection of a value that was read has canonical bytes, and those are UTF-8.
        Some(
            projected
                .and_then(|new| to_bytes(&new).ok())
                .and_then(|b| String::from_utf8(b).ok()),
        )
    }
}

/// An object such as a header: its `name`, `key` or `header` says that its `value` is a secret.
fn names_a_secret(members: &Map<String, Value>) -> bool {
    let Some(value) = members.get("value") else {
        return false;
    };
    let shape = Shape::of(value);
    ["name", "key", "header"]
        .iter()
        .filter_map(|key| members.get(*key).and_then(Value::as_str))
        .any(|name| is_sensitive(name, shape))
}

/// Half an image is noise: a long `data:` address, or nothing but base64 over many characters.
fn is_inline_body(text: &str) -> bool {
    let is_address = text.len() > INLINE_ADDRESS_CHARACTERS
        && text
            .get(..5)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
        && text
            .split_once(',')
            .is_some_and(|(head, _)| head.to_ascii_lowercase().ends_with(";base64"));
    if is_address {
        return true;
    }
    if text.len() < INLINE_BODY_CHARACTERS {
        return false;
    }
    let mut digits = 0usize;
    for byte in text.bytes() {
        match byte {
            b'\n' | b'\r' => {}
            byte if byte.is_ascii_alphanumeric() || b"+/_-=".contains(&byte) => digits += 1,
            _ => return false,
        }
    }
    digits >= INLINE_BODY_CHARACTERS
}

/// The projection of one text that stands for itself, with the codes of what was found.
pub(super) fn text(text: &str, limits: ViewLimits) -> (Cow<'_, str>, BTreeSet<FindingCode>) {
    let mut walk = Walk::new(limits);
    let projected = walk.value(&Value::String(text.into()));
    let codes = walk
        .findings
        .into_iter()
        .map(|finding| finding.code)
        .collect();
    match projected {
        Some(Value::String(new)) => (Cow::Owned(new), codes),
        _ => (Cow::Borrowed(text), codes),
    }
}
