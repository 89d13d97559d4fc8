//! Judging a value by a compiled schema.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::compile::push_step;
use super::equality::equality_key;
use super::issue::{Issue, IssueCode, MAXIMUM_ISSUES};
use super::number::{compare, is_integer, is_multiple};
use super::rule::{Additional, ArrayRule, Bounds, Node, NodeId, Nodes, ObjectRule, Rule, Types};

/// Rules that may be applied to judge one value; nested alternatives over a deep value multiply.
const MAXIMUM_STEPS: u32 = 2_000_000;
/// Calls inside each other: nesting of the value times chains of subschemas.
const MAXIMUM_DEPTH: usize = 400;
/// Bytes of a path; what stands below a longer one is reported at the last place that fits.
const MAXIMUM_PATH_BYTES: usize = 512;

pub(super) fn issues(nodes: &Nodes, value: &Value) -> Vec<Issue> {
    let mut judge = Judge::new(nodes);
    judge.node(Nodes::ROOT, value, true);
    judge.into_issues()
}

pub(super) fn accepts(nodes: &Nodes, value: &Value) -> bool {
    accepts_node(nodes, Nodes::ROOT, value)
}

/// Whether `value` fits one node; a value that takes too much work does not.
pub(super) fn accepts_node(nodes: &Nodes, id: NodeId, value: &Value) -> bool {
    let mut judge = Judge::new(nodes);
    judge.node(id, value, false) && !judge.exhausted
}

struct Judge<'schema> {
    nodes: &'schema Nodes,
    path: String,
    /// The smallest issues so far, in order.
    issues: Vec<Issue>,
    steps_left: u32,
    depth_left: usize,
    exhausted: bool,
}

impl<'schema> Judge<'schema> {
    fn new(nodes: &'schema Nodes) -> Self {
        Judge {
            nodes,
            path: String::new(),
            issues: Vec::new(),
            steps_left: MAXIMUM_STEPS,
            depth_left: MAXIMUM_DEPTH,
            exhausted: false,
        }
    }

    fn into_issues(self) -> Vec<Issue> {
        if self.exhausted {
            return vec![Issue {
                code: IssueCode::InvalidArgumentValue,
                path: String::new(),
                message: "too large or too deep to be checked against the schema".to_owned(),
            }];
        }
        self.issues
    }

    /// Whether `value` fits node `id`. With `report`, every issue is kept; without, the first one ends it.
    fn node(&mut self, id: NodeId, value: &Value, report: bool) -> bool {
        let Some(node) = self.nodes.get(id) else {
            return true;
        };
        if node.nullable && value.is_null() {
            return true;
        }
        let Some(depth_left) = self.depth_left.checked_sub(1) else {
            self.exhausted = true;
            return false;
        };
        self.depth_left = depth_left;
        let fits = self.rules(node, value, report);
        self.depth_left += 1;
        fits
    }

    fn rules(&mut self, node: &'schema Node, value: &Value, report: bool) -> bool {
        let mut fits = true;
        for rule in &node.rules {
            if self.exhausted {
                return false;
            }
            self.spend(1);
            fits &= self.rule(rule, value, report);
            if !fits && !report {
                return false;
            }
        }
        fits
    }

    fn spend(&mut self, steps: usize) {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        match self.steps_left.checked_sub(steps) {
            Some(left) => self.steps_left = left,
            None => self.exhausted = true,
        }
    }

    fn rule(&mut self, rule: &'schema Rule, value: &Value, report: bool) -> bool {
        match (rule, value) {
            (Rule::Nothing, _) => self.value_issue(false, report, || "no value fits here".into()),
            (Rule::Type(types), _) => {
                let fits = has_type(*types, value);
                self.issue(fits, report, IssueCode::InvalidArgumentType, || {
                    format!("expected {}", types.describe())
                })
            }
            (Rule::Enum(keys), _) => {
                let key = self.key_of(value);
                let fits = keys.contains(&key);
                self.value_issue(fits, report, || {
                    format!("expected one of {} listed values", keys.len())
                })
            }
            (Rule::Const(expected), _) => {
                let fits = *expected == self.key_of(value);
                self.value_issue(fits, report, || "expected the one listed value".into())
            }
            (Rule::Reference(id), _) => self.node(*id, value, report),
            (Rule::AllOf(ids), _) => self.all_of(ids, value, report),
            (Rule::AnyOf(ids), _) => self.any_of(ids, value, report),
            (Rule::OneOf(ids), _) => self.one_of(ids, value, report),
            (Rule::Not(id), _) => {
                let fits = !self.node(*id, value, false);
                self.value_issue(fits, report, || "fits a schema that it must not fit".into())
            }
            (
                Rule::If {
                    condition,
                    then,
                    otherwise,
                },
                _,
            ) => {
                let branch = if self.node(*condition, value, false) {
                    then
                } else {
                    otherwise
                };
                branch.is_none_or(|branch| self.node(branch, value, report))
            }
            (_, Value::Object(members)) => self.object_rule(rule, members, report),
            (_, Value::Array(items)) => self.array_rule(rule, items, report),
            (_, Value::String(text)) => self.string_rule(rule, text, report),
            (_, Value::Number(number)) => self.number_rule(rule, number, report),
            _ => true,
        }
    }

    /// The equality key of a value, paid for by its size.
    fn key_of(&mut self, value: &Value) -> Vec<u8> {
        let key = equality_key(value);
        self.spend(key.len() / 64);
        key
    }

    fn all_of(&mut self, ids: &[NodeId], value: &Value, report: bool) -> bool {
        let mut fits = true;
        for id in ids {
            fits &= self.node(*id, value, report);
            if !fits && !report {
                break;
            }
        }
        fits
    }

    fn any_of(&mut self, ids: &[NodeId], value: &Value, report: bool) -> bool {
        if ids.iter().any(|id| self.node(*id, value, false)) {
            return true;
        }
        self.alternatives_issue(ids, value, report, || {
            format!("fits none of {} alternatives", ids.len())
        })
    }

    fn one_of(&mut self, ids: &[NodeId], value: &Value, report: bool) -> bool {
        let fitting = ids
            .iter()
            .filter(|id| self.node(**id, value, false))
            .count();
        match fitting {
            1 => true,
            0 => self.alternatives_issue(ids, value, report, || {
                format!("fits none of {} alternatives", ids.len())
            }),
            _ => self.issue(false, report, IssueCode::InvalidArgumentType, || {
                format!("fits {fitting} alternatives, and only one may")
            }),
        }
    }

    /// Says that no alternative fits and, when only one has the right type, what is wrong with that one.
    fn alternatives_issue(
        &mut self,
        ids: &[NodeId],
        value: &Value,
        report: bool,
        message: impl FnOnce() -> String,
    ) -> bool {
        if report {
            let mut likely = ids.iter().filter(|id| self.may_mean(**id, value));
            if let (Some(only), None) = (likely.next(), likely.next()) {
                self.node(*only, value, true);
            }
        }
        self.issue(false, report, IssueCode::InvalidArgumentType, message)
    }

    /// Whether an alternative has the type of `value`, through references.
    fn may_mean(&self, id: NodeId, value: &Value) -> bool {
        let Some(node) = self.nodes.get(id) else {
            return true;
        };
        node.rules.iter().all(|rule| match rule {
            Rule::Type(types) => has_type(*types, value),
            // Chains end: the compiler refuses circles.
            Rule::Reference(target) => self.may_mean(*target, value),
            Rule::Nothing => false,
            _ => true,
        })
    }

    fn object_rule(
        &mut self,
        rule: &'schema Rule,
        members: &Map<String, Value>,
        report: bool,
    ) -> bool {
        match rule {
            Rule::Object(object) => self.members(object, members, report),
            Rule::Required(names) => self.required(names, members, report),
            Rule::DependentRequired(dependencies) => {
                let mut fits = true;
                for (trigger, names) in dependencies {
                    if members.contains_key(trigger) {
                        fits &= self.required(names, members, report);
                    }
                }
                fits
            }
            Rule::PropertyNames(id) => {
                let mut fits = true;
                for name in members.keys() {
                    let named = Value::from(name.as_str());
                    let one_fits = self.node(*id, &named, false);
                    fits &= self.at(name, |judge| {
                        judge.value_issue(one_fits, report, || "a name that is not allowed".into())
                    });
                }
                fits
            }
            Rule::PropertyCount(bounds) => {
                let fits = bounds.holds(members.len());
                self.value_issue(fits, report, || range_message(*bounds, "properties"))
            }
            _ => true,
        }
    }

    fn required(&mut self, names: &[String], members: &Map<String, Value>, report: bool) -> bool {
        let mut fits = true;
        for name in names {
            self.spend(1);
            let present = members.contains_key(name);
            fits &= present;
            if !present && report {
                self.at(name, |judge| {
                    judge.issue(false, true, IssueCode::MissingRequiredArgument, || {
                        "required and absent".into()
                    })
                });
            }
        }
        fits
    }

    fn members(
        &mut self,
        object: &'schema ObjectRule,
        members: &Map<String, Value>,
        report: bool,
    ) -> bool {
        let mut fits = true;
        for (name, member) in members {
            if self.exhausted || (!fits && !report) {
                return false;
            }
            self.spend(1);
            fits &= self.at(name, |judge| judge.member(object, name, member, report));
        }
        fits
    }

    fn member(
        &mut self,
        object: &'schema ObjectRule,
        name: &str,
        member: &Value,
        report: bool,
    ) -> bool {
        let mut known = false;
        let mut fits = true;
        if let Some(id) = object.properties.get(name) {
            known = true;
            fits &= self.node(*id, member, report);
        }
        for (pattern, id) in &object.patterns {
            self.spend(1 + name.len() / 64);
            if pattern.is_match(name) {
                known = true;
                fits &= self.node(*id, member, report);
            }
        }
        match object.additional {
            _ if known => fits,
            Additional::Anything => fits,
            Additional::Schema(id) => fits & self.node(id, member, report),
            Additional::Nothing => self.issue(false, report, IssueCode::UnexpectedArgument, || {
                "not an argument of this tool".into()
            }),
        }
    }

    fn array_rule(&mut self, rule: &'schema Rule, items: &[Value], report: bool) -> bool {
        match rule {
            Rule::Array(array) => self.items(array, items, report),
            Rule::Contains(id) => {
                let fits = items.iter().any(|item| self.node(*id, item, false));
                self.value_issue(fits, report, || "holds no item of the needed form".into())
            }
            Rule::ItemCount(bounds) => {
                let fits = bounds.holds(items.len());
                self.value_issue(fits, report, || range_message(*bounds, "items"))
            }
            Rule::UniqueItems => {
                let mut seen = HashSet::with_capacity(items.len());
                let mut fits = true;
                for item in items {
                    self.spend(1);
                    fits &= seen.insert(self.key_of(item));
                }
                self.value_issue(fits, report, || "holds an item twice".into())
            }
            _ => true,
        }
    }

    fn items(&mut self, array: &'schema ArrayRule, items: &[Value], report: bool) -> bool {
        let mut fits = true;
        for (index, item) in items.iter().enumerate() {
            if self.exhausted || (!fits && !report) {
                return false;
            }
            self.spend(1);
            if let Some(id) = array.prefix.get(index).copied().or(array.items) {
                fits &= self.at_index(index, |judge| judge.node(id, item, report));
            }
        }
        fits
    }

    fn string_rule(&mut self, rule: &Rule, text: &str, report: bool) -> bool {
        match rule {
            Rule::Length(bounds) => {
                self.spend(text.len() / 64);
                let fits = bounds.holds(text.chars().count());
                self.value_issue(fits, report, || range_message(*bounds, "characters"))
            }
            Rule::Pattern(pattern) => {
                self.spend(text.len() / 16);
                let fits = pattern.is_match(text);
                self.value_issue(fits, report, || "does not match the pattern".into())
            }
            _ => true,
        }
    }

    fn number_rule(&mut self, rule: &Rule, number: &Number, report: bool) -> bool {
        let (fits, bound, words) = match rule {
            Rule::Minimum(bound) => (compare(number, bound) != Ordering::Less, bound, "at least"),
            Rule::Maximum(bound) => (
                compare(number, bound) != Ordering::Greater,
                bound,
                "at most",
            ),
            Rule::ExclusiveMinimum(bound) => (
                compare(number, bound) == Ordering::Greater,
                bound,
                "more than",
            ),
            Rule::ExclusiveMaximum(bound) => {
                (compare(number, bound) == Ordering::Less, bound, "less than")
            }
            Rule::MultipleOf(bound) => (is_multiple(number, bound), bound, "a multiple of"),
            _ => return true,
        };
        self.value_issue(fits, report, || format!("expected {words} {bound}"))
    }

    fn at<T>(&mut self, step: &str, work: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length + step.len() < MAXIMUM_PATH_BYTES {
            push_step(&mut self.path, step);
        }
        let result = work(self);
        self.path.truncate(length);
        result
    }

    fn at_index<T>(&mut self, index: usize, work: impl FnOnce(&mut Self) -> T) -> T {
        self.at(&index.to_string(), work)
    }

    fn value_issue(&mut self, fits: bool, report: bool, message: impl FnOnce() -> String) -> bool {
        self.issue(fits, report, IssueCode::InvalidArgumentValue, message)
    }

    /// Passes `fits` on and keeps an issue if it is false and issues are wanted.
    fn issue(
        &mut self,
        fits: bool,
        report: bool,
        code: IssueCode,
        message: impl FnOnce() -> String,
    ) -> bool {
        if fits || !report {
            return fits;
        }
        let place = self.issues.partition_point(|issue| {
            (issue.path.as_str(), issue.code) <= (self.path.as_str(), code)
        });
        // Only the smallest few are kept, so a value with a million faults takes no room.
        if place < MAXIMUM_ISSUES {
            let issue = Issue {
                code,
                path: self.path.clone(),
                message: message(),
            };
            if self.issues.get(place.wrapping_sub(1)) != Some(&issue) {
                self.issues.insert(place, issue);
                self.issues.truncate(MAXIMUM_ISSUES);
            }
        }
        false
    }
}

pub(super) fn has_type(types: Types, value: &Value) -> bool {
    let own = match value {
        Value::Null => Types::NULL,
        Value::Bool(_) => Types::BOOLEAN,
        Value::Number(number) if is_integer(number) => Types::NUMBER.with(Types::INTEGER),
        Value::Number(_) => Types::NUMBER,
        Value::String(_) => Types::STRING,
        Value::Array(_) => Types::ARRAY,
        Value::Object(_) => Types::OBJECT,
    };
    types.overlaps(own)
}

fn range_message(bounds: Bounds, what: &str) -> String {
    match (bounds.least, bounds.most) {
        (least, u64::MAX) => format!("expected at least {least} {what}"),
        (0, most) => format!("expected at most {most} {what}"),
        (least, most) => format!("expected {least} to {most} {what}"),
    }
}
