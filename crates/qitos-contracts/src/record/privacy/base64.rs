//! Base64 in either alphabet, padded or not, as far as scanning needs it.

use std::ops::Range;

const SHORTEST_RUN: usize = 16;

fn sextet(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    }))
}

/// The places of `[A-Za-z0-9+/_-]{16,}={0,2}`.
pub(super) fn runs(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let bytes = text.as_bytes();
    let mut position = 0;
    std::iter::from_fn(move || {
        while position < bytes.len() {
            let start = position;
            while bytes
                .get(position)
                .is_some_and(|byte| sextet(*byte).is_some())
            {
                position += 1;
            }
            let length = position - start;
            let mut end = position;
            while end - position < 2 && bytes.get(end) == Some(&b'=') {
                end += 1;
            }
            position = end.max(position + 1);
            if length >= SHORTEST_RUN {
                return Some(start..end);
            }
        }
        None
    })
}

/// What `encoded` decodes to, if that is printable text.
///
/// Gives up at the first control character, so that words which only look like base64 cost little.
pub(super) fn printable(encoded: &str) -> Option<String> {
    let digits = encoded.trim_end_matches('=').as_bytes();
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut decoded = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for digit in group {
            bits = bits << 6 | sextet(*digit)?;
        }
        bits <<= 6 * (4 - group.len());
        for byte in bits.to_be_bytes().into_iter().skip(1).take(group.len() - 1) {
            if (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0x7f {
                return None;
            }
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_decode_padded_or_not() {
        assert_eq!(printable("dXNlcjpwYXNz").as_deref(), Some("user:pass"));
        assert_eq!(printable("aGk=").as_deref(), Some("hi"));
        assert_eq!(printable("aGk").as_deref(), Some("hi"));
        assert_eq!(printable("fn5-").as_deref(), Some("~~~"));
        assert_eq!(printable("fn5+").as_deref(), Some("~~~"));
        assert_eq!(printable("AAAA"), None);
        assert_eq!(printable("a"), None);
        assert_eq!(printable("a b"), None);
    }

    #[test]
    fn runs_of_sixteen_and_more_are_found() {
        let text = format!(
            "{} {}= {}===",
            "a".repeat(15),
            "b".repeat(16),
            "c".repeat(17)
        );
        assert_eq!(runs(&text).collect::<Vec<_>>(), [16..33, 34..53]);
    }
}
