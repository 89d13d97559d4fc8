//! A scanner over canonical JSON that builds no tree (SES-20).
//!
//! The records of a snapshot have fixed keys in a fixed order, so most of their bytes are literals. Values
//! of others (payloads, items) are walked once: that finds their end, their depth and any byte that the
//! canonical writer would not have written.

use std::borrow::Cow;

use super::limits::MAXIMUM_DEPTH;
use crate::canonical_json::{self, ReadLimits};
use crate::digest::Digest;

/// What is wrong with the bytes, in fixed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

type Scanned<T> = Result<T, Malformed>;

const NOT_CANONICAL: Malformed = Malformed("its bytes are not canonical");
const UNEXPECTED: Malformed = Malformed("a field is unknown, missing or of the wrong shape");
pub(super) const TOO_DEEP: Malformed = Malformed("it is nested too deep");

/// A position in canonical bytes.
#[derive(Debug)]
pub(super) struct Cursor<'text> {
    text: &'text [u8],
    at: usize,
}

impl<'text> Cursor<'text> {
    /// Starts at the first byte; the whole text must be UTF-8.
    pub(super) fn new(text: &'text [u8]) -> Scanned<Self> {
        std::str::from_utf8(text).map_err(|_| Malformed("its bytes are not UTF-8"))?;
        Ok(Cursor { text, at: 0 })
    }

    /// The whole text is one canonical value.
    pub(super) fn check_document(text: &[u8]) -> Scanned<()> {
        depth_of(text).map(|_| ())
    }

    fn rest(&self) -> &'text [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Bytes read so far.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    /// Reads exactly `expected`.
    pub(super) fn literal(&mut self, expected: &str) -> Scanned<()> {
        if self.take_if(expected) {
            Ok(())
        } else {
            Err(UNEXPECTED)
        }
    }

    pub(super) fn starts_with(&self, expected: &str) -> bool {
        self.rest().starts_with(expected.as_bytes())
    }

    /// Reads `expected` if it stands here.
    pub(super) fn take_if(&mut self, expected: &str) -> bool {
        let found = self.starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    /// After an item of a container: whether another follows; reads the comma or `close`.
    pub(super) fn another(&mut self, close: u8) -> Scanned<bool> {
        let found = self.peek();
        self.at += 1;
        match found {
            Some(b',') => Ok(true),
            Some(byte) if byte == close => Ok(false),
            _ => Err(UNEXPECTED),
        }
    }

    /// Nothing is left.
    pub(super) fn end(&self) -> Scanned<()> {
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(Malformed("bytes follow its end"))
        }
    }

    pub(super) fn u64(&mut self) -> Scanned<u64> {
        let digits = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, _) = self.rest().split_at(digits);
        self.at += digits.len();
        if digits.len() > 1 && digits.first() == Some(&b'0') {
            return Err(NOT_CANONICAL);
        }
        std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .ok_or(UNEXPECTED)
    }

    pub(super) fn bool(&mut self) -> Scanned<bool> {
        if self.take_if("true") {
            Ok(true)
        } else {
            self.literal("false").map(|()| false)
        }
    }

    /// A quoted string that needs no escapes.
    pub(super) fn plain(&mut self) -> Scanned<&'text str> {
        match self.string()? {
            Cow::Borrowed(text) => Ok(text),
            Cow::Owned(_) => Err(UNEXPECTED),
        }
    }

    /// A quoted string.
    pub(super) fn string(&mut self) -> Scanned<Cow<'text, str>> {
        let start = self.at;
        let escaped = self.skip_string()?;
        let token = self.text.get(start..self.at).unwrap_or_default();
        decode_string(token, escaped)
    }

    /// A quoted digest.
    pub(super) fn digest(&mut self) -> Scanned<Digest> {
        self.plain()?.parse().map_err(|_| UNEXPECTED)
    }

    /// Any canonical value: its bytes and its depth.
    pub(super) fn value(&mut self) -> Scanned<(&'text [u8], usize)> {
        let start = self.at;
        let depth = self.skip_value(MAXIMUM_DEPTH)?;
        Ok((self.text.get(start..self.at).unwrap_or_default(), depth))
    }

    fn skip_value(&mut self, depth_left: usize) -> Scanned<usize> {
        match self.peek() {
            Some(b'{') => self.skip_object(depth_left),
            Some(b'[') => self.skip_array(depth_left),
            Some(b'"') => self.skip_string().map(|_| 0),
            Some(b't') => self.literal("true").map(|()| 0),
            Some(b'f') => self.literal("false").map(|()| 0),
            Some(b'n') => self.literal("null").map(|()| 0),
            Some(b'-' | b'0'..=b'9') => self.skip_number().map(|()| 0),
            _ => Err(NOT_CANONICAL),
        }
    }

    fn skip_array(&mut self, depth_left: usize) -> Scanned<usize> {
        let depth_left = depth_left.checked_sub(1).ok_or(TOO_DEEP)?;
        self.at += 1;
        if self.take_if("]") {
            return Ok(1);
        }
        let mut deepest = 0;
        loop {
            deepest = deepest.max(self.skip_value(depth_left)?);
            if !self.another(b']')? {
                return Ok(deepest + 1);
            }
        }
    }

    fn skip_object(&mut self, depth_left: usize) -> Scanned<usize> {
        let depth_left = depth_left.checked_sub(1).ok_or(TOO_DEEP)?;
        self.at += 1;
        if self.take_if("}") {
            return Ok(1);
        }
        let mut deepest = 0;
        let mut previous: Option<Cow<'text, str>> = None;
        loop {
            let key = self.string()?;
            if previous.is_some_and(|previous| previous >= key) {
                return Err(NOT_CANONICAL);
            }
            previous = Some(key);
            self.literal(":")?;
            deepest = deepest.max(self.skip_value(depth_left)?);
            if !self.another(b'}')? {
                return Ok(deepest + 1);
            }
        }
    }

    /// Whether the string has escapes.
    fn skip_string(&mut self) -> Scanned<bool> {
        if self.peek() != Some(b'"') {
            return Err(UNEXPECTED);
        }
        self.at += 1;
        let mut escaped = false;
        loop {
            let plain = self
                .rest()
                .iter()
                .position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\');
            self.at += plain.ok_or(NOT_CANONICAL)?;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.at += escape_length(self.rest()).ok_or(NOT_CANONICAL)?;
                }
                _ => return Err(NOT_CANONICAL),
            }
        }
    }

    fn skip_number(&mut self) -> Scanned<()> {
        let length = self
            .rest()
            .iter()
            .take_while(|byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'0'..=b'9'))
            .count();
        let (token, _) = self.rest().split_at(length);
        self.at += length;
        let text = std::str::from_utf8(token).map_err(|_| NOT_CANONICAL)?;
        let canonical = if token.iter().any(|byte| matches!(byte, b'.' | b'e')) {
            let value: f64 = text.parse().map_err(|_| NOT_CANONICAL)?;
            let mut written = Vec::with_capacity(24);
            canonical_json::write_f64(value, &mut written).is_ok() && written == token
        } else {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let negative = digits.len() < text.len();
            digits.bytes().all(|byte| byte.is_ascii_digit())
                && (!digits.starts_with('0') || text == "0")
                && if negative {
                    text.parse::<i64>().is_ok()
                } else {
                    text.parse::<u64>().is_ok()
                }
        };
        if canonical {
            Ok(())
        } else {
            Err(NOT_CANONICAL)
        }
    }
}

/// The depth of a text that is one canonical value.
pub(super) fn depth_of(text: &[u8]) -> Scanned<usize> {
    let mut cursor = Cursor::new(text)?;
    let (_, depth) = cursor.value()?;
    cursor.end()?;
    Ok(depth)
}

/// The length of the canonical escape that stands here.
fn escape_length(text: &[u8]) -> Option<usize> {
    match text.get(1)? {
        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Some(2),
        b'u' => {
            let canonical = match text.get(2..6)? {
                [b'0', b'0', b'0', low] => matches!(low, b'0'..=b'7' | b'b' | b'e' | b'f'),
                [b'0', b'0', b'1', low] => matches!(low, b'0'..=b'9' | b'a'..=b'f'),
                _ => false,
            };
            canonical.then_some(6)
        }
        _ => None,
    }
}

fn decode_string(token: &[u8], escaped: bool) -> Scanned<Cow<'_, str>> {
    if escaped {
        return match canonical_json::read(token, ReadLimits::DEFAULT) {
            Ok(serde_json::Value::String(text)) => Ok(Cow::Owned(text)),
            _ => Err(NOT_CANONICAL),
        };
    }
    token
        .get(1..token.len().saturating_sub(1))
        .and_then(|text| std::str::from_utf8(text).ok())
        .map(Cow::Borrowed)
        .ok_or(NOT_CANONICAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ses_20_other_spellings_of_a_value_are_refused() {
        for text in [
            "null",
            "true",
            "0",
            "-1",
            "18446744073709551615",
            "-9223372036854775808",
            "1.0",
            "-0.0",
            "1e+16",
            "1e-05",
            "\"\"",
            "\"é\\u0000\\b\\u001f\u{7f}\"",
            "[]",
            "{}",
            "[1,[2,{}]]",
            "{\"\\n\":1,\" \":2,\"\u{ffff}\":3,\"\u{1f600}\":4}",
        ] {
            assert_eq!(Cursor::check_document(text.as_bytes()), Ok(()), "{text}");
        }
        for text in [
            "",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "1.",
            "1.50",
            "1e16",
            "1E+16",
            "-",
            "+1",
            "nul",
            "[1,]",
            "[1 ]",
            "{\"a\":1,}",
            "{\"b\":1,\"a\":2}",
            "{\"a\":1,\"a\":2}",
            "\"\\/\"",
            "\"\\u0041\"",
            "\"\\u001F\"",
            "\"\\u000a\"",
            "\"\\u0008\"",
            "\"a",
            "\"\n\"",
            "[1",
            "{\"a\" :1}",
            "1e400",
            "18446744073709551616",
            "-9223372036854775809",
            "NaN",
            "[",
            "{",
            "{\"a\"",
            "\"\\",
            "\"\\u00",
        ] {
            assert!(Cursor::check_document(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Cursor::check_document(b"\"\xff\"").is_err());
    }

    #[test]
    fn the_scanner_and_the_canonical_reader_agree_on_depth() {
        for depth in [MAXIMUM_DEPTH - 1, MAXIMUM_DEPTH, MAXIMUM_DEPTH + 1] {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(
                depth_of(text.as_bytes()).ok(),
                (depth <= MAXIMUM_DEPTH).then_some(depth)
            );
            assert_eq!(
                canonical_json::read_canonical(text.as_bytes()).is_ok(),
                depth <= MAXIMUM_DEPTH
            );
        }
    }
}
