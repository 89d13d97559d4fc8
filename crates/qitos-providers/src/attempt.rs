//! One attempt against a server of any dialect: open, read, judge (section 5).
//!
//! A dialect brings the body and, for a stream, the rules of its events ([`AnswerStream`]); what is
//! the same for all stands here: status lines, time limits, error bodies, closing.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::model::{
    DeltaSink, ProviderError, ProviderFailure, RawResponse, Target, WirePayload,
};
use serde_json::Value;

use crate::call::is_plain_id;
use crate::classify_failure::ProviderFault;
use crate::endpoint::Endpoint;
use crate::failure::{self, Reached};
use crate::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport};
use crate::sse::MAX_BODY_BYTES;
use crate::time_limits::{Deadlines, Expiry, TimeLimits, bounded};
use crate::verdict::{Defect, Violation};

mod stream;

pub(crate) use stream::{AnswerStream, Progress, Verified};

/// Most of an error body that is read for allow-listed words.
const ERROR_BODY_BYTES: usize = 64 * 1024;

/// Where requests go and how long they may take; what all attempts of one model share.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) target: Arc<Target>,
    pub(crate) endpoint: Endpoint,
    pub(crate) time_limits: TimeLimits,
}

impl Wire {
    /// The request body of a payload.
    pub(crate) fn body_of(&self, payload: &WirePayload) -> Result<Vec<u8>, ProviderError> {
        let mut body = Vec::new();
        payload
            .write_out(&mut body)
            .map_err(|_| failure::invalid_payload(&self.target))?;
        Ok(body)
    }

    /// One request whose answer is one JSON value, its text not yet judged (PRV-49).
    pub(crate) async fn whole(
        &self,
        transport: &dyn HttpTransport,
        body: Vec<u8>,
    ) -> Result<RawResponse, ProviderError> {
        let (attempt, _) = self.accepted(transport, body, false).await?;
        attempt.read_whole().await
    }

    /// One request whose answer streams; success only from the verdict of `stream` (PRV-50).
    pub(crate) async fn streamed(
        &self,
        transport: &dyn HttpTransport,
        body: Vec<u8>,
        stream: impl AnswerStream,
        sink: &mut dyn DeltaSink,
    ) -> Result<RawResponse, ProviderError> {
        let (mut attempt, content_type) = self.accepted(transport, body, true).await?;
        let first = attempt.expect_event_stream(content_type).await?;
        attempt.read_stream(stream, first, sink).await
    }

    /// Sends the request and takes a 2xx answer; any other status is its failure.
    async fn accepted(
        &self,
        transport: &dyn HttpTransport,
        body: Vec<u8>,
        streaming: bool,
    ) -> Result<(Attempt<'_>, Option<String>), ProviderError> {
        let mut deadlines = Deadlines::start(self.time_limits);
        let response = self.open(transport, body, streaming, &deadlines).await?;
        deadlines.received(false);
        let content_type = response.header("content-type").map(str::to_owned);
        let retry_after = retry_after(&response);
        let status = response.status;
        let mut attempt = Attempt {
            wire: self,
            provider_request_id: request_id(&response),
            body: response.body,
            deadlines,
            streaming,
        };
        if (200..=299).contains(&status) {
            return Ok((attempt, content_type));
        }
        let body = attempt.read_error_body(Vec::new()).await;
        let fault = ProviderFault::of_status(status, body.as_ref());
        let failure = failure::of_fault(&self.target, fault, retry_after);
        Err(attempt.with_request_id(failure))
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
    failure::of_timeout(target, expiry.kind(), reached).into()
}

/// What was read while finding out whether the body is an event stream.
type FirstBytes = Vec<u8>;

/// An attempt whose status line has arrived. Dropping it closes the connection.
struct Attempt<'wire> {
    wire: &'wire Wire,
    body: Box<dyn HttpBody>,
    deadlines: Deadlines,
    streaming: bool,
    provider_request_id: Option<String>,
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
        self.with_request_id(failure::of_defect(&self.wire.target, &defect))
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
                    let failure = failure::of_transport(&self.wire.target, error, reached);
                    return Err(self.with_request_id(failure));
                }
                None => return Err(timeout(&self.wire.target, expiry, self.reached())),
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
                        let failure = failure::of_transport(&self.wire.target, error, reached);
                        return Err(self.with_request_id(failure));
                    }
                    None => return Err(timeout(&self.wire.target, expiry, self.reached())),
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
}

fn request_id(response: &HttpResponse) -> Option<String> {
    ["x-request-id", "request-id", "apim-request-id"]
        .into_iter()
        .find_map(|name| response.header(name))
        .filter(|id| is_plain_id(id))
        .map(str::to_owned)
}

/// The wait that a provider asks for; a date is not read, because it needs a clock both agree on.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    const LONGEST_MS: f64 = 86_400_000.0;
    let number = |name: &str| {
        response
            .header(name)?
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
