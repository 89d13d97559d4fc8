//! What one protocol knows: how to read a text, and how to ask for it.

use std::fmt;

use qitos_contracts::canonical_json::ReadLimits;
use qitos_contracts::decision::{Decision, ParseCode, ToolListing};
use qitos_contracts::limits::MAX_DECISION_TEXT_BYTES;
pub(super) use qitos_contracts::tool::registry::is_tool_name;

/// One protocol, without its fallbacks.
pub(super) trait Grammar: fmt::Debug + Send + Sync {
    fn protocol_id(&self) -> &'static str;
    fn parser_name(&self) -> &'static str;
    fn allows_many_calls(&self) -> bool;
    /// Argument values are text that still has to become JSON of the declared type (TXT-5).
    fn values_are_text(&self) -> bool {
        false
    }
    fn expected_shape(&self) -> &'static str;
    fn read(&self, text: &str) -> Result<Reading, Refusal>;
    fn instructions(&self, tools: &[ToolListing<'_>]) -> String;
}

/// A decision and how much of the text it covers.
#[derive(Debug, PartialEq)]
pub(super) struct Reading {
    pub(super) decision: Decision,
    /// The text held more than the decision.
    pub(super) salvaged: bool,
}

/// Why a grammar did not read a text. Both texts are fixed, so nothing of the model's is quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: ParseCode,
    pub(super) summary: String,
    pub(super) repair: &'static str,
}

impl Refusal {
    pub(super) fn none(summary: &str, repair: &'static str) -> Self {
        Refusal {
            code: ParseCode::NoDecision,
            summary: summary.into(),
            repair,
        }
    }

    pub(super) fn malformed(summary: impl Into<String>, repair: &'static str) -> Self {
        Refusal {
            code: ParseCode::MalformedDecision,
            summary: summary.into(),
            repair,
        }
    }

    pub(super) fn ambiguous() -> Self {
        Refusal {
            code: ParseCode::AmbiguousDecision,
            summary: "both an action and a final answer".into(),
            repair: "Either act or answer. If you need a tool, write only the action and wait for its result; \
                     if you are done, write only the final answer.",
        }
    }
}

/// Refuses a text that is larger than a response may be, before anything reads it.
pub(super) fn within_bound(text: &str) -> Result<(), Refusal> {
    if text.len() > MAX_DECISION_TEXT_BYTES {
        Err(Refusal::malformed(
            "text is too large",
            "Write a shorter message.",
        ))
    } else {
        Ok(())
    }
}

/// The bound of one JSON value in a decision: that of one item of the exchange log.
pub(super) const VALUE_LIMITS: ReadLimits = ReadLimits {
    depth: 64,
    nodes: 100_000,
    bytes: MAX_DECISION_TEXT_BYTES,
};

/// A label or key as protocols compare it: lower-case, without space, `_` and `-`.
pub(super) fn folded(label: &str) -> String {
    label
        .chars()
        .filter(|character| !matches!(character, ' ' | '_' | '-'))
        .map(|character| character.to_ascii_lowercase())
        .collect()
}

/// Whether `name` is `[A-Za-z_][A-Za-z0-9_-]*`.
pub(super) fn is_identifier(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
