//! The Messages client over the loopback interface: framing, closing, cancellation (PRV-84, PRV-90 to PRV-96).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qitos_contracts::model::*;
use qitos_contracts::secret::SecretValue;
use qitos_kit::loopback::{LoopbackServer, Reply};
use qitos_providers::anthropic::{AnthropicModel, AnthropicSettings};
use serde_json::{Value, json};

use super::anthropic_requests::target;
use super::network::{Counting, Failing, ONE_SECOND, Stopped, block_on};
use super::setup::{Deltas, items, view_of};

const OPEN: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\"}}\n\n",
    "event: content_block_start\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
);
const DELTA: &str = concat!(
    "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
);
const STOP: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn model(server: &LoopbackServer) -> AnthropicModel {
    let mut settings = AnthropicSettings::new(target(), server.base_url());
    settings.connection.credential = Some(SecretValue::new("sk-canary".into()));
    settings.over_network().unwrap()
}

fn payload(model: &AnthropicModel) -> WirePayload {
    let view = view_of(items(Vec::new()), &["add"], target());
    model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap()
        .0
}

fn stream(model: &AnthropicModel) -> (Result<RawResponse, ProviderError>, String) {
    let mut deltas = Deltas::default();
    let outcome = block_on(model.send(payload(model), Some(&mut deltas)));
    (outcome, deltas.0.concat())
}

#[test]
fn a_stream_in_small_pieces_succeeds_and_its_connection_is_gone_prv_90() {
    let mut reply = Reply::event_stream();
    for byte in format!("{OPEN}{DELTA}{STOP}").bytes() {
        reply = reply.piece([byte]);
    }
    let server = LoopbackServer::start(vec![reply.end()]).unwrap();
    let (outcome, text) = stream(&model(&server));
    assert!(outcome.unwrap().warnings.is_empty());
    assert_eq!(text, "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.request_line, "POST /v1/messages HTTP/1.1");
    assert_eq!(request.header("x-api-key"), Some("sk-canary"));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["stream"], true);
}

#[test]
fn a_whole_answer_is_read_by_its_length_prv_49() {
    let answer = json!({"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"});
    let reply = Reply::whole(200, "application/json", answer.to_string());
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let model = model(&server);
    let raw = block_on(model.send(payload(&model), None)).unwrap();
    assert!(!raw.streamed);
    let view = view_of(items(Vec::new()), &["add"], target());
    assert_eq!(model.codec().decode(raw, &view).unwrap().text(), "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
    let body: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert!(body.get("stream").is_none());
}

#[test]
fn a_reset_spoils_everything_before_message_stop_and_nothing_after_it_prv_55() {
    let open = || Reply::event_stream().piece(OPEN);
    for (reply, code) in [
        (open().end(), "provider_stream_protocol_error"),
        (open().reset(), "provider_connection_failed"),
        (open().piece(DELTA).end(), "provider_stream_protocol_error"),
        (open().piece(DELTA).reset(), "provider_connection_failed"),
        (open().piece(DELTA), "provider_connection_failed"),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let (outcome, text) = stream(&model(&server));
        let Err(ProviderError::Failure(failure)) = outcome else {
            panic!("a failure")
        };
        assert_eq!(failure.error_code, code);
        assert_eq!(failure.request_sent, RequestSent::Yes);
        assert_eq!(text, "Hi");
        assert_eq!(failure.redacted_details.partial_text_characters, 2);
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
    for reply in [
        open().piece(DELTA).piece(STOP).reset(),
        open().piece(DELTA).piece(STOP),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let (outcome, text) = stream(&model(&server));
        assert_eq!(outcome.unwrap().warnings, ["unclean_close"]);
        assert_eq!(text, "Hi");
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
}

#[test]
fn error_answers_give_their_class_without_their_text_prv_40_prv_43() {
    for (status, word, code, retryable) in [
        (
            400,
            "invalid_request_error",
            "provider_request_rejected",
            false,
        ),
        (
            401,
            "authentication_error",
            "provider_authentication_failed",
            false,
        ),
        (
            403,
            "permission_error",
            "provider_authentication_failed",
            false,
        ),
        (404, "not_found_error", "provider_request_rejected", false),
        (
            413,
            "request_too_large",
            "provider_request_too_large",
            false,
        ),
        (429, "rate_limit_error", "provider_rate_limited", true),
        (400, "billing_error", "provider_quota_exhausted", false),
        (500, "api_error", "provider_server_error", true),
        (504, "timeout_error", "provider_server_error", true),
        (529, "overloaded_error", "provider_overloaded", true),
    ] {
        let body =
            json!({"type": "error", "error": {"type": word, "message": "sk-canary"}}).to_string();
        let headers = [("request-id", "req_1"), ("retry-after", "2")];
        let reply = Reply::whole_with_headers(status, "application/json", &headers, body);
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let (outcome, _) = stream(&model(&server));
        let Err(ProviderError::Failure(failure)) = outcome else {
            panic!("a failure")
        };
        assert_eq!(failure.error_code, code, "{word}");
        assert_eq!(failure.retryable, retryable, "{word}");
        assert_eq!(failure.status_code, Some(status));
        let details = &failure.redacted_details;
        assert_eq!(details.provider_error_type.as_deref(), Some(word));
        assert_eq!(details.provider_request_id.as_deref(), Some("req_1"));
        assert_eq!(details.retry_after_ms, Some(2_000));
        let shown = format!("{failure} {failure:?} {}", json!(failure));
        assert!(!shown.contains("canary") && !shown.contains("127.0.0.1"));
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
}

#[test]
fn a_callback_error_comes_back_unchanged_and_closes_everything_prv_94() {
    let server = LoopbackServer::start(vec![Reply::event_stream().piece(OPEN).hang()]).unwrap();
    let model = model(&server);
    let outcome = block_on(model.send(payload(&model), Some(&mut Failing(7))));
    let Err(ProviderError::Consumer(error)) = outcome else {
        panic!("the consumer's own error")
    };
    assert_eq!(error.downcast_ref::<Stopped>(), Some(&Stopped(7)));
    assert!(server.wait_until_no_connection(ONE_SECOND));
}

#[test]
fn dropping_the_future_closes_the_connection_within_a_second_prv_96() {
    for (reply, deltas) in [
        (Reply::default().hang(), 0),
        (Reply::event_stream().hang(), 0),
        (Reply::event_stream().piece(OPEN).hang(), 1),
        (Reply::event_stream().piece(OPEN).piece(DELTA).hang(), 1),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let model = model(&server);
        let count = Arc::new(AtomicUsize::new(0));
        let mut sink = Counting(Arc::clone(&count));
        block_on(async {
            let mut future = model.send(payload(&model), Some(&mut sink));
            // Driven until the server holds the request and the deltas that can come have come.
            let reached = async {
                while !server.wait_for_requests(1, Duration::ZERO)
                    || count.load(Ordering::SeqCst) < deltas
                {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                outcome = &mut future => panic!("{outcome:?}"),
                () = reached => {}
            }
            drop(future);
        });
        assert!(server.wait_until_no_connection(ONE_SECOND));
        assert_eq!(count.load(Ordering::SeqCst), deltas);
    }
}

#[test]
fn a_verified_answer_with_an_open_body_is_closed_by_us_prv_56() {
    let reply = Reply::event_stream()
        .piece(OPEN)
        .piece(DELTA)
        .piece(STOP)
        .hang();
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let mut settings = AnthropicSettings::new(target(), server.base_url());
    settings.connection.time_limits.terminal_grace = Duration::from_millis(50);
    let model = settings.over_network().unwrap();
    let (outcome, text) = stream(&model);
    outcome.unwrap();
    assert_eq!(text, "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
}
