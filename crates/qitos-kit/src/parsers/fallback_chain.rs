//! Rule: which parsers try a text, in which order, and whose verdict counts (TXT-7).

use qitos_contracts::decision::{
    DecisionParser, ParseAttempt, ParseCode, ParseDiagnostics, Parsed, Severity, ToolListing,
};

use super::grammar::{Grammar, Refusal, within_bound};
use super::json_decision::{JsonDecision, JsonDecisionMulti};
use super::react_text::ReactText;
use super::xml_decision::XmlDecision;

/// The parser of one text protocol with its declared fallbacks.
///
/// # Contract
/// That of [`DecisionParser`]. Fallbacks are tried only after *malformed* or *nothing found*: a text with
/// both an action and an answer is ambiguous whoever else might read it (TXT-3).
#[derive(Clone, Copy, Debug)]
pub struct TextParser {
    chosen: &'static dyn Grammar,
    fallbacks: &'static [&'static dyn Grammar],
}

impl TextParser {
    /// `react_text_v1`: labelled lines with one call.
    #[must_use]
    pub const fn react_text() -> Self {
        TextParser {
            chosen: &ReactText,
            fallbacks: &[],
        }
    }

    /// `json_decision_v1`: one JSON object.
    #[must_use]
    pub const fn json_decision() -> Self {
        TextParser {
            chosen: &JsonDecision,
            fallbacks: &[],
        }
    }

    /// `json_decision_multi_v1`: one JSON object, its prompt asks for independent calls.
    #[must_use]
    pub const fn json_decision_multi() -> Self {
        TextParser {
            chosen: &JsonDecisionMulti,
            fallbacks: &[&JsonDecision, &XmlDecision, &ReactText],
        }
    }

    /// `xml_decision_v1`: one `<decision>` element with one call.
    #[must_use]
    pub const fn xml_decision() -> Self {
        TextParser {
            chosen: &XmlDecision,
            fallbacks: &[],
        }
    }

    fn diagnose(&self, attempts: Vec<(&'static dyn Grammar, Refusal)>) -> ParseDiagnostics {
        let decisive = attempts
            .iter()
            .find(|(_, refusal)| refusal.code == ParseCode::AmbiguousDecision)
            .or_else(|| {
                attempts
                    .iter()
                    .find(|(_, refusal)| refusal.code != ParseCode::NoDecision)
            })
            .or_else(|| attempts.first())
            .map(|(grammar, refusal)| (*grammar, refusal.clone()));
        let (grammar, refusal) =
            decisive.unwrap_or_else(|| (self.chosen, Refusal::none("no decision", "")));
        let severity = match refusal.code {
            ParseCode::NoDecision => Severity::Warning,
            _ => Severity::Error,
        };
        // The model is asked for the protocol of the run, also when a fallback gave the verdict.
        let repair_instruction = if grammar.protocol_id() == self.chosen.protocol_id() {
            refusal.repair.to_owned()
        } else {
            format!("{} Use the format below.", refusal.repair)
        };
        ParseDiagnostics {
            code: refusal.code,
            severity,
            summary: refusal.summary,
            repair_instruction,
            expected_shape: self.chosen.expected_shape().to_owned(),
            parser: self.chosen.parser_name().to_owned(),
            protocol: self.chosen.protocol_id().to_owned(),
            attempts: attempts
                .into_iter()
                .map(|(grammar, refusal)| attempt(grammar, refusal))
                .collect(),
        }
    }
}

fn attempt(grammar: &dyn Grammar, refusal: Refusal) -> ParseAttempt {
    ParseAttempt {
        parser: grammar.parser_name().to_owned(),
        protocol: grammar.protocol_id().to_owned(),
        code: refusal.code,
        summary: refusal.summary,
    }
}

impl DecisionParser for TextParser {
    fn protocol_id(&self) -> &str {
        self.chosen.protocol_id()
    }

    fn parser_name(&self) -> &str {
        self.chosen.parser_name()
    }

    fn allows_many_calls(&self) -> bool {
        self.chosen.allows_many_calls()
    }

    fn parse(&self, text: &str) -> Result<Parsed, Box<ParseDiagnostics>> {
        if let Err(refusal) = within_bound(text) {
            return Err(Box::new(self.diagnose(vec![(self.chosen, refusal)])));
        }
        let mut attempts = Vec::new();
        for grammar in std::iter::once(&self.chosen).chain(self.fallbacks) {
            let refusal = match grammar.read(text) {
                Ok(reading) => match reading.decision.validate() {
                    Ok(()) => {
                        return Ok(Parsed {
                            decision: reading.decision,
                            parser: grammar.parser_name().to_owned(),
                            protocol: grammar.protocol_id().to_owned(),
                            salvage_applied: reading.salvaged,
                            values_are_text: grammar.values_are_text(),
                            attempts: attempts
                                .into_iter()
                                .map(|(grammar, refusal): (&dyn Grammar, Refusal)| {
                                    attempt(grammar, refusal)
                                })
                                .collect(),
                        });
                    }
                    Err(invalid) => Refusal::malformed(
                        invalid.problem.to_string(),
                        "Give a complete decision in the expected shape.",
                    ),
                },
                Err(refusal) => refusal,
            };
            let ambiguous = refusal.code == ParseCode::AmbiguousDecision;
            attempts.push((*grammar, refusal));
            if ambiguous {
                break;
            }
        }
        Err(Box::new(self.diagnose(attempts)))
    }

    fn instructions(&self, tools: &[ToolListing<'_>]) -> String {
        self.chosen.instructions(tools)
    }
}
