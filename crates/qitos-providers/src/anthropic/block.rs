//! One block of an answer: what is read out of it, and everything else as it was sent (PRV-27).

use std::fmt;

use qitos_contracts::canonical_json;
use serde_json::{Map, Value};

use crate::call::{MAX_ARGUMENT_BYTES, RawCall, take_text};
use crate::verdict::{Defect, Violation, means_no_arguments, parse_object};

/// A block; Debug prints no content.
#[derive(Clone, PartialEq)]
pub(crate) struct Block {
    /// What the engine reads.
    pub(crate) content: Content,
    /// The fields that [`Content`] does not hold, `type` among them, as they were sent.
    pub(crate) rest: Map<String, Value>,
}

/// What the engine reads of a block.
#[derive(Clone, PartialEq)]
pub(crate) enum Content {
    /// `text`; citations stay in the rest.
    Text(String),
    /// `thinking`, with the signature that lets it go back (PRV-34).
    Thinking { thinking: String, signature: String },
    /// `tool_use`.
    ToolUse(RawCall),
    /// `redacted_thinking`, server tools with their results, and types that nobody knows yet: never executed (A25).
    Native,
}

impl fmt::Debug for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Block({})", self.kind())
    }
}

/// Sorts the fields of a block and gives the input of a call apart; strings are moved, never copied.
pub(crate) fn read_block(block: Value) -> Result<(Block, Option<Value>), Defect> {
    let Value::Object(mut rest) = block else {
        return Err(Defect::Malformed);
    };
    let content = match rest.get("type").and_then(Value::as_str) {
        None | Some("") => return Err(Defect::Malformed),
        Some("text") => Content::Text(take_text(&mut rest, "text")?),
        Some("thinking") => Content::Thinking {
            thinking: take_text(&mut rest, "thinking")?,
            signature: take_text(&mut rest, "signature")?,
        },
        Some("tool_use") => {
            let call = RawCall {
                id: take_text(&mut rest, "id")?,
                name: take_text(&mut rest, "name")?,
                arguments: String::new(),
            };
            let input = rest.remove("input");
            let content = Content::ToolUse(call);
            return Ok((Block { content, rest }, input));
        }
        Some(_) => Content::Native,
    };
    Ok((Block { content, rest }, None))
}

impl Block {
    /// Reads a whole block.
    pub(crate) fn from_value(block: Value) -> Result<Block, Defect> {
        let (mut block, input) = read_block(block)?;
        if let Content::ToolUse(call) = &mut block.content {
            call.arguments = text_of_input(input)?;
        }
        Ok(block)
    }

    pub(crate) fn kind(&self) -> &str {
        self.rest
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub(crate) fn call(&self) -> Option<&RawCall> {
        match &self.content {
            Content::ToolUse(call) => Some(call),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn thinking(&self) -> Option<&str> {
        match &self.content {
            Content::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        }
    }

    /// The block of the wire, every string as it came.
    ///
    /// An input that was not sent is not invented; one that is no object becomes an empty one, because
    /// servers parse what they get back.
    pub(crate) fn into_value(self) -> Value {
        let mut block = self.rest;
        let mut put = |key: &str, value: Value| block.insert(key.to_owned(), value);
        match self.content {
            Content::Text(text) => {
                put("text", text.into());
            }
            Content::Thinking {
                thinking,
                signature,
            } => {
                put("thinking", thinking.into());
                if !signature.is_empty() {
                    put("signature", signature.into());
                }
            }
            Content::ToolUse(call) => {
                put("id", call.id.into());
                if !means_no_arguments(&call.arguments) {
                    let input = parse_object(&call.arguments);
                    put("input", input.unwrap_or_else(|_| Value::Object(Map::new())));
                }
                put("name", call.name.into());
            }
            Content::Native => {}
        }
        Value::Object(block)
    }
}

/// An input as the text of its arguments: none if there is none (PRV-23), `null` and other values as they are.
pub(crate) fn text_of_input(input: Option<Value>) -> Result<String, Defect> {
    let text = match input {
        None => return Ok(String::new()),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(String::new()),
        Some(input) => canonical_json::to_bytes(&input).map_err(|_| Defect::Malformed)?,
    };
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(Violation::LimitExceeded.into());
    }
    String::from_utf8(text).map_err(|_| Defect::Malformed)
}
