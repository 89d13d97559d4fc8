//! Responses over the loopback interface: address, headers, ownership, callback errors (PRV-8, PRV-84, PRV-90 to PRV-96).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use qitos_contracts::model::*;
use qitos_kit::loopback::{LoopbackServer, Reply};
use qitos_providers::openai_responses::{Authentication, ResponsesModel, ResponsesSettings};
use serde_json::{Value, json};

use super::network::{Counting, Failing, Stopped, block_on};
use super::responses_requests::target;
use super::setup::{Deltas, items, view_of};

const ONE_SECOND: Duration = Duration::from_secs(1);
const TEXT: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n";
const END: &str = "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[]}}\n\n";

fn settings(server: &LoopbackServer) -> ResponsesSettings {
    let mut settings = ResponsesSettings::new(target(), format!("{}/v1", server.base_url()));
    settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
        "sk-canary".into(),
    ));
    settings
}

fn payload(model: &ResponsesModel) -> WirePayload {
    let view = view_of(items(Vec::new()), &["add"], (**model.target()).clone());
    model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap()
        .0
}

#[test]
fn a_stream_goes_to_its_path_with_its_headers_and_leaves_no_connection_prv_84_prv_90() {
    let mut reply = Reply::event_stream();
    for byte in format!("{TEXT}{END}").bytes() {
        reply = reply.piece([byte]);
    }
    let server = LoopbackServer::start(vec![reply.end()]).unwrap();
    let model = settings(&server).over_network().unwrap();
    let mut deltas = Deltas::default();
    block_on(model.send(payload(&model), Some(&mut deltas))).unwrap();
    assert_eq!(deltas.0.concat(), "Hi");
    assert!(server.wait_until_no_connection(ONE_SECOND));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].request_line, "POST /v1/responses HTTP/1.1");
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer sk-canary")
    );
    assert_eq!(requests[0].header("accept"), Some("text/event-stream"));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(body["stream"], true);
    assert!(body.get("stream_options").is_none());
}

#[test]
fn azure_gets_its_key_in_its_header_and_its_version_in_the_query_prv_8_prv_84() {
    let answer = json!({"id": "r", "status": "completed", "output": []}).to_string();
    let reply = Reply::whole(200, "application/json", answer);
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let target = Target::new("azure-openai", "deployment", "openai", "responses").unwrap();
    let base_url = format!("{}/openai/v1?api-version=preview", server.base_url());
    let mut settings = ResponsesSettings::new(target, base_url);
    settings.connection.authentication = Authentication::ApiKey;
    settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
        "sk-canary".into(),
    ));
    let model = settings.over_network().unwrap();
    block_on(model.send(payload(&model), None)).unwrap();
    let request = &server.requests()[0];
    assert_eq!(
        request.request_line,
        "POST /openai/v1/responses?api-version=preview HTTP/1.1"
    );
    assert_eq!(request.header("api-key"), Some("sk-canary"));
    assert_eq!(request.header("authorization"), None);
    assert!(!format!("{model:?}").contains("canary"));
}

#[test]
fn a_reset_after_the_terminal_spoils_nothing_and_before_it_everything_prv_55() {
    let open = || Reply::event_stream().piece(TEXT);
    let server = LoopbackServer::start(vec![open().piece(END).reset()]).unwrap();
    let model = settings(&server).over_network().unwrap();
    let raw = block_on(model.send(payload(&model), Some(&mut Deltas::default()))).unwrap();
    assert_eq!(raw.warnings, ["unclean_close"]);
    let server = LoopbackServer::start(vec![open().reset()]).unwrap();
    let model = settings(&server).over_network().unwrap();
    let outcome = block_on(model.send(payload(&model), Some(&mut Deltas::default())));
    let Err(ProviderError::Failure(failure)) = outcome else {
        panic!("a failure")
    };
    assert_eq!(failure.error_code, "provider_connection_failed");
    assert_eq!(failure.redacted_details.partial_text_characters, 2);
}

#[test]
fn a_callback_error_comes_back_unchanged_and_closes_everything_prv_94() {
    let server = LoopbackServer::start(vec![Reply::event_stream().piece(TEXT).hang()]).unwrap();
    let model = settings(&server).over_network().unwrap();
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
        (Reply::event_stream().piece(TEXT).hang(), 1),
        (Reply::event_stream().piece(TEXT).piece(END).hang(), 1),
    ] {
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let model = settings(&server).over_network().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let mut sink = Counting(Arc::clone(&count));
        block_on(async {
            let mut future = model.send(payload(&model), Some(&mut sink));
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
