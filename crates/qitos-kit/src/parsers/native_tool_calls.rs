//! `native_tool_calls_v1`: calls come from the provider alone, text is an answer or a mistake (TXT-10, TXT-13).

use qitos_contracts::decision::{
    Choice, DecisionParser, ParseAttempt, ParseCode, ParseDiagnostics, Parsed, Severity,
    ToolListing,
};

use super::grammar::{Grammar, Refusal, within_bound};
use super::json_decision::JsonDecision;
use super::react_text::looks_like_a_call;
use super::xml_decision::XmlDecision;

const PROTOCOL: &str = "native_tool_calls_v1";
const PARSER: &str = "native_tool_calls";

/// What the text of a turn without native calls means.
///
/// # Contract
/// It never returns a call (TXT-13). `no_decision` means that the text is an answer as it stands (TXT-10);
/// `malformed_decision` means that it looks like a call written as text, and is neither run nor an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeToolCalls;

impl DecisionParser for NativeToolCalls {
    fn protocol_id(&self) -> &str {
        PROTOCOL
    }

    fn parser_name(&self) -> &str {
        PARSER
    }

    fn allows_many_calls(&self) -> bool {
        true
    }

    fn parse(&self, text: &str) -> Result<Parsed, Box<ParseDiagnostics>> {
        let refusal = match within_bound(text) {
            Err(refusal) => refusal,
            Ok(()) if looks_like_textual_call(text) => Refusal::malformed(
                "a tool call written as text",
                "Call tools through the tool interface, or answer in plain text without call markup.",
            ),
            Ok(()) => Refusal::none("plain text", "Answer in plain text or call a tool."),
        };
        let severity = if refusal.code == ParseCode::NoDecision {
            Severity::Warning
        } else {
            Severity::Error
        };
        Err(Box::new(ParseDiagnostics {
            code: refusal.code,
            severity,
            summary: refusal.summary.clone(),
            repair_instruction: refusal.repair.to_owned(),
            expected_shape: "a native tool call, or the answer as plain text".to_owned(),
            parser: PARSER.to_owned(),
            protocol: PROTOCOL.to_owned(),
            attempts: vec![ParseAttempt {
                parser: PARSER.to_owned(),
                protocol: PROTOCOL.to_owned(),
                code: refusal.code,
                summary: refusal.summary,
            }],
        }))
    }

    /// Empty: the schemas travel as a parameter of the request.
    fn instructions(&self, _tools: &[ToolListing<'_>]) -> String {
        String::new()
    }
}

fn looks_like_textual_call(text: &str) -> bool {
    let grammars: [&dyn Grammar; 2] = [&JsonDecision, &XmlDecision];
    looks_like_a_call(text)
        || text.contains("<tool_use>")
        || grammars.iter().any(|grammar| match grammar.read(text) {
            Ok(reading) => matches!(reading.decision.choice, Choice::Act { .. }),
            Err(refusal) => refusal.code != ParseCode::NoDecision,
        })
}
