//! Rule: which text a model sees of a tool result.
//!
//! A plain success is its output and nothing around it; everything else is the whole view, so that an
//! error, a cut or an unknown outcome is never mistaken for an output (PRJ-3, PRJ-8).

use qitos_contracts::canonical_json;
use qitos_contracts::limits::MODEL_VIEW_CHARS;
use qitos_contracts::tool::model_view::{ModelView, project};
use qitos_contracts::tool::result::{TerminalStatus, ToolResult};
use serde_json::Value;

/// A result as one text.
///
/// The limit is the widest one: a result was settled with its own when it was recorded, and no later
/// stage adds a cut (PRJ-5).
pub(crate) fn result_text(result: &ToolResult) -> String {
    let view = project(result, MODEL_VIEW_CHARS);
    if !is_plain_success(&view) {
        return view.to_text();
    }
    match view.model_output {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => {
            let bytes = canonical_json::to_bytes(&other).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        }
    }
}

fn is_plain_success(view: &ModelView) -> bool {
    view.status == TerminalStatus::Success
        && view.error.is_none()
        && view.recovery_hint.is_none()
        && view.next_action.is_none()
        && !view.outcome_unknown
        && view.artifacts.is_empty()
        && view.omissions.is_none()
}
