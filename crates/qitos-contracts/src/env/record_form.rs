//! What all sandbox records share: schema constants, tokens, and fields that must be present even when null.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reads an optional field that must be written all the same: absent is an error, `null` is none.
pub(super) fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer)
}

/// A field that writes one constant and refuses to read any other value.
macro_rules! constant_text {
    ($name:ident, $text:literal) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct $name;

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($text)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                if text == $text {
                    Ok($name)
                } else {
                    Err(serde::de::Error::custom(concat!(
                        "the schema is ",
                        $text,
                        " only"
                    )))
                }
            }
        }
    };
}
pub(super) use constant_text;

/// The text is no identifier token of the sandbox records; code `sandbox_invalid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an identifier token is 1 to 256 characters of letters, digits and ._:@+- and starts with a letter or digit"
)]
pub struct InvalidToken;

/// An identifier token of the sandbox records: `^[A-Za-z0-9][A-Za-z0-9._:@+-]{0,255}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxToken(Arc<str>);

impl SandboxToken {
    /// The text as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let starts_well = text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte);
        if starts_well && text.len() <= 256 && text.bytes().all(allowed) {
            Ok(SandboxToken(text.into()))
        } else {
            Err(InvalidToken)
        }
    }
}

impl fmt::Display for SandboxToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for SandboxToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SandboxToken({})", self.0)
    }
}

impl Serialize for SandboxToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SandboxToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
