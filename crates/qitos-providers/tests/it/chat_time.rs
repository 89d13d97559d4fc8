//! Time limits under a paused clock (PRV-55, PRV-56, PRV-85, PRV-S14).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qitos_contracts::model::*;
use qitos_providers::TimeLimits;
use qitos_providers::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};
use qitos_providers::openai_chat::ChatSettings;
use tokio::time::Instant;

use super::setup::{Deltas, items, run, target, view_of};

/// Sends pieces, each after a wait, and then stays open.
#[derive(Clone, Debug)]
struct Slow {
    before_headers: Duration,
    pieces: Vec<(u64, &'static [u8])>,
    repeat: bool,
    /// The time passes while nobody waits: the next piece is there whenever it is asked for.
    busy: bool,
    end: Option<Result<(), TransportError>>,
}

impl Slow {
    fn pieces(pieces: Vec<(u64, &'static [u8])>) -> Self {
        Slow {
            before_headers: Duration::ZERO,
            pieces,
            repeat: false,
            busy: false,
            end: None,
        }
    }
}

#[async_trait]
impl HttpTransport for Slow {
    async fn send(&self, _: HttpRequest) -> Result<HttpResponse, TransportError> {
        tokio::time::sleep(self.before_headers).await;
        Ok(HttpResponse {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            body: Box::new(SlowBody {
                script: self.clone(),
                next: 0,
            }),
        })
    }
}

#[derive(Debug)]
struct SlowBody {
    script: Slow,
    next: usize,
}

#[async_trait]
impl HttpBody for SlowBody {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        let position = if self.script.repeat {
            self.next % self.script.pieces.len()
        } else {
            self.next
        };
        self.next += 1;
        match self.script.pieces.get(position) {
            Some((wait, piece)) => {
                let wait = Duration::from_secs(*wait);
                if self.script.busy {
                    tokio::time::advance(wait).await;
                } else {
                    tokio::time::sleep(wait).await;
                }
                Ok(Some(piece))
            }
            None => match self.script.end {
                Some(Ok(())) => Ok(None),
                Some(Err(error)) => Err(error),
                None => std::future::pending().await,
            },
        }
    }
}

/// The outcome and how many seconds it took.
fn send(
    script: Slow,
    streaming: bool,
    limits: TimeLimits,
) -> (Result<RawResponse, Box<ProviderFailure>>, u64) {
    let mut settings = ChatSettings::new(target(), "https://offline.invalid/v1");
    settings.connection.time_limits = limits;
    let model = settings.with_transport(Arc::new(script)).unwrap();
    let view = view_of(items(Vec::new()), &[], target());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    run(async {
        let started = Instant::now();
        let mut deltas = Deltas::default();
        let sink = streaming.then_some(&mut deltas as &mut dyn DeltaSink);
        let outcome = match model.send(payload, sink).await {
            Ok(raw) => Ok(raw),
            Err(ProviderError::Failure(failure)) => Err(failure),
            Err(other) => panic!("{other:?}"),
        };
        (outcome, started.elapsed().as_secs())
    })
}

fn timeout(script: Slow, streaming: bool, limits: TimeLimits) -> (TimeoutKind, RequestSent, u64) {
    let (outcome, seconds) = send(script, streaming, limits);
    let failure = outcome.unwrap_err();
    assert_eq!(failure.error_code, "provider_timeout");
    assert_eq!(failure.category, FailureCategory::Timeout);
    assert!(failure.retryable);
    let kind = failure.redacted_details.timeout_kind.unwrap();
    (kind, failure.request_sent, seconds)
}

fn patient() -> TimeLimits {
    TimeLimits {
        total: Duration::from_secs(100_000),
        ..TimeLimits::default()
    }
}

const TEXT: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
const STOP: &[u8] = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const PING: &[u8] = b": ping\n\n";

#[test]
fn defaults_are_those_of_the_specification_prv_85() {
    let limits = TimeLimits::default();
    let seconds = [
        limits.connect,
        limits.idle,
        limits.progress,
        limits.total,
        limits.terminal_grace,
    ]
    .map(|limit| limit.as_secs());
    assert_eq!(seconds, [10, 60, 300, 180, 5]);
}

#[test]
fn silence_before_the_status_line_is_a_header_timeout_on_streams_and_total_otherwise_prv_85() {
    let mut silent = Slow::pieces(Vec::new());
    silent.before_headers = Duration::from_secs(1_000);
    let limits = TimeLimits::default();
    assert_eq!(
        timeout(silent.clone(), true, limits),
        (TimeoutKind::Header, RequestSent::Maybe, 70)
    );
    assert_eq!(
        timeout(silent, false, limits),
        (TimeoutKind::Total, RequestSent::Maybe, 180)
    );
}

#[test]
fn silence_after_the_status_line_is_an_idle_timeout_prv_85() {
    for streaming in [true, false] {
        let script = Slow::pieces(vec![(59, TEXT)]);
        assert_eq!(
            timeout(script, streaming, patient()),
            (TimeoutKind::Idle, RequestSent::Yes, 119)
        );
    }
}

#[test]
fn heartbeats_reset_idle_and_not_progress_prv_s14() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/provider-streams/openai-chat/"
    );
    let unit = std::fs::read(format!("{folder}s14_heartbeats.sse")).unwrap();
    assert_eq!(unit, PING);
    let mut script = Slow::pieces(vec![(30, PING)]);
    script.repeat = true;
    assert_eq!(
        timeout(script, true, patient()),
        (TimeoutKind::Progress, RequestSent::Yes, 300)
    );
}

#[test]
fn data_events_reset_progress_until_the_total_prv_85() {
    let mut script = Slow::pieces(vec![(50, TEXT)]);
    script.repeat = true;
    let limits = TimeLimits {
        total: Duration::from_millis(1_000_500),
        ..TimeLimits::default()
    };
    assert_eq!(
        timeout(script, true, limits),
        (TimeoutKind::Total, RequestSent::Yes, 1_000)
    );
}

#[test]
fn a_peer_that_always_has_more_does_not_outlast_the_total_prv_85() {
    for streaming in [true, false] {
        let mut script = Slow::pieces(vec![(50, TEXT)]);
        script.repeat = true;
        script.busy = true;
        // Seen when the piece after the limit is asked for, not when it would have been missed.
        assert_eq!(
            timeout(script, streaming, TimeLimits::default()),
            (TimeoutKind::Total, RequestSent::Yes, 200)
        );
    }
}

#[test]
fn a_timeout_carries_what_had_arrived_prv_43() {
    let script = Slow::pieces(vec![(1, TEXT), (1, TEXT)]);
    let failure = send(script, true, patient()).0.unwrap_err();
    assert_eq!(failure.redacted_details.partial_text_characters, 4);
    assert_eq!(failure.stage, FailureStage::Stream);
}

#[test]
fn a_verified_answer_does_not_die_of_a_server_that_keeps_the_body_open_prv_56() {
    // Nothing more comes: the grace period ends the wait.
    let (outcome, seconds) = send(Slow::pieces(vec![(1, TEXT), (1, STOP)]), true, patient());
    assert_eq!((outcome.is_ok(), seconds), (true, 7));
    // Heartbeats do not prolong it.
    let pings = vec![
        (1, TEXT),
        (1, STOP),
        (2, PING),
        (2, PING),
        (2, PING),
        (2, PING),
    ];
    let (outcome, seconds) = send(Slow::pieces(pings), true, patient());
    assert_eq!((outcome.is_ok(), seconds), (true, 7));
    // The total bounds the grace and is no failure then.
    let limits = TimeLimits {
        total: Duration::from_secs(4),
        ..TimeLimits::default()
    };
    let (outcome, seconds) = send(Slow::pieces(vec![(1, TEXT), (1, STOP)]), true, limits);
    assert_eq!((outcome.is_ok(), seconds), (true, 4));
}

#[test]
fn after_the_end_marker_nothing_is_awaited_prv_55() {
    let script = Slow::pieces(vec![
        (1, TEXT),
        (1, STOP),
        (1, b"data: [DONE]\n\n"),
        (9, TEXT),
    ]);
    let (outcome, seconds) = send(script, true, patient());
    assert_eq!((outcome.is_ok(), seconds), (true, 3));
}

#[test]
fn a_reset_after_a_bare_finish_reason_fails_and_after_the_end_marker_does_not_prv_55() {
    let mut script = Slow::pieces(vec![(1, TEXT), (1, STOP)]);
    script.end = Some(Err(TransportError::Reset));
    let failure = send(script.clone(), true, patient()).0.unwrap_err();
    assert_eq!(failure.error_code, "provider_connection_failed");
    assert_eq!(failure.request_sent, RequestSent::Yes);
    script.pieces.push((0, b"data: [DONE]\n\n"));
    assert!(send(script, true, patient()).0.is_ok());
}
