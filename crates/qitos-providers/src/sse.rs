//! Bytes to server-sent events: pure, bounded, incremental (PRV-58, PRV-59, PRV-60).
//!
//! The decoder never waits and never reads: the caller hands it chunks as they arrive and pulls
//! events until none is left. An event that lies inside one chunk is lent straight from that chunk;
//! only what a chunk boundary cuts is copied. Which events come out depends on the byte sequence
//! alone, never on how it was cut (PRV-51).
//!
//! Lines end at CR LF, LF or CR and nowhere else: U+0085, U+2028 and their like are data, because a
//! model may write them. UTF-8 is judged per complete line, so a character cut between two chunks is
//! not an error and an invalid byte is never replaced (PRV-S4, PRV-S6).

use std::ops::Range;

/// Largest event, in bytes of its lines without line ends (PRV-60).
pub const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;
/// Largest body, in bytes (PRV-60).
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Bounds of one decoder; the defaults are those of PRV-60.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseLimits {
    /// Largest event, in bytes.
    pub event_bytes: usize,
    /// Largest body, in bytes.
    pub body_bytes: usize,
}

impl Default for SseLimits {
    fn default() -> Self {
        SseLimits {
            event_bytes: MAX_EVENT_BYTES,
            body_bytes: MAX_BODY_BYTES,
        }
    }
}

/// One dispatched event, lent from the chunk or from the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event:` field, empty if there was none.
    pub kind: &'a str,
    /// The `data:` lines joined with LF; never empty.
    pub data: &'a str,
}

/// Why a byte sequence is no event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// A complete line is not UTF-8.
    #[error("a line of the event stream is not UTF-8")]
    InvalidUtf8,
    /// One event exceeds [`SseLimits::event_bytes`].
    #[error("an event of the stream exceeds its size limit")]
    EventTooLarge,
    /// The body exceeds [`SseLimits::body_bytes`].
    #[error("the event stream exceeds its size limit")]
    BodyTooLarge,
}

/// Where the data of the event being read is kept.
#[derive(Clone, Debug, Default)]
enum Held {
    /// No data line yet.
    #[default]
    Nothing,
    /// One data line inside the chunk being read.
    InChunk(Range<usize>),
    /// Copied into `data`.
    Copied,
}

/// The incremental decoder.
///
/// # Contract
/// For each chunk: call [`SseDecoder::next_event`] with the same chunk and position until it
/// returns `None`; then feed the next chunk with position 0. At a clean end of the body call
/// [`SseDecoder::finish`]. After an error the decoder stays in error.
#[derive(Debug, Default)]
pub struct SseDecoder {
    limits: SseLimits,
    /// The part of an unfinished line that came with earlier chunks.
    line: Vec<u8>,
    /// Joined data of an event that could not be lent.
    data: Vec<u8>,
    held: Held,
    /// Whether `data` and `kind` belong to an event already given out.
    given_out: bool,
    kind: String,
    /// A CR ended the last line; an LF right after it belongs to that line end.
    after_carriage_return: bool,
    /// How many bytes of a leading byte order mark were seen; 3 or more: the question is settled.
    byte_order_mark: usize,
    consumed: usize,
    failed: Option<SseError>,
}

const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];
const SETTLED: usize = usize::MAX;

/// Where a complete line lies.
enum Line {
    Chunk(Range<usize>),
    Carried,
}

enum Step {
    Continue,
    Dispatch,
}

impl SseDecoder {
    /// A decoder with its own bounds.
    #[must_use]
    pub fn new(limits: SseLimits) -> Self {
        SseDecoder {
            limits,
            ..SseDecoder::default()
        }
    }

    /// The next event that ends inside `chunk`, reading from `position` and moving it.
    ///
    /// `None` means the chunk is used up. The event borrows the chunk or the decoder and must be
    /// dropped before the next call.
    ///
    /// # Errors
    /// [`SseError`]; the same error is returned by every later call.
    pub fn next_event<'a>(
        &'a mut self,
        chunk: &'a [u8],
        position: &mut usize,
    ) -> Result<Option<SseEvent<'a>>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.advance(chunk, position) {
            Ok(true) => self.lend(chunk).map(Some),
            Ok(false) => Ok(None),
            Err(error) => {
                self.failed = Some(error);
                Err(error)
            }
        }
    }

    /// The event left undelimited by a clean end of the body (PRV-59).
    ///
    /// It is dispatched only if its data is one complete JSON object or `[DONE]`: an object delimits
    /// itself, so nothing can be missing. Anything else is dropped, and the missing terminal decides.
    ///
    /// # Errors
    /// [`SseError`] of an earlier call; an undelimited rest is never an error by itself.
    pub fn finish(&mut self) -> Result<Option<SseEvent<'_>>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.forget_given_out();
        self.settle_short_byte_order_mark();
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            match std::str::from_utf8(&line) {
                Ok(text) => {
                    self.accept_carried(text);
                }
                Err(_) => return Ok(None),
            }
        }
        let Ok(data) = std::str::from_utf8(&self.data) else {
            return Ok(None);
        };
        if matches!(self.held, Held::Nothing) || !is_self_delimiting(data) {
            return Ok(None);
        }
        self.given_out = true;
        Ok(Some(SseEvent {
            kind: &self.kind,
            data,
        }))
    }

    /// Bytes of the body consumed so far.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    fn forget_given_out(&mut self) {
        if self.given_out {
            self.given_out = false;
            self.data.clear();
            self.kind.clear();
            self.held = Held::Nothing;
        }
    }

    /// Reads lines until an event is complete (true) or the chunk is used up (false).
    fn advance(&mut self, chunk: &[u8], position: &mut usize) -> Result<bool, SseError> {
        self.forget_given_out();
        let body_left = self.limits.body_bytes - self.consumed.min(self.limits.body_bytes);
        let end = chunk.len().min(position.saturating_add(body_left));
        let start = *position;
        let found = self.read_lines(chunk, position, end);
        self.consumed += *position - start;
        match found? {
            Step::Dispatch => Ok(true),
            Step::Continue if end < chunk.len() => Err(SseError::BodyTooLarge),
            Step::Continue => {
                self.keep_held(chunk);
                Ok(false)
            }
        }
    }

    fn read_lines(
        &mut self,
        chunk: &[u8],
        position: &mut usize,
        end: usize,
    ) -> Result<Step, SseError> {
        self.skip_byte_order_mark(chunk, position, end);
        while *position < end {
            let rest = chunk.get(*position..end).unwrap_or_default();
            if self.after_carriage_return {
                self.after_carriage_return = false;
                if rest.first() == Some(&b'\n') {
                    *position += 1;
                    continue;
                }
            }
            let Some(length) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                *position = end;
                return self
                    .check_event_size(self.line.len())
                    .map(|()| Step::Continue);
            };
            let line_start = *position;
            *position += length + 1;
            self.after_carriage_return = rest.get(length) == Some(&b'\r');
            let line = if self.line.is_empty() {
                Line::Chunk(line_start..line_start + length)
            } else {
                self.line
                    .extend_from_slice(rest.get(..length).unwrap_or_default());
                Line::Carried
            };
            if let Step::Dispatch = self.accept_line(chunk, line)? {
                return Ok(Step::Dispatch);
            }
        }
        Ok(Step::Continue)
    }

    /// Drops one leading byte order mark, however it is cut (PRV-S5).
    fn skip_byte_order_mark(&mut self, chunk: &[u8], position: &mut usize, end: usize) {
        while self.byte_order_mark < BYTE_ORDER_MARK.len() && *position < end {
            let expected = BYTE_ORDER_MARK.get(self.byte_order_mark);
            if chunk.get(*position) == expected {
                self.byte_order_mark += 1;
                *position += 1;
            } else {
                self.settle_short_byte_order_mark();
            }
        }
    }

    /// The bytes taken for a mark were none: they are the start of the first line.
    fn settle_short_byte_order_mark(&mut self) {
        if self.byte_order_mark < BYTE_ORDER_MARK.len() {
            let taken = BYTE_ORDER_MARK
                .get(..self.byte_order_mark)
                .unwrap_or_default();
            self.line.extend_from_slice(taken);
        }
        self.byte_order_mark = SETTLED;
    }

    fn check_event_size(&self, line_bytes: usize) -> Result<(), SseError> {
        let held = match &self.held {
            Held::Nothing => 0,
            Held::InChunk(range) => range.len(),
            Held::Copied => self.data.len(),
        };
        let total = held + self.kind.len() + line_bytes;
        if total > self.limits.event_bytes {
            return Err(SseError::EventTooLarge);
        }
        Ok(())
    }

    fn accept_line(&mut self, chunk: &[u8], line: Line) -> Result<Step, SseError> {
        match line {
            Line::Chunk(range) => {
                let bytes = chunk.get(range.clone()).unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(self.end_of_event());
                }
                self.check_event_size(bytes.len())?;
                let text = std::str::from_utf8(bytes).map_err(|_| SseError::InvalidUtf8)?;
                match split_field(text) {
                    Field::Data(value) if matches!(self.held, Held::Nothing) => {
                        self.held = Held::InChunk(range.end - value.len()..range.end);
                    }
                    Field::Data(value) => {
                        self.keep_held(chunk);
                        self.append_data(value);
                    }
                    Field::Kind(value) => {
                        self.kind.clear();
                        self.kind.push_str(value);
                    }
                    Field::Ignored => {}
                }
                Ok(Step::Continue)
            }
            Line::Carried => {
                self.keep_held(chunk);
                let line = std::mem::take(&mut self.line);
                self.check_event_size(line.len())?;
                let text = std::str::from_utf8(&line).map_err(|_| SseError::InvalidUtf8)?;
                self.accept_carried(text);
                // The allocation serves the next cut line.
                self.line = line;
                self.line.clear();
                Ok(Step::Continue)
            }
        }
    }

    fn accept_carried(&mut self, text: &str) {
        match split_field(text) {
            Field::Data(value) => self.append_data(value),
            Field::Kind(value) => {
                self.kind.clear();
                self.kind.push_str(value);
            }
            Field::Ignored => {}
        }
    }

    /// Copies what lies in the chunk, because the chunk is about to go or a second line joins it.
    fn keep_held(&mut self, chunk: &[u8]) {
        if let Held::InChunk(range) = &self.held {
            let bytes = chunk.get(range.clone()).unwrap_or_default();
            self.data.clear();
            self.data.extend_from_slice(bytes);
            self.held = Held::Copied;
        }
    }

    fn append_data(&mut self, value: &str) {
        if matches!(self.held, Held::Copied) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value.as_bytes());
        self.held = Held::Copied;
    }

    /// A blank line: dispatches unless the data is empty.
    fn end_of_event(&mut self) -> Step {
        let empty = match &self.held {
            Held::Nothing => true,
            Held::InChunk(range) => range.is_empty(),
            Held::Copied => self.data.is_empty(),
        };
        if empty {
            self.given_out = true;
            self.forget_given_out();
            return Step::Continue;
        }
        self.given_out = true;
        Step::Dispatch
    }

    fn lend<'a>(&'a self, chunk: &'a [u8]) -> Result<SseEvent<'a>, SseError> {
        let bytes = match &self.held {
            Held::InChunk(range) => chunk.get(range.clone()).unwrap_or_default(),
            Held::Nothing | Held::Copied => self.data.as_slice(),
        };
        // Every line was judged when it was complete and an LF between lines is ASCII, so this
        // cannot fail; the check costs a small part of parsing the event.
        let data = std::str::from_utf8(bytes).map_err(|_| SseError::InvalidUtf8)?;
        Ok(SseEvent {
            kind: &self.kind,
            data,
        })
    }
}

enum Field<'a> {
    Data(&'a str),
    Kind(&'a str),
    Ignored,
}

fn split_field(line: &str) -> Field<'_> {
    let (name, value) = match line.split_once(':') {
        Some((name, value)) => (name, value.strip_prefix(' ').unwrap_or(value)),
        None => (line, ""),
    };
    match name {
        "data" => Field::Data(value),
        "event" => Field::Kind(value),
        _ => Field::Ignored,
    }
}

/// Whether nothing can be missing from `data`: `[DONE]` or one complete JSON object.
fn is_self_delimiting(data: &str) -> bool {
    let trimmed = data.trim();
    trimmed == "[DONE]"
        || (trimmed.starts_with('{')
            && serde_json::from_str::<serde::de::IgnoredAny>(trimmed).is_ok())
}

#[cfg(test)]
mod tests;
