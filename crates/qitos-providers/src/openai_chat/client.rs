//! One attempt against a Chat Completions server: open, read, judge (section 5).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, ProviderFailure,
    RawResponse, Target, WirePayload,
};
use serde_json::{Value, json};

use super::codec::ChatCodec;
use super::endpoint::Endpoint;
use super::map_error;
use super::request::facts_of_payload;
use super::response::is_plain_id;
use super::stream::{ChatStream, Progress};
use crate::classify_failure::ProviderFault;
use crate::failure::{self, Reached};
use crate::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport};
use crate::sse::{MAX_BODY_BYTES, SseDecoder, SseError};
use crate::time_limits::{Deadlines, Expiry, TimeLimits, bounded};
use crate::verdict::{Defect, Violation};

/// Most of an error body that is read for allow-listed words.
const ERROR_BODY_BYTES: usize = 64 * 1024;

/// A Chat Completions model behind any transport.
///
/// # Contract
/// One `send` is one wire request. With a sink it streams and judges the stream by the rules of
/// section 5.1; without one it asks for a whole answer and judges that alike. Everything an attempt
/// opened is closed when its future ends or is dropped.
#[derive(Debug)]
pub struct ChatModel {
    core: ChatCore,
    transport: Arc<dyn HttpTransport>,
}

/// What all attempts of one model share; the transport apart.
#[derive(Debug)]
pub(crate) struct ChatCore {
    pub(crate) target: Arc<Target>,
    pub(crate) capabilities: ProviderCapabilities,
    pub(crate) codec: ChatCodec,
    pub(crate) endpoint: Endpoint,
    pub(crate) time_limits: TimeLimits,
}

impl ChatModel {
    pub(crate) fn from_parts(core: ChatCore, transport: Arc<dyn HttpTransport>) -> Self {
        ChatModel { core, transport }
    }
}

#[async_trait]
impl Model for ChatModel {
    fn target(&self) -> &Arc<Target> {
        &self.core.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.core.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.core.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        self.core.attempt(&*self.transport, payload, on_delta).await
    }
}

impl ChatCore {
    /// One attempt over `transport`.
    pub(crate) async fn attempt(
        &self,
        transport: &dyn HttpTransport,
        mut payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let streaming = on_delta.is_some();
        if streaming {
            let head = payload.head_mut();
            head.insert("stream".to_owned(), true.into());
            if self.codec.profile().include_usage {
                let options = json!({"include_usage": true});
                head.insert("stream_options".to_owned(), options);
            }
        }
        let facts = facts_of_payload(&payload);
        let mut body = Vec::new();
        payload
            .write_out(&mut body)
            .map_err(|_| failure::invalid_payload(&self.target))?;
        drop(payload);

        let mut deadlines = Deadlines::start(self.time_limits);
        let response = self.open(transport, body, streaming, &deadlines).await?;
        deadlines.received(false);
        let mut attempt = Attempt {
            core: self,
            provider_request_id: request_id(&response),
            body: response.body,
            deadlines,
            streaming,
        };
        let head = ResponseHead {
            status: response.status,
            content_type: find(&response.headers, "content-type"),
            retry_after: retry_after(&response.headers),
        };
        if !(200..=299).contains(&head.status) {
            let body = attempt.read_error_body(Vec::new()).await;
            let fault = ProviderFault::of_status(head.status, body.as_ref());
            let mut failure = failure::of_fault(&self.target, fault, head.retry_after);
            failure.redacted_details.provider_request_id = attempt.provider_request_id.clone();
            return Err(failure.into());
        }
        match on_delta {
            None => attempt.read_whole().await,
            Some(sink) => {
                let stream = ChatStream::new(facts, Arc::clone(self.codec.profile()));
                let first = attempt.expect_event_stream(head.content_type).await?;
                attempt.read_stream(stream, first, sink).await
            }
        }
    }

    async fn open(
        &self,
        transport: &dyn HttpTransport,
        body: Vec<u8>,
        streaming: bool,
        deadlines: &Deadlines,
    ) -> Result<HttpResponse, ProviderError> {
        let request = HttpRequest {
            url: self.endpoint.url().to_owned(),
            headers: self.endpoint.headers(streaming),
            body,
            connect_timeout: self.time_limits.connect,
        };
        let reached = Reached {
            headers: false,
            streaming,
        };
        let (deadline, expiry) = deadlines.opening(streaming);
        match bounded(deadline, transport.send(request)).await {
            Some(Ok(response)) => Ok(response),
            Some(Err(error)) => Err(failure::of_transport(&self.target, error, reached).into()),
            None => Err(timeout(&self.target, expiry, reached)),
        }
    }
}

fn timeout(target: &Target, expiry: Expiry, reached: Reached) -> ProviderError {
    let kind = match expiry {
        Expiry::Timeout(kind) => kind,
        Expiry::Grace => qitos_contracts::model::TimeoutKind::Total,
    };
    failure::of_timeout(target, kind, reached).into()
}

struct ResponseHead {
    status: u16,
    content_type: Option<String>,
    retry_after: Option<Duration>,
}

/// What was read while finding out whether the body is an event stream.
type FirstBytes = Vec<u8>;

/// An attempt whose status line has arrived. Dropping it closes the connection.
struct Attempt<'model> {
    core: &'model ChatCore,
    body: Box<dyn HttpBody>,
    deadlines: Deadlines,
    streaming: bool,
    provider_request_id: Option<String>,
}

/// What reading a chunk gave, the chunk apart.
enum Read {
    End,
    Bytes,
    Grace,
}

impl Attempt<'_> {
    fn reached(&self) -> Reached {
        Reached {
            headers: true,
            streaming: self.streaming,
        }
    }

    fn with_request_id(&self, mut failure: ProviderFailure) -> ProviderError {
        failure.redacted_details.provider_request_id = self.provider_request_id.clone();
        failure.into()
    }

    fn defect(&self, defect: Defect) -> ProviderError {
        self.with_request_id(failure::of_defect(&self.core.target, &defect))
    }

    /// As much of an error body as its words need; what cannot be read says nothing.
    async fn read_error_body(&mut self, mut read: Vec<u8>) -> Option<Value> {
        while read.len() <= ERROR_BODY_BYTES {
            let (deadline, _) = self.deadlines.body();
            match bounded(deadline, self.body.next_chunk()).await? {
                Ok(Some(chunk)) => {
                    let room = ERROR_BODY_BYTES + 1 - read.len().min(ERROR_BODY_BYTES);
                    read.extend(chunk.iter().take(room));
                    self.deadlines.received(false);
                }
                Ok(None) => return serde_json::from_slice(&read).ok(),
                Err(_) => return None,
            }
        }
        None
    }

    /// A whole answer (PRV-49).
    async fn read_whole(mut self) -> Result<RawResponse, ProviderError> {
        let mut read = Vec::new();
        loop {
            let (deadline, expiry) = self.deadlines.body();
            match bounded(deadline, self.body.next_chunk()).await {
                Some(Ok(Some(chunk))) => {
                    if read.len() + chunk.len() > MAX_BODY_BYTES {
                        return Err(self.defect(Violation::LimitExceeded.into()));
                    }
                    read.extend_from_slice(chunk);
                    self.deadlines.received(false);
                }
                Some(Ok(None)) => break,
                Some(Err(error)) => {
                    let reached = self.reached();
                    let failure = failure::of_transport(&self.core.target, error, reached);
                    return Err(self.with_request_id(failure));
                }
                None => return Err(timeout(&self.core.target, expiry, self.reached())),
            }
        }
        match serde_json::from_slice(&read) {
            Ok(body) => Ok(RawResponse {
                body,
                streamed: false,
                warnings: Vec::new(),
                provider_request_id: self.provider_request_id,
            }),
            Err(_) => Err(self.defect(Defect::NotJson)),
        }
    }

    /// Makes sure that a 200 answer is an event stream; returns what was read to find out.
    async fn expect_event_stream(
        &mut self,
        content_type: Option<String>,
    ) -> Result<FirstBytes, ProviderError> {
        let mut first = Vec::new();
        match content_type {
            Some(content_type) if is_event_stream(&content_type) => return Ok(first),
            Some(_) => {}
            // Common proxies drop the type; the first bytes tell (PRV-S13).
            None => loop {
                match begins_event_stream(&first) {
                    Some(true) => return Ok(first),
                    Some(false) => break,
                    None => {}
                }
                let (deadline, expiry) = self.deadlines.streaming();
                match bounded(deadline, self.body.next_chunk()).await {
                    Some(Ok(Some(chunk))) => first.extend_from_slice(chunk),
                    Some(Ok(None)) => break,
                    Some(Err(error)) => {
                        let reached = self.reached();
                        let failure = failure::of_transport(&self.core.target, error, reached);
                        return Err(self.with_request_id(failure));
                    }
                    None => return Err(timeout(&self.core.target, expiry, self.reached())),
                }
                self.deadlines.received(false);
            },
        }
        let defect = match self.read_error_body(first).await {
            Some(body) => match body.get("error") {
                Some(error) if !error.is_null() => Defect::Fault(ProviderFault::in_stream(error)),
                _ => Violation::NonSseBody.into(),
            },
            None => Violation::NonSseBody.into(),
        };
        Err(self.defect(defect))
    }

    /// Reads the stream to its verdict (PRV-50 to PRV-56).
    async fn read_stream(
        mut self,
        mut stream: ChatStream,
        first: FirstBytes,
        sink: &mut dyn DeltaSink,
    ) -> Result<RawResponse, ProviderError> {
        let mut decoder = SseDecoder::default();
        let mut ended = self.feed(&mut decoder, &mut stream, &first, sink)?;
        while !ended {
            if stream.has_terminal() {
                self.deadlines.terminal_seen();
            }
            let (deadline, expiry) = self.deadlines.streaming();
            // The chunk stays borrowed from the body, so the body is taken out while it is fed.
            let mut body = std::mem::replace(&mut self.body, Box::new(NoBody));
            let read = match bounded(deadline, body.next_chunk()).await {
                Some(Ok(Some(chunk))) => {
                    ended = self.feed(&mut decoder, &mut stream, chunk, sink)?;
                    Read::Bytes
                }
                Some(Ok(None)) => Read::End,
                Some(Err(error)) => {
                    let reached = self.reached();
                    let failure = failure::of_transport(&self.core.target, error, reached);
                    return Err(self.with_counts(failure, &stream));
                }
                None if expiry == Expiry::Grace => Read::Grace,
                None => {
                    let kind = match expiry {
                        Expiry::Timeout(kind) => kind,
                        Expiry::Grace => qitos_contracts::model::TimeoutKind::Total,
                    };
                    let failure = failure::of_timeout(&self.core.target, kind, self.reached());
                    return Err(self.with_counts(failure, &stream));
                }
            };
            self.body = body;
            match read {
                Read::Bytes => {}
                Read::Grace => break,
                Read::End => {
                    let rest = decoder.finish().map_err(|error| self.sse(error, &stream))?;
                    if let Some(event) = rest {
                        self.accept(&mut stream, event.data, sink)?;
                    }
                    break;
                }
            }
        }
        let answer = stream.finish();
        let failed = |failed: Box<super::stream::FailedAnswer>| {
            let id = self.provider_request_id.as_deref();
            map_error::of_answer(&self.core.target, &failed, id)
        };
        let (completion, validated) = answer.map_err(failed)?;
        let mut warnings = Vec::new();
        if validated.stop_carried_calls {
            warnings.push("stop_carried_tool_calls".to_owned());
        }
        Ok(RawResponse {
            body: completion.into_value(),
            streamed: true,
            warnings,
            provider_request_id: self.provider_request_id,
        })
    }

    /// Feeds one chunk; true once the end marker was read.
    fn feed(
        &mut self,
        decoder: &mut SseDecoder,
        stream: &mut ChatStream,
        chunk: &[u8],
        sink: &mut dyn DeltaSink,
    ) -> Result<bool, ProviderError> {
        let mut position = 0;
        let mut events = false;
        let mut ended = false;
        while let Some(event) = decoder
            .next_event(chunk, &mut position)
            .map_err(|error| self.sse(error, stream))?
        {
            events = true;
            if self.accept(stream, event.data, sink)? == Progress::EndMarker {
                ended = true;
                break;
            }
        }
        self.deadlines.received(events);
        Ok(ended)
    }

    /// Takes one event and delivers its text before anything else is decided (PRV-93, PRV-95).
    fn accept(
        &self,
        stream: &mut ChatStream,
        data: &str,
        sink: &mut dyn DeltaSink,
    ) -> Result<Progress, ProviderError> {
        let outcome = stream.accept(data);
        if let Some(text) = stream.undelivered() {
            sink.delta(text).map_err(ProviderError::Consumer)?;
        }
        outcome.map_err(|defect| self.stream_defect(defect, stream))
    }

    fn sse(&self, error: SseError, stream: &ChatStream) -> ProviderError {
        let violation = match error {
            SseError::InvalidUtf8 => Violation::MalformedEvent,
            SseError::EventTooLarge | SseError::BodyTooLarge => Violation::LimitExceeded,
        };
        self.stream_defect(violation.into(), stream)
    }

    fn stream_defect(&self, defect: Defect, stream: &ChatStream) -> ProviderError {
        let id = self.provider_request_id.as_deref();
        map_error::of_answer(&self.core.target, &stream.failed(defect), id).into()
    }

    /// A failure of transport or time, with what had arrived.
    fn with_counts(&self, failure: ProviderFailure, stream: &ChatStream) -> ProviderError {
        let answer = stream.failed(Violation::MissingTerminal.into());
        let mut failure = failure;
        map_error::add_counts(&mut failure, &answer);
        self.with_request_id(failure)
    }
}

/// Stands in while a body is read.
#[derive(Debug)]
struct NoBody;

#[async_trait]
impl HttpBody for NoBody {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, crate::http::TransportError> {
        Ok(None)
    }
}

fn find(headers: &[(String, String)], name: &str) -> Option<String> {
    headers
        .iter()
        .find(|(candidate, _)| candidate == name)
        .map(|(_, value)| value.clone())
}

fn request_id(response: &HttpResponse) -> Option<String> {
    ["x-request-id", "request-id", "apim-request-id"]
        .into_iter()
        .find_map(|name| response.header(name))
        .filter(|id| is_plain_id(id))
        .map(str::to_owned)
}

/// The wait that a provider asks for; a date is not read, because it needs a clock both agree on.
fn retry_after(headers: &[(String, String)]) -> Option<Duration> {
    const LONGEST_MS: f64 = 86_400_000.0;
    let number = |name: &str| {
        find(headers, name)?
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite() && *value >= 0.0)
    };
    let milliseconds = match number("retry-after-ms") {
        Some(milliseconds) => milliseconds,
        None => number("retry-after")? * 1_000.0,
    };
    Some(Duration::from_secs_f64(
        milliseconds.min(LONGEST_MS) / 1_000.0,
    ))
}

fn is_event_stream(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}

/// Whether a body without a type begins like an event stream; `None` as long as nobody can tell.
fn begins_event_stream(first: &[u8]) -> Option<bool> {
    const MARK: &[u8] = &[0xEF, 0xBB, 0xBF];
    let begins = |pattern: &[u8], bytes: &[u8]| {
        if bytes.starts_with(pattern) {
            Some(true)
        } else if pattern.starts_with(bytes) {
            None
        } else {
            Some(false)
        }
    };
    let bytes = match begins(MARK, first) {
        None => return None,
        Some(true) => first.get(MARK.len()..).unwrap_or_default(),
        Some(false) => first,
    };
    let answers = [&b"data:"[..], b"event:", b":"].map(|pattern| begins(pattern, bytes));
    if answers.contains(&Some(true)) {
        Some(true)
    } else if answers.contains(&None) {
        None
    } else {
        Some(false)
    }
}
