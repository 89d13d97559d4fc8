//! Rule: which text a model sees of a tool result.
//!
//! A plain success is its output and nothing around it; everything else says how the call ended, so
//! that an error is never mistaken for an output.

use qitos_contracts::canonical_json;
use qitos_contracts::tool::result::ToolResult;
use serde_json::{Value, json};

/// A result as one text.
pub(crate) fn result_text(result: &ToolResult) -> String {
    let shown = [result.model_output(), result.output()]
        .into_iter()
        .find(|value| !value.is_null())
        .unwrap_or(&Value::Null);
    let plain = result.success_flag() && !result.truncated() && !result.outcome_unknown();
    if plain && result.artifact_refs().is_empty() {
        return text_of(shown);
    }
    text_of(&json!({
        "status": result.status().as_str(),
        "model_output": shown,
        "error": result.error(),
        "error_code": result.error_code(),
        "recoverable": result.recoverable(),
        "recovery_hint": result.recovery_hint(),
        "outcome_unknown": result.outcome_unknown(),
    }))
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => {
            let bytes = canonical_json::to_bytes(other).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        }
    }
}
