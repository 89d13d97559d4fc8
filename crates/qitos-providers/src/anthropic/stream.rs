//! The Messages stream: events in, one verified answer or one defect out (section 5.3).
//!
//! Its contract is that of [`AnswerStream`].

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::block::{Block, Content, read_block, text_of_input};
use super::event::{Delta, Event, KNOWN, Kind, MessageStart};
use super::profile::AnthropicProfile;
use super::response::{MAX_BLOCKS, Message};
use super::usage::Usage;
use crate::attempt::{AnswerStream, Progress, Verified};
use crate::call::{MAX_ACCUMULATED_BYTES, MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS};
use crate::classify_failure::ProviderFault;
use crate::json_text::{Object, keep_name};
use crate::sse::SseEvent;
use crate::verdict::{
    Defect, FailedAnswer, PartialCounts, Violation, means_no_arguments, parse_object,
};

/// The state of one stream.
#[derive(Debug, Default)]
pub(crate) struct AnthropicStream {
    profile: Arc<AnthropicProfile>,
    started: bool,
    id: String,
    model: String,
    /// The text of all text blocks; each knows where it begins.
    text: String,
    delivered: usize,
    blocks: Vec<OpenBlock>,
    /// Where the block with an index stands.
    places: HashMap<u64, usize>,
    /// Where the newest text block stands.
    last_text: Option<usize>,
    calls: usize,
    accumulated: usize,
    stop_reason: String,
    stopped: bool,
    usage: Usage,
}

/// A block being put together.
#[derive(Debug)]
struct OpenBlock {
    is_open: bool,
    block: Block,
    pieces: Pieces,
}

/// What arrives beside the fields that a block holds already.
#[derive(Debug, Default)]
struct Pieces {
    /// Where a text block begins in the text of the stream.
    text_from: usize,
    /// `input` as the start event had it, written out.
    start_input: String,
    /// The pieces of `input`.
    input: String,
    /// A piece arrived that nobody knows how to add, so the block cannot go back as it was meant.
    is_incomplete: bool,
}

impl AnthropicStream {
    pub(crate) fn new(profile: Arc<AnthropicProfile>) -> Self {
        AnthropicStream {
            profile,
            ..AnthropicStream::default()
        }
    }

    fn start_message(&mut self, message: Option<MessageStart<'_>>) -> Result<(), Defect> {
        if self.started {
            return Err(Violation::EventOrder.into());
        }
        let message = message.ok_or(Violation::MalformedEvent)?;
        // Content comes in blocks; what came here would be lost.
        if message.content.is_some_and(|content| !content.is_empty()) {
            return Err(Violation::EventOrder.into());
        }
        self.started = true;
        keep_name(&mut self.id, message.id.as_str());
        keep_name(&mut self.model, message.model.as_str());
        self.usage.grow(message.usage.0);
        Ok(())
    }

    /// Content may come between the start and the stop reason only (A5, A6).
    fn expect_content(&self) -> Result<(), Defect> {
        if !self.started {
            return Err(Violation::EventOrder.into());
        }
        if !self.stop_reason.is_empty() {
            return Err(Violation::ContentAfterTerminal.into());
        }
        Ok(())
    }

    fn start_block(
        &mut self,
        index: Option<u64>,
        block: Option<Value>,
        event_bytes: usize,
    ) -> Result<(), Defect> {
        self.expect_content()?;
        let (Some(index), Some(block)) = (index, block) else {
            return Err(Violation::MalformedEvent.into());
        };
        let place = self.blocks.len();
        if self.places.insert(index, place).is_some() {
            return Err(Violation::EventOrder.into());
        }
        if place >= MAX_BLOCKS {
            return Err(Violation::LimitExceeded.into());
        }
        let (mut block, start_input) = read_block(block).map_err(in_stream)?;
        let pieces = Pieces {
            text_from: self.text.len(),
            start_input: text_of_input(start_input).map_err(in_stream)?,
            ..Pieces::default()
        };
        match &mut block.content {
            Content::Text(text) => {
                let text = std::mem::take(text);
                self.accumulate(text.len())?;
                self.text.push_str(&text);
                self.last_text = Some(place);
            }
            Content::Thinking {
                thinking,
                signature,
            } => self.accumulate(thinking.len() + signature.len())?,
            Content::ToolUse(_) if self.calls >= MAX_TOOL_SLOTS => {
                return Err(Violation::LimitExceeded.into());
            }
            Content::ToolUse(_) => {
                self.accumulate(pieces.start_input.len())?;
                self.calls += 1;
            }
            Content::Native => self.accumulate(event_bytes)?,
        }
        self.blocks.push(OpenBlock {
            is_open: true,
            block,
            pieces,
        });
        Ok(())
    }

    fn add_delta(
        &mut self,
        index: Option<u64>,
        delta: Option<Delta<'_>>,
        event_bytes: usize,
    ) -> Result<(), Defect> {
        self.expect_content()?;
        let (Some(index), Some(delta)) = (index, delta) else {
            return Err(Violation::MalformedEvent.into());
        };
        let place = self.open_place(index)?;
        let added = [
            &delta.text,
            &delta.thinking,
            &delta.signature,
            &delta.partial_json,
        ];
        let citation_bytes = delta.citation.as_ref().map_or(0, |_| event_bytes);
        let bytes: usize = added.iter().map(|text| text.as_str().len()).sum();
        self.accumulate(bytes + citation_bytes)?;
        let Some(OpenBlock { block, pieces, .. }) = self.blocks.get_mut(place) else {
            return Err(Violation::EventOrder.into());
        };
        match (delta.kind.as_str(), &mut block.content) {
            ("text_delta", Content::Text(_)) => {
                // The deltas are shown as they come, so text cannot go back before other text (PRV-19).
                if self.last_text != Some(place) {
                    return Err(Violation::EventOrder.into());
                }
                self.text.push_str(delta.text.as_str());
            }
            ("thinking_delta", Content::Thinking { thinking, .. }) => {
                thinking.push_str(delta.thinking.as_str());
            }
            ("signature_delta", Content::Thinking { signature, .. }) => {
                signature.push_str(delta.signature.as_str());
            }
            ("input_json_delta", Content::ToolUse(_) | Content::Native) => {
                if pieces.input.len() + delta.partial_json.as_str().len() > MAX_ARGUMENT_BYTES {
                    return Err(Violation::LimitExceeded.into());
                }
                pieces.input.push_str(delta.partial_json.as_str());
            }
            ("citations_delta", Content::Text(_)) => {
                let citation = delta.citation.ok_or(Violation::MalformedEvent)?;
                add_citation(&mut block.rest, citation);
            }
            (
                "text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"
                | "citations_delta",
                Content::Text(_) | Content::Thinking { .. } | Content::ToolUse(_),
            ) => return Err(Violation::MalformedEvent.into()),
            (_, Content::Native) => pieces.is_incomplete = true,
            _ => {}
        }
        Ok(())
    }

    fn open_place(&self, index: u64) -> Result<usize, Defect> {
        let place = self.places.get(&index).copied();
        place
            .filter(|place| self.blocks.get(*place).is_some_and(|open| open.is_open))
            .ok_or_else(|| Violation::EventOrder.into())
    }

    fn stop_block(&mut self, index: Option<u64>) -> Result<(), Defect> {
        self.expect_content()?;
        let index = index.ok_or(Violation::MalformedEvent)?;
        let place = self.open_place(index)?;
        if let Some(open) = self.blocks.get_mut(place) {
            open.is_open = false;
        }
        Ok(())
    }

    fn accept_stop_reason(&mut self, stop_reason: &str) -> Result<(), Defect> {
        if !self.started {
            return Err(Violation::EventOrder.into());
        }
        if stop_reason.is_empty() || self.stop_reason == stop_reason {
            return Ok(());
        }
        if !self.stop_reason.is_empty() {
            return Err(Violation::ConflictingTerminal.into());
        }
        self.stop_reason.push_str(stop_reason);
        Ok(())
    }

    fn stop_message(&mut self) -> Result<(), Defect> {
        if !self.started {
            return Err(Violation::EventOrder.into());
        }
        if self.stop_reason.is_empty() {
            return Err(Violation::MissingTerminal.into());
        }
        if self.blocks.iter().any(|open| open.is_open) {
            return Err(Violation::EventOrder.into());
        }
        self.stopped = true;
        Ok(())
    }

    /// The whole answer; what cannot go back as it was meant is left out and said.
    fn into_message(self, warnings: &mut Vec<String>) -> Message {
        let mut message = Message {
            id: self.id,
            model: self.model,
            blocks: Vec::with_capacity(self.blocks.len()),
            stop_reason: self.stop_reason,
            usage: self.usage,
            inputs_disagree: false,
        };
        let mut text_to = self.text.len();
        for open in self.blocks.into_iter().rev() {
            let OpenBlock {
                mut block, pieces, ..
            } = open;
            match &mut block.content {
                Content::Text(text) => {
                    let piece = self.text.get(pieces.text_from..text_to);
                    text.push_str(piece.unwrap_or_default());
                    text_to = pieces.text_from;
                }
                Content::Thinking { .. } => {}
                Content::ToolUse(call) => match pieces.arguments() {
                    Some(arguments) => call.arguments = arguments,
                    None => message.inputs_disagree = true,
                },
                Content::Native => {
                    let input = (!means_no_arguments(&pieces.input))
                        .then(|| serde_json::from_str::<Value>(&pieces.input));
                    match input {
                        None => {}
                        Some(Ok(input)) => {
                            block.rest.insert("input".to_owned(), input);
                        }
                        Some(Err(_)) => block.rest.clear(),
                    }
                    if pieces.is_incomplete || block.rest.is_empty() {
                        warnings.push("native_block_left_out".to_owned());
                        continue;
                    }
                }
            }
            message.blocks.push(block);
        }
        message.blocks.reverse();
        message
    }

    fn accumulate(&mut self, bytes: usize) -> Result<(), Defect> {
        self.accumulated = self.accumulated.saturating_add(bytes);
        if self.accumulated > MAX_ACCUMULATED_BYTES {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(())
    }
}

impl Pieces {
    /// The pieces if there are any, else what the start event had; none if both say something and not the same.
    fn arguments(self) -> Option<String> {
        if means_no_arguments(&self.input) {
            return Some(self.start_input);
        }
        let is_blank = matches!(self.start_input.as_str(), "" | "{}" | "null");
        let agree = || match (parse_object(&self.start_input), parse_object(&self.input)) {
            (Ok(start), Ok(pieces)) => start == pieces,
            _ => false,
        };
        (is_blank || agree()).then_some(self.input)
    }
}

/// A block's shape is judged where its event is.
fn in_stream(defect: Defect) -> Defect {
    match defect {
        Defect::Malformed => Violation::MalformedEvent.into(),
        other => other,
    }
}

fn add_citation(rest: &mut Map<String, Value>, citation: Value) {
    match rest.get_mut("citations") {
        Some(Value::Array(citations)) => citations.push(citation),
        _ => {
            rest.insert("citations".to_owned(), Value::Array(vec![citation]));
        }
    }
}

/// Reads an event; one of an unknown type is ignored whatever its fields look like.
fn read<'a>(event: &SseEvent<'a>) -> Result<Option<Event<'a>>, Defect> {
    if let Ok(read) = Event::read(event.data) {
        return Ok(Some(read));
    }
    match serde_json::from_str::<Object<Kind<'_>>>(event.data) {
        Ok(Object(Some(Kind { kind }))) => {
            let kind = match kind.as_str() {
                "" => event.kind,
                kind => kind,
            };
            if KNOWN.contains(&kind) {
                Err(Violation::MalformedEvent.into())
            } else {
                Ok(None)
            }
        }
        _ => Err(Violation::MalformedEvent.into()),
    }
}

impl AnswerStream for AnthropicStream {
    fn accept(&mut self, event: &SseEvent<'_>) -> Result<Progress, Defect> {
        if event.data.trim() == "[DONE]" {
            // Not of this dialect; some servers add it (A23).
            return if self.stopped {
                Ok(Progress::More)
            } else {
                Err(Violation::MissingTerminal.into())
            };
        }
        let read = read(event)?;
        if self.stopped {
            return match read {
                Some(read) if kind_of(&read, event) == "ping" => Ok(Progress::More),
                _ => Err(Violation::ContentAfterTerminal.into()),
            };
        }
        let Some(read) = read else {
            return Ok(Progress::More);
        };
        let bytes = event.data.len();
        match kind_of(&read, event) {
            "message_start" => self.start_message(read.message.0)?,
            "content_block_start" => self.start_block(read.index, read.content_block, bytes)?,
            "content_block_delta" => self.add_delta(read.index, read.delta.0, bytes)?,
            "content_block_stop" => self.stop_block(read.index)?,
            "message_delta" => {
                self.usage.grow(read.usage.0);
                let delta = read.delta.0;
                let reason = delta
                    .as_ref()
                    .map_or("", |delta| delta.stop_reason.as_str());
                self.accept_stop_reason(reason)?;
            }
            "message_stop" => self.stop_message()?,
            "error" => {
                let error = read.error.unwrap_or_default();
                return Err(Defect::Fault(ProviderFault::in_stream(&error)));
            }
            // Gateways report their own errors without a type.
            "" if read.error.is_some() => {
                let error = read.error.unwrap_or_default();
                return Err(Defect::Fault(ProviderFault::in_stream(&error)));
            }
            _ => {}
        }
        Ok(Progress::More)
    }

    fn undelivered(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.delivered, self.text.len());
        self.text.get(from..).filter(|text| !text.is_empty())
    }

    fn has_terminal(&self) -> bool {
        self.stopped
    }

    fn has_end_marker(&self) -> bool {
        self.stopped
    }

    fn finish(&mut self) -> Result<Verified, Box<FailedAnswer>> {
        if !self.stopped {
            return Err(self.failed(Violation::MissingTerminal.into()));
        }
        let answer = std::mem::take(self);
        let profile = Arc::clone(&answer.profile);
        let mut warnings = Vec::new();
        let message = answer.into_message(&mut warnings);
        let defect = match message.validate(&profile, true) {
            Err(defect) => defect,
            // A number that no reader holds is found when the value is made, not by its shape.
            Ok(_) if !message.inputs_are_read() => Violation::IncompleteToolInput.into(),
            Ok(_) => {
                return Ok(Verified {
                    body: message.into_value(),
                    warnings,
                });
            }
        };
        Err(Box::new(message.failed(defect)))
    }

    fn failed(&self, defect: Defect) -> Box<FailedAnswer> {
        let characters = |text: &str| text.chars().count() as u64;
        Box::new(FailedAnswer {
            defect,
            counts: PartialCounts {
                text_characters: characters(&self.text),
                reasoning_characters: self
                    .blocks
                    .iter()
                    .filter_map(|open| open.block.thinking())
                    .map(characters)
                    .sum(),
                tool_calls: self.calls as u64,
            },
            usage: self.usage.neutral(),
        })
    }
}

/// `data.type` decides; the event's name stands in where there is none.
fn kind_of<'a>(read: &'a Event<'_>, event: &SseEvent<'a>) -> &'a str {
    match read.kind.as_str() {
        "" => event.kind,
        kind => kind,
    }
}
