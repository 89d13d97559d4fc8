//! Rule: which text a model sees of a tool result.

use qitos_contracts::tool::result::ToolResult;
use serde_json::Value;

/// The projection of a result as one text.
pub(crate) fn result_text(result: &ToolResult) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(result.canonical_bytes()) else {
        return String::new();
    };
    let shown = ["model_output", "output", "error"]
        .into_iter()
        .filter_map(|key| value.get(key))
        .find(|value| !value.is_null());
    match shown {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
