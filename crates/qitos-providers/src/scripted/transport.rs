//! The transport that plays one step, and the counts that all steps share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::model::Recording;
use super::step::{BodyEnd, Step, StepKind};
use crate::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};

/// What the script saw.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) recording: Recording,
    pub(crate) requests: std::collections::VecDeque<Vec<u8>>,
    pub(crate) request_count: usize,
    pub(crate) opened: usize,
    pub(crate) closed: usize,
}

/// Shared by the model, its transports and their bodies.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Record>);

impl Shared {
    pub(crate) fn new(recording: Recording) -> Self {
        Shared(Mutex::new(Record {
            recording,
            requests: std::collections::VecDeque::new(),
            request_count: 0,
            opened: 0,
            closed: 0,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, body: Vec<u8>) {
        let mut record = self.lock();
        record.request_count += 1;
        match record.recording {
            Recording::All => record.requests.push_back(body),
            Recording::Last(0) => {}
            Recording::Last(count) => {
                while record.requests.len() >= count {
                    record.requests.pop_front();
                }
                record.requests.push_back(body);
            }
        }
    }
}

/// Counts one opened connection and its end, however it ends.
#[derive(Debug)]
struct Connection(Arc<Shared>);

impl Connection {
    fn open(shared: &Arc<Shared>) -> Self {
        shared.lock().opened += 1;
        Connection(Arc::clone(shared))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.lock().closed += 1;
    }
}

/// Plays one step.
#[derive(Debug)]
pub(crate) struct OneStep {
    step: Mutex<Option<Step>>,
    model: Arc<str>,
    shared: Arc<Shared>,
}

impl OneStep {
    pub(crate) fn new(step: Step, model: Arc<str>, shared: Arc<Shared>) -> Self {
        OneStep {
            step: Mutex::new(Some(step)),
            model,
            shared,
        }
    }
}

#[async_trait]
impl HttpTransport for OneStep {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let streams = request
            .headers
            .iter()
            .any(|(name, value)| name == "accept" && value == "text/event-stream");
        self.shared.record(request.body);
        let connection = Connection::open(&self.shared);
        let step = self
            .step
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(step) = step else {
            return Err(TransportError::Exchange);
        };
        if let Some(gate) = &step.gate {
            gate.wait().await;
        }
        let event_stream = || vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        let (status, headers, chunks, end) = match step.kind {
            StepKind::Answer(answer) if streams => {
                let chunks = answer
                    .events(&self.model)
                    .into_iter()
                    .map(|data| format!("data: {data}\n\n").into_bytes())
                    .collect();
                (200, event_stream(), chunks, BodyEnd::Clean)
            }
            StepKind::Answer(answer) => {
                let chunks = vec![answer.body(&self.model)];
                (200, Vec::new(), chunks, BodyEnd::Clean)
            }
            StepKind::Body {
                status,
                headers,
                chunks,
                end,
            } => (status, headers, chunks, end),
            StepKind::Transport(error) => return Err(error),
            StepKind::Failure(_) => return Err(TransportError::Exchange),
            StepKind::HangBeforeHeaders => std::future::pending().await,
        };
        Ok(HttpResponse {
            status,
            headers,
            body: Box::new(ScriptedBody {
                chunks: chunks.into_iter(),
                current: Vec::new(),
                end,
                _connection: connection,
            }),
        })
    }
}

#[derive(Debug)]
struct ScriptedBody {
    chunks: std::vec::IntoIter<Vec<u8>>,
    current: Vec<u8>,
    end: BodyEnd,
    _connection: Connection,
}

#[async_trait]
impl HttpBody for ScriptedBody {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        match self.chunks.next() {
            Some(chunk) => {
                self.current = chunk;
                Ok(Some(&self.current))
            }
            None => match self.end {
                BodyEnd::Clean => Ok(None),
                BodyEnd::Reset => Err(TransportError::Reset),
                BodyEnd::Hang => std::future::pending().await,
            },
        }
    }
}
