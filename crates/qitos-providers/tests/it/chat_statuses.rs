//! Status lines, transport failures and what a failure may say (PRV-39 to PRV-44, PRV-60, PRV-75).

use std::sync::Arc;

use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::model::*;
use qitos_providers::http::TransportError;
use qitos_providers::openai_chat::ChatSettings;
use qitos_providers::scripted::{ScriptedModel, Step};
use serde_json::{Value, json};

use super::setup::{Deltas, End, Scripted, items, run, target, view_of};

fn failure_of(transport: Scripted, streaming: bool) -> Box<ProviderFailure> {
    let settings = ChatSettings::new(target(), "https://offline.invalid/v1");
    let model = settings.with_transport(Arc::new(transport)).unwrap();
    failure(&model, streaming)
}

fn failure(model: &dyn Model, streaming: bool) -> Box<ProviderFailure> {
    let view = view_of(items(Vec::new()), &["add"], (**model.target()).clone());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    let mut deltas = Deltas::default();
    let sink = streaming.then_some(&mut deltas as &mut dyn DeltaSink);
    match run(model.send(payload, sink)) {
        Err(ProviderError::Failure(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Scripted {
    let mut transport = Scripted::stream(vec![body.as_bytes().to_vec()], End::Clean);
    transport.status = status;
    transport.headers = headers
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    transport
}

#[test]
fn a_status_line_gives_its_row_prv_40() {
    let quota = r#"{"error":{"code":"insufficient_quota","message":"sk-canary"}}"#;
    for (code, body, category, error_code, stage, retryable) in [
        (
            400,
            "{}",
            "provider_rejection",
            "provider_request_rejected",
            "provider_rejection",
            false,
        ),
        (
            404,
            "",
            "provider_rejection",
            "provider_request_rejected",
            "provider_rejection",
            false,
        ),
        (
            302,
            "",
            "provider_rejection",
            "provider_request_rejected",
            "provider_rejection",
            false,
        ),
        (
            401,
            "{}",
            "authentication",
            "provider_authentication_failed",
            "authentication",
            false,
        ),
        (
            403,
            "{}",
            "authentication",
            "provider_authentication_failed",
            "authentication",
            false,
        ),
        (
            402,
            "{}",
            "rate_limit",
            "provider_quota_exhausted",
            "rate_limit",
            false,
        ),
        (
            429,
            quota,
            "rate_limit",
            "provider_quota_exhausted",
            "rate_limit",
            false,
        ),
        (
            429,
            "not json",
            "rate_limit",
            "provider_rate_limited",
            "rate_limit",
            true,
        ),
        (408, "{}", "timeout", "provider_timeout", "timeout", true),
        (
            409,
            "{}",
            "provider_rejection",
            "provider_request_rejected",
            "provider_rejection",
            true,
        ),
        (
            425,
            "{}",
            "provider_rejection",
            "provider_request_rejected",
            "provider_rejection",
            true,
        ),
        (
            413,
            "{}",
            "provider_rejection",
            "provider_request_too_large",
            "provider_rejection",
            false,
        ),
        (
            500,
            "{}",
            "provider_server",
            "provider_server_error",
            "provider_server",
            true,
        ),
        (
            504,
            "{}",
            "provider_server",
            "provider_server_error",
            "provider_server",
            true,
        ),
        (
            529,
            "{}",
            "provider_server",
            "provider_overloaded",
            "provider_server",
            true,
        ),
        (
            599,
            "{}",
            "provider_server",
            "provider_server_error",
            "provider_server",
            false,
        ),
    ] {
        for streaming in [false, true] {
            let failure = failure_of(status(code, &[], body), streaming);
            assert_eq!(failure.category.as_str(), category, "{code}");
            assert_eq!(failure.error_code, error_code, "{code}");
            assert_eq!(failure.stage.as_str(), stage, "{code}");
            assert_eq!(failure.retryable, retryable, "{code}");
            assert_eq!(failure.status_code, Some(code));
            assert_eq!(failure.performed(), Performed::Yes);
            assert!(!format!("{failure:?}").contains("canary"));
        }
    }
}

#[test]
fn the_wait_a_provider_asks_for_is_kept_prv_87() {
    for (name, value, expected) in [
        ("retry-after", "7", Some(7_000)),
        ("retry-after", "0.5", Some(500)),
        ("retry-after-ms", "250", Some(250)),
        ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("retry-after", "-1", None),
        ("retry-after", "NaN", None),
        ("retry-after", "1e300", Some(86_400_000)),
    ] {
        let failure = failure_of(status(429, &[(name, value)], "{}"), true);
        assert_eq!(failure.redacted_details.retry_after_ms, expected, "{value}");
        let retry = if expected.is_some() {
            Retry::AfterDelay
        } else {
            Retry::SameRequest
        };
        assert_eq!(failure.retry(), retry);
    }
}

#[test]
fn an_error_body_is_read_for_its_words_only_so_far() {
    let words = r#"{"error":{"code":"insufficient_quota","message":""#;
    for (length, code) in [
        (64 * 1024 - 1, "provider_quota_exhausted"),
        (64 * 1024, "provider_quota_exhausted"),
        (64 * 1024 + 1, "provider_rate_limited"),
    ] {
        let padding = "x".repeat(length - words.len() - 3);
        let body = format!("{words}{padding}\"}}}}");
        assert_eq!(body.len(), length);
        assert_eq!(
            failure_of(status(429, &[], &body), false).error_code,
            code,
            "{length}"
        );
    }
}

#[test]
fn a_transport_failure_before_the_status_line_may_have_been_sent_prv_39() {
    for error in [
        TransportError::Dns,
        TransportError::Connect,
        TransportError::Tls,
        TransportError::Reset,
        TransportError::Exchange,
        TransportError::ConnectTimeout,
    ] {
        for streaming in [false, true] {
            let model = ScriptedModel::new("m", vec![Step::transport(error)]).unwrap();
            let failure = failure(&model, streaming);
            assert_eq!(failure.request_sent, RequestSent::Maybe);
            assert_eq!(failure.redacted_details.transport_attempts, 1);
            assert!(failure.retryable);
            let timeout = error == TransportError::ConnectTimeout;
            let code = if timeout {
                "provider_timeout"
            } else {
                "provider_connection_failed"
            };
            assert_eq!(failure.error_code, code);
            let stage = match (streaming, timeout) {
                (true, _) => "stream",
                (false, true) => "timeout",
                (false, false) => "connection",
            };
            assert_eq!(failure.stage.as_str(), stage);
        }
    }
}

#[test]
fn an_answer_that_is_no_json_is_a_decode_failure() {
    let failure = failure_of(
        status(200, &[("content-type", "text/html")], "<html>"),
        false,
    );
    assert_eq!(failure.error_code, "provider_response_decode_failed");
    assert_eq!(failure.category, FailureCategory::ProviderException);
    assert_eq!(failure.stage, FailureStage::Decode);
}

fn chunk(delta: Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}))
}

const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9}}\n\n";

#[test]
fn a_failure_carries_counts_usage_and_request_id_and_nothing_else_prv_43_prv_75() {
    let body =
        chunk(json!({"content": "canary é"})) + &chunk(json!({"reasoning": "canary"})) + USAGE;
    for end in [End::Clean, End::Reset] {
        let mut transport = Scripted::stream(vec![body.clone().into_bytes()], end);
        transport
            .headers
            .push(("x-request-id".into(), "req_1-A".into()));
        let failure = failure_of(transport, true);
        let details = &failure.redacted_details;
        assert_eq!(details.partial_text_characters, 8);
        assert_eq!(details.partial_reasoning_characters, 6);
        assert_eq!(details.usage.unwrap().prompt_tokens, Some(9));
        assert_eq!(details.usage.unwrap().completion_tokens, None);
        assert_eq!(details.provider_request_id.as_deref(), Some("req_1-A"));
        let shown = format!(
            "{failure} {failure:?} {}",
            serde_json::to_string(&failure).unwrap()
        );
        assert!(!shown.contains("canary"));
    }
    let mut transport = Scripted::stream(vec![body.into_bytes()], End::Clean);
    transport
        .headers
        .push(("x-request-id".into(), "sk canary".into()));
    assert_eq!(
        failure_of(transport, true)
            .redacted_details
            .provider_request_id,
        None
    );
}

#[test]
fn canaries_appear_nowhere_in_a_failure_or_its_source_chain_prv_44() {
    let canary = "canary-sk-123";
    let error =
        json!({"error": {"message": canary, "type": canary, "code": canary, "param": canary}});
    let transports = [
        status(
            500,
            &[("x-request-id", "canary/sk 123"), ("location", canary)],
            &error.to_string(),
        ),
        status(401, &[], &error.to_string()),
        status(
            200,
            &[("content-type", "application/json")],
            &error.to_string(),
        ),
        Scripted::stream(vec![format!("data: {error}\n\n").into_bytes()], End::Clean),
        Scripted::stream(vec![format!("data: {canary}\n\n").into_bytes()], End::Clean),
        Scripted::stream(
            vec![chunk(json!({"content": canary})).into_bytes()],
            End::Reset,
        ),
        Scripted::stream(
            vec![chunk(json!({"refusal": canary})).into_bytes()],
            End::Clean,
        ),
    ];
    for transport in transports {
        let mut settings = ChatSettings::new(target(), "https://canary.invalid/canary");
        settings.connection.credential =
            Some(qitos_contracts::secret::SecretValue::new(canary.into()));
        let model = settings.with_transport(Arc::new(transport)).unwrap();
        let failure = failure(&model, true);
        let json = serde_json::to_string(&failure).unwrap();
        let error = ProviderError::from(*failure);
        let mut shown = format!("{error} {error:?} {json}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            shown.push_str(&format!("{cause} {cause:?}"));
            source = cause.source();
        }
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn bounds_hold_at_their_edge_prv_60() {
    let finish = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n";
    let violation = |body: String| -> Option<Violation> {
        let transport = Scripted::stream(vec![body.into_bytes()], End::Clean);
        let settings = ChatSettings::new(target(), "https://offline.invalid/v1");
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
    };
    // Tool slots.
    for (count, expected) in [
        (127, None),
        (128, None),
        (129, Some(Violation::LimitExceeded)),
    ] {
        let calls: String = (0..count)
            .map(|index| {
                chunk(
                    json!({"tool_calls": [{"index": index, "id": format!("c{index}"),
                    "function": {"name": "add", "arguments": "{}"}}]}),
                )
            })
            .collect();
        assert_eq!(violation(calls + finish), expected, "{count} calls");
    }
    // Arguments of one call, in two pieces.
    let mebibyte = 1024 * 1024;
    for (length, expected) in [
        (mebibyte - 1, None),
        (mebibyte, None),
        (mebibyte + 1, Some(Violation::LimitExceeded)),
    ] {
        let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
        let (left, right) = arguments.split_at(length / 2);
        let call = |piece: &str| {
            chunk(json!({"tool_calls": [{"index": 0, "id": "c",
                "function": {"name": "add", "arguments": piece}}]}))
        };
        assert_eq!(
            violation(call(left) + &call(right) + finish),
            expected,
            "{length} bytes"
        );
    }
    // Text and reasoning together.
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    for (length, expected) in [
        (4 * mebibyte - 1, None),
        (4 * mebibyte, None),
        (4 * mebibyte + 1, Some(Violation::LimitExceeded)),
    ] {
        let half = length / 2;
        let body = chunk(json!({"content": "x".repeat(half)}))
            + &chunk(json!({"reasoning": "x".repeat(length - half)}))
            + stop;
        assert_eq!(violation(body), expected, "{length} bytes");
    }
    // An answer that grows beyond a log item when it is written.
    let escaped = chunk(json!({"content": "\u{1}".repeat(2 * mebibyte)})) + stop;
    assert_eq!(violation(escaped), Some(Violation::LimitExceeded));
}
