//! Rule: where in a text the one JSON object stands (TXT-4).

use qitos_contracts::canonical_json::{self, ReadReason};
use serde_json::{Map, Value};

use super::grammar::VALUE_LIMITS;

/// The object and whether text around it was left aside.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    pub(super) object: Map<String, Value>,
    pub(super) salvaged: bool,
}

/// Why no object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoDocument {
    /// There is no opening brace.
    Absent,
    /// Braces, but no JSON object between them.
    Unreadable,
    /// Two objects that differ.
    Different,
}

/// Finds the whole text, one fenced block, or the span from the first `{` to the last `}`.
pub(super) fn find_object(text: &str) -> Result<Document, NoDocument> {
    let text = text.trim();
    let Some(first) = text.find('{') else {
        return Err(NoDocument::Absent);
    };
    // A text that begins with an object is not searched for fences: they would stand inside its strings.
    if first > 0
        && let Some(document) = find_fenced(text)?
    {
        return Ok(document);
    }
    let last = text.rfind('}').ok_or(NoDocument::Unreadable)?;
    let span = text.get(first..=last).ok_or(NoDocument::Unreadable)?;
    let (object, repeated) = read_repeated(span)?;
    Ok(Document {
        object,
        salvaged: repeated || span.len() < text.len(),
    })
}

/// Reads one object, or several equal ones.
fn read_repeated(span: &str) -> Result<(Map<String, Value>, bool), NoDocument> {
    let mut rest = span;
    let mut found: Option<Map<String, Value>> = None;
    let mut repeated = false;
    loop {
        let (object, after) = read_first(rest)?;
        match &found {
            None => found = Some(object),
            Some(earlier) if *earlier == object => repeated = true,
            Some(_) => return Err(NoDocument::Different),
        }
        if after.is_empty() {
            return found
                .map(|object| (object, repeated))
                .ok_or(NoDocument::Unreadable);
        }
        rest = after;
    }
}

/// Reads the object at the start of `text` and returns what stands behind it.
fn read_first(text: &str) -> Result<(Map<String, Value>, &str), NoDocument> {
    let (value, after) = match canonical_json::read(text.as_bytes(), VALUE_LIMITS) {
        Ok(value) => (value, ""),
        Err(error) if error.reason == ReadReason::TrailingData => {
            let (head, after) = text
                .split_at_checked(error.offset)
                .ok_or(NoDocument::Unreadable)?;
            let value = canonical_json::read(head.as_bytes(), VALUE_LIMITS)
                .map_err(|_| NoDocument::Unreadable)?;
            (value, after.trim_start())
        }
        Err(_) => return Err(NoDocument::Unreadable),
    };
    match value {
        Value::Object(object) => Ok((object, after)),
        _ => Err(NoDocument::Unreadable),
    }
}

/// The object of the fenced blocks, if any block begins with an object.
fn find_fenced(text: &str) -> Result<Option<Document>, NoDocument> {
    let mut found: Option<Map<String, Value>> = None;
    let mut blocks = 0usize;
    let mut outside = false;
    let mut open: Option<usize> = None;
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let line_end = line_start + line.len();
        let is_fence = line.trim_start().starts_with("```");
        match open {
            None if is_fence => open = Some(line_end),
            None => outside |= !line.trim().is_empty(),
            Some(from) if is_fence => {
                open = None;
                let body = text.get(from..line_start).unwrap_or_default().trim();
                if body.starts_with('{') {
                    blocks += 1;
                    let (object, repeated) = read_repeated(body)?;
                    blocks += usize::from(repeated);
                    match &found {
                        Some(earlier) if *earlier != object => return Err(NoDocument::Different),
                        _ => found = Some(object),
                    }
                } else {
                    outside = true;
                }
            }
            Some(_) => {}
        }
        line_start = line_end;
    }
    // An unclosed fence is a cut-off text.
    let closed = open.is_none();
    Ok(found.filter(|_| closed).map(|object| Document {
        object,
        salvaged: outside || blocks > 1,
    }))
}
