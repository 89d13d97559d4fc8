//! Over the loopback interface: framing, ownership, cancellation (PRV-84, PRV-90 to PRV-96).

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::model::*;
use qitos_kit::loopback::{Gate, LoopbackServer, Reply};
use qitos_providers::TimeLimits;
use qitos_providers::openai_chat::{ChatModel, ChatSettings};
use serde_json::{Value, json};

use super::setup::{Deltas, items, target, view_of};

const LIMIT: Duration = Duration::from_secs(5);
pub(crate) const ONE_SECOND: Duration = Duration::from_secs(1);
const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn settings(server: &LoopbackServer) -> ChatSettings {
    let mut settings = ChatSettings::new(target(), format!("{}/v1", server.base_url()));
    settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
        "sk-canary".into(),
    ));
    settings
}

fn model(server: &LoopbackServer) -> ChatModel {
    settings(server).over_network().unwrap()
}

fn payload(model: &ChatModel) -> WirePayload {
    let view = view_of(items(Vec::new()), &["add"], target());
    model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap()
        .0
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn stream(model: &ChatModel) -> (Result<RawResponse, ProviderError>, String) {
    let mut deltas = Deltas::default();
    let outcome = block_on(model.send(payload(model), Some(&mut deltas)));
    (outcome, deltas.0.concat())
}

fn failure(outcome: Result<RawResponse, ProviderError>) -> Box<ProviderFailure> {
    match outcome {
        Err(ProviderError::Failure(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_in_small_pieces_succeeds_and_its_connection_is_gone_prv_90() {
    let mut reply = Reply::event_stream();
    for byte in format!("{TEXT}{STOP}{DONE}").bytes() {
        reply = reply.piece([byte]);
    }
    let server = LoopbackServer::start(vec![reply.end()]).unwrap();
    let (outcome, text) = stream(&model(&server));
    outcome.unwrap();
    assert_eq!(text, "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0].request_line,
        "POST /v1/chat/completions HTTP/1.1"
    );
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer sk-canary")
    );
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(body["stream"], true);
}

#[test]
fn a_whole_answer_is_read_by_its_length_prv_49() {
    let answer = json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]});
    let reply = Reply::whole(200, "application/json", answer.to_string());
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let model = model(&server);
    let raw = block_on(model.send(payload(&model), None)).unwrap();
    assert!(!raw.streamed);
    assert_eq!(raw.body["choices"][0]["message"]["content"], "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
    let body: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert!(body.get("stream").is_none());
}

#[test]
fn every_way_a_stream_ends_early_is_a_failure_and_closes_the_connection_prv_53_prv_90() {
    let open = || Reply::event_stream().piece(TEXT);
    for (reply, code) in [
        (open().end(), "provider_stream_protocol_error"),
        (open().reset(), "provider_connection_failed"),
        // Closed without the last chunk: broken framing, not a clean end.
        (open(), "provider_connection_failed"),
        (open().piece(STOP), "provider_connection_failed"),
        (
            open().piece("data: not json\n\n").hang(),
            "provider_stream_protocol_error",
        ),
        (open().write("zz\r\n"), "provider_connection_failed"),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let (outcome, text) = stream(&model(&server));
        let failure = failure(outcome);
        assert_eq!(failure.error_code, code);
        assert_eq!(failure.request_sent, RequestSent::Yes);
        assert_eq!(text, "Hi");
        assert_eq!(failure.redacted_details.partial_text_characters, 2);
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
}

#[test]
fn an_answer_that_is_no_http_or_none_at_all_may_have_been_sent_prv_39() {
    for reply in [
        Reply::default(),
        Reply::default().reset(),
        Reply::raw("garbage\r\n\r\n"),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let failure = failure(stream(&model(&server)).0);
        assert_eq!(failure.error_code, "provider_connection_failed");
        assert_eq!(failure.request_sent, RequestSent::Maybe);
        assert_eq!(server.requests().len(), 1, "PRV-86: no hidden retry");
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
}

#[test]
fn a_refused_connection_may_have_been_sent_and_shows_no_url_prv_39_prv_44() {
    let server = LoopbackServer::start(Vec::new()).unwrap();
    let model = model(&server);
    let port = server.base_url().rsplit(':').next().unwrap().to_owned();
    drop(server);
    let failure = failure(stream(&model).0);
    assert_eq!(failure.error_code, "provider_connection_failed");
    assert_eq!(failure.request_sent, RequestSent::Maybe);
    assert_eq!(
        failure.redacted_details.cause_kind.as_deref(),
        Some("connect")
    );
    let shown = format!("{failure} {failure:?}");
    assert!(!shown.contains(&port) && !shown.contains("127.0.0.1") && !shown.contains("canary"));
}

#[test]
fn redirects_are_not_followed_with_the_credential_prv_84() {
    let other = LoopbackServer::start(Vec::new()).unwrap();
    let location = format!("{}/v1", other.base_url());
    let reply = Reply::whole_with_headers(307, "", &[("location", &location)], "");
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let failure = failure(stream(&model(&server)).0);
    assert_eq!(failure.status_code, Some(307));
    assert_eq!(failure.error_code, "provider_request_rejected");
    assert!(other.requests().is_empty());
}

#[test]
fn error_answers_are_closed_as_well_prv_92() {
    let error = Reply::chunked(503, "application/json", &[("retry-after", "3")])
        .piece(r#"{"error":{"type":"overloaded_error"}}"#)
        .end();
    let server = LoopbackServer::start(vec![error]).unwrap();
    let failure = failure(stream(&model(&server)).0);
    assert_eq!(failure.error_code, "provider_overloaded");
    assert_eq!(failure.redacted_details.retry_after_ms, Some(3_000));
    assert!(server.wait_until_no_connection(ONE_SECOND));
}

#[test]
fn building_a_model_opens_no_connection_prv_38() {
    let server = LoopbackServer::start(Vec::new()).unwrap();
    drop(model(&server));
    let mut wrong = settings(&server);
    wrong.connection.default_headers = vec![("accept".into(), "x".into())];
    assert!(wrong.over_network().is_err());
    assert_eq!(server.accepted_connections(), 0);
}

/// An error that only this consumer knows.
#[derive(Debug, PartialEq)]
pub(crate) struct Stopped(pub(crate) u32);

impl std::fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the consumer stopped")
    }
}

impl std::error::Error for Stopped {}

pub(crate) struct Failing(pub(crate) u32);

impl DeltaSink for Failing {
    fn delta(&mut self, _: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(Box::new(Stopped(self.0)))
    }
}

#[test]
fn a_callback_error_comes_back_unchanged_and_closes_everything_prv_94_prv_95() {
    let both_at_once = TEXT
        .replace("]}", "],\"x\":1}")
        .replace("}}]", "},\"finish_reason\":\"strange\"}]");
    for body in [TEXT.to_owned(), both_at_once] {
        let server = LoopbackServer::start(vec![Reply::event_stream().piece(body).hang()]).unwrap();
        let model = model(&server);
        let outcome = block_on(model.send(payload(&model), Some(&mut Failing(7))));
        let Err(ProviderError::Consumer(error)) = outcome else {
            panic!("the consumer's own error")
        };
        assert_eq!(error.downcast_ref::<Stopped>(), Some(&Stopped(7)));
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }
}

struct Panicking;

impl DeltaSink for Panicking {
    fn delta(&mut self, _: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        panic!("in the callback")
    }
}

#[test]
fn a_panic_in_the_callback_unwinds_after_closing_prv_94() {
    let server = LoopbackServer::start(vec![Reply::event_stream().piece(TEXT).hang()]).unwrap();
    let model = model(&server);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(model.send(payload(&model), Some(&mut Panicking)))
    }));
    assert!(caught.is_err());
    assert!(server.wait_until_no_connection(ONE_SECOND));
}

/// Counts calls, also those after the future is gone.
#[derive(Debug, Default)]
pub(crate) struct Counting(pub(crate) Arc<std::sync::atomic::AtomicUsize>);

impl DeltaSink for Counting {
    fn delta(&mut self, _: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn dropping_the_future_at_any_await_closes_the_connection_within_a_second_prv_96() {
    let gate = Gate::new();
    let stream = || Reply::event_stream();
    let error = || Reply::chunked(500, "application/json", &[]);
    for (reply, deltas) in [
        (Reply::default().hang(), 0),
        (Reply::raw("HTTP/1.1 200 OK\r\n").hang(), 0),
        (stream().hang(), 0),
        (stream().piece(TEXT).hang(), 1),
        (
            stream().piece(TEXT).piece(TEXT).piece("data: {\"ch").hang(),
            2,
        ),
        (stream().piece(TEXT).piece(STOP).hang(), 1),
        (Reply::chunked(200, "", &[]).piece("da").hang(), 0),
        (
            Reply::chunked(200, "application/json", &[])
                .piece("{")
                .hang(),
            0,
        ),
        (error().piece("{").hang(), 0),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let model = model(&server);
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut sink = Counting(Arc::clone(&count));
        block_on(async {
            let mut future = model.send(payload(&model), Some(&mut sink));
            // Driven until the server holds the request and the deltas that can come have come.
            let reached = async {
                while !server.wait_for_requests(1, Duration::ZERO)
                    || count.load(std::sync::atomic::Ordering::SeqCst) < deltas
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
        gate.open();
        assert!(
            server.wait_until_no_connection(ONE_SECOND),
            "{deltas} deltas"
        );
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), deltas);
    }
}

#[test]
fn the_next_piece_is_not_read_before_the_callback_returned_prv_93() {
    let gate = Gate::new();
    let reply = Reply::event_stream()
        .piece(TEXT)
        .wait(&gate)
        .piece(TEXT)
        .piece(STOP)
        .piece(DONE)
        .end();
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let model = model(&server);

    struct Opening(Gate, Vec<String>);
    impl DeltaSink for Opening {
        fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            // Only this call lets the server go on, so a second piece cannot have been read before.
            self.0.open();
            self.1.push(text.to_owned());
            Ok(())
        }
    }
    let mut sink = Opening(gate, Vec::new());
    block_on(model.send(payload(&model), Some(&mut sink))).unwrap();
    assert_eq!(sink.1, ["Hi", "Hi"]);
}

#[test]
fn a_verified_answer_with_an_open_body_is_closed_by_us_prv_56() {
    let server =
        LoopbackServer::start(vec![Reply::event_stream().piece(TEXT).piece(STOP).hang()]).unwrap();
    let mut settings = settings(&server);
    settings.connection.time_limits = TimeLimits {
        terminal_grace: Duration::from_millis(20),
        ..TimeLimits::default()
    };
    let (outcome, _) = stream(&settings.over_network().unwrap());
    outcome.unwrap();
    assert!(server.wait_until_no_connection(ONE_SECOND));
}

#[test]
fn a_slow_status_line_passes_its_time_limit_prv_85() {
    let server = LoopbackServer::start(vec![Reply::raw("HTTP/1.1 200").hang()]).unwrap();
    let mut settings = settings(&server);
    settings.connection.time_limits = TimeLimits {
        connect: Duration::from_millis(10),
        idle: Duration::from_millis(30),
        ..TimeLimits::default()
    };
    let failure = failure(stream(&settings.over_network().unwrap()).0);
    assert_eq!(
        failure.redacted_details.timeout_kind,
        Some(TimeoutKind::Header)
    );
    assert_eq!(failure.request_sent, RequestSent::Maybe);
    assert!(server.wait_until_no_connection(ONE_SECOND));
}

#[test]
fn many_requests_leave_no_connection_behind_prv_90() {
    let reply = || {
        Reply::event_stream()
            .piece(TEXT)
            .piece(STOP)
            .piece(DONE)
            .end()
    };
    let server = LoopbackServer::start((0..20).map(|_| reply()).collect()).unwrap();
    let model = model(&server);
    for _ in 0..20 {
        stream(&model).0.unwrap();
    }
    assert!(server.wait_until_no_connection(ONE_SECOND));
    assert_eq!(server.accepted_connections(), 20);
    assert!(server.wait_for_requests(20, LIMIT));
}
