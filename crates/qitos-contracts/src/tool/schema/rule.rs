//! The compiled form of a schema: nodes that refer to each other by index.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Number;

/// The index of a node.
pub(super) type NodeId = usize;

/// All nodes of a schema; the root is the first.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) list: Vec<Node>,
}

impl Nodes {
    /// The root.
    pub(super) const ROOT: NodeId = 0;

    /// A node by its index; the compiler gives out no other indices.
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.list.get(id)
    }
}

/// One subschema: a value fits when it fits every rule.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Null fits, whatever the rules say.
    pub(super) nullable: bool,
    pub(super) rules: Vec<Rule>,
}

/// One keyword, or several that only have a meaning together.
#[derive(Debug)]
pub(super) enum Rule {
    /// The schema `false`.
    Nothing,
    Type(Types),
    Enum(Vec<Vec<u8>>),
    Const(Vec<u8>),
    Reference(NodeId),
    Object(ObjectRule),
    Required(Vec<String>),
    DependentRequired(BTreeMap<String, Vec<String>>),
    PropertyNames(NodeId),
    PropertyCount(Bounds),
    Array(ArrayRule),
    Contains(NodeId),
    ItemCount(Bounds),
    UniqueItems,
    Length(Bounds),
    Pattern(Regex),
    Minimum(Number),
    Maximum(Number),
    ExclusiveMinimum(Number),
    ExclusiveMaximum(Number),
    MultipleOf(Number),
    AnyOf(Vec<NodeId>),
    OneOf(Vec<NodeId>),
    AllOf(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
}

impl Rule {
    /// The nodes that judge the same value as the node of this rule, not a part of it.
    pub(super) fn in_place(&self) -> Vec<NodeId> {
        match self {
            Rule::Reference(id) | Rule::Not(id) => vec![*id],
            Rule::AnyOf(ids) | Rule::OneOf(ids) | Rule::AllOf(ids) => ids.clone(),
            Rule::If {
                condition,
                then,
                otherwise,
            } => [Some(*condition), *then, *otherwise]
                .into_iter()
                .flatten()
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// `properties`, `patternProperties` and `additionalProperties`.
#[derive(Debug, Default)]
pub(super) struct ObjectRule {
    pub(super) properties: BTreeMap<String, NodeId>,
    pub(super) patterns: Vec<(Regex, NodeId)>,
    pub(super) additional: Additional,
}

/// What `additionalProperties` says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Additional {
    #[default]
    Anything,
    Nothing,
    Schema(NodeId),
}

/// `prefixItems` and `items`.
#[derive(Debug, Default)]
pub(super) struct ArrayRule {
    pub(super) prefix: Vec<NodeId>,
    pub(super) items: Option<NodeId>,
}

/// An inclusive range of counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Bounds {
    pub(super) const ALL: Bounds = Bounds {
        least: 0,
        most: u64::MAX,
    };

    pub(super) fn holds(self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        (self.least..=self.most).contains(&count)
    }
}

/// A set of JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    const NAMES: [&'static str; 7] = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];

    pub(super) const NONE: Types = Types(0);
    pub(super) const NULL: Types = Types(1);
    pub(super) const BOOLEAN: Types = Types(1 << 1);
    pub(super) const INTEGER: Types = Types(1 << 2);
    pub(super) const NUMBER: Types = Types(1 << 3);
    pub(super) const STRING: Types = Types(1 << 4);
    pub(super) const ARRAY: Types = Types(1 << 5);
    pub(super) const OBJECT: Types = Types(1 << 6);

    /// The type of that name.
    pub(super) fn named(name: &str) -> Option<Types> {
        let index = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Types(1 << index))
    }

    pub(super) const fn with(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    pub(super) const fn overlaps(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    /// The names in the set, for a message.
    pub(super) fn describe(self) -> String {
        let names: Vec<&str> = Self::NAMES
            .iter()
            .enumerate()
            .filter(|(index, _)| self.0 & (1 << index) != 0)
            .map(|(_, name)| *name)
            .collect();
        names.join(" or ")
    }
}
