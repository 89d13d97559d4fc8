//! `name(key=value, …)`: the call of `react_text_v1`, read exactly or not at all (TXT-2).

use qitos_contracts::canonical_json;
use serde_json::{Map, Value};

use super::grammar::{VALUE_LIMITS, is_identifier, is_tool_name};

/// Why a text is not a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallFault {
    #[error("no call after the action label")]
    Missing,
    #[error("tool name is not followed by an opening bracket")]
    NoBracket,
    #[error("not a tool name")]
    BadName,
    #[error("a positional argument")]
    Positional,
    #[error("an argument without a value")]
    NoValue,
    #[error("a repeated argument")]
    RepeatedKey,
    #[error("an unclosed bracket")]
    UnclosedBracket,
    #[error("an unclosed quote")]
    UnclosedQuote,
    #[error("an argument value that is no JSON value")]
    BadValue,
    #[error("a comma without an argument after it")]
    TrailingComma,
    #[error("text after the call")]
    TextAfter,
}

struct Cursor<'text> {
    text: &'text str,
    at: usize,
}

impl<'text> Cursor<'text> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn since(&self, start: usize) -> &'text str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The longest run of bytes that `keep` accepts.
    fn run(&mut self, keep: impl Fn(u8) -> bool) -> &'text str {
        let start = self.at;
        while self.peek().is_some_and(&keep) {
            self.at += 1;
        }
        self.since(start)
    }
}

/// Reads a text that is one call and nothing else.
pub(super) fn read_call(text: &str) -> Result<(&str, Map<String, Value>), CallFault> {
    let mut cursor = Cursor {
        text: text.trim(),
        at: 0,
    };
    if cursor.text.is_empty() {
        return Err(CallFault::Missing);
    }
    let name = cursor.run(|byte| !byte.is_ascii_whitespace() && byte != b'(');
    cursor.skip_space();
    if !is_tool_name(name) {
        return Err(CallFault::BadName);
    }
    if !cursor.take(b'(') {
        return Err(CallFault::NoBracket);
    }
    let arguments = read_arguments(&mut cursor)?;
    cursor.skip_space();
    if cursor.peek().is_some() {
        Err(CallFault::TextAfter)
    } else {
        Ok((name, arguments))
    }
}

fn read_arguments(cursor: &mut Cursor<'_>) -> Result<Map<String, Value>, CallFault> {
    let mut arguments = Map::new();
    cursor.skip_space();
    if cursor.take(b')') {
        return Ok(arguments);
    }
    loop {
        let (key, value) = read_pair(cursor)?;
        if arguments.insert(key, value).is_some() {
            return Err(CallFault::RepeatedKey);
        }
        cursor.skip_space();
        match cursor.peek() {
            Some(b')') => {
                cursor.at += 1;
                return Ok(arguments);
            }
            Some(b',') => cursor.at += 1,
            Some(_) => return Err(CallFault::BadValue),
            None => return Err(CallFault::UnclosedBracket),
        }
        cursor.skip_space();
        if cursor.peek() == Some(b')') {
            return Err(CallFault::TrailingComma);
        }
    }
}

fn read_pair(cursor: &mut Cursor<'_>) -> Result<(String, Value), CallFault> {
    let key = cursor.run(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    cursor.skip_space();
    if !cursor.take(b'=') {
        // `=` is what tells a name from a value; without it there is nothing to go by.
        return Err(if cursor.peek().is_none() {
            CallFault::UnclosedBracket
        } else {
            CallFault::Positional
        });
    }
    if !is_identifier(key) {
        return Err(CallFault::Positional);
    }
    cursor.skip_space();
    Ok((key.to_owned(), read_value(cursor)?))
}

fn read_value(cursor: &mut Cursor<'_>) -> Result<Value, CallFault> {
    let start = cursor.at;
    match cursor.peek() {
        None => Err(CallFault::UnclosedBracket),
        Some(b',' | b')') => Err(CallFault::NoValue),
        Some(b'\'') => {
            skip_quoted(cursor, b'\'')?;
            read_single_quoted(cursor.since(start))
        }
        Some(b'"') => {
            skip_quoted(cursor, b'"')?;
            read_json(cursor.since(start))
        }
        Some(b'{' | b'[') => {
            skip_container(cursor)?;
            read_json(cursor.since(start))
        }
        Some(_) => {
            match cursor.run(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b',' | b')')) {
                "True" => Ok(Value::Bool(true)),
                "False" => Ok(Value::Bool(false)),
                "None" => Ok(Value::Null),
                word => read_json(word),
            }
        }
    }
}

fn read_json(text: &str) -> Result<Value, CallFault> {
    canonical_json::read(text.as_bytes(), VALUE_LIMITS).map_err(|_| CallFault::BadValue)
}

/// Moves behind the closing quote.
fn skip_quoted(cursor: &mut Cursor<'_>, quote: u8) -> Result<(), CallFault> {
    cursor.at += 1;
    loop {
        match cursor.peek() {
            None => return Err(CallFault::UnclosedQuote),
            Some(b'\\') => cursor.at += 2,
            Some(byte) => {
                cursor.at += 1;
                if byte == quote {
                    return Ok(());
                }
            }
        }
    }
}

/// Moves behind the bracket that closes the container; which bracket fits which is the reader's question.
fn skip_container(cursor: &mut Cursor<'_>) -> Result<(), CallFault> {
    let mut depth = 0usize;
    loop {
        match cursor.peek() {
            None => return Err(CallFault::UnclosedBracket),
            Some(b'"') => skip_quoted(cursor, b'"')?,
            Some(byte) => {
                cursor.at += 1;
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// A single-quoted string has JSON's escapes and `\'`; it is rewritten as a JSON string and read as one.
fn read_single_quoted(quoted: &str) -> Result<Value, CallFault> {
    let inner = quoted
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''))
        .ok_or(CallFault::UnclosedQuote)?;
    let mut json = String::with_capacity(quoted.len() + 2);
    json.push('"');
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => match characters.next() {
                Some('\'') => json.push('\''),
                Some(escaped) => json.extend(['\\', escaped]),
                None => return Err(CallFault::UnclosedQuote),
            },
            other => json.push(other),
        }
    }
    json.push('"');
    read_json(&json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn reads(text: &str, name: &str, arguments: Value) {
        let (found, read) = read_call(text).unwrap();
        assert_eq!((found, Value::Object(read)), (name, arguments));
    }

    #[track_caller]
    fn refuses(text: &str, fault: CallFault) {
        assert_eq!(read_call(text), Err(fault), "{text}");
    }

    #[test]
    fn values_are_json_or_python_words_or_single_quoted() {
        reads("ping()", "ping", json!({}));
        reads("ping ( )", "ping", json!({}));
        reads(
            "fs.read(path=\"a,(b)\")",
            "fs.read",
            json!({"path": "a,(b)"}),
        );
        reads(
            "f(a=1, b = -2.5,c=True,d=False,e=None,g=true,h=null)",
            "f",
            json!({"a": 1, "b": -2.5, "c": true, "d": false, "e": null, "g": true, "h": null}),
        );
        reads(
            "f(t='it\\'s \"x\", (y)\\n')",
            "f",
            json!({"t": "it's \"x\", (y)\n"}),
        );
        reads(
            "f(l=[1, {\"a\": \")]\"}],\n o={})",
            "f",
            json!({"l": [1, {"a": ")]"}], "o": {}}),
        );
        reads("f(t='é\\u00e9')", "f", json!({"t": "éé"}));
    }

    #[test]
    fn txt_2_what_is_not_exact_is_refused() {
        use CallFault as F;
        refuses("", F::Missing);
        refuses("read", F::NoBracket);
        refuses("read file(x=1)", F::NoBracket);
        refuses("1read()", F::BadName);
        refuses("a..b()", F::BadName);
        refuses("f(1)", F::Positional);
        refuses("f(a=1, 2)", F::Positional);
        refuses("f(\"a\")", F::Positional);
        refuses("f({\"a\": 1})", F::Positional);
        refuses("f(a=1", F::UnclosedBracket);
        refuses("f(a=[1)", F::UnclosedBracket);
        refuses("f(", F::UnclosedBracket);
        refuses("f(a", F::UnclosedBracket);
        refuses("f(a=", F::UnclosedBracket);
        refuses("f(a='x)", F::UnclosedQuote);
        refuses("f(a=\"x\\\")", F::UnclosedQuote);
        refuses("f(a=1, a=2)", F::RepeatedKey);
        refuses("f(a={\"b\":1,\"b\":2})", F::BadValue);
        refuses("f(a=)", F::NoValue);
        refuses("f(a=,b=1)", F::NoValue);
        refuses("f(a=1,)", F::TrailingComma);
        refuses("f(a=word)", F::BadValue);
        refuses("f(a=[True])", F::BadValue);
        refuses("f(a=1 b=2)", F::BadValue);
        refuses("f(a='x\ny')", F::BadValue);
        refuses("f(a=1) and then", F::TextAfter);
        refuses("f()()", F::TextAfter);
    }
}
