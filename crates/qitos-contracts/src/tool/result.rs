//! ToolResult v2: legal states by construction (RES-1 to RES-19).

use serde_json::Value;

/// The one terminal result of a slot.
#[derive(Clone, Debug)]
pub struct ToolResult {
    canonical: Box<[u8]>,
    action_id: Option<Box<str>>,
}

/// Why a stored result was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result breaks its contract: {code}")]
pub struct ResultError {
    /// The code of RES-1 and RES-2.
    pub code: &'static str,
}

impl ToolResult {
    /// The canonical bytes, written once.
    #[must_use]
    pub fn canonical_bytes(&self) -> &[u8] {
        &self.canonical
    }

    /// The call's id.
    #[must_use]
    pub fn action_id(&self) -> Option<&str> {
        self.action_id.as_deref()
    }

    /// Reads a stored result strictly.
    ///
    /// # Errors
    /// The codes of RES-1 and RES-2.
    pub fn from_value(_value: Value) -> Result<Self, ResultError> {
        Err(ResultError {
            code: "unknown_schema_version",
        })
    }
}
