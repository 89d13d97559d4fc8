//! A schema to its compiled form, refusing what is outside the subset (ARG-1).

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Number, Value};

use super::equality::equality_key;
use super::pattern;
use super::rule::{Additional, ArrayRule, Bounds, Node, NodeId, Nodes, ObjectRule, Rule, Types};
use super::{MAXIMUM_SCHEMA_BYTES, MAXIMUM_SCHEMA_DEPTH, SchemaError};
use crate::canonical_json::{self, CanonicalError};

/// Subschemas that may judge one value one through the other, such as a chain of references.
const MAXIMUM_CHAIN: usize = 64;

/// Keywords that say nothing about a value.
const ANNOTATIONS: [&str; 10] = [
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
];

pub(super) fn compile(schema: &Value) -> Result<Nodes, SchemaError> {
    let refuse = |reason| SchemaError {
        pointer: String::new(),
        reason,
    };
    canonical_json::check(schema, MAXIMUM_SCHEMA_DEPTH).map_err(|error| match error {
        CanonicalError::TooDeep => refuse("nested more than 32 deep"),
        _ => refuse("not plain JSON"),
    })?;
    let bytes = canonical_json::to_bytes(schema).map_err(|_| refuse("not plain JSON"))?;
    if bytes.len() > MAXIMUM_SCHEMA_BYTES {
        return Err(refuse("larger than 64 KiB"));
    }
    let mut compiler = Compiler {
        nodes: Vec::new(),
        places: HashMap::new(),
        references: Vec::new(),
        pointer: String::new(),
    };
    compiler.subschema(schema)?;
    compiler.resolve()?;
    let nodes = Nodes {
        list: compiler.nodes,
    };
    check_chains(&nodes)?;
    Ok(nodes)
}

struct Compiler {
    nodes: Vec<Node>,
    /// Where each subschema stands, for `$ref`.
    places: HashMap<String, NodeId>,
    /// A reference, the node it stands in, and the pointer that it names.
    references: Vec<(NodeId, String, String)>,
    /// Where the compiler is.
    pointer: String,
}

impl Compiler {
    fn fail<T>(&self, reason: &'static str) -> Result<T, SchemaError> {
        Err(SchemaError {
            pointer: self.pointer.clone(),
            reason,
        })
    }

    /// Runs `work` one step further down.
    fn at<T>(
        &mut self,
        step: &str,
        work: impl FnOnce(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<T, SchemaError> {
        let length = self.pointer.len();
        push_step(&mut self.pointer, step);
        let result = work(self);
        self.pointer.truncate(length);
        result
    }

    fn subschema(&mut self, schema: &Value) -> Result<NodeId, SchemaError> {
        let id = self.nodes.len();
        self.nodes.push(Node::default());
        self.places.insert(self.pointer.clone(), id);
        let node = match schema {
            Value::Bool(true) => Node::default(),
            Value::Bool(false) => Node {
                nullable: false,
                rules: vec![Rule::Nothing],
            },
            Value::Object(keywords) => self.keywords(id, keywords)?,
            _ => return self.fail("a schema is an object or a boolean"),
        };
        if let Some(slot) = self.nodes.get_mut(id) {
            *slot = node;
        }
        Ok(id)
    }

    fn keywords(&mut self, id: NodeId, keywords: &Map<String, Value>) -> Result<Node, SchemaError> {
        let mut node = Node::default();
        let mut object = ObjectRule::default();
        let mut array = ArrayRule::default();
        let mut properties = Bounds::ALL;
        let mut items = Bounds::ALL;
        let mut length = Bounds::ALL;
        let (mut condition, mut then, mut otherwise) = (None, None, None);
        for (keyword, value) in keywords {
            let step = keyword.as_str();
            self.at(step, |this| {
                let rule = match step {
                    "type" => Rule::Type(this.types(value)?),
                    "enum" => Rule::Enum(this.list(value)?.iter().map(equality_key).collect()),
                    "const" => Rule::Const(equality_key(value)),
                    "$ref" => return this.reference(id, value),
                    "required" => Rule::Required(this.strings(value)?),
                    "dependentRequired" => Rule::DependentRequired(this.dependencies(value)?),
                    "propertyNames" => Rule::PropertyNames(this.subschema(value)?),
                    "contains" => Rule::Contains(this.subschema(value)?),
                    "uniqueItems" => match value {
                        Value::Bool(true) => Rule::UniqueItems,
                        Value::Bool(false) => return Ok(()),
                        _ => return this.fail("not a boolean"),
                    },
                    "pattern" => Rule::Pattern(this.pattern(value)?),
                    "minimum" => Rule::Minimum(this.number(value)?),
                    "maximum" => Rule::Maximum(this.number(value)?),
                    "exclusiveMinimum" => Rule::ExclusiveMinimum(this.number(value)?),
                    "exclusiveMaximum" => Rule::ExclusiveMaximum(this.number(value)?),
                    "multipleOf" => Rule::MultipleOf(this.positive(value)?),
                    "anyOf" => Rule::AnyOf(this.subschemas(value)?),
                    "oneOf" => Rule::OneOf(this.subschemas(value)?),
                    "allOf" => Rule::AllOf(this.subschemas(value)?),
                    "not" => Rule::Not(this.subschema(value)?),
                    _ => {
                        match step {
                            "properties" => object.properties = this.named(value)?,
                            "patternProperties" => object.patterns = this.patterns(value)?,
                            "additionalProperties" => {
                                let schema = this.subschema(value)?;
                                object.additional = match value {
                                    Value::Bool(true) => Additional::Anything,
                                    Value::Bool(false) => Additional::Nothing,
                                    _ => Additional::Schema(schema),
                                };
                            }
                            "prefixItems" => array.prefix = this.subschemas(value)?,
                            "items" => array.items = Some(this.subschema(value)?),
                            "minProperties" => properties.least = this.count(value)?,
                            "maxProperties" => properties.most = this.count(value)?,
                            "minItems" => items.least = this.count(value)?,
                            "maxItems" => items.most = this.count(value)?,
                            "minLength" => length.least = this.count(value)?,
                            "maxLength" => length.most = this.count(value)?,
                            "if" => condition = Some(this.subschema(value)?),
                            "then" => then = Some(this.subschema(value)?),
                            "else" => otherwise = Some(this.subschema(value)?),
                            "$defs" => {
                                this.named(value)?;
                            }
                            "nullable" => match value {
                                Value::Bool(nullable) => node.nullable = *nullable,
                                _ => return this.fail("not a boolean"),
                            },
                            _ if ANNOTATIONS.contains(&step) => {}
                            _ => return this.fail("a keyword outside the supported subset"),
                        }
                        return Ok(());
                    }
                };
                node.rules.push(rule);
                Ok(())
            })?;
        }
        let has = |names: [&str; 3]| names.iter().any(|name| keywords.contains_key(*name));
        if has(["properties", "patternProperties", "additionalProperties"]) {
            node.rules.push(Rule::Object(object));
        }
        if has(["prefixItems", "items", "items"]) {
            node.rules.push(Rule::Array(array));
        }
        if has(["minProperties", "maxProperties", "maxProperties"]) {
            node.rules.push(Rule::PropertyCount(properties));
        }
        if has(["minItems", "maxItems", "maxItems"]) {
            node.rules.push(Rule::ItemCount(items));
        }
        if has(["minLength", "maxLength", "maxLength"]) {
            node.rules.push(Rule::Length(length));
        }
        if let Some(condition) = condition {
            node.rules.push(Rule::If {
                condition,
                then,
                otherwise,
            });
        }
        Ok(node)
    }

    fn types(&self, value: &Value) -> Result<Types, SchemaError> {
        let mut types = Types::NONE;
        let names: Vec<&Value> = match value {
            Value::Array(names) if !names.is_empty() => names.iter().collect(),
            Value::String(_) => vec![value],
            _ => return self.fail("not a type or a list of types"),
        };
        for name in names {
            match name.as_str().and_then(Types::named) {
                Some(named) => types = types.with(named),
                None => return self.fail("not a JSON type"),
            }
        }
        Ok(types)
    }

    fn list<'value>(&self, value: &'value Value) -> Result<&'value Vec<Value>, SchemaError> {
        match value {
            Value::Array(items) if !items.is_empty() => Ok(items),
            _ => self.fail("not a list with an entry"),
        }
    }

    fn strings(&self, value: &Value) -> Result<Vec<String>, SchemaError> {
        let Value::Array(items) = value else {
            return self.fail("not a list of strings");
        };
        let mut strings = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::String(text) => strings.push(text.clone()),
                _ => return self.fail("not a list of strings"),
            }
        }
        Ok(strings)
    }

    fn dependencies(&self, value: &Value) -> Result<BTreeMap<String, Vec<String>>, SchemaError> {
        let Value::Object(members) = value else {
            return self.fail("not an object of lists");
        };
        members
            .iter()
            .map(|(name, list)| Ok((name.clone(), self.strings(list)?)))
            .collect()
    }

    fn number(&self, value: &Value) -> Result<Number, SchemaError> {
        match value {
            Value::Number(number) => Ok(number.clone()),
            _ => self.fail("not a number"),
        }
    }

    fn positive(&self, value: &Value) -> Result<Number, SchemaError> {
        let number = self.number(value)?;
        if number.as_f64().is_some_and(|value| value > 0.0) {
            Ok(number)
        } else {
            self.fail("not a number above 0")
        }
    }

    fn count(&self, value: &Value) -> Result<u64, SchemaError> {
        let integer = match value {
            Value::Number(number) => super::number::as_integer(number),
            _ => None,
        };
        match integer.and_then(|integer| u64::try_from(integer).ok()) {
            Some(count) => Ok(count),
            None => self.fail("not a count"),
        }
    }

    fn pattern(&self, value: &Value) -> Result<regex::Regex, SchemaError> {
        match value.as_str().and_then(pattern::compile) {
            Some(pattern) => Ok(pattern),
            None => self.fail("a pattern outside the supported syntax or size"),
        }
    }

    fn subschemas(&mut self, value: &Value) -> Result<Vec<NodeId>, SchemaError> {
        let mut ids = Vec::new();
        for (index, schema) in self.list(value)?.iter().enumerate() {
            ids.push(self.at(&index.to_string(), |this| this.subschema(schema))?);
        }
        Ok(ids)
    }

    fn named(&mut self, value: &Value) -> Result<BTreeMap<String, NodeId>, SchemaError> {
        let Value::Object(members) = value else {
            return self.fail("not an object of schemas");
        };
        let mut named = BTreeMap::new();
        for (name, schema) in members {
            named.insert(name.clone(), self.at(name, |this| this.subschema(schema))?);
        }
        Ok(named)
    }

    fn patterns(&mut self, value: &Value) -> Result<Vec<(regex::Regex, NodeId)>, SchemaError> {
        let mut patterns = Vec::new();
        for (text, id) in self.named(value)? {
            match pattern::compile(&text) {
                Some(pattern) => patterns.push((pattern, id)),
                None => return self.fail("a pattern outside the supported syntax or size"),
            }
        }
        Ok(patterns)
    }

    fn reference(&mut self, id: NodeId, value: &Value) -> Result<(), SchemaError> {
        let target = value
            .as_str()
            .and_then(|text| text.strip_prefix('#'))
            .and_then(percent_decoded);
        match target {
            Some(target) if target.is_empty() || target.starts_with('/') => {
                self.references.push((id, self.pointer.clone(), target));
                Ok(())
            }
            _ => self.fail("a reference that is not a local pointer"),
        }
    }

    fn resolve(&mut self) -> Result<(), SchemaError> {
        for (id, pointer, target) in std::mem::take(&mut self.references) {
            let Some(found) = self.places.get(&target) else {
                return Err(SchemaError {
                    pointer,
                    reason: "a reference to what is no schema",
                });
            };
            if let Some(node) = self.nodes.get_mut(id) {
                node.rules.push(Rule::Reference(*found));
            }
        }
        Ok(())
    }
}

/// Appends one step of a JSON pointer.
pub(super) fn push_step(pointer: &mut String, step: &str) {
    pointer.push('/');
    for character in step.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(character),
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Refuses subschemas that judge one value round in a circle, or through too long a chain.
fn check_chains(nodes: &Nodes) -> Result<(), SchemaError> {
    // The longest chain from each node; `None` while it is being measured.
    let mut lengths: HashMap<NodeId, Option<usize>> = HashMap::new();
    for start in 0..nodes.list.len() {
        // An explicit stack, because a chain may be as long as the schema is large.
        let mut stack = vec![(start, false)];
        while let Some((id, children_done)) = stack.pop() {
            let children: Vec<NodeId> = nodes
                .get(id)
                .map(|node| node.rules.iter().flat_map(Rule::in_place).collect())
                .unwrap_or_default();
            if children_done {
                let longest = children
                    .iter()
                    .filter_map(|child| lengths.get(child).copied().flatten())
                    .max()
                    .unwrap_or(0);
                lengths.insert(id, Some(longest + 1));
                if longest + 1 > MAXIMUM_CHAIN {
                    return Err(chain_error("a chain of more than 64 schemas for one value"));
                }
                continue;
            }
            match lengths.get(&id) {
                Some(Some(_)) => continue,
                Some(None) => return Err(chain_error("a reference that leads back to itself")),
                None => {}
            }
            lengths.insert(id, None);
            stack.push((id, true));
            for child in children {
                match lengths.get(&child) {
                    Some(Some(_)) => {}
                    Some(None) => {
                        return Err(chain_error("a reference that leads back to itself"));
                    }
                    None => stack.push((child, false)),
                }
            }
        }
    }
    Ok(())
}

fn chain_error(reason: &'static str) -> SchemaError {
    SchemaError {
        pointer: String::new(),
        reason,
    }
}
