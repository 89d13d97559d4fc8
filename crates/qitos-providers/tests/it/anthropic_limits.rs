//! The bounds of a Messages answer at their edge (PRV-60).

use std::sync::Arc;

use qitos_contracts::model::*;
use qitos_providers::anthropic::AnthropicSettings;
use serde_json::{Value, json};

use super::anthropic_requests::target;
use super::setup::{Deltas, End, Scripted, items, run, view_of};

fn event(value: Value) -> String {
    format!("data: {value}\n\n")
}

fn violation(blocks: &str, stop_reason: &str) -> Option<Violation> {
    let mut body = event(json!({"type": "message_start", "message": {}}));
    body.push_str(blocks);
    body += &event(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}}));
    body += &event(json!({"type": "message_stop"}));
    let transport = Scripted::stream(vec![body.into_bytes()], End::Clean);
    let settings = AnthropicSettings::new(target(), "https://offline.invalid");
    let model = settings.with_transport(Arc::new(transport)).unwrap();
    let view = view_of(items(Vec::new()), &["add"], target());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    match run(model.send(payload, Some(&mut Deltas::default()))) {
        Ok(_) => None,
        Err(ProviderError::Failure(failure)) => failure.redacted_details.violation,
        Err(other) => panic!("{other:?}"),
    }
}

fn block(index: usize, start: Value, deltas: &[Value]) -> String {
    let mut body =
        event(json!({"type": "content_block_start", "index": index, "content_block": start}));
    for delta in deltas {
        body += &event(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    body + &event(json!({"type": "content_block_stop", "index": index}))
}

const LIMIT: Option<Violation> = Some(Violation::LimitExceeded);

fn around(limit: usize) -> [(usize, Option<Violation>); 3] {
    [(limit - 1, None), (limit, None), (limit + 1, LIMIT)]
}

#[test]
fn calls_and_blocks_are_counted_prv_60() {
    for (count, expected) in around(128) {
        let calls: String = (0..count)
            .map(|index| {
                let id = format!("toolu_{index}");
                block(
                    index,
                    json!({"type": "tool_use", "id": id, "name": "add"}),
                    &[],
                )
            })
            .collect();
        assert_eq!(violation(&calls, "tool_use"), expected, "{count} calls");
    }
    for (count, expected) in around(4_096) {
        let texts: String = (0..count)
            .map(|index| block(index, json!({"type": "text", "text": ""}), &[]))
            .collect();
        assert_eq!(violation(&texts, "end_turn"), expected, "{count} blocks");
    }
}

#[test]
fn arguments_are_measured_in_both_places_prv_60() {
    for (length, expected) in around(1024 * 1024) {
        let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
        let (left, right) = arguments.split_at(length / 2);
        let piece = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
        let start = json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}});
        let pieces = block(0, start, &[piece(left), piece(right)]);
        assert_eq!(violation(&pieces, "tool_use"), expected, "{length} bytes");
        let input: Value = serde_json::from_str(&arguments).unwrap();
        let start = json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": input});
        let whole = block(0, start, &[]);
        assert_eq!(violation(&whole, "tool_use"), expected, "{length} bytes");
    }
}

#[test]
fn text_reasoning_and_signatures_are_measured_together_prv_60() {
    for (length, expected) in around(4 * 1024 * 1024) {
        let part = length / 4;
        let thinking = block(
            0,
            json!({"type": "thinking", "thinking": "x".repeat(part), "signature": ""}),
            &[
                json!({"type": "thinking_delta", "thinking": "x".repeat(part)}),
                json!({"type": "signature_delta", "signature": "x".repeat(part)}),
            ],
        );
        let rest = "x".repeat(length - 3 * part);
        let text = block(
            1,
            json!({"type": "text", "text": ""}),
            &[json!({"type": "text_delta", "text": rest})],
        );
        assert_eq!(
            violation(&(thinking + &text), "end_turn"),
            expected,
            "{length} bytes"
        );
    }
}

#[test]
fn server_blocks_and_citations_count_with_their_events_prv_60() {
    let mebibyte = "x".repeat(1024 * 1024);
    for (count, expected) in [(3, None), (4, LIMIT)] {
        let natives: String = (0..count)
            .map(|index| block(index, json!({"type": "hologram", "data": mebibyte}), &[]))
            .collect();
        assert_eq!(violation(&natives, "end_turn"), expected, "{count} blocks");
        let citation = json!({"type": "citations_delta", "citation": {"cited_text": mebibyte}});
        let cited = block(
            0,
            json!({"type": "text", "text": ""}),
            &vec![citation; count],
        );
        assert_eq!(violation(&cited, "end_turn"), expected, "{count} citations");
    }
}
