//! The Chat Completions stream: events in, one verified answer or one defect out (section 5.1).
//!
//! Pure: no clock, no I/O, no callback. The caller feeds the data of each event and delivers the
//! text that [`ChatStream::undelivered`] shows; nothing that was fed is a success before
//! [`ChatStream::finish`] has judged the whole answer (PRV-50).

use std::sync::Arc;

use super::chunk::{Chunk, Content, ContentPiece, Delta, Usage};
use super::profile::ChatProfile;
use super::response::{Completion, PartialCounts, RawCall, RequestFacts, Validated};
use super::tool_slots::ToolSlots;
use crate::classify_failure::ProviderFault;
use crate::verdict::{Defect, Violation};

/// Most bytes of text, reasoning and arguments together (PRV-60).
pub(crate) const MAX_ACCUMULATED_BYTES: usize = 4 * 1024 * 1024;

/// Longest id or model name that is kept.
const MAX_NAME_BYTES: usize = 256;

/// What one event meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The stream goes on.
    More,
    /// The end marker: nothing after it is parsed (PRV-55).
    EndMarker,
}

/// The state of one stream.
#[derive(Debug, Default)]
pub(crate) struct ChatStream {
    facts: RequestFacts,
    profile: Arc<ChatProfile>,
    id: String,
    model: String,
    text: String,
    delivered: usize,
    reasoning_content: String,
    reasoning: String,
    calls: ToolSlots,
    accumulated: usize,
    finish: String,
    usage: Usage,
}

impl ChatStream {
    /// A stream that answers a request with these facts.
    pub(crate) fn new(facts: RequestFacts, profile: Arc<ChatProfile>) -> Self {
        ChatStream {
            facts,
            profile,
            ..ChatStream::default()
        }
    }

    /// Whether the terminal was seen (PRV-52).
    pub(crate) fn has_terminal(&self) -> bool {
        !self.finish.is_empty()
    }

    /// Text not yet shown to the consumer; calling it marks the text as delivered.
    pub(crate) fn undelivered(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.delivered, self.text.len());
        self.text.get(from..).filter(|text| !text.is_empty())
    }

    /// Takes the data of one event.
    ///
    /// Text that came before a defect in the same event stays visible through
    /// [`ChatStream::undelivered`].
    pub(crate) fn accept(&mut self, data: &str) -> Result<Progress, Defect> {
        if data.trim() == "[DONE]" {
            return Ok(Progress::EndMarker);
        }
        let chunk = Chunk::read(data).map_err(|_| Violation::MalformedEvent)?;
        if let Some(error) = &chunk.error {
            return Err(Defect::Fault(ProviderFault::in_stream(error)));
        }
        if chunk.object.as_str() == "error" {
            // An older form puts the error's fields at the top level.
            let whole = serde_json::from_str(data).map_err(|_| Violation::MalformedEvent)?;
            return Err(Defect::Fault(ProviderFault::in_stream(&whole)));
        }
        keep_name(&mut self.id, chunk.id.as_str());
        keep_name(&mut self.model, chunk.model.as_str());
        if chunk.choices.count > 1 {
            return Err(Violation::ExtraChoice.into());
        }
        if let Some(choice) = &chunk.choices.first {
            if choice.index.unwrap_or(0) != 0 {
                return Err(Violation::ExtraChoice.into());
            }
            if let Some(error) = &choice.error {
                return Err(Defect::Fault(ProviderFault::in_stream(error)));
            }
            if let Some(delta) = &choice.delta.0 {
                self.accept_delta(delta)?;
            }
            self.accept_finish(choice.finish_reason.as_str())?;
        }
        self.accept_usage(chunk.usage)?;
        Ok(Progress::More)
    }

    fn accept_delta(&mut self, delta: &Delta<'_>) -> Result<(), Defect> {
        if !delta.refusal.as_str().is_empty() {
            return Err(Defect::Refusal);
        }
        self.add_reasoning_content(delta.reasoning_content.as_str())?;
        let reasoning = delta.reasoning.as_str();
        if !reasoning.is_empty() {
            self.before_content(reasoning.len())?;
            self.reasoning.push_str(reasoning);
        }
        match &delta.content {
            Content::None => {}
            Content::Text(text) => self.add_text(text)?,
            Content::Pieces(pieces) => {
                for piece in pieces {
                    match piece {
                        ContentPiece::Text(text) => self.add_text(text)?,
                        ContentPiece::Thinking(text) => self.add_reasoning_content(text)?,
                    }
                }
            }
        }
        for piece in &delta.tool_calls.0 {
            self.before_content(0)?;
            let added = self.calls.accept(piece, &self.facts.declared_tools)?;
            self.accumulate(added)?;
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<(), Defect> {
        if text.is_empty() {
            return Ok(());
        }
        self.before_content(text.len())?;
        self.text.push_str(text);
        Ok(())
    }

    fn add_reasoning_content(&mut self, text: &str) -> Result<(), Defect> {
        if text.is_empty() {
            return Ok(());
        }
        self.before_content(text.len())?;
        self.reasoning_content.push_str(text);
        Ok(())
    }

    /// Content after the terminal fails closed (PRV-54); all content counts against the bound.
    fn before_content(&mut self, bytes: usize) -> Result<(), Defect> {
        if self.has_terminal() {
            return Err(Violation::ContentAfterTerminal.into());
        }
        self.accumulate(bytes)
    }

    fn accumulate(&mut self, bytes: usize) -> Result<(), Defect> {
        self.accumulated = self.accumulated.saturating_add(bytes);
        if self.accumulated > MAX_ACCUMULATED_BYTES {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(())
    }

    fn accept_finish(&mut self, finish: &str) -> Result<(), Defect> {
        if finish.is_empty() || self.finish == finish {
            return Ok(());
        }
        if self.has_terminal() {
            return Err(Violation::ConflictingTerminal.into());
        }
        self.finish.push_str(finish);
        Ok(())
    }

    /// Reports are cumulative: a later one replaces, and no field may fall (PRV-72, PRV-73).
    fn accept_usage(&mut self, new: Usage) -> Result<(), Defect> {
        let old = self.usage;
        self.usage = Usage {
            prompt: grown(old.prompt, new.prompt)?,
            completion: grown(old.completion, new.completion)?,
            total: grown(old.total, new.total)?,
            cached: grown(old.cached, new.cached)?,
            reasoning: grown(old.reasoning, new.reasoning)?,
        };
        Ok(())
    }

    /// Judges the whole answer after an end marker, a clean end or the grace period (PRV-50).
    pub(crate) fn finish(self) -> Result<(Completion, Validated), Box<FailedAnswer>> {
        let completion = Completion {
            id: self.id,
            model: self.model,
            text: self.text,
            refused: false,
            reasoning_content: self.reasoning_content,
            reasoning: self.reasoning,
            calls: self
                .calls
                .into_ordered()
                .into_iter()
                .map(|slot| RawCall {
                    id: slot.id,
                    name: slot.name,
                    arguments: slot.arguments,
                })
                .collect(),
            finish: self.finish,
            usage: self.usage,
        };
        match completion.validate(&self.facts, &self.profile, true) {
            Ok(validated) => Ok((completion, validated)),
            Err(defect) => Err(Box::new(FailedAnswer {
                defect,
                counts: completion.partial_counts(),
                usage: completion.usage,
            })),
        }
    }

    /// The same evidence for a defect that an event caused.
    pub(crate) fn failed(&self, defect: Defect) -> Box<FailedAnswer> {
        let characters = |text: &str| text.chars().count() as u64;
        Box::new(FailedAnswer {
            defect,
            counts: PartialCounts {
                text_characters: characters(&self.text),
                reasoning_characters: characters(&self.reasoning_content)
                    + characters(&self.reasoning),
                tool_calls: self.calls.len() as u64,
            },
            usage: self.usage,
        })
    }
}

/// A defect with what had arrived before it (PRV-43, PRV-75).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedAnswer {
    pub(crate) defect: Defect,
    pub(crate) counts: PartialCounts,
    pub(crate) usage: Usage,
}

/// The first name that is one; a longer text is no name and would only cost memory.
fn keep_name(kept: &mut String, name: &str) {
    if kept.is_empty() && name.len() <= MAX_NAME_BYTES {
        kept.push_str(name);
    }
}

fn grown(old: Option<u64>, new: Option<u64>) -> Result<Option<u64>, Defect> {
    match (old, new) {
        (Some(old), Some(new)) if new < old => Err(Violation::UsageConflict.into()),
        (old, new) => Ok(new.or(old)),
    }
}
