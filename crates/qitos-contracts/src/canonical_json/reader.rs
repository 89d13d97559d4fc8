//! The strict reader: refuses what `serde_json` silently changes (SES-17, ARG-4).

use serde_json::{Map, Number, Value};

use super::MAXIMUM_DEPTH;
use super::writer::{first_escape, write_f64};

/// How much a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// Containers inside each other; never more than [`MAXIMUM_DEPTH`], whatever stands here.
    pub depth: usize,
    /// Values in all, containers included, keys not.
    pub nodes: usize,
    /// Bytes of the text.
    pub bytes: usize,
}

impl ReadLimits {
    /// The deepest nesting that the writer writes, with no bound on nodes and bytes.
    pub const DEFAULT: ReadLimits = ReadLimits {
        depth: MAXIMUM_DEPTH,
        nodes: usize::MAX,
        bytes: usize::MAX,
    };
}

impl Default for ReadLimits {
    fn default() -> Self {
        ReadLimits::DEFAULT
    }
}

/// Why a text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadReason {
    /// The text ends inside a value, or holds none.
    UnexpectedEnd,
    /// A byte that cannot stand there, a byte-order mark or comment included.
    UnexpectedByte,
    /// A number that JSON does not know: `01`, `1.`, `.5`, `+1`.
    InvalidNumber,
    /// An integer outside −2^63…2^64−1.
    IntegerRange,
    /// `NaN`, `Infinity`, or a float beyond the largest double.
    NotFinite,
    /// An escape that JSON does not know.
    InvalidEscape,
    /// Half of a surrogate pair.
    LoneSurrogate,
    /// A raw control below U+0020 in a string.
    ControlCharacter,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// A key that its object has already.
    DuplicateKey,
    /// More containers inside each other than [`ReadLimits::depth`].
    TooDeep,
    /// More values than [`ReadLimits::nodes`].
    TooManyNodes,
    /// More bytes than [`ReadLimits::bytes`].
    TooLarge,
    /// Something stands behind the value.
    TrailingData,
    /// The text is JSON, but the writer would have written it differently (SES-20).
    NotCanonical,
}

impl ReadReason {
    /// The stable lower-case word of this reason.
    ///
    /// The contracts that read JSON map it to a code of their own, such as `malformed_arguments_json`
    /// (ARG-4) or `corrupt_snapshot` (SES-20).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ReadReason::UnexpectedEnd => "unexpected_end",
            ReadReason::UnexpectedByte => "unexpected_byte",
            ReadReason::InvalidNumber => "invalid_number",
            ReadReason::IntegerRange => "integer_range",
            ReadReason::NotFinite => "not_finite",
            ReadReason::InvalidEscape => "invalid_escape",
            ReadReason::LoneSurrogate => "lone_surrogate",
            ReadReason::ControlCharacter => "control_character",
            ReadReason::InvalidUtf8 => "invalid_utf8",
            ReadReason::DuplicateKey => "duplicate_key",
            ReadReason::TooDeep => "too_deep",
            ReadReason::TooManyNodes => "too_many_nodes",
            ReadReason::TooLarge => "too_large",
            ReadReason::TrailingData => "trailing_data",
            ReadReason::NotCanonical => "not_canonical",
        }
    }
}

/// A refused text: the reason and where it stands. Content is never echoed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} at byte {offset}", reason.as_str())]
pub struct ReadError {
    /// Why.
    pub reason: ReadReason,
    /// Bytes before the place, counted from 0.
    pub offset: usize,
}

/// Reads one JSON value, with white space around it allowed.
///
/// Floats are read to the nearest double. An integer stays an integer and a float a float, `-0` is 0.
///
/// # Errors
/// Every [`ReadReason`] but `NotCanonical`.
pub fn read(bytes: &[u8], limits: ReadLimits) -> Result<Value, ReadError> {
    read_document(bytes, limits, false)
}

/// Reads bytes that the canonical writer wrote (SES-20), within [`ReadLimits::DEFAULT`].
///
/// # Errors
/// Every [`ReadReason`]; `NotCanonical` when the bytes are JSON in another spelling.
pub fn read_canonical(bytes: &[u8]) -> Result<Value, ReadError> {
    read_document(bytes, ReadLimits::DEFAULT, true)
}

/// Reads bytes that the canonical writer wrote (SES-20), within `limits`.
///
/// # Errors
/// As [`read_canonical`].
pub fn read_canonical_within(bytes: &[u8], limits: ReadLimits) -> Result<Value, ReadError> {
    read_document(bytes, limits, true)
}

/// Whether `bytes` are what the canonical writer writes for some value.
#[must_use]
pub fn is_canonical(bytes: &[u8]) -> bool {
    read_canonical(bytes).is_ok()
}

fn read_document(bytes: &[u8], limits: ReadLimits, canonical: bool) -> Result<Value, ReadError> {
    if bytes.len() > limits.bytes {
        return Err(ReadError {
            reason: ReadReason::TooLarge,
            offset: limits.bytes,
        });
    }
    let mut reader = Reader {
        bytes,
        position: 0,
        depth_left: limits.depth.min(MAXIMUM_DEPTH),
        nodes_left: limits.nodes,
        canonical,
        scratch: Vec::new(),
    };
    reader.skip_space()?;
    let value = reader.value()?;
    reader.skip_space()?;
    if reader.peek().is_some() {
        return reader.fail(ReadReason::TrailingData);
    }
    Ok(value)
}

struct Reader<'text> {
    bytes: &'text [u8],
    position: usize,
    depth_left: usize,
    nodes_left: usize,
    canonical: bool,
    /// Where a float is written again to compare it with its token.
    scratch: Vec<u8>,
}

impl<'text> Reader<'text> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn rest(&self) -> &'text [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    fn fail<T>(&self, reason: ReadReason) -> Result<T, ReadError> {
        self.fail_at(reason, self.position)
    }

    fn fail_at<T>(&self, reason: ReadReason, offset: usize) -> Result<T, ReadError> {
        Err(ReadError { reason, offset })
    }

    /// Refuses another spelling of a value at `offset`, when canonical bytes are asked for.
    fn must_be(&self, as_written: bool, offset: usize) -> Result<(), ReadError> {
        if self.canonical && !as_written {
            return self.fail_at(ReadReason::NotCanonical, offset);
        }
        Ok(())
    }

    fn skip_space(&mut self) -> Result<(), ReadError> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.must_be(false, self.position)?;
            self.position += 1;
        }
        Ok(())
    }

    fn value(&mut self) -> Result<Value, ReadError> {
        let Some(first) = self.peek() else {
            return self.fail(ReadReason::UnexpectedEnd);
        };
        match self.nodes_left.checked_sub(1) {
            Some(left) => self.nodes_left = left,
            None => return self.fail(ReadReason::TooManyNodes),
        }
        match first {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => self.string().map(Value::String),
            b'-' if self.rest().starts_with(b"-I") => self.word(b"-Infinity", None),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true", Some(Value::Bool(true))),
            b'f' => self.word(b"false", Some(Value::Bool(false))),
            b'n' => self.word(b"null", Some(Value::Null)),
            b'N' => self.word(b"NaN", None),
            b'I' => self.word(b"Infinity", None),
            b'+' | b'.' => self.fail(ReadReason::InvalidNumber),
            _ => self.fail(ReadReason::UnexpectedByte),
        }
    }

    /// A literal word; `None` stands for the words of other languages that mean no finite number.
    fn word(&mut self, word: &[u8], value: Option<Value>) -> Result<Value, ReadError> {
        let start = self.position;
        for expected in word {
            match self.peek() {
                Some(byte) if byte == *expected => self.position += 1,
                Some(_) => return self.fail(ReadReason::UnexpectedByte),
                None => return self.fail(ReadReason::UnexpectedEnd),
            }
        }
        match value {
            Some(value) => Ok(value),
            None => self.fail_at(ReadReason::NotFinite, start),
        }
    }

    fn enter(&mut self) -> Result<(), ReadError> {
        match self.depth_left.checked_sub(1) {
            Some(left) => {
                self.depth_left = left;
                self.position += 1;
                self.skip_space()
            }
            None => self.fail(ReadReason::TooDeep),
        }
    }

    fn leave(&mut self) {
        self.depth_left += 1;
        self.position += 1;
    }

    /// After an item: `true` when another follows, `false` when the container is closed.
    fn another(&mut self, close: u8) -> Result<bool, ReadError> {
        self.skip_space()?;
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                self.skip_space()?;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.leave();
                Ok(false)
            }
            Some(_) => self.fail(ReadReason::UnexpectedByte),
            None => self.fail(ReadReason::UnexpectedEnd),
        }
    }

    fn array(&mut self) -> Result<Value, ReadError> {
        self.enter()?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value()?);
            if !self.another(b']')? {
                return Ok(Value::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<Value, ReadError> {
        self.enter()?;
        let mut members = Map::new();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(Value::Object(members));
        }
        let mut ascending = true;
        loop {
            let start = self.position;
            match self.peek() {
                Some(b'"') => {}
                Some(_) => return self.fail(ReadReason::UnexpectedByte),
                None => return self.fail(ReadReason::UnexpectedEnd),
            }
            let key = self.string()?;
            // While the keys ascend, the last one is the greatest and a key above it is new; so it is in both
            // orders that a map may keep (SES-18).
            ascending = ascending && members.keys().next_back().is_none_or(|last| *last < key);
            if !ascending {
                if members.contains_key(&key) {
                    return self.fail_at(ReadReason::DuplicateKey, start);
                }
                self.must_be(false, start)?;
            }
            self.skip_space()?;
            match self.peek() {
                Some(b':') => self.position += 1,
                Some(_) => return self.fail(ReadReason::UnexpectedByte),
                None => return self.fail(ReadReason::UnexpectedEnd),
            }
            self.skip_space()?;
            let value = self.value()?;
            members.insert(key, value);
            if !self.another(b'}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    /// A string; the position is on its opening quote.
    fn string(&mut self) -> Result<String, ReadError> {
        self.position += 1;
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let Some(length) = first_escape(rest) else {
                return self.fail_at(ReadReason::UnexpectedEnd, self.bytes.len());
            };
            let (plain, _) = rest.split_at(length);
            match std::str::from_utf8(plain) {
                Ok(plain) => text.push_str(plain),
                Err(error) => {
                    return self
                        .fail_at(ReadReason::InvalidUtf8, self.position + error.valid_up_to());
                }
            }
            self.position += length;
            match self.peek() {
                Some(b'"') => {
                    self.position += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return self.fail(ReadReason::ControlCharacter),
            }
        }
    }

    /// An escape; the position is on its backslash.
    fn escape(&mut self) -> Result<char, ReadError> {
        let start = self.position;
        let Some(letter) = self.bytes.get(start + 1).copied() else {
            return self.fail_at(ReadReason::UnexpectedEnd, self.bytes.len());
        };
        self.position += 2;
        let character = match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'/' => {
                self.must_be(false, start)?;
                '/'
            }
            b'u' => return self.unicode_escape(start),
            _ => return self.fail_at(ReadReason::InvalidEscape, start),
        };
        Ok(character)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, ReadError> {
        let first = self.four_hex(start)?;
        let code = match first {
            0xD800..=0xDBFF => {
                if !self.rest().starts_with(b"\\u") {
                    return self.fail_at(ReadReason::LoneSurrogate, start);
                }
                let second_start = self.position;
                self.position += 2;
                let second = self.four_hex(second_start)?;
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return self.fail_at(ReadReason::LoneSurrogate, start);
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            _ => first,
        };
        let Some(character) = char::from_u32(code) else {
            return self.fail_at(ReadReason::LoneSurrogate, start);
        };
        let token = self.bytes.get(start..self.position).unwrap_or_default();
        // Only controls without a letter of their own are written so, and in lower case.
        let as_written = code < 0x20
            && !matches!(character, '\u{8}' | '\u{c}' | '\n' | '\r' | '\t')
            && !token.iter().any(u8::is_ascii_uppercase);
        self.must_be(as_written, start)?;
        Ok(character)
    }

    fn four_hex(&mut self, start: usize) -> Result<u32, ReadError> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(byte) = self.peek() else {
                return self.fail(ReadReason::UnexpectedEnd);
            };
            let Some(digit) = char::from(byte).to_digit(16) else {
                return self.fail_at(ReadReason::InvalidEscape, start);
            };
            code = code * 16 + digit;
            self.position += 1;
        }
        Ok(code)
    }

    fn digits(&mut self) -> usize {
        let length = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.position += length;
        length
    }

    fn number(&mut self) -> Result<Value, ReadError> {
        let start = self.position;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.position += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return self.bad_number(start);
        }
        let mut float = false;
        if self.peek() == Some(b'.') {
            float = true;
            self.position += 1;
            if self.digits() == 0 {
                return self.bad_number(start);
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            float = true;
            self.position += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.position += 1;
            }
            if self.digits() == 0 {
                return self.bad_number(start);
            }
        }
        let token = self.bytes.get(start..self.position).unwrap_or_default();
        let text = std::str::from_utf8(token).unwrap_or_default();
        if float {
            let value = text.parse::<f64>().unwrap_or(f64::NAN);
            let Some(number) = Number::from_f64(value) else {
                return self.fail_at(ReadReason::NotFinite, start);
            };
            if self.canonical {
                self.scratch.clear();
                let written = write_f64(value, &mut self.scratch).is_ok();
                self.must_be(written && self.scratch == token, start)?;
            }
            return Ok(Value::Number(number));
        }
        let number = if negative {
            self.must_be(!leading_zero, start)?;
            text.parse::<i64>().map(Number::from)
        } else {
            text.parse::<u64>().map(Number::from)
        };
        match number {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) => self.fail_at(ReadReason::IntegerRange, start),
        }
    }

    /// A number broken off by the end of the text is an unexpected end, any other a bad number.
    fn bad_number<T>(&self, start: usize) -> Result<T, ReadError> {
        match self.peek() {
            None if !self.ends_in_leading_zero(start) => self.fail(ReadReason::UnexpectedEnd),
            _ => self.fail_at(ReadReason::InvalidNumber, start),
        }
    }

    fn ends_in_leading_zero(&self, start: usize) -> bool {
        let token = self.bytes.get(start..self.position).unwrap_or_default();
        token.last().is_some_and(u8::is_ascii_digit)
    }
}
