//! ToolResult v2: legal states by construction (RES-1 to RES-19).

use std::sync::Arc;

use serde_json::Value;

/// The one terminal result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    canonical: Arc<[u8]>,
    action_id: Option<Arc<str>>,
}

/// A result that the strict reader refused (RES-1, RES-2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// `invalid_canonical_payload`.
    #[error("a tool result is not a JSON object of its own format")]
    InvalidPayload,
}

impl ToolResult {
    /// The canonical bytes; computed once.
    #[must_use]
    pub fn canonical_bytes(&self) -> &[u8] {
        &self.canonical
    }

    /// The id of the call it answers.
    #[must_use]
    pub fn action_id(&self) -> Option<&str> {
        self.action_id.as_deref()
    }

    /// Reads a result strictly.
    ///
    /// # Errors
    /// The codes of RES-1 and RES-2.
    pub fn from_value(value: Value) -> Result<Self, ResultError> {
        let bytes =
            crate::canonical_json::to_bytes(&value).map_err(|_| ResultError::InvalidPayload)?;
        Ok(ToolResult {
            action_id: value
                .get("action_id")
                .and_then(Value::as_str)
                .map(Arc::from),
            canonical: bytes.into(),
        })
    }
}
