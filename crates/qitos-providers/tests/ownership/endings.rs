//! Every way an attempt can end, over real sockets.
//!
//! Every reply ends with a hang: the server counts its connection as gone only when the client has closed it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use qitos_contracts::model::{DeltaSink, Model, ProviderError, RawResponse, WirePayload};
use qitos_kit::loopback::{Gate, LoopbackServer, Reply};
use qitos_providers::TimeLimits;
use tokio::runtime::Runtime;

use super::ALLOCATED;
use super::dialects::{DIALECTS, Dialect};
use super::left_over::{LeftOver, ONE_SECOND, resident_bytes};
use super::setup::{items, view_of};

type Outcome = Result<RawResponse, ProviderError>;

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Success,
    WholeSuccess,
    CutStream,
    BrokenFraming,
    ErrorStatus,
    ConsumerError,
    ConsumerPanic,
    IdleTimeout,
    DroppedBeforeHeaders,
    DroppedInStream,
    HeaderTimeout,
}

const ENDINGS: [Ending; 11] = [
    Ending::Success,
    Ending::WholeSuccess,
    Ending::CutStream,
    Ending::BrokenFraming,
    Ending::ErrorStatus,
    Ending::ConsumerError,
    Ending::ConsumerPanic,
    Ending::IdleTimeout,
    Ending::DroppedBeforeHeaders,
    Ending::DroppedInStream,
    // Last of each server: if the limit passes before the request was sent, its reply is left over.
    Ending::HeaderTimeout,
];

/// The same for a dialect without streaming.
const WHOLE_ENDINGS: [Ending; 5] = [
    Ending::WholeSuccess,
    Ending::BrokenFraming,
    Ending::ErrorStatus,
    Ending::DroppedBeforeHeaders,
    Ending::HeaderTimeout,
];

fn endings(dialect: &Dialect) -> &'static [Ending] {
    if dialect.streams() {
        &ENDINGS
    } else {
        &WHOLE_ENDINGS
    }
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// The events of a whole short answer.
fn events(dialect: &Dialect) -> Vec<String> {
    dialect
        .opening
        .iter()
        .chain([&dialect.text])
        .chain(dialect.closing)
        .map(|data| event(data))
        .collect()
}

/// A stream that stands still after its text.
fn open_stream(dialect: &Dialect) -> Reply {
    let reply = Reply::event_stream();
    let opening = dialect.opening.iter().map(|data| event(data));
    opening.fold(reply, Reply::piece).piece(event(dialect.text))
}

impl Ending {
    fn reply(self, dialect: &Dialect) -> Reply {
        match self {
            Ending::Success => {
                let events = events(dialect).into_iter();
                events.fold(Reply::event_stream(), Reply::piece).end()
            }
            Ending::WholeSuccess => Reply::whole(200, "application/json", dialect.whole),
            Ending::CutStream => open_stream(dialect).end(),
            Ending::BrokenFraming if dialect.streams() => open_stream(dialect).write("zz\r\n"),
            Ending::BrokenFraming => Reply::chunked(200, "application/json", &[]).write("zz\r\n"),
            Ending::ErrorStatus => Reply::whole(503, "application/json", "{}"),
            Ending::HeaderTimeout | Ending::DroppedBeforeHeaders => Reply::default(),
            Ending::ConsumerError
            | Ending::ConsumerPanic
            | Ending::IdleTimeout
            | Ending::DroppedInStream => open_stream(dialect),
        }
        .hang()
    }

    fn time_limits(self) -> TimeLimits {
        let mut limits = TimeLimits::default();
        match self {
            Ending::IdleTimeout => limits.progress = Duration::from_millis(5),
            Ending::HeaderTimeout => {
                limits.connect = Duration::from_millis(5);
                limits.idle = Duration::from_millis(15);
                // A whole answer has no limit of its own for the status line.
                limits.total = Duration::from_millis(20);
            }
            _ => {}
        }
        limits
    }

    /// One attempt that ends in this way; its outcome is checked.
    fn attempt(self, runtime: &Runtime, server: &LoopbackServer, dialect: &Dialect, number: usize) {
        let model = (dialect.model)(&server.base_url(), self.time_limits());
        let payload = payload(&*model, dialect);
        let calls = Arc::new(AtomicUsize::new(0));
        let mut sink = Sink {
            ending: self,
            calls: Arc::clone(&calls),
        };
        let heard = || calls.load(Ordering::SeqCst);
        let streams = dialect.streams() && self != Ending::WholeSuccess;
        let sink: Option<&mut dyn DeltaSink> = if streams { Some(&mut sink) } else { None };
        let outcome: Option<Outcome> = match self {
            Ending::ConsumerPanic => {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    runtime.block_on(model.send(payload, sink))
                }));
                assert!(caught.is_err(), "PRV-94");
                None
            }
            Ending::DroppedBeforeHeaders | Ending::DroppedInStream => runtime.block_on(async {
                let mut sent = model.send(payload, sink);
                let reached = async {
                    let wanted = usize::from(self == Ending::DroppedInStream);
                    while !server.wait_for_requests(number, Duration::ZERO) || heard() < wanted {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    outcome = &mut sent => Some(outcome),
                    () = reached => None,
                }
            }),
            _ => Some(runtime.block_on(model.send(payload, sink))),
        };
        let heard_by_then = heard();
        self.check(outcome, heard_by_then, streams);
        // Sockets first, the model after: an attempt owns its connection, not the model (PRV-90).
        assert!(
            server.wait_until_no_connection(ONE_SECOND),
            "{} {self:?}: the connection is still open",
            dialect.name
        );
        drop(model);
        assert_eq!(heard(), heard_by_then, "PRV-96: no callback afterwards");
    }

    fn check(self, outcome: Option<Outcome>, heard: usize, streams: bool) {
        let code = match outcome {
            None => "dropped".to_owned(),
            Some(Ok(_)) => "success".to_owned(),
            Some(Err(ProviderError::Failure(failure))) => failure.error_code.clone(),
            Some(Err(ProviderError::Consumer(error))) => error.to_string(),
        };
        let (wanted, deltas) = match self {
            Ending::Success => ("success", 1),
            Ending::WholeSuccess => ("success", 0),
            Ending::CutStream => ("provider_stream_protocol_error", 1),
            Ending::BrokenFraming => ("provider_connection_failed", 1),
            Ending::ErrorStatus => ("provider_server_error", 0),
            Ending::ConsumerError => ("the consumer stopped", 1),
            Ending::ConsumerPanic => ("dropped", 1),
            Ending::IdleTimeout => ("provider_timeout", 1),
            Ending::HeaderTimeout => ("provider_timeout", 0),
            Ending::DroppedBeforeHeaders => ("dropped", 0),
            Ending::DroppedInStream => ("dropped", 1),
        };
        assert_eq!(code, wanted, "{self:?}");
        let deltas = if streams { deltas } else { 0 };
        // A time limit of a few milliseconds may pass before the text is there.
        assert!(
            heard == deltas || self == Ending::IdleTimeout,
            "{self:?}: {heard}"
        );
    }
}

/// A consumer that ends an attempt in its own way.
struct Sink {
    ending: Ending,
    calls: Arc<AtomicUsize>,
}

impl DeltaSink for Sink {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        assert_eq!(text, "Hi");
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.ending {
            Ending::ConsumerError => Err("the consumer stopped".into()),
            // Without the panic hook, which would print a message for each.
            Ending::ConsumerPanic => std::panic::resume_unwind(Box::new("in the callback")),
            _ => Ok(()),
        }
    }
}

fn payload(model: &dyn Model, dialect: &Dialect) -> WirePayload {
    let mut view = view_of(items(Vec::new()), &["add"], (dialect.target)());
    view.max_output_tokens = Some(64);
    model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap()
        .0
}

/// Each ending once, each with its connection gone within a second.
pub(crate) fn every_ending(runtime: &Runtime, dialect: &Dialect) {
    let endings = endings(dialect);
    let replies = endings.iter().map(|ending| ending.reply(dialect)).collect();
    let server = LoopbackServer::start(replies).unwrap();
    for (index, ending) in endings.iter().enumerate() {
        ending.attempt(runtime, &server, dialect, index + 1);
    }
    assert!(server.accepted_connections() <= endings.len(), "PRV-86");
}

/// Polls a future so many times at most and opens a gate after each poll.
struct AtMost<'a, F> {
    inner: Pin<Box<F>>,
    left: usize,
    gates: std::slice::Iter<'a, Gate>,
}

impl<F: Future> Future for AtMost<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        if let Poll::Ready(output) = self.inner.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if let Some(gate) = self.gates.next() {
            gate.open();
        }
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Pending
    }
}

/// A reply in gated pieces, so that each poll finds at most one more.
fn gated(head: Reply, pieces: Vec<String>, gates: &[Gate]) -> Reply {
    assert_eq!(pieces.len(), gates.len());
    pieces
        .into_iter()
        .zip(gates)
        .fold(head, |reply, (piece, gate)| reply.wait(gate).piece(piece))
        .end()
        .hang()
}

/// Drops the future after 0, 1, 2 … polls until it completes; returns the largest number (PRV-96).
pub(crate) fn dropped_after_every_poll(runtime: &Runtime, dialect: &Dialect) -> usize {
    let split = |text: &str| -> Vec<String> {
        let (left, right) = text.split_at(text.len() / 2);
        vec![left.to_owned(), right.to_owned()]
    };
    // Each await point: connecting, the head, events, the type that is to be guessed, a whole answer, an error's
    // body.
    let mut halves = Vec::new();
    for event in events(dialect) {
        halves.extend(split(&event));
    }
    let streams = dialect.streams();
    let error = r#"{"error":{"type":"overloaded_error"}}"#;
    let cases: [(&str, Reply, Vec<String>, bool); 4] = [
        ("stream", Reply::event_stream(), halves.clone(), true),
        ("no type", Reply::chunked(200, "", &[]), halves, true),
        (
            "whole answer",
            Reply::chunked(200, "application/json", &[]),
            split(dialect.whole),
            false,
        ),
        (
            "error body",
            Reply::chunked(529, "application/json", &[]),
            split(error),
            streams,
        ),
    ];
    let mut most = 0;
    for (case, head, pieces, streamed) in cases {
        if matches!(case, "stream" | "no type") && !streams {
            continue;
        }
        let mut polls = 0;
        loop {
            let gates: Vec<Gate> = pieces.iter().map(|_| Gate::new()).collect();
            let reply = gated(head.clone(), pieces.clone(), &gates);
            let server = LoopbackServer::start(vec![reply]).unwrap();
            let model = (dialect.model)(&server.base_url(), TimeLimits::default());
            let payload = payload(&*model, dialect);
            let calls = Arc::new(AtomicUsize::new(0));
            let mut sink = Sink {
                ending: Ending::Success,
                calls: Arc::clone(&calls),
            };
            let sink: Option<&mut dyn DeltaSink> = if streamed { Some(&mut sink) } else { None };
            let inner = Box::pin(model.send(payload, sink));
            let outcome = runtime.block_on(AtMost {
                inner,
                left: polls,
                gates: gates.iter(),
            });
            let heard = calls.load(Ordering::SeqCst);
            // What was still to come now comes, into a connection that is closed.
            gates.iter().for_each(Gate::open);
            assert!(
                server.wait_until_no_connection(ONE_SECOND),
                "{} {case}: open after {polls} polls",
                dialect.name
            );
            assert_eq!(calls.load(Ordering::SeqCst), heard, "PRV-96");
            if let Some(outcome) = outcome {
                let overloaded = matches!(
                    &outcome,
                    Err(ProviderError::Failure(failure))
                        if failure.error_code == "provider_overloaded"
                );
                assert!(outcome.is_ok() != (case == "error body"), "{outcome:?}");
                assert!(overloaded == (case == "error body"));
                break;
            }
            polls += 1;
        }
        // Fewer polls than pieces would mean that some await point was never the last one.
        assert!(polls >= pieces.len(), "{case}: {polls} polls");
        most = most.max(polls);
    }
    most
}

/// Servers whose attempts end before the comparison: allocators and tables find their size.
const WARM_UP: usize = 10;
/// Servers whose attempts are compared.
const COMPARED: usize = 100;
/// Attempts per server, which remembers its requests.
const PER_SERVER: usize = 101;
/// What may be allocated more at the end: buffers of the runtime that happen to be larger.
const ALLOCATED_GROWTH: usize = 64 * 1024;
/// What may be resident more at the end: pages that the system's allocator keeps.
const RESIDENT_GROWTH: usize = 8 * 1024 * 1024;

/// Descriptors, threads, tasks and memory do not grow with the number of attempts (PRV-90, PRV-92).
pub(crate) fn ten_thousand_mixed(runtime: &Runtime) {
    let began = Instant::now();
    mixed(runtime, WARM_UP);
    let before = LeftOver::count(runtime);
    let allocated = ALLOCATED.current_usage();
    let resident = resident_bytes();
    mixed(runtime, COMPARED);
    before.assert_no_more(runtime, "many endings");
    let grown = ALLOCATED.current_usage().saturating_sub(allocated);
    let resident_grown = resident_bytes().saturating_sub(resident);
    println!(
        "{} endings in {:?}: {grown} bytes allocated and {resident_grown} resident more",
        COMPARED * PER_SERVER,
        began.elapsed()
    );
    assert!(grown <= ALLOCATED_GROWTH, "{grown} bytes");
    assert!(resident_grown <= RESIDENT_GROWTH, "{resident_grown} bytes");
}

fn mixed(runtime: &Runtime, servers: usize) {
    for number in 0..servers {
        let dialect = &DIALECTS[number % DIALECTS.len()];
        let (last, others) = endings(dialect).split_last().unwrap();
        let mut chosen: Vec<Ending> = others
            .iter()
            .copied()
            .cycle()
            .take(PER_SERVER - 1)
            .collect();
        chosen.push(*last);
        let replies = chosen.iter().map(|ending| ending.reply(dialect)).collect();
        let server = LoopbackServer::start(replies).unwrap();
        for (index, ending) in chosen.into_iter().enumerate() {
            ending.attempt(runtime, &server, dialect, index + 1);
        }
    }
}
