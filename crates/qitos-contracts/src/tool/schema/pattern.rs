//! Patterns of ECMAScript, as JSON Schema has them, for the `regex` crate.
//!
//! The syntaxes differ in few places: `\d`, `\w`, `\s` mean ASCII in ECMAScript, `.` stops at four line ends,
//! and inside a class `[` and `&&` have no meaning of their own. What `regex` cannot run in linear time
//! (lookaround, back references) it refuses, and so do we.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take.
const COMPILED_BYTES: usize = 256 * 1024;
/// Groups inside each other.
const NESTING: u32 = 32;

const DIGIT: &str = "[0-9]";
const NOT_DIGIT: &str = "[^0-9]";
const WORD: &str = "[A-Za-z0-9_]";
const NOT_WORD: &str = "[^A-Za-z0-9_]";
const SPACE: &str = "[\\t\\n\\x0B\\x0C\\r \\u{A0}\\u{1680}\\u{2000}-\\u{200A}\\u{2028}\\u{2029}\\u{202F}\\u{205F}\\u{3000}\\u{FEFF}]";
const NOT_SPACE: &str = "[^\\t\\n\\x0B\\x0C\\r \\u{A0}\\u{1680}\\u{2000}-\\u{200A}\\u{2028}\\u{2029}\\u{202F}\\u{205F}\\u{3000}\\u{FEFF}]";
const NOT_LINE_END: &str = "[^\\n\\r\\u{2028}\\u{2029}]";

/// Compiles a pattern, or says that it is outside the supported syntax.
pub(super) fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(&translate(pattern)?)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(COMPILED_BYTES)
        .nest_limit(NESTING)
        .build()
        .ok()
}

fn translate(pattern: &str) -> Option<String> {
    let mut translated = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(character) = rest.next() {
        match character {
            '\\' => escape(&mut rest, in_class, &mut translated)?,
            '[' if in_class => translated.push_str("\\["),
            '[' => {
                in_class = true;
                translated.push('[');
                if rest.next_if_eq(&'^').is_some() {
                    translated.push('^');
                }
                // `[]` and `[^]` are classes of nothing and everything there, errors here.
                if rest.peek() == Some(&']') {
                    return None;
                }
            }
            ']' if in_class => {
                in_class = false;
                translated.push(']');
            }
            // Set operations of `regex`, plain characters there.
            '&' | '~' | '-' if in_class && rest.peek() == Some(&character) => {
                translated.push('\\');
                translated.push(character);
            }
            '.' if !in_class => translated.push_str(NOT_LINE_END),
            '(' if !in_class => {
                translated.push('(');
                group_start(&mut rest, &mut translated)?;
            }
            _ => translated.push(character),
        }
    }
    Some(translated)
}

/// After `(`: only plain, `?:` and named groups.
fn group_start(rest: &mut Peekable<Chars<'_>>, translated: &mut String) -> Option<()> {
    if rest.next_if_eq(&'?').is_none() {
        return Some(());
    }
    match rest.next()? {
        ':' => translated.push_str("?:"),
        '<' if !matches!(rest.peek(), Some('=' | '!')) => translated.push_str("?<"),
        _ => return None,
    }
    Some(())
}

fn escape(rest: &mut Peekable<Chars<'_>>, in_class: bool, translated: &mut String) -> Option<()> {
    let character = rest.next()?;
    match character {
        'd' => translated.push_str(DIGIT),
        'D' => translated.push_str(NOT_DIGIT),
        'w' => translated.push_str(WORD),
        'W' => translated.push_str(NOT_WORD),
        's' => translated.push_str(SPACE),
        'S' => translated.push_str(NOT_SPACE),
        'b' if in_class => translated.push_str("\\x08"),
        'b' => translated.push_str("(?-u:\\b)"),
        '0' if !matches!(rest.peek(), Some('0'..='9')) => translated.push_str("\\x00"),
        'n' | 'r' | 't' | 'f' | 'v' => {
            translated.push('\\');
            translated.push(character);
        }
        'x' => hexadecimal(rest, 2, translated)?,
        'u' if rest.peek() != Some(&'{') => hexadecimal(rest, 4, translated)?,
        'u' => translated.push_str("\\u"),
        // Letters and digits else are back references, properties, or mistakes.
        _ if character.is_ascii_alphanumeric() => return None,
        _ if character.is_ascii_punctuation() => {
            if !matches!(character, '<' | '>') {
                translated.push('\\');
            }
            translated.push(character);
        }
        _ => translated.push(character),
    }
    Some(())
}

fn hexadecimal(
    rest: &mut Peekable<Chars<'_>>,
    digits: usize,
    translated: &mut String,
) -> Option<()> {
    translated.push_str("\\x{");
    for _ in 0..digits {
        let digit = rest.next()?;
        if !digit.is_ascii_hexdigit() {
            return None;
        }
        translated.push(digit);
    }
    translated.push('}');
    Some(())
}
