//! Responses answers: whole ones, the last delta, bounds, what a failure shows (PRV-19, PRV-22, PRV-44, PRV-49, PRV-60).

use std::sync::Arc;

use qitos_contracts::log::ParseStatus;
use qitos_contracts::model::*;
use qitos_providers::openai_responses::{ResponsesModel, ResponsesSettings};
use serde_json::{Value, json};

use super::responses_requests::target;
use super::setup::{Deltas, End, Scripted, items, run, view_of};

fn model(transport: Scripted) -> ResponsesModel {
    let mut settings = ResponsesSettings::new(target(), "https://canary.invalid/canary");
    settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
        "canary-sk".into(),
    ));
    settings.with_transport(Arc::new(transport)).unwrap()
}

fn view() -> RequestView {
    view_of(items(Vec::new()), &["add"], target())
}

fn payload(model: &ResponsesModel) -> WirePayload {
    model
        .codec()
        .encode(&view(), model.capabilities(), false)
        .unwrap()
        .0
}

fn decode(body: Value) -> Result<DecodedResponse, Box<ProviderFailure>> {
    let model = model(Scripted::stream(Vec::new(), End::Clean));
    model.codec().decode(RawResponse::whole(body), &view())
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "add", "arguments": arguments})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "content": [{"type": "output_text", "text": text}]})
}

fn completed(output: Value) -> Value {
    json!({"id": "resp_1", "model": "m-1", "status": "completed", "output": output,
           "usage": {"input_tokens": 3, "output_tokens": 4}})
}

fn event(kind: &str, mut fields: Value) -> String {
    fields["type"] = kind.into();
    format!("data: {fields}\n\n")
}

fn text_delta(text: &str) -> String {
    event(
        "response.output_text.delta",
        json!({"output_index": 0, "delta": text}),
    )
}

fn end(output: Value) -> String {
    event("response.completed", json!({"response": completed(output)}))
}

#[test]
fn a_whole_answer_has_its_parts_in_order_prv_18_prv_49() {
    let reasoning =
        json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]});
    let output = json!([
        reasoning,
        message("so"),
        call("one", ""),
        message("then"),
        call("two", "{\"a\":1}")
    ]);
    let decoded = decode(completed(output)).unwrap();
    let kinds: Vec<String> = decoded
        .parts
        .iter()
        .map(|part| match part {
            ResponsePart::Content(block) => block.text.as_deref().unwrap().to_owned(),
            ResponsePart::Reasoning { text, .. } => text.as_deref().unwrap().to_owned(),
            ResponsePart::ToolCall {
                call_id,
                raw_arguments,
                ..
            } => format!("{call_id} {raw_arguments}"),
        })
        .collect();
    assert_eq!(kinds, ["why", "so", "one {}", "then", "two {\"a\":1}"]);
    assert_eq!(decoded.text(), "sothen");
    assert_eq!(decoded.finish.reason, FinishReason::ToolCalls);
    assert_eq!(decoded.finish.raw, "completed");
    assert_eq!(decoded.model_name.as_deref(), Some("m-1"));
    assert_eq!(decoded.usage.unwrap().total_tokens, Some(7));
    let decoded = decode(completed(json!([message("so")]))).unwrap();
    assert_eq!(decoded.finish.reason, FinishReason::Stop);
}

#[test]
fn a_whole_answer_keeps_an_unparsable_call_unexecutable_prv_22() {
    for (arguments, status, error) in [
        (
            "{\"a\":1",
            ParseStatus::MalformedRaw,
            "malformed_arguments_json",
        ),
        ("[1]", ParseStatus::ParsedInvalid, "arguments_not_object"),
    ] {
        let decoded = decode(completed(json!([call("one", arguments)]))).unwrap();
        let ResponsePart::ToolCall {
            parsed_arguments,
            parse_status,
            parse_error,
            ..
        } = &decoded.parts[0]
        else {
            panic!("a call")
        };
        assert_eq!(*parse_status, status);
        assert_eq!(parse_error.as_deref(), Some(error));
        assert!(parsed_arguments.is_none());
    }
}

#[test]
fn a_whole_answer_passes_the_verdict_of_a_stream_prv_49() {
    let with_status = |status: &str, more: Value| {
        let mut body = completed(json!([message("canary")]));
        body["status"] = status.into();
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    let protocol = "provider_stream_protocol_error";
    let cases = [
        (json!("canary"), "provider_response_envelope_invalid", None),
        (
            json!({"choices": [{"message": {"content": "canary"}}]}),
            "provider_response_malformed",
            None,
        ),
        (
            completed(json!("canary")),
            "provider_response_malformed",
            None,
        ),
        (
            completed(json!(["canary"])),
            "provider_response_malformed",
            None,
        ),
        (
            completed(json!([{"type": "message", "content": 7}])),
            "provider_response_malformed",
            None,
        ),
        (
            with_status("", json!({})),
            protocol,
            Some(Violation::MissingTerminal),
        ),
        (
            with_status("in_progress", json!({})),
            protocol,
            Some(Violation::MissingTerminal),
        ),
        (
            with_status("queued", json!({"output": null})),
            protocol,
            Some(Violation::MissingTerminal),
        ),
        (
            with_status("cancelled", json!({})),
            protocol,
            Some(Violation::UnknownTerminal),
        ),
        (
            with_status("canary", json!({})),
            protocol,
            Some(Violation::UnknownTerminal),
        ),
        (
            with_status(
                "incomplete",
                json!({"incomplete_details": {"reason": "max_output_tokens"}}),
            ),
            "provider_response_incomplete",
            None,
        ),
        (
            with_status(
                "incomplete",
                json!({"incomplete_details": {"reason": "content_filter"}}),
            ),
            "provider_refusal",
            None,
        ),
        (
            with_status(
                "failed",
                json!({"error": {"code": "rate_limit_exceeded", "message": "canary"}}),
            ),
            "provider_rate_limited",
            None,
        ),
        (
            with_status("failed", json!({})),
            "provider_server_error",
            None,
        ),
        (
            json!({"error": {"code": "server_error", "message": "canary"}}),
            "provider_server_error",
            None,
        ),
        (
            completed(
                json!([{"type": "message", "content": [{"type": "refusal", "refusal": "canary"}]}]),
            ),
            "provider_refusal",
            None,
        ),
        (
            completed(json!([{"type": "shell_call", "call_id": "canary"}])),
            protocol,
            Some(Violation::UnsupportedClientAction),
        ),
        (
            completed(json!([call("", "{}")])),
            protocol,
            Some(Violation::ToolIdentityMissing),
        ),
        (
            completed(json!([call("one", "{}"), call("one", "{}")])),
            protocol,
            Some(Violation::ToolIdentityConflict),
        ),
        (
            completed(
                json!([{"type": "function_call", "call_id": "one", "name": "add", "arguments": "{}", "status": "incomplete"}]),
            ),
            protocol,
            Some(Violation::IncompleteToolInput),
        ),
    ];
    for (body, code, violation) in cases {
        let failure = decode(body.clone()).unwrap_err();
        assert_eq!(failure.error_code, code, "{body}");
        assert_eq!(failure.redacted_details.violation, violation, "{body}");
        assert_eq!(failure.request_sent, RequestSent::Yes);
        let shown = serde_json::to_string(&failure).unwrap() + &format!("{failure} {failure:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
    let failure = decode(with_status("incomplete", json!({}))).unwrap_err();
    assert_eq!(failure.redacted_details.partial_text_characters, 6);
    assert_eq!(
        failure.redacted_details.usage.unwrap().prompt_tokens,
        Some(3),
        "PRV-75"
    );
    assert_eq!(failure.category, FailureCategory::Stream);
    assert!(!failure.retryable);
}

#[test]
fn text_that_only_the_snapshot_carries_is_the_last_delta_prv_19_prv_r19() {
    let body = text_delta("ab") + &end(json!([message("abc")]));
    let model = model(Scripted::stream(vec![body.into_bytes()], End::Clean));
    let mut deltas = Deltas::default();
    let raw = run(model.send(payload(&model), Some(&mut deltas))).unwrap();
    assert_eq!(deltas.0, ["ab", "c"]);
    assert!(raw.streamed);
    let decoded = model.codec().decode(raw, &view()).unwrap();
    assert_eq!(decoded.text(), "abc");
}

#[test]
fn nothing_of_a_failed_stream_is_shown_prv_44() {
    let canary = "canary";
    let bodies = [
        event(
            "response.failed",
            json!({"response": {"error": {"code": canary, "message": canary}}}),
        ),
        event(
            "error",
            json!({"code": canary, "message": canary, "param": canary}),
        ),
        text_delta(canary) + &end(json!([message("other")])),
        event(
            "response.output_item.done",
            json!({"item": {"type": "computer_call", "id": canary}}),
        ),
        event("response.refusal.delta", json!({"delta": canary})),
        end(json!([call(canary, canary)])),
    ];
    for body in bodies {
        let model = model(Scripted::stream(vec![body.into_bytes()], End::Clean));
        let outcome = run(model.send(payload(&model), Some(&mut Deltas::default())));
        let Err(ProviderError::Failure(failure)) = outcome else {
            panic!("a failure")
        };
        let json = serde_json::to_string(&failure).unwrap();
        let error = ProviderError::from(*failure);
        let mut shown = format!("{error} {error:?} {json}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            shown.push_str(&format!("{cause} {cause:?}"));
            source = cause.source();
        }
        assert!(!shown.contains(canary), "{shown}");
    }
}

#[test]
fn status_lines_and_faults_are_classified_alike_prv_40_prv_41() {
    for (status, word, code, retryable) in [
        (400, "invalid_prompt", "provider_request_rejected", false),
        (
            401,
            "invalid_api_key",
            "provider_authentication_failed",
            false,
        ),
        (429, "insufficient_quota", "provider_quota_exhausted", false),
        (429, "rate_limit_exceeded", "provider_rate_limited", true),
        (500, "server_error", "provider_server_error", true),
    ] {
        let error = json!({"error": {"code": word, "message": "canary"}}).to_string();
        let mut transport = Scripted::stream(vec![error.into_bytes()], End::Clean);
        transport.status = status;
        transport.headers = vec![("content-type".into(), "application/json".into())];
        let model = model(transport);
        let outcome = run(model.send(payload(&model), Some(&mut Deltas::default())));
        let Err(ProviderError::Failure(failure)) = outcome else {
            panic!("a failure")
        };
        assert_eq!(
            (failure.error_code.as_str(), failure.retryable),
            (code, retryable)
        );
        assert_eq!(failure.status_code, Some(status));
    }
}

fn violation_of(body: String) -> Option<Violation> {
    let model = model(Scripted::stream(vec![body.into_bytes()], End::Clean));
    match run(model.send(payload(&model), Some(&mut Deltas::default()))) {
        Ok(raw) => {
            model.codec().decode(raw, &view()).unwrap();
            None
        }
        Err(ProviderError::Failure(failure)) => failure.redacted_details.violation,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn bounds_hold_at_their_edge_prv_60() {
    const OVER: Option<Violation> = Some(Violation::LimitExceeded);
    let mebibyte = 1024 * 1024;
    for (count, expected) in [(127, None), (128, None), (129, OVER)] {
        let calls: Vec<Value> = (0..count).map(|n| call(&format!("c{n}"), "{}")).collect();
        assert_eq!(
            violation_of(end(calls.clone().into())),
            expected,
            "{count} calls"
        );
        let done: String = (0..)
            .zip(calls)
            .map(|(index, item): (u64, Value)| {
                event(
                    "response.output_item.done",
                    json!({"output_index": index, "item": item}),
                )
            })
            .collect();
        assert_eq!(
            violation_of(done + &end(json!([]))),
            expected,
            "{count} calls done"
        );
    }
    for (count, expected) in [(1_023, None), (1_024, None), (1_025, OVER)] {
        let items: Vec<Value> = (0..count).map(|_| message("")).collect();
        assert_eq!(violation_of(end(items.into())), expected, "{count} items");
        let parts: String = (0..count)
            .map(|part| {
                event(
                    "response.output_text.done",
                    json!({"output_index": 0, "content_index": part, "text": ""}),
                )
            })
            .collect();
        assert_eq!(
            violation_of(parts + &end(json!([]))),
            expected,
            "{count} parts"
        );
    }
    for (length, expected) in [(mebibyte - 1, None), (mebibyte, None), (mebibyte + 1, OVER)] {
        let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
        let snapshot = end(json!([call("one", &arguments)]));
        assert_eq!(
            violation_of(snapshot.clone()),
            expected,
            "{length} bytes whole"
        );
        let (left, right) = arguments.split_at(length / 2);
        let piece = |text: &str| {
            event(
                "response.function_call_arguments.delta",
                json!({"output_index": 0, "delta": text}),
            )
        };
        let body = piece(left) + &piece(right) + &snapshot;
        assert_eq!(violation_of(body), expected, "{length} bytes in pieces");
    }
    for (length, expected) in [
        (4 * mebibyte - 1, None),
        (4 * mebibyte, None),
        (4 * mebibyte + 1, OVER),
    ] {
        let half = length / 2;
        let thought = event(
            "response.reasoning_text.delta",
            json!({"output_index": 0, "delta": "x".repeat(length - half)}),
        );
        let body = text_delta(&"x".repeat(half)) + &thought + &end(json!([]));
        assert_eq!(violation_of(body), expected, "{length} bytes");
    }
    // Items that are kept beside the deltas, in bytes of their events.
    let item = |length: usize| {
        let empty = event(
            "response.output_item.done",
            json!({"output_index": 0, "item": {"type": "x", "data": ""}}),
        );
        let data = "x".repeat(length - (empty.len() - "data: \n\n".len()) - 1);
        event(
            "response.output_item.done",
            json!({"output_index": 0, "item": {"type": "x", "data": data}}),
        )
    };
    let half = 4 * mebibyte;
    for (length, expected) in [(half - 1, None), (half, None), (half + 1, OVER)] {
        let body = item(half) + &item(length).replace("\"output_index\":0", "\"output_index\":1");
        assert_eq!(
            violation_of(body + &end(json!([]))),
            expected,
            "{length} bytes kept"
        );
    }
    // An answer that grows beyond a log item when it is written.
    let escaped = text_delta(&"\u{1}".repeat(mebibyte / 2));
    assert_eq!(violation_of(escaped.repeat(2) + &end(json!([]))), None);
    assert_eq!(violation_of(escaped.repeat(3) + &end(json!([]))), OVER);
}
