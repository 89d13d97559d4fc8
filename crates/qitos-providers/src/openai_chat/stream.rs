//! The Chat Completions stream: events in, one verified answer or one defect out (section 5.1).
//!
//! Its contract is that of [`AnswerStream`].

use std::sync::Arc;

use super::chunk::{Chunk, Content, ContentPiece, Delta, Usage};
use super::profile::ChatProfile;
use super::response::{Completion, RequestFacts};
use super::tool_slots::ToolSlots;
use crate::attempt::{AnswerStream, Progress, Verified};
use crate::call::{MAX_ACCUMULATED_BYTES, RawCall};
use crate::classify_failure::ProviderFault;
use crate::json_text::keep_name;
use crate::sse::SseEvent;
use crate::verdict::{Defect, FailedAnswer, PartialCounts, Violation};

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
}

impl AnswerStream for ChatStream {
    fn accept(&mut self, event: &SseEvent<'_>) -> Result<Progress, Defect> {
        let data = event.data;
        if data.trim() == "[DONE]" {
            return Ok(Progress::Stop);
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

    fn undelivered(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.delivered, self.text.len());
        self.text.get(from..).filter(|text| !text.is_empty())
    }

    fn has_terminal(&self) -> bool {
        !self.finish.is_empty()
    }

    fn has_end_marker(&self) -> bool {
        // `[DONE]` ends the reading at once; a bare finish reason is none (PRV-55).
        false
    }

    fn finish(&mut self) -> Result<Verified, Box<FailedAnswer>> {
        let answer = std::mem::take(self);
        let completion = Completion {
            id: answer.id,
            model: answer.model,
            text: answer.text,
            refused: false,
            reasoning_content: answer.reasoning_content,
            reasoning: answer.reasoning,
            calls: answer
                .calls
                .into_ordered()
                .into_iter()
                .map(|slot| RawCall {
                    id: slot.id,
                    name: slot.name,
                    arguments: slot.arguments,
                })
                .collect(),
            finish: answer.finish,
            usage: answer.usage,
        };
        match completion.validate(&answer.facts, &answer.profile, true) {
            Ok(validated) => {
                let warning = validated
                    .stop_carried_calls
                    .then(|| "stop_carried_tool_calls".to_owned());
                Ok(Verified {
                    body: completion.into_value(),
                    warnings: warning.into_iter().collect(),
                })
            }
            Err(defect) => Err(Box::new(FailedAnswer {
                defect,
                counts: completion.partial_counts(),
                usage: completion.usage.neutral(),
            })),
        }
    }

    fn failed(&self, defect: Defect) -> Box<FailedAnswer> {
        let characters = |text: &str| text.chars().count() as u64;
        Box::new(FailedAnswer {
            defect,
            counts: PartialCounts {
                text_characters: characters(&self.text),
                reasoning_characters: characters(&self.reasoning_content)
                    + characters(&self.reasoning),
                tool_calls: self.calls.len() as u64,
            },
            usage: self.usage.neutral(),
        })
    }
}

fn grown(old: Option<u64>, new: Option<u64>) -> Result<Option<u64>, Defect> {
    match (old, new) {
        (Some(old), Some(new)) if new < old => Err(Violation::UsageConflict.into()),
        (old, new) => Ok(new.or(old)),
    }
}
