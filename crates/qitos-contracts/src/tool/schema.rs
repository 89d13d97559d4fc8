//! The JSON Schema subset of tool arguments (section 2).

use serde_json::Value;

/// `schema_contract_violation`: the schema is outside the supported subset (ARG-1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema is not supported at `{path}`: {reason}")]
pub struct SchemaError {
    /// JSON pointer.
    pub path: String,
    /// A constant text.
    pub reason: &'static str,
}

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {}

impl Schema {
    /// Compiles `schema`.
    ///
    /// # Errors
    /// `schema_contract_violation`.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let object_rooted = schema.get("type").and_then(Value::as_str) == Some("object");
        if object_rooted {
            Ok(Schema {})
        } else {
            Err(SchemaError {
                path: String::new(),
                reason: "the root is not an object",
            })
        }
    }
}
