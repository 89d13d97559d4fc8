//! The contract of text-protocol parsers: text in, one decision or diagnostics out (TXT-1 to TXT-8, TXT-12).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decision::Decision;
use crate::error::{ContractError, Performed, Retry};

/// Reads decisions out of a model's text by one protocol.
///
/// # Contract
/// `parse` is pure, deterministic and linear in the length of the text, whatever the text is; it never
/// panics and never guesses: what it cannot read exactly is malformed (TXT-2). A returned decision has
/// passed [`Decision::validate`]. Declared fallbacks are tried inside `parse`, in order, each recorded
/// (TXT-7). It reads the text of a turn that ended normally; whether a turn may act at all is the engine's
/// question (TXT-9).
pub trait DecisionParser: fmt::Debug + Send + Sync + 'static {
    /// The protocol, such as `react_text_v1`.
    fn protocol_id(&self) -> &str;

    /// The name of this parser in diagnostics and records.
    fn parser_name(&self) -> &str;

    /// Whether one text may ask for more than one call.
    fn allows_many_calls(&self) -> bool;

    /// Reads the one decision that the text holds.
    ///
    /// # Errors
    /// [`ParseDiagnostics`] with `no_decision`, `malformed_decision` or `ambiguous_decision`; no tool runs
    /// (TXT-7).
    fn parse(&self, text: &str) -> Result<Parsed, Box<ParseDiagnostics>>;

    /// The prompt text that explains the protocol and lists the tools.
    ///
    /// `tools` come from the frozen manifest (TXT-12), in its order; equal lists give equal text.
    fn instructions(&self, tools: &[ToolListing<'_>]) -> String;
}

/// One tool as a prompt shows it, borrowed from the frozen manifest (TXT-12).
#[derive(Clone, Copy, Debug)]
pub struct ToolListing<'a> {
    /// The canonical name: what a text protocol's call must spell exactly (REG-4).
    pub name: &'a str,
    /// The tool's `prompt` if it has one, else its description.
    pub description: &'a str,
    /// The input schema, exactly the one that a native request would send.
    pub input_schema: &'a Value,
}

/// A text that could be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// What it decides; validated.
    pub decision: Decision,
    /// The parser that succeeded: the chosen one or one of its fallbacks.
    pub parser: String,
    /// That parser's protocol.
    pub protocol: String,
    /// The decision was cut out of surrounding text (TXT-4); to be flagged in the record.
    pub salvage_applied: bool,
    /// The values are text out of markup: [`apply_declared_types`](super::apply_declared_types) goes before
    /// any gate (TXT-5).
    pub values_are_text: bool,
    /// The parsers that failed before, in order (TXT-7); empty when the chosen one succeeded.
    pub attempts: Vec<ParseAttempt>,
}

/// One parser's failure, as recorded in diagnostics (TXT-7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParseAttempt {
    /// The parser.
    pub parser: String,
    /// Its protocol.
    pub protocol: String,
    /// Its verdict.
    pub code: ParseCode,
    /// The verdict in words.
    pub summary: String,
}

/// Why a text gave no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParseCode {
    /// Nothing in the text looks like an attempt at the protocol: plain prose (TXT-10: it may be an answer).
    NoDecision,
    /// An attempt at the protocol that cannot be read exactly (TXT-2, TXT-4, TXT-6).
    MalformedDecision,
    /// Both an action and a final answer (TXT-3).
    AmbiguousDecision,
}

impl ParseCode {
    /// The stable code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ParseCode::NoDecision => "no_decision",
            ParseCode::MalformedDecision => "malformed_decision",
            ParseCode::AmbiguousDecision => "ambiguous_decision",
        }
    }
}

impl fmt::Display for ParseCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// How much a diagnosis weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The text is no attempt at a decision; a caller that accepts plain answers may take it as one.
    Warning,
    /// The text must not be acted on and is not an answer.
    Error,
}

/// Why a text gave no decision, and what the model should do about it (TXT-7).
///
/// The texts quote nothing of what the model wrote, so they are safe in records of any privacy view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{protocol}: {summary}")]
#[serde(deny_unknown_fields)]
pub struct ParseDiagnostics {
    /// The verdict of the chosen parser, or of a fallback that recognised its own protocol where the
    /// chosen one saw only prose.
    pub code: ParseCode,
    /// Its weight.
    pub severity: Severity,
    /// What is wrong, one lower-case fragment.
    pub summary: String,
    /// What the model should do, as a sentence to it.
    pub repair_instruction: String,
    /// The shape that would have been accepted.
    pub expected_shape: String,
    /// The parser chosen for the run.
    pub parser: String,
    /// The protocol chosen for the run.
    pub protocol: String,
    /// Every parser tried, in order, the chosen one first.
    pub attempts: Vec<ParseAttempt>,
}

impl ParseDiagnostics {
    /// The text of the steering item that goes back to the model (TXT-7, `source = engine.repair`).
    #[must_use]
    pub fn feedback(&self) -> String {
        format!(
            "Your last message could not be used ({}): {}. No tool was run.\n{}\nExpected:\n{}",
            self.code, self.summary, self.repair_instruction, self.expected_shape
        )
    }
}

impl ContractError for ParseDiagnostics {
    fn code(&self) -> &str {
        self.code.as_str()
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn txt_7_diagnostics_have_exactly_the_specified_fields() {
        let diagnostics = ParseDiagnostics {
            code: ParseCode::AmbiguousDecision,
            severity: Severity::Error,
            summary: "both an action and a final answer".into(),
            repair_instruction: "Write one of them.".into(),
            expected_shape: "Action: tool(key=value)".into(),
            parser: "react_text".into(),
            protocol: "react_text_v1".into(),
            attempts: vec![],
        };
        let value = serde_json::to_value(&diagnostics).unwrap();
        let keys: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut wanted = [
            "code",
            "severity",
            "summary",
            "repair_instruction",
            "expected_shape",
            "parser",
            "protocol",
            "attempts",
        ];
        wanted.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, wanted);
        assert_eq!(value["code"], ContractError::code(&diagnostics));
        let back: ParseDiagnostics = serde_json::from_value(value).unwrap();
        assert_eq!(back, diagnostics);
        assert!(diagnostics.feedback().contains("ambiguous_decision"));
    }
}
