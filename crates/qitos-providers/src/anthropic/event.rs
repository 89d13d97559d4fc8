//! One event of a Messages stream, read by borrowing from the event.
//!
//! Reading is tolerant where servers differ harmlessly (nulls, missing fields, unknown fields) and
//! strict where a guess would change the answer: an event of a known type with another shape is an
//! error, which the stream reports as `malformed_event` (PRV-59).

use serde::Deserialize;
use serde::de::{Error, IgnoredAny};
use serde_json::Value;

use super::usage::Usage;
use crate::json_text::{Lenient, Object, Text};

/// The events that mean something; all others are ignored.
pub(crate) const KNOWN: [&str; 8] = [
    "content_block_delta",
    "content_block_start",
    "content_block_stop",
    "error",
    "message_delta",
    "message_start",
    "message_stop",
    "ping",
];

/// The top level of one event.
#[derive(Debug, Deserialize)]
pub(crate) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) delta: Object<Delta<'a>>,
    /// A whole block: there is one per block, never one per piece.
    #[serde(default)]
    pub(crate) content_block: Option<Value>,
    #[serde(borrow, default)]
    pub(crate) message: Object<MessageStart<'a>>,
    #[serde(default)]
    pub(crate) usage: Lenient<Usage>,
    #[serde(default)]
    pub(crate) error: Option<Value>,
}

impl<'a> Event<'a> {
    /// Reads one event's data, which must be one JSON object (PRV-59).
    pub(crate) fn read(data: &'a str) -> Result<Event<'a>, serde_json::Error> {
        let Object(event) = serde_json::from_str::<Object<Event<'a>>>(data)?;
        event.ok_or_else(|| serde_json::Error::custom("an event is one JSON object"))
    }
}

/// What the stream says of the answer before its content.
#[derive(Debug, Deserialize)]
pub(crate) struct MessageStart<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) model: Text<'a>,
    #[serde(default)]
    pub(crate) content: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    pub(crate) usage: Lenient<Usage>,
}

/// What a delta of a block or of the message adds.
#[derive(Debug, Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) text: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) thinking: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) signature: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) partial_json: Text<'a>,
    #[serde(default)]
    pub(crate) citation: Option<Value>,
    #[serde(borrow, default)]
    pub(crate) stop_reason: Text<'a>,
}

/// The type alone, of an event whose other fields have a shape of their own.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Text<'a>,
}
