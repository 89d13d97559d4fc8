//! The Responses stream: events in, one verified answer or one defect out (section 5.2).
//!
//! Its contract is that of [`AnswerStream`]. Deltas are shown as they come and judged at the end against what has
//! authority (PRV-67): the terminal's own items, else the items that were done, else, for text alone, what the
//! parts said when they were done, else the deltas. Numbers of events say nothing (PRV-68).

use qitos_contracts::model::TokenUsage;
use serde_json::Value;

use super::event::{Event, error_in, object_at};
use super::response::{
    Answer, Call, MAX_OUTPUT_ITEMS, Piece, call_of, check_kind, kind_of, message_of, text_at,
    usage_of,
};
use crate::attempt::{AnswerStream, Progress, Verified};
use crate::call::{MAX_ACCUMULATED_BYTES, MAX_ARGUMENT_BYTES, MAX_TOOL_SLOTS};
use crate::classify_failure::ProviderFault;
use crate::sse::SseEvent;
use crate::verdict::{Defect, FailedAnswer, PartialCounts, Violation};

/// Most bytes of events whose content is kept beside the deltas: each says again what deltas said.
const MAX_KEPT_BYTES: usize = 2 * MAX_ACCUMULATED_BYTES;

/// The state of one stream.
#[derive(Debug, Default)]
pub(super) struct ResponsesStream {
    /// All text deltas in the order they came.
    text: String,
    delivered: usize,
    parts: Vec<TextPart>,
    /// Text deltas went back to an earlier part.
    is_interleaved: bool,
    items: Vec<Item>,
    reasoning_characters: u64,
    accumulated: usize,
    kept: usize,
    usage: Option<TokenUsage>,
    /// The response of the terminal.
    terminal: Option<Value>,
}

/// One text part: its place in the answer and its bytes among the deltas.
#[derive(Debug)]
struct TextPart {
    at: (u64, u64),
    start: usize,
    end: usize,
    done: Option<String>,
}

/// One item that the stream spoke of.
#[derive(Debug, Default)]
struct Item {
    index: u64,
    kind: String,
    id: String,
    call_id: String,
    /// Argument deltas.
    arguments: String,
    done: Option<Value>,
}

impl Item {
    fn is_call(&self) -> bool {
        self.kind == "function_call"
    }

    /// Whether an event about an item with these words speaks of this one.
    fn is(&self, index: u64, kind: &str, id: &str, call_id: &str) -> bool {
        let agree = |left: &str, right: &str| left.is_empty() || right.is_empty() || left == right;
        let by_id = if self.call_id.is_empty() || call_id.is_empty() {
            // Some servers give an item another id when it is done; two that are done are two.
            self.done.is_none() || agree(&self.id, id)
        } else {
            self.call_id == call_id
        };
        self.index == index && agree(&self.kind, kind) && by_id
    }
}

/// Ids by which an item is found again; anything else is none.
fn id_at<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A shape that is wrong in a whole answer is a malformed event in a stream.
fn in_event(defect: Defect) -> Defect {
    match defect {
        Defect::Malformed | Defect::Envelope => Violation::MalformedEvent.into(),
        other => other,
    }
}

impl ResponsesStream {
    fn accept_event(&mut self, event: &Event<'_>, data: &str) -> Result<(), Defect> {
        match event.kind.text()? {
            "response.output_text.delta" => self.add_text(event),
            "response.output_text.done" => self.end_text(event),
            "response.function_call_arguments.delta" => {
                let delta = event.delta.text()?;
                self.accumulate(delta.len())?;
                let item = self.item_of_call(event)?;
                item.arguments.push_str(delta);
                if item.arguments.len() > MAX_ARGUMENT_BYTES {
                    return Err(Violation::LimitExceeded.into());
                }
                Ok(())
            }
            "response.function_call_arguments.done" => self.end_arguments(event),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let delta = event.delta.text()?;
                self.reasoning_characters += delta.chars().count() as u64;
                self.accumulate(delta.len())
            }
            "response.refusal.delta" if event.delta.text()?.is_empty() => Ok(()),
            "response.refusal.done" if event.refusal.text()?.is_empty() => Ok(()),
            "response.refusal.delta" | "response.refusal.done" => Err(Defect::Refusal),
            "response.output_item.added" => self.begin_item(event, &object_at(data, "item")?),
            "response.output_item.done" => {
                self.keep(data.len())?;
                self.end_item(event, object_at(data, "item")?)
            }
            "response.completed" => self.complete(object_at(data, "response")?),
            "response.incomplete" => {
                let response = object_at(data, "response")?;
                self.usage = response.get("usage").and_then(usage_of);
                let reason = response.get("incomplete_details");
                let reason = reason.and_then(|details| details.get("reason"));
                if reason.and_then(Value::as_str) == Some("content_filter") {
                    return Err(Defect::Refusal);
                }
                Err(Defect::Incomplete)
            }
            "response.failed" => {
                let response = object_at(data, "response")?;
                self.usage = response.get("usage").and_then(usage_of);
                let error = response.get("error").unwrap_or(&Value::Null);
                Err(Defect::Fault(ProviderFault::in_stream(error)))
            }
            kind @ ("" | "error") => match error_in(data, kind)? {
                Some(error) => Err(Defect::Fault(ProviderFault::in_stream(&error))),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// After the terminal only an equal one may follow, and what is not of this dialect (PRV-54, PRV-66).
    fn accept_after_terminal(&self, event: &Event<'_>, data: &str) -> Result<(), Defect> {
        match event.kind.text()? {
            "response.completed"
                if Some(&object_at(data, "response")?) == self.terminal.as_ref() =>
            {
                Ok(())
            }
            "response.completed" | "response.incomplete" | "response.failed" | "error" => {
                Err(Violation::ConflictingTerminal.into())
            }
            kind if kind.starts_with("response.") => Err(Violation::ContentAfterTerminal.into()),
            "" if error_in(data, "")?.is_some() => Err(Violation::ConflictingTerminal.into()),
            _ => Ok(()),
        }
    }

    fn complete(&mut self, response: Value) -> Result<(), Defect> {
        self.usage = response.get("usage").and_then(usage_of);
        if !matches!(
            text_at(&response, "status").map_err(in_event)?,
            "" | "completed"
        ) {
            return Err(Violation::ConflictingTerminal.into());
        }
        self.terminal = Some(response);
        Ok(())
    }

    fn accumulate(&mut self, bytes: usize) -> Result<(), Defect> {
        self.accumulated = self.accumulated.saturating_add(bytes);
        if self.accumulated > MAX_ACCUMULATED_BYTES {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(())
    }

    fn keep(&mut self, bytes: usize) -> Result<(), Defect> {
        self.kept = self.kept.saturating_add(bytes);
        if self.kept > MAX_KEPT_BYTES {
            return Err(Violation::LimitExceeded.into());
        }
        Ok(())
    }

    fn add_text(&mut self, event: &Event<'_>) -> Result<(), Defect> {
        let delta = event.delta.text()?;
        if delta.is_empty() {
            return Ok(());
        }
        self.accumulate(delta.len())?;
        let at = self.place_of(event);
        let start = self.text.len();
        match self.parts.last_mut() {
            Some(part) if part.at == at => part.end += delta.len(),
            last => {
                self.is_interleaved |= last.is_some_and(|part| part.at > at);
                let end = start + delta.len();
                self.open_part(at, start, end)?;
            }
        }
        self.text.push_str(delta);
        Ok(())
    }

    fn end_text(&mut self, event: &Event<'_>) -> Result<(), Defect> {
        let text = event.text.text()?;
        self.keep(text.len())?;
        let at = self.place_of(event);
        if !self.parts.iter().any(|part| part.at == at) {
            let end = self.text.len();
            self.open_part(at, end, end)?;
        }
        if let Some(part) = self.parts.iter_mut().rev().find(|part| part.at == at) {
            part.done = Some(text.to_owned());
        }
        Ok(())
    }

    /// Where a text belongs; a server that does not say means its newest item.
    fn place_of(&self, event: &Event<'_>) -> (u64, u64) {
        let newest = || self.items.last().map_or(0, |item| item.index);
        (
            event.output_index.unwrap_or_else(newest),
            event.content_index.unwrap_or(0),
        )
    }

    fn open_part(&mut self, at: (u64, u64), start: usize, end: usize) -> Result<(), Defect> {
        if self.parts.len() >= MAX_OUTPUT_ITEMS {
            return Err(Violation::LimitExceeded.into());
        }
        self.parts.push(TextPart {
            at,
            start,
            end,
            done: None,
        });
        Ok(())
    }

    fn open_item(&mut self, index: u64, kind: &str) -> Result<&mut Item, Defect> {
        let calls = self.items.iter().filter(|item| item.is_call()).count();
        if self.items.len() >= MAX_OUTPUT_ITEMS
            || kind == "function_call" && calls >= MAX_TOOL_SLOTS
        {
            return Err(Violation::LimitExceeded.into());
        }
        self.items.push(Item {
            index,
            kind: kind.to_owned(),
            ..Item::default()
        });
        self.items
            .last_mut()
            .ok_or_else(|| Violation::LimitExceeded.into())
    }

    /// The item that an event about a whole item speaks of; a new one if there is none.
    fn item_of(&mut self, event: &Event<'_>, item: &Value) -> Result<&mut Item, Defect> {
        let (kind, id, call_id) = (kind_of(item), id_at(item, "id"), id_at(item, "call_id"));
        self.keep(kind.len() + id.len() + call_id.len())?;
        let known = match event.output_index {
            Some(index) => self
                .items
                .iter()
                .rposition(|known| known.is(index, kind, id, call_id)),
            None => self.items.iter().rposition(|known| {
                known.done.is_none() && known.is(known.index, kind, id, call_id)
            }),
        };
        let next = self.items.iter().map(|known| known.index.saturating_add(1));
        let next = next.max().unwrap_or(0);
        let found = match known {
            Some(known) => self.items.get_mut(known),
            None => Some(self.open_item(event.output_index.unwrap_or(next), kind)?),
        };
        let found = found.ok_or(Violation::EventOrder)?;
        for (kept, word) in [
            (&mut found.kind, kind),
            (&mut found.id, id),
            (&mut found.call_id, call_id),
        ] {
            if kept.is_empty() {
                kept.push_str(word);
            }
        }
        Ok(found)
    }

    /// The call that an event about arguments speaks of.
    fn item_of_call(&mut self, event: &Event<'_>) -> Result<&mut Item, Defect> {
        let id = event.item_id.text()?;
        let known = self.items.iter().rposition(|known| {
            known.is_call()
                && match event.output_index {
                    Some(index) => known.is(index, "", id, ""),
                    None => id.is_empty() || known.id == id,
                }
        });
        match known {
            Some(known) => self
                .items
                .get_mut(known)
                .ok_or_else(|| Violation::EventOrder.into()),
            None => {
                let index = event.output_index.unwrap_or(0);
                self.open_item(index, "function_call")
            }
        }
    }

    fn begin_item(&mut self, event: &Event<'_>, item: &Value) -> Result<(), Defect> {
        check_kind(kind_of(item))?;
        self.item_of(event, item).map(|_| ())
    }

    fn end_item(&mut self, event: &Event<'_>, item: Value) -> Result<(), Defect> {
        check_kind(kind_of(&item))?;
        let known = self.item_of(event, &item)?;
        match &known.done {
            Some(done) if *done != item => Err(Violation::SnapshotMismatch.into()),
            _ => {
                known.done = Some(item);
                Ok(())
            }
        }
    }

    /// All arguments of a call: what its deltas began, and from now on what they said.
    fn end_arguments(&mut self, event: &Event<'_>) -> Result<(), Defect> {
        let arguments = event.arguments.text()?;
        self.keep(arguments.len())?;
        if arguments.len() > MAX_ARGUMENT_BYTES {
            return Err(Violation::LimitExceeded.into());
        }
        let item = self.item_of_call(event)?;
        if !arguments.starts_with(item.arguments.as_str()) {
            return Err(Violation::SnapshotMismatch.into());
        }
        item.arguments = arguments.to_owned();
        Ok(())
    }

    /// The answer with the items that have authority, and the text that no delta carried.
    fn judge(&self, response: Value) -> Result<(Answer, String), Defect> {
        let mut answer = Answer::from_value(completed(response)).map_err(in_event)?;
        let has_snapshot = !answer.output.is_empty();
        if !has_snapshot {
            answer.output = self.done_items()?;
        }
        answer.validate(true).map_err(in_event)?;
        for item in self.items.iter().filter(|item| item.is_call()) {
            check_started(item, has_snapshot.then_some(&*answer.output)).map_err(in_event)?;
        }
        let rest = self.rest_of_text(&answer)?;
        Ok((answer, rest))
    }

    /// The items that were done, by index, and a message for each text that only deltas carried (PRV-R6, PRV-R7).
    fn done_items(&self) -> Result<Vec<Value>, Defect> {
        let mut found: Vec<(u64, Value)> = self
            .items
            .iter()
            .filter_map(|item| Some((item.index, item.done.clone()?)))
            .collect();
        let has_item = |part: &&TextPart| {
            let mut items = self.items.iter();
            !items.any(|item| item.index == part.at.0 && item.done.is_some())
        };
        let mut parts: Vec<&TextPart> = self.parts.iter().filter(has_item).collect();
        if self.is_interleaved && !parts.is_empty() {
            return Err(Violation::SnapshotMismatch.into());
        }
        parts.sort_by_key(|part| part.at);
        for alike in parts.chunk_by(|left, right| left.at.0 == right.at.0) {
            let texts = alike.iter().map(|part| self.text_of(part)).collect();
            if let Some(first) = alike.first() {
                found.push((first.at.0, message_of(texts)));
            }
        }
        found.sort_by_key(|(index, _)| *index);
        Ok(found.into_iter().map(|(_, item)| item).collect())
    }

    fn text_of<'a>(&'a self, part: &'a TextPart) -> &'a str {
        match &part.done {
            Some(text) => text,
            None => self.text.get(part.start..part.end).unwrap_or_default(),
        }
    }

    /// What the answer's text has after the deltas; they must be its beginning (PRV-67, PRV-R19, PRV-R20).
    fn rest_of_text(&self, answer: &Answer) -> Result<String, Defect> {
        let mut unmatched = Some(self.text.as_str());
        let mut rest = String::new();
        answer.read(|piece| {
            let Piece::Text { text, .. } = piece else {
                return;
            };
            unmatched = unmatched.and_then(|deltas| match text.strip_prefix(deltas) {
                Some(more) => {
                    rest.push_str(more);
                    Some("")
                }
                None => deltas.strip_prefix(text),
            });
        })?;
        match unmatched {
            Some("") => Ok(rest),
            _ => Err(Violation::SnapshotMismatch.into()),
        }
    }
}

/// The terminal's response; its event says that it is completed where it does not.
fn completed(mut response: Value) -> Value {
    if let Some(whole) = response.as_object_mut() {
        let said = whole.get("status").and_then(Value::as_str);
        if said.unwrap_or_default().is_empty() {
            whole.insert("status".to_owned(), "completed".into());
        }
    }
    response
}

/// A call that was begun must have come to its end, and as it began (PRV-67).
fn check_started(item: &Item, snapshot: Option<&[Value]>) -> Result<(), Defect> {
    let done = item.done.as_ref().map(call_of).transpose()?.flatten();
    let end = match snapshot {
        None => done,
        Some(output) => find_call(item, output)?,
    };
    let Some(end) = end else {
        return Err(match done {
            Some(_) => Violation::SnapshotMismatch.into(),
            None => Violation::IncompleteToolInput.into(),
        });
    };
    let same =
        |done: &Call<'_>| (done.id, done.name, done.arguments) == (end.id, end.name, end.arguments);
    if !end.arguments.starts_with(item.arguments.as_str()) || !done.as_ref().is_none_or(same) {
        return Err(Violation::SnapshotMismatch.into());
    }
    Ok(())
}

/// The call of a snapshot that an item became: by its call id, else by its own id, else by its place.
fn find_call<'a>(item: &Item, output: &'a [Value]) -> Result<Option<Call<'a>>, Defect> {
    let by = |key: &str, id: &str| {
        output
            .iter()
            .filter(|_| !id.is_empty())
            .find(|found| id_at(found, key) == id)
    };
    let by_place = || {
        let place = usize::try_from(item.index).ok()?;
        output.get(place).filter(|_| item.call_id.is_empty())
    };
    let found = by("call_id", &item.call_id)
        .or_else(|| by("id", &item.id))
        .or_else(by_place);
    match found {
        Some(found) => call_of(found),
        None => Ok(None),
    }
}

impl AnswerStream for ResponsesStream {
    fn accept(&mut self, event: &SseEvent<'_>) -> Result<Progress, Defect> {
        let data = event.data;
        if data.trim() == "[DONE]" {
            // Not of this dialect: before the terminal it is the end, after it it is nothing (PRV-R5).
            return Ok(if self.has_terminal() {
                Progress::More
            } else {
                Progress::Stop
            });
        }
        let event = Event::read(data)?;
        if self.has_terminal() {
            self.accept_after_terminal(&event, data)?;
        } else {
            self.accept_event(&event, data)?;
        }
        Ok(Progress::More)
    }

    fn undelivered(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.delivered, self.text.len());
        self.text.get(from..).filter(|text| !text.is_empty())
    }

    fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    fn has_end_marker(&self) -> bool {
        self.has_terminal()
    }

    fn finish(&mut self) -> Result<Verified, Box<FailedAnswer>> {
        let Some(response) = self.terminal.take() else {
            return Err(self.failed(Violation::MissingTerminal.into()));
        };
        match self.judge(response) {
            Ok((answer, rest)) => {
                self.text.push_str(&rest);
                Ok(Verified {
                    body: answer.into_value(),
                    warnings: Vec::new(),
                })
            }
            Err(defect) => Err(self.failed(defect)),
        }
    }

    fn failed(&self, defect: Defect) -> Box<FailedAnswer> {
        let calls = self.items.iter().filter(|item| item.is_call()).count();
        Box::new(FailedAnswer {
            defect,
            counts: PartialCounts {
                text_characters: self.text.chars().count() as u64,
                reasoning_characters: self.reasoning_characters,
                tool_calls: calls as u64,
            },
            usage: self.usage,
        })
    }
}
