//! SHA-256 digests and running chains.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as 64 lower-case hex digits without prefix (SES-17).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The start of every chain: 32 zero bytes (CTX-23).
    pub const ZERO: Digest = Digest([0; 32]);

    /// Hashes `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    /// Hashes the concatenation of `parts` without building it.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Digest(hasher.finalize().into())
    }

    /// The raw 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Wraps raw digest bytes that were computed or stored elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// The 64 hex digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from(if nibble < 10 {
                    b'0' + nibble
                } else {
                    b'a' + nibble - 10
                }));
            }
        }
        text
    }

    /// The first `digits` hex digits, for ids such as `request_` + 24 hex.
    #[must_use]
    pub fn short_hex(&self, digits: usize) -> String {
        let mut text = self.to_hex();
        text.truncate(digits);
        text
    }

    /// The next link of a chain: SHA-256(self ‖ item), raw bytes (CTX-23).
    #[must_use]
    pub fn chained(&self, item: &Digest) -> Digest {
        Digest::of_parts(&[&self.0, &item.0])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({})", self.to_hex())
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 lower-case hex digits")]
pub struct InvalidDigest;

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidDigest);
        }
        let mut bytes = [0u8; 32];
        for (slot, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let nibble = match digit {
                    b'0'..=b'9' => digit - b'0',
                    b'a'..=b'f' => digit - b'a' + 10,
                    _ => return Err(InvalidDigest),
                };
                *slot = (*slot << 4) | nibble;
            }
        }
        Ok(Digest(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_other_spellings() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.to_hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(digest.to_hex().parse::<Digest>(), Ok(digest));
        assert_eq!(
            digest.to_hex().to_uppercase().parse::<Digest>(),
            Err(InvalidDigest)
        );
        assert_eq!("ab".parse::<Digest>(), Err(InvalidDigest));
        assert_eq!(
            format!("{}é", "a".repeat(62)).parse::<Digest>(),
            Err(InvalidDigest)
        );
    }

    #[test]
    fn a_chain_depends_on_order_only() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_ne!(
            Digest::ZERO.chained(&a).chained(&b),
            Digest::ZERO.chained(&b).chained(&a)
        );
    }
}
