//! One token count as providers write it: a whole number that is not negative, or unknown (PRV-70).

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Beyond 2^53 a count is no count of tokens, and JSON readers elsewhere would round it.
const LARGEST: u64 = 1 << 53;

/// Unknown unless the provider wrote a whole number that is not negative; never an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCount(pub(crate) Option<u64>);

/// Visitor methods that take any scalar for the same value.
macro_rules! scalars_are {
    ($value:expr) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($value)
        }
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}
pub(crate) use scalars_are;

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = TokenCount;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a token count")
            }
            fn visit_u64<E>(self, count: u64) -> Result<TokenCount, E> {
                Ok(TokenCount(Some(count).filter(|count| *count <= LARGEST)))
            }
            fn visit_i64<E>(self, count: i64) -> Result<TokenCount, E> {
                Ok(TokenCount(u64::try_from(count).ok()))
            }
            fn visit_f64<E>(self, _: f64) -> Result<TokenCount, E> {
                Ok(TokenCount(None))
            }
            fn visit_bool<E>(self, _: bool) -> Result<TokenCount, E> {
                Ok(TokenCount(None))
            }
            fn visit_unit<E>(self) -> Result<TokenCount, E> {
                Ok(TokenCount(None))
            }
            fn visit_str<E>(self, _: &str) -> Result<TokenCount, E> {
                Ok(TokenCount(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TokenCount, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(TokenCount(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TokenCount, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(TokenCount(None))
            }
        }
        deserializer.deserialize_any(CountVisitor)
    }
}

/// The count at `key` of a usage object that is read already.
pub(crate) fn count_at(usage: &Value, key: &str) -> Option<u64> {
    usage.get(key)?.as_u64().filter(|count| *count <= LARGEST)
}
