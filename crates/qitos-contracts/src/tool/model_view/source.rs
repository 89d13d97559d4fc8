//! What a view shows: its source, redacted, and its cut (PRJ-4).

use std::sync::Arc;

use serde_json::Value;

use super::cut::cut_text;
use super::redact::{Redactions, redacted_string, redacted_value};
use super::{Cut, Omissions};
use crate::canonical_json;
use crate::tool::result::ToolResult;

/// Which part of a result its view shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'result> {
    /// A text: a string output, a summary, an error.
    Text(&'result str),
    /// A value that is no string.
    Json(&'result Value),
    /// Nothing at all.
    Nothing,
}

impl<'result> Source<'result> {
    /// `model_output`, else a string `model_summary` inside `output` (CTX-42), else `output`, else `error`.
    pub(super) fn of(result: &'result ToolResult) -> Self {
        let output = result.output();
        let summary = output.get("model_summary").and_then(Value::as_str);
        match (result.model_output(), summary) {
            (Value::Null, Some(summary)) => Source::Text(summary),
            (Value::Null, None) if output.is_null() => match result.error() {
                Some(error) => Source::Text(error),
                None => Source::Nothing,
            },
            (Value::Null, None) => Source::value(output),
            (shown, _) => Source::value(shown),
        }
    }

    pub(super) fn value(value: &'result Value) -> Self {
        match value {
            Value::String(text) => Source::Text(text),
            Value::Null => Source::Nothing,
            _ => Source::Json(value),
        }
    }

    /// Whether it stands in the output, as a whole or as its summary.
    pub(super) fn is_in_output(self, result: &ToolResult) -> bool {
        result.model_output().is_null() && !result.output().is_null()
    }

    /// Whether it is the output as a whole.
    pub(super) fn is_whole_output(self, result: &ToolResult) -> bool {
        self.is_in_output(result) && self == Source::value(result.output())
    }

    /// The bytes that an artifact holds of it.
    pub(super) fn body(self) -> (&'static str, Vec<u8>) {
        match self {
            Source::Text(text) => ("text/plain; charset=utf-8", text.as_bytes().to_vec()),
            Source::Json(value) => (
                "application/json",
                // Results hold nothing that cannot be written.
                canonical_json::to_bytes(value).unwrap_or_default(),
            ),
            Source::Nothing => ("text/plain; charset=utf-8", Vec::new()),
        }
    }
}

/// The source after redaction.
pub(super) enum Shown {
    Text(String),
    Json(Value),
    Nothing,
}

impl Shown {
    pub(super) fn of(result: &ToolResult, redactions: &mut Redactions) -> Self {
        match Source::of(result) {
            Source::Text(text) => Shown::Text(redacted_string(text, redactions)),
            Source::Json(value) => Shown::Json(redacted_value(value, redactions)),
            Source::Nothing => Shown::Nothing,
        }
    }

    /// Cuts to `limit` characters; cut JSON is shown as text. `whereabouts` says where the whole can be read,
    /// and why it is not shown.
    pub(super) fn cut_to(
        &mut self,
        limit: usize,
        whereabouts: impl FnOnce() -> (Option<Arc<str>>, Arc<str>),
    ) -> Option<(Cut, Omissions)> {
        let written;
        let text = match self {
            Shown::Text(text) => text.as_str(),
            Shown::Json(value) => {
                written = String::from_utf8(canonical_json::to_bytes(value).ok()?).ok()?;
                written.as_str()
            }
            Shown::Nothing => return None,
        };
        // A text has at most as many characters as bytes.
        if text.len() <= limit {
            return None;
        }
        let original = text.chars().count();
        if original <= limit {
            return None;
        }
        let (artifact_id, reason) = whereabouts();
        let (shown, kept) = cut_text(text, original, limit, artifact_id.as_deref(), &reason);
        let cut = Cut {
            original: original as u64,
            shown: kept as u64,
        };
        let omissions = Omissions {
            characters: cut.original - cut.shown,
            artifact_id,
            reason,
        };
        *self = Shown::Text(shown);
        Some((cut, omissions))
    }

    /// As one text, JSON in canonical form.
    pub(super) fn into_text(self) -> String {
        match self {
            Shown::Text(text) => text,
            Shown::Json(value) => canonical_json::to_bytes(&value)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .unwrap_or_default(),
            Shown::Nothing => String::new(),
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Shown::Text(text) => Value::String(text),
            Shown::Json(value) => value,
            Shown::Nothing => Value::Null,
        }
    }
}
