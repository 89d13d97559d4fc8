//! The JSON Schema subset of tool arguments (section 2).
//!
//! JSON Schema 2020-12, cut to what can be evaluated in bounded time and space. A schema is compiled once,
//! when a tool is registered; what is outside the subset is refused then and never at call time (ARG-1).
//!
//! Evaluated: `type properties required additionalProperties patternProperties propertyNames
//! dependentRequired if then else contains items prefixItems enum const anyOf oneOf allOf not $defs`, local
//! `$ref`, `minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern minItems
//! maxItems uniqueItems minProperties maxProperties`. `nullable: true` means "or null". Annotations:
//! `$schema $comment title description default examples format deprecated readOnly writeOnly`.
//!
//! Values are not coerced: `"5"` is no integer and `true` no number, but `1.0` is an integer (ARG-3). Lengths
//! count Unicode scalars. A `pattern` has the meaning of ECMAScript, without lookaround, back references and
//! Unicode properties.

mod compile;
mod equality;
mod issue;
mod number;
mod pattern;
mod rule;
mod strict;
mod validate;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use issue::{Issue, IssueCode, MAXIMUM_ISSUES};
pub use strict::NoStrictForm;

use rule::Nodes;

/// Bytes of a schema in canonical form: 64 KiB (ARG-1).
pub const MAXIMUM_SCHEMA_BYTES: usize = 64 * 1024;
/// Containers inside each other in a schema (ARG-1).
pub const MAXIMUM_SCHEMA_DEPTH: usize = 32;

/// A compiled schema; cheap to clone.
#[derive(Clone)]
pub struct Schema {
    source: Arc<Value>,
    nodes: Arc<Nodes>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Schema({})", self.source)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// A schema outside the supported subset; code `schema_contract_violation` (ARG-1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema at `{pointer}`: {reason}")]
pub struct SchemaError {
    /// Where in the schema, as a JSON pointer.
    pub pointer: String,
    /// What is wrong there.
    pub reason: &'static str,
}

impl SchemaError {
    /// The code under which a registry refuses it.
    pub const CODE: &'static str = "schema_contract_violation";
}

impl Schema {
    /// Compiles a schema of arguments, whose root has `type: "object"`.
    ///
    /// # Errors
    /// `schema_contract_violation`: a keyword outside the subset or of the wrong form, a `$ref` that is not
    /// local or leads round in a circle, another root, more than [`MAXIMUM_SCHEMA_DEPTH`] or
    /// [`MAXIMUM_SCHEMA_BYTES`] (ARG-1).
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err(SchemaError {
                pointer: String::new(),
                reason: "the root is not of type object",
            });
        }
        Schema::compile_any(schema)
    }

    /// Compiles a schema of any value, such as a tool's output.
    ///
    /// # Errors
    /// As [`compile`](Schema::compile), but for the root.
    pub fn compile_any(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Schema {
            nodes: Arc::new(compile::compile(schema)?),
            source: Arc::new(schema.clone()),
        })
    }

    /// The schema as it was given.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// The first [`MAXIMUM_ISSUES`] issues of `value` in (path, code) order (ARG-7).
    ///
    /// Pure and bounded: a value that would take too much work to judge has the one issue of saying so.
    #[must_use]
    pub fn validate(&self, value: &Value) -> Vec<Issue> {
        validate::issues(&self.nodes, value)
    }

    /// Whether `value` has no issue.
    #[must_use]
    pub fn accepts(&self, value: &Value) -> bool {
        validate::accepts(&self.nodes, value)
    }

    /// The schema that a provider in strict mode gets (ARG-6): all objects closed, all fields required, the
    /// optional ones nullable.
    ///
    /// Annotations that strict providers refuse are left out; nothing that restricts a value is.
    ///
    /// # Errors
    /// [`NoStrictForm`] when a part cannot be said that way; the schema is then sent as it is, non-strict.
    pub fn strict_form(&self) -> Result<Value, NoStrictForm> {
        strict::strict_form(&self.source)
    }

    /// Takes back what [`strict_form`](Schema::strict_form) forced on the model: removes each `null` of a field
    /// that this schema has optional and not nullable (ARG-6).
    pub fn remove_strict_nulls(&self, value: &mut Value) {
        strict::remove_nulls(&self.nodes, value);
    }
}

#[cfg(test)]
mod tests;
