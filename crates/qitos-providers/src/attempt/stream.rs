//! Reading a stream to its verdict (PRV-50 to PRV-56).

use async_trait::async_trait;
use qitos_contracts::model::{DeltaSink, ProviderError, ProviderFailure, RawResponse};
use serde_json::Value;

use super::{Attempt, FirstBytes};
use crate::failure;
use crate::http::HttpBody;
use crate::sse::{SseDecoder, SseError, SseEvent};
use crate::time_limits::{Expiry, bounded};
use crate::verdict::{Defect, FailedAnswer, Violation};

/// What one event meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The stream goes on.
    More,
    /// The answer is over, and nothing after this event is parsed (Chat `[DONE]`, PRV-55).
    Stop,
}

/// An answer that passed its verdict, in the form of the dialect's non-streamed one.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The dialect's response object.
    pub(crate) body: Value,
    /// Texts for people.
    pub(crate) warnings: Vec<String>,
}

/// The rules of one dialect's stream: events in, one verified answer or one defect out.
///
/// Pure: no clock, no I/O, no callback. Nothing that was fed is a success before
/// [`AnswerStream::finish`] has judged the whole answer (PRV-50), and the verdict follows from the
/// sequence of events alone (PRV-51).
pub(crate) trait AnswerStream: Send {
    /// Takes one event. Text that came before a defect in the same event stays visible through
    /// [`AnswerStream::undelivered`].
    fn accept(&mut self, event: &SseEvent<'_>) -> Result<Progress, Defect>;

    /// Text not yet shown to the consumer; calling it marks the text as delivered.
    fn undelivered(&mut self) -> Option<&str>;

    /// Whether the terminal of PRV-52 was seen: from now on a quiet server is no failure (PRV-56).
    fn has_terminal(&self) -> bool;

    /// Whether the dialect's end marker was seen: from now on a reset spoils nothing (PRV-55).
    fn has_end_marker(&self) -> bool;

    /// Judges the whole answer; called once, after the last event. Text that only the terminal
    /// carried is delivered afterwards through [`AnswerStream::undelivered`] (PRV-19).
    fn finish(&mut self) -> Result<Verified, Box<FailedAnswer>>;

    /// The evidence for a defect that an event, the transport or time caused.
    fn failed(&self, defect: Defect) -> Box<FailedAnswer>;
}

/// What reading a chunk gave, the chunk apart.
enum Read {
    End,
    Bytes,
    Grace,
    Reset,
}

impl Attempt<'_> {
    /// Reads the stream to its verdict.
    pub(super) async fn read_stream(
        mut self,
        mut stream: impl AnswerStream,
        first: FirstBytes,
        sink: &mut dyn DeltaSink,
    ) -> Result<RawResponse, ProviderError> {
        let mut unclean = false;
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
                Some(Err(_)) if stream.has_end_marker() => Read::Reset,
                Some(Err(error)) => {
                    let reached = self.reached();
                    let failure = failure::of_transport(&self.wire.target, error, reached);
                    return Err(self.with_counts(failure, &stream));
                }
                None if expiry == Expiry::Grace => Read::Grace,
                None => {
                    let reached = self.reached();
                    let failure = failure::of_timeout(&self.wire.target, expiry.kind(), reached);
                    return Err(self.with_counts(failure, &stream));
                }
            };
            self.body = body;
            match read {
                Read::Bytes => {}
                Read::Grace => break,
                Read::Reset => {
                    unclean = true;
                    break;
                }
                Read::End => {
                    let rest = decoder.finish().map_err(|error| self.sse(error, &stream))?;
                    if let Some(event) = rest {
                        self.accept(&mut stream, &event, sink)?;
                    }
                    break;
                }
            }
        }
        let mut verified = stream.finish().map_err(|failed| self.failed(&failed))?;
        if let Some(text) = stream.undelivered() {
            sink.delta(text).map_err(ProviderError::Consumer)?;
        }
        if unclean {
            verified.warnings.push("unclean_close".to_owned());
        }
        Ok(RawResponse {
            body: verified.body,
            streamed: true,
            warnings: verified.warnings,
            provider_request_id: self.provider_request_id,
        })
    }

    /// Feeds one chunk; true once the end marker was read.
    fn feed(
        &mut self,
        decoder: &mut SseDecoder,
        stream: &mut impl AnswerStream,
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
            if self.accept(stream, &event, sink)? == Progress::Stop {
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
        stream: &mut impl AnswerStream,
        event: &SseEvent<'_>,
        sink: &mut dyn DeltaSink,
    ) -> Result<Progress, ProviderError> {
        let outcome = stream.accept(event);
        if let Some(text) = stream.undelivered() {
            sink.delta(text).map_err(ProviderError::Consumer)?;
        }
        outcome.map_err(|defect| self.failed(&stream.failed(defect)))
    }

    fn sse(&self, error: SseError, stream: &impl AnswerStream) -> ProviderError {
        let violation = match error {
            SseError::InvalidUtf8 => Violation::MalformedEvent,
            SseError::EventTooLarge | SseError::BodyTooLarge => Violation::LimitExceeded,
        };
        self.failed(&stream.failed(violation.into()))
    }

    fn failed(&self, answer: &FailedAnswer) -> ProviderError {
        let id = self.provider_request_id.as_deref();
        failure::of_answer(&self.wire.target, answer, id).into()
    }

    /// A failure of transport or time, with what had arrived.
    fn with_counts(
        &self,
        mut failure: ProviderFailure,
        stream: &impl AnswerStream,
    ) -> ProviderError {
        let answer = stream.failed(Violation::MissingTerminal.into());
        failure::add_counts(&mut failure, &answer);
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
