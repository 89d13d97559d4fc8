//! The JSON Schema subset of tool arguments (section 2).

mod issue;

pub use issue::{Issue, IssueCode};

use serde_json::Value;

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Value,
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

impl Schema {
    /// Compiles a schema of arguments.
    ///
    /// # Errors
    /// `schema_contract_violation` (ARG-1).
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Schema {
            source: schema.clone(),
        })
    }

    /// The schema as it was given.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// The issues of `value` in (path, code) order, at most 8 (ARG-7).
    #[must_use]
    pub fn validate(&self, _value: &Value) -> Vec<Issue> {
        Vec::new()
    }
}
