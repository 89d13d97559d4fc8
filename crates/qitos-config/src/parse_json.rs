//! Strict JSON text to the same document that YAML gives (CFG-1, CFG-3).
//!
//! YAML's parser would read most JSON, but also much that is none; a file that calls itself JSON must be JSON.

use std::str::Chars;

use crate::describe_error::{ConfigError, ErrorList};
use crate::document::{Entry, Kind, Node, Position};
use crate::limits::{MAX_DEPTH, MAX_NODES, MAX_SCALAR_BYTES};
use crate::parse_yaml::{duplicate_key, syntax_error};
use crate::scalar;

struct Reader<'text, 'errors> {
    rest: Chars<'text>,
    at: Position,
    nodes: usize,
    errors: &'errors mut ErrorList,
}

/// Reads one JSON text; nothing when it cannot be read to its end.
pub(crate) fn parse(text: &str, errors: &mut ErrorList) -> Option<Node> {
    let mut reader = Reader {
        rest: text.chars(),
        at: Position { line: 1, column: 1 },
        nodes: 0,
        errors,
    };
    let read = reader.value(0).and_then(|node| {
        reader.space();
        match reader.peek() {
            None => Ok(node),
            Some(_) => Err(reader.wrong("text after the end of the document")),
        }
    });
    match read {
        Ok(node) => Some(node),
        Err(error) => {
            reader.errors.push(error);
            None
        }
    }
}

impl Reader<'_, '_> {
    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.at = Position {
                line: self.at.line.saturating_add(1),
                column: 1,
            };
        } else {
            self.at.column = self.at.column.saturating_add(1);
        }
        Some(character)
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn wrong(&self, message: &str) -> ConfigError {
        syntax_error(
            self.at,
            message,
            "write strict JSON: no comments, no trailing commas, double quotes",
        )
    }

    fn expect(&mut self, wanted: char, message: &str) -> Result<(), ConfigError> {
        if self.peek() == Some(wanted) {
            self.next();
            Ok(())
        } else {
            Err(self.wrong(message))
        }
    }

    fn count(&mut self) -> Result<(), ConfigError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(syntax_error(
                self.at,
                "more than 20000 nodes",
                "move data out of the configuration",
            ));
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Node, ConfigError> {
        self.space();
        self.count()?;
        let position = self.at;
        let kind = match self.peek() {
            Some('{' | '[') if depth >= MAX_DEPTH => {
                return Err(syntax_error(
                    position,
                    "nested deeper than 32 levels",
                    "flatten the value",
                ));
            }
            Some('{') => self.mapping(depth)?,
            Some('[') => self.sequence(depth)?,
            Some('"') => Kind::Quoted(self.string()?),
            Some(_) => Kind::Plain(self.literal()?),
            None => return Err(self.wrong("a value is missing")),
        };
        Ok(Node {
            position: Some(position),
            kind,
        })
    }

    fn literal(&mut self) -> Result<String, ConfigError> {
        let start = self.at;
        let mut text = String::new();
        while let Some(character) = self
            .peek()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        {
            text.push(character);
            self.next();
            if text.len() > MAX_SCALAR_BYTES {
                break;
            }
        }
        let known = matches!(text.as_str(), "null" | "true" | "false");
        if known || scalar::number_syntax(text.as_bytes()).is_some() {
            if text.len() <= MAX_SCALAR_BYTES {
                return Ok(text);
            }
            return Err(syntax_error(
                start,
                "a scalar is longer than 64 KiB",
                "write a shorter number",
            ));
        }
        Err(syntax_error(
            start,
            "not a JSON value",
            "write strict JSON: strings in double quotes, decimal numbers, true, false or null",
        ))
    }

    fn string(&mut self) -> Result<String, ConfigError> {
        let start = self.at;
        self.next();
        let mut text = String::new();
        loop {
            let Some(character) = self.next() else {
                return Err(syntax_error(
                    start,
                    "a string is never closed",
                    "add the closing double quote",
                ));
            };
            match character {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                '\u{0}'..='\u{1f}' => {
                    return Err(self.wrong("a control character stands in a string"));
                }
                other => text.push(other),
            }
            if text.len() > MAX_SCALAR_BYTES {
                return Err(syntax_error(
                    start,
                    "a scalar is longer than 64 KiB",
                    "move long texts into files of the workspace",
                ));
            }
        }
    }

    fn escape(&mut self) -> Result<char, ConfigError> {
        let plain = match self.next() {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let unit = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&unit) {
                    self.expect('\\', "half of a surrogate pair is missing")?;
                    self.expect('u', "half of a surrogate pair is missing")?;
                    let low = self.unit()?;
                    if !(0xdc00..0xe000).contains(&low) {
                        return Err(self.wrong("half of a surrogate pair is missing"));
                    }
                    0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                } else {
                    unit
                };
                return char::from_u32(code)
                    .ok_or_else(|| self.wrong("half of a surrogate pair is missing"));
            }
            _ => return Err(self.wrong("an escape that JSON does not know")),
        };
        Ok(plain)
    }

    fn unit(&mut self) -> Result<u32, ConfigError> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self
                .next()
                .and_then(|character| character.to_digit(16))
                .ok_or_else(|| self.wrong("an escape needs four hex digits"))?;
            value = value * 16 + digit;
        }
        Ok(value)
    }

    fn sequence(&mut self, depth: usize) -> Result<Kind, ConfigError> {
        self.next();
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(']') {
            self.next();
            return Ok(Kind::Sequence(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                Some(']') => {
                    self.next();
                    return Ok(Kind::Sequence(items));
                }
                _ => return Err(self.wrong("a comma or ] is missing")),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Kind, ConfigError> {
        self.next();
        let mut entries: Vec<Entry> = Vec::new();
        self.space();
        if self.peek() == Some('}') {
            self.next();
            return Ok(Kind::Mapping(entries));
        }
        loop {
            self.space();
            let position = self.at;
            if self.peek() != Some('"') {
                return Err(self.wrong("a key in double quotes is missing"));
            }
            self.count()?;
            let key = self.string()?;
            let duplicate = duplicate_key(&key, position, &entries);
            self.space();
            self.expect(':', "a colon is missing")?;
            let value = self.value(depth + 1)?;
            match duplicate {
                Some(error) => self.errors.push(error),
                None => entries.push(Entry {
                    key,
                    position: Some(position),
                    value,
                }),
            }
            self.space();
            match self.peek() {
                Some(',') => {
                    self.next();
                }
                Some('}') => {
                    self.next();
                    return Ok(Kind::Mapping(entries));
                }
                _ => return Err(self.wrong("a comma or } is missing")),
            }
        }
    }
}
