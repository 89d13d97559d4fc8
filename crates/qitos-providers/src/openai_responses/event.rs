//! One event of a Responses stream, read by borrowing from its data.
//!
//! Deltas are read in one pass without a tree. Items, whole responses and errors come once each and are read by a
//! second pass over the same data, which is kept out of the way of the deltas.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::verdict::{Defect, Violation};

/// What deltas and ends of parts say.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Field<'a>,
    #[serde(default)]
    pub(super) output_index: Option<u64>,
    #[serde(default)]
    pub(super) content_index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) item_id: Field<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Field<'a>,
    #[serde(borrow, default)]
    pub(super) text: Field<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: Field<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Field<'a>,
}

impl<'a> Event<'a> {
    /// Reads one event's data, which must be one JSON object (PRV-59).
    pub(super) fn read(data: &'a str) -> Result<Event<'a>, Defect> {
        if !data.trim_start().starts_with('{') {
            return Err(Violation::MalformedEvent.into());
        }
        serde_json::from_str(data).map_err(|_| Violation::MalformedEvent.into())
    }
}

/// The object at `key` of an event that cannot do without it.
pub(super) fn object_at(data: &str, key: &str) -> Result<Value, Defect> {
    whole(data)?
        .remove(key)
        .filter(Value::is_object)
        .ok_or_else(|| Violation::MalformedEvent.into())
}

/// What an event reports as an error: an `error` inside it, or the event itself; nothing if `kind` is another.
pub(super) fn error_in(data: &str, kind: &str) -> Result<Option<Value>, Defect> {
    let mut whole = whole(data)?;
    let inner = whole.remove("error").filter(|error| !error.is_null());
    Ok(match inner {
        Some(error) => Some(error),
        None => (kind == "error").then_some(Value::Object(whole)),
    })
}

fn whole(data: &str) -> Result<Map<String, Value>, Defect> {
    serde_json::from_str(data).map_err(|_| Violation::MalformedEvent.into())
}

/// A text; events that are not used here may hold anything under the same name.
#[derive(Debug, Default)]
pub(super) enum Field<'a> {
    /// Absent or null.
    #[default]
    Absent,
    /// A string.
    Text(Cow<'a, str>),
    /// Another shape.
    Other,
}

impl Field<'_> {
    /// The text, empty if absent.
    pub(super) fn text(&self) -> Result<&str, Defect> {
        match self {
            Field::Absent => Ok(""),
            Field::Text(text) => Ok(text),
            Field::Other => Err(Violation::MalformedEvent.into()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Field<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor;
        impl<'de> Visitor<'de> for FieldVisitor {
            type Value = Field<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Field<'de>, E> {
                Ok(Field::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Field<'de>, E> {
                Ok(Field::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_unit<E>(self) -> Result<Field<'de>, E> {
                Ok(Field::Absent)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Field<'de>, E> {
                Ok(Field::Other)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Field<'de>, E> {
                Ok(Field::Other)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Field<'de>, E> {
                Ok(Field::Other)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Field<'de>, E> {
                Ok(Field::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Field<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Field::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Field<'de>, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Field::Other)
            }
        }
        deserializer.deserialize_any(FieldVisitor)
    }
}
