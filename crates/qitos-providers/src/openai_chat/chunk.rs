//! One chunk of a Chat Completions stream, read by borrowing from the event.
//!
//! Reading is tolerant where servers differ harmlessly (nulls, missing fields, unknown fields) and
//! strict where a guess would change the answer: a shape that is not listed here is an error, which
//! the stream reports as `malformed_event` (PRV-59, PRV-63).

use std::borrow::Cow;
use std::fmt;

use qitos_contracts::model::TokenUsage;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::json_text::{Lenient, Object, Text};
use crate::token_count::TokenCount;

/// The top level of one chunk.
#[derive(Debug, Deserialize)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(crate) id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) model: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) object: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) choices: Choices<'a>,
    #[serde(default)]
    pub(crate) usage: Usage,
    #[serde(default)]
    pub(crate) error: Option<Value>,
}

impl<'a> Chunk<'a> {
    /// Reads one event's data, which must be one JSON object (PRV-59).
    pub(crate) fn read(data: &'a str) -> Result<Chunk<'a>, serde_json::Error> {
        let Object(chunk) = serde_json::from_str::<Object<Chunk<'a>>>(data)?;
        chunk.ok_or_else(|| serde_json::Error::custom("an event is one JSON object"))
    }
}

/// `choices`: the first one and how many there were (PRV-62).
#[derive(Debug, Default)]
pub(crate) struct Choices<'a> {
    pub(crate) first: Option<Choice<'a>>,
    pub(crate) count: usize,
}

/// One choice.
#[derive(Debug, Deserialize)]
pub(crate) struct Choice<'a> {
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) delta: Object<Delta<'a>>,
    #[serde(borrow, default)]
    pub(crate) finish_reason: Text<'a>,
    #[serde(default)]
    pub(crate) error: Option<Value>,
}

/// What one chunk adds.
#[derive(Debug, Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow, default)]
    pub(crate) content: Content<'a>,
    #[serde(borrow, default)]
    pub(crate) reasoning_content: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) reasoning: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) refusal: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) tool_calls: List<ToolPiece<'a>>,
}

/// A piece of one tool call.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolPiece<'a> {
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) function: Object<FunctionPiece<'a>>,
}

/// Name and arguments of a piece.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionPiece<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) arguments: Text<'a>,
}

/// Token counts; each unknown unless the provider said a number (PRV-70).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: Option<u64>,
    pub(crate) completion: Option<u64>,
    pub(crate) total: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) reasoning: Option<u64>,
}

impl Usage {
    /// The neutral names; none if nothing is known (PRV-70, PRV-71).
    pub(crate) fn neutral(self) -> Option<TokenUsage> {
        let mut usage = TokenUsage {
            prompt_tokens: self.prompt,
            completion_tokens: self.completion,
            total_tokens: self.total,
            cached_tokens: self.cached,
            cache_creation_tokens: None,
            reasoning_tokens: self.reasoning,
        };
        usage.total_tokens = usage.total();
        Some(usage).filter(TokenUsage::is_known)
    }
}

/// `content` in its three shapes: null, a string, a list of text and thinking pieces (PRV-63).
#[derive(Debug, Default)]
pub(crate) enum Content<'a> {
    /// Null, absent.
    #[default]
    None,
    /// The usual string.
    Text(Cow<'a, str>),
    /// Pieces in order.
    Pieces(Vec<ContentPiece<'a>>),
}

/// One piece of a content list.
#[derive(Debug)]
pub(crate) enum ContentPiece<'a> {
    /// Answer text.
    Text(Cow<'a, str>),
    /// Reasoning.
    Thinking(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, null or a list of text and thinking pieces")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Owned(text)))
            }
            fn visit_unit<E>(self) -> Result<Content<'de>, E> {
                Ok(Content::None)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content<'de>, A::Error> {
                let mut pieces = Vec::new();
                while let Some(Object(piece)) = list.next_element::<Object<WirePiece<'de>>>()? {
                    let piece = piece.ok_or_else(|| A::Error::custom("a piece is an object"))?;
                    piece.add_to(&mut pieces)?;
                }
                Ok(Content::Pieces(pieces))
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

#[derive(Deserialize)]
struct WirePiece<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    text: Text<'a>,
    #[serde(borrow, default)]
    thinking: Thinking<'a>,
}

/// `thinking`: a string or a list of text pieces, both are sent.
#[derive(Default)]
struct Thinking<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Thinking<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Content::deserialize(deserializer)? {
            Content::None => Thinking::default(),
            Content::Text(text) => Thinking(vec![text]),
            Content::Pieces(pieces) => Thinking(
                pieces
                    .into_iter()
                    .map(|piece| match piece {
                        ContentPiece::Text(text) | ContentPiece::Thinking(text) => text,
                    })
                    .collect(),
            ),
        })
    }
}

impl<'a> WirePiece<'a> {
    fn add_to<E: Error>(self, pieces: &mut Vec<ContentPiece<'a>>) -> Result<(), E> {
        match self.kind.as_str() {
            "text" => pieces.push(ContentPiece::Text(self.text.0)),
            "thinking" => {
                pieces.extend(self.thinking.0.into_iter().map(ContentPiece::Thinking));
            }
            _ => return Err(E::custom("a content piece is text or thinking")),
        }
        Ok(())
    }
}

/// A list of objects or null.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Option::<Vec<Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
        list.into_iter()
            .map(|Object(value)| value.ok_or_else(|| D::Error::custom("an element is an object")))
            .collect::<Result<Vec<T>, _>>()
            .map(List)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChoicesVisitor;
        impl<'de> Visitor<'de> for ChoicesVisitor {
            type Value = Choices<'de>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of choices or null")
            }
            fn visit_unit<E>(self) -> Result<Choices<'de>, E> {
                Ok(Choices::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Choices<'de>, A::Error> {
                let Some(Object(first)) = list.next_element::<Object<Choice<'de>>>()? else {
                    return Ok(Choices::default());
                };
                let mut count = 1;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                if first.is_none() {
                    return Err(A::Error::custom("a choice is an object"));
                }
                Ok(Choices { first, count })
            }
        }
        deserializer.deserialize_any(ChoicesVisitor)
    }
}

impl<'de> Deserialize<'de> for Usage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UsageVisitor;
        impl<'de> Visitor<'de> for UsageVisitor {
            type Value = Usage;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("token counts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Usage, A::Error> {
                let mut usage = Usage::default();
                while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
                    match key.as_ref() {
                        "prompt_tokens" => usage.prompt = map.next_value::<TokenCount>()?.0,
                        "completion_tokens" => usage.completion = map.next_value::<TokenCount>()?.0,
                        "total_tokens" => usage.total = map.next_value::<TokenCount>()?.0,
                        "prompt_tokens_details" => {
                            usage.cached =
                                map.next_value::<Lenient<DetailFields>>()?.0.cached_tokens.0;
                        }
                        "completion_tokens_details" => {
                            usage.reasoning = map
                                .next_value::<Lenient<DetailFields>>()?
                                .0
                                .reasoning_tokens
                                .0;
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(usage)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Usage, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Usage::default())
            }
            crate::token_count::scalars_are!(Usage::default());
        }
        deserializer.deserialize_any(UsageVisitor)
    }
}

/// Details are extra: a shape that is none tells nothing.
#[derive(Default, Deserialize)]
struct DetailFields {
    #[serde(default)]
    cached_tokens: TokenCount,
    #[serde(default)]
    reasoning_tokens: TokenCount,
}
