//! The golden corpus (TCK-35) and what holds for every text.

use std::path::PathBuf;
use std::time::Instant;

use proptest::prelude::*;
use qitos_contracts::decision::{
    Choice, Decision, DecisionParser, ParseCode, Severity, ToolListing,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ProtocolRegistry;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    name: String,
    #[serde(rename = "rule")]
    _rule: String,
    text: String,
    decision: Value,
    #[serde(default)]
    salvage_applied: bool,
    read_by: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    name: String,
    #[serde(rename = "rule")]
    _rule: String,
    text: String,
    code: ParseCode,
    summary: String,
    attempts: Option<Vec<ParseCode>>,
}

fn corpus<T: for<'de> Deserialize<'de>>(protocol: &str, list: &str) -> Vec<T> {
    let path: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../fixtures/text-protocols",
        protocol,
        &format!("{list}.json"),
    ]
    .iter()
    .collect();
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn tck_35_every_protocol_accepts_its_corpus() {
    let registry = ProtocolRegistry::builtin();
    for protocol in registry.protocols() {
        let parser = registry.get(protocol).unwrap();
        for case in corpus::<Accepted>(protocol, "accepted") {
            let parsed = parser
                .parse(&case.text)
                .unwrap_or_else(|error| panic!("{protocol}/{}: {error}", case.name));
            let decision: Decision = serde_json::from_value(case.decision).unwrap();
            assert_eq!(parsed.decision, decision, "{protocol}/{}", case.name);
            assert_eq!(
                parsed.salvage_applied, case.salvage_applied,
                "{protocol}/{}",
                case.name
            );
            let read_by = case.read_by.as_deref().unwrap_or(protocol);
            assert_eq!(parsed.protocol, read_by, "{protocol}/{}", case.name);
            assert_eq!(
                parsed.attempts.is_empty(),
                read_by == protocol,
                "{protocol}/{}",
                case.name
            );
            assert_eq!(parsed.values_are_text, read_by == "xml_decision_v1");
        }
    }
}

#[test]
fn tck_35_every_protocol_refuses_its_corpus() {
    let registry = ProtocolRegistry::builtin();
    for protocol in registry.protocols() {
        let parser = registry.get(protocol).unwrap();
        for case in corpus::<Refused>(protocol, "refused") {
            let diagnostics = match parser.parse(&case.text) {
                Err(diagnostics) => diagnostics,
                Ok(parsed) => panic!("{protocol}/{} was read: {parsed:?}", case.name),
            };
            assert_eq!(
                (diagnostics.code, diagnostics.summary.as_str()),
                (case.code, case.summary.as_str()),
                "{protocol}/{}",
                case.name
            );
            let warning = diagnostics.severity == Severity::Warning;
            assert_eq!(
                warning,
                case.code == ParseCode::NoDecision,
                "{protocol}/{}",
                case.name
            );
            assert_eq!(
                (diagnostics.protocol.as_str(), diagnostics.parser.as_str()),
                (protocol, parser.parser_name())
            );
            assert!(
                !diagnostics.repair_instruction.is_empty()
                    && !diagnostics.expected_shape.is_empty()
            );
            if let Some(attempts) = case.attempts {
                let codes: Vec<ParseCode> = diagnostics
                    .attempts
                    .iter()
                    .map(|attempt| attempt.code)
                    .collect();
                assert_eq!(codes, attempts, "{protocol}/{}", case.name);
            }
        }
    }
}

#[test]
fn txt_12_a_prompt_lists_the_tools_with_the_schema_of_the_manifest() {
    let schema = json!({"type": "object", "properties": {"index": {"type": "integer"}}});
    let tools = [ToolListing {
        name: "summarize_note",
        description: "Summarizes a note.",
        input_schema: &schema,
    }];
    let registry = ProtocolRegistry::builtin();
    for protocol in registry.protocols() {
        let text = registry.get(protocol).unwrap().instructions(&tools);
        if protocol == "native_tool_calls_v1" {
            assert_eq!(text, "");
        } else {
            assert!(
                text.contains("- summarize_note: Summarizes a note.\n"),
                "{protocol}"
            );
            assert!(
                text.contains(
                    "{\"properties\":{\"index\":{\"type\":\"integer\"}},\"type\":\"object\"}"
                ),
                "{protocol}"
            );
        }
    }
}

#[test]
fn every_shape_that_is_asked_for_is_accepted() {
    let registry = ProtocolRegistry::builtin();
    for protocol in registry.protocols() {
        let parser = registry.get(protocol).unwrap();
        let shape = parser.parse("").unwrap_err().expected_shape;
        if let Some((act, answer)) = shape.split_once("\n\nor\n\n") {
            assert!(
                matches!(
                    parser.parse(act).unwrap().decision.choice,
                    Choice::Act { .. }
                ),
                "{protocol}"
            );
            assert!(
                matches!(
                    parser.parse(answer).unwrap().decision.choice,
                    Choice::Final { .. }
                ),
                "{protocol}"
            );
        }
    }
}

#[test]
fn texts_are_bounded_at_the_limit() {
    let limit = qitos_contracts::limits::MAX_DECISION_TEXT_BYTES;
    let parser = super::TextParser::react_text();
    let label = "Answer: ";
    for (length, fits) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
        let text = format!("{label}{}", "x".repeat(length - label.len()));
        assert_eq!(parser.parse(&text).is_ok(), fits, "{length}");
    }
}

#[test]
fn diagnostics_quote_nothing_of_the_text() {
    let registry = ProtocolRegistry::builtin();
    for protocol in registry.protocols() {
        for text in [
            "Action: sesame(sesame=sesame",
            "{\"action\": \"sesame\", \"sesame\": {\"sesame\": 1}}",
            "<decision mode=\"sesame\"><sesame/></decision>",
        ] {
            let diagnostics = registry.get(protocol).unwrap().parse(text).unwrap_err();
            assert!(
                !format!("{diagnostics:?}").contains("sesame"),
                "{protocol}: {text}"
            );
        }
    }
}

/// Texts that make careless readers quadratic.
fn hostile(length: usize) -> Vec<(&'static str, String)> {
    let fill = |part: &str| part.repeat(length / part.len());
    vec![
        ("labels", fill("Thought: a\n")),
        ("actions", fill("Action: f(a=1)\n")),
        ("open_brackets", format!("Action: f(a={}", fill("["))),
        ("arguments", format!("Action: f({}", fill("a=[1],"))),
        ("quotes", format!("Action: f(a={}", fill("'\\'"))),
        ("colons", fill(":")),
        ("stars", fill("*")),
        ("short_lines", fill("* \n")),
        ("braces", fill("{")),
        ("pairs_of_braces", fill("{}")),
        ("objects", fill("{\"final_answer\":\"a\"}")),
        ("fences", fill("```\n{}\n")),
        (
            "fenced_objects",
            fill("```\n{\"final_answer\":\"a\"}\n```\n"),
        ),
        (
            "keys",
            format!(
                "{{{}\"z\":1}}",
                (0..length / 10)
                    .map(|n| format!("\"{n:06}\":1,"))
                    .collect::<String>()
            ),
        ),
        ("tags", fill("<decision>")),
        ("attributes", format!("<decision {}", fill("a='1' "))),
        ("entities", format!("<decision><think>{}", fill("&lt;"))),
        ("ampersands", format!("<decision><think>{}", fill("&"))),
        ("cdata", format!("<decision><think>{}", fill("<![CDATA["))),
        ("closing", format!("<decision>{}", fill(">"))),
        (
            "thoughts",
            format!("<decision>{}", fill("<think>a</think>")),
        ),
    ]
}

#[test]
fn hostile_texts_cost_in_proportion_to_their_length() {
    let registry = ProtocolRegistry::builtin();
    let time = |parser: &dyn DecisionParser, text: &str| {
        let start = Instant::now();
        let _ = std::hint::black_box(parser.parse(std::hint::black_box(text)));
        start.elapsed().as_secs_f64()
    };
    // 64 times the text: linear work costs 64 times as much, quadratic 4096 times. The bound lies between, far
    // enough from both for a busy machine.
    let (small, large) = (hostile(2_000), hostile(128_000));
    for protocol in registry.protocols() {
        let parser = registry.get(protocol).unwrap();
        for ((name, small), (_, large)) in small.iter().zip(&large) {
            let ratio = (0..4)
                .map(|_| time(&*parser, large) / time(&*parser, small).max(1e-6))
                .find(|ratio| *ratio < 640.0);
            assert!(ratio.is_some(), "{protocol}/{name}");
        }
    }
}

/// Pieces that protocols care about, so that random texts reach deep into the readers.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "Action:",
            "\nAction: ",
            "Final Answer:",
            "\nThought: ",
            "f(",
            ")",
            "a=",
            ",",
            "'",
            "\"",
            "\\",
            "[",
            "]",
            "{",
            "}",
            "{\"action\":",
            "{\"name\":\"f\",\"args\":{}}",
            "\"final_answer\":",
            "\"mode\":\"wait\"",
            ":",
            "```json\n",
            "\n```\n",
            "<decision mode=\"act\">",
            "</decision>",
            "<action name='f'>",
            "</action>",
            "<arg name=\"a\">",
            "</arg>",
            "<final_answer/>",
            "<think>",
            "</think>",
            "&lt;",
            "&#x41;",
            "&",
            "<![CDATA[",
            "]]>",
            "<!",
            "/>",
            "True",
            "None",
            "1",
            "-2.5e3",
            "null",
            "\u{e9}",
            "\u{1f980}",
            "\r\n",
            "\0",
            " ",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic_or_return_an_invalid_decision(text in pieces()) {
        let registry = ProtocolRegistry::builtin();
        for protocol in registry.protocols() {
            match registry.get(protocol).unwrap().parse(&text) {
                Ok(parsed) => {
                    prop_assert_eq!(parsed.decision.validate(), Ok(()));
                    prop_assert!(protocol != "native_tool_calls_v1", "TXT-13");
                }
                Err(diagnostics) => prop_assert!(!diagnostics.attempts.is_empty()),
            }
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_never_another_call(cut in 0usize..200) {
        let registry = ProtocolRegistry::builtin();
        for (protocol, text) in [
            ("react_text_v1", "Thought: é\nAction: write(path=\"a, b)\", text='it\\'s', list=[{\"k\": \")\"}], n=12)"),
            ("json_decision_v1", "{\"thought\": \"é\", \"actions\": [{\"name\": \"write\", \"args\": {\"n\": 12}}]}"),
            ("xml_decision_v1", "<decision mode=\"act\"><action name=\"write\"><arg name=\"a\">12</arg></action></decision>"),
        ] {
            let whole = registry.get(protocol).unwrap().parse(text).unwrap().decision;
            let Some((head, _)) = text.split_at_checked(cut) else { continue };
            if let Ok(parsed) = registry.get(protocol).unwrap().parse(head) {
                prop_assert_eq!(parsed.decision, whole, "{}", head);
            }
        }
    }
}
