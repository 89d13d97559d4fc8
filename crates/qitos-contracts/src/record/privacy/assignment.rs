//! `name=value`, `name: value` and `--name value` inside a text (TRJ-31, `assign`).
//!
//! Scanned by hand because the value of one assignment may be another (`url: api_key=abc`), which
//! matches that do not overlap would miss, and because that must not cost more than one pass.

use std::ops::{ControlFlow, Range};

use super::key_rule::{Shape, compact, is_sensitive};
use super::{OMITTED, REDACTED};

const LONGEST_NAME: usize = 64;
const LONGEST_FLAG: usize = 41;

fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | b' ')
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// A monotone pointer: the end of the current value, found once however often it is asked for.
struct NextPlace<F: Fn(usize) -> usize> {
    known: usize,
    find: F,
}

impl<F: Fn(usize) -> usize> NextPlace<F> {
    fn from(&mut self, position: usize) -> usize {
        if self.known < position {
            self.known = (self.find)(position);
        }
        self.known
    }
}

/// Calls `visit` with the value of each assignment to a secret name.
pub(super) fn for_each_assignment(
    text: &str,
    visit: &mut dyn FnMut(Range<usize>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let bytes = text.as_bytes();
    let mut value_end = NextPlace {
        known: 0,
        find: |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            from + rest
                .iter()
                .position(|byte| {
                    is_space(*byte) || is_quote(*byte) || matches!(byte, b',' | b';' | b'&')
                })
                .unwrap_or(rest.len())
        },
    };
    let mut next_marker = NextPlace {
        known: 0,
        find: |from: usize| {
            let rest = text.get(from..).unwrap_or_default();
            MARKS
                .iter()
                .filter_map(|mark| rest.find(mark))
                .min()
                .map_or(usize::MAX, |at| from + at)
        },
    };
    // The pointers start one search behind the text.
    value_end.known = (value_end.find)(0);
    next_marker.known = (next_marker.find)(0);
    for (separator, _) in bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| matches!(byte, b'=' | b':'))
    {
        let Some(name) = name_before(text, separator) else {
            continue;
        };
        let mut start = separator + 1;
        while bytes.get(start).copied().is_some_and(is_space) {
            start += 1;
        }
        if bytes.get(start).copied().is_some_and(is_quote) {
            start += 1;
        }
        let end = value_end.from(start);
        if end <= start {
            continue;
        }
        // A value that holds a marker was redacted before.
        if next_marker.from(start) < end {
            continue;
        }
        let name = name.rsplit('.').next().unwrap_or(name);
        let shape = shape_of(text, start..end);
        if is_secret_name(name, shape) {
            visit(start..end)?;
        }
    }
    ControlFlow::Continue(())
}

/// `[REDACTED` opens the markers of the model view (PRJ-9).
const MARKS: [&str; 3] = [REDACTED, OMITTED, "[REDACTED"];

/// Calls `visit` with the value of each `--name value` with a secret name.
pub(super) fn for_each_flag(
    text: &str,
    visit: &mut dyn FnMut(Range<usize>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let bytes = text.as_bytes();
    for (dashes, _) in text.match_indices("--") {
        let stands_alone = dashes
            .checked_sub(1)
            .and_then(|before| bytes.get(before))
            .is_none_or(|byte| is_space(*byte));
        let name_start = dashes + 2;
        if !stands_alone || !bytes.get(name_start).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let mut name_end = name_start;
        while name_end - name_start <= LONGEST_FLAG
            && bytes
                .get(name_end)
                .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        {
            name_end += 1;
        }
        let mut start = name_end;
        while bytes.get(start).copied().is_some_and(is_space) {
            start += 1;
        }
        if name_end - name_start > LONGEST_FLAG || start == name_end {
            continue;
        }
        let rest = bytes.get(start..).unwrap_or_default();
        let end = start
            + rest
                .iter()
                .position(|byte| is_space(*byte))
                .unwrap_or(rest.len());
        let value = text.get(start..end).unwrap_or_default();
        if value.is_empty() || MARKS.iter().any(|mark| value.contains(mark)) {
            continue;
        }
        let name = text.get(name_start..name_end).unwrap_or_default();
        if is_secret_name(name, shape_of(text, start..end)) {
            visit(start..end)?;
        }
    }
    ControlFlow::Continue(())
}

/// The name directly before the separator, a quote and white space apart.
fn name_before(text: &str, separator: usize) -> Option<&str> {
    let bytes = text.as_bytes();
    let before = |position: usize| {
        position
            .checked_sub(1)
            .and_then(|at| bytes.get(at))
            .copied()
    };
    let mut end = separator;
    while before(end).is_some_and(is_space) {
        end -= 1;
    }
    if before(end).is_some_and(is_quote) {
        end -= 1;
    }
    let mut start = end;
    while end - start < LONGEST_NAME
        && before(start)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    {
        start -= 1;
    }
    while start < end && !bytes.get(start).is_some_and(u8::is_ascii_alphabetic) {
        start += 1;
    }
    (start < end).then(|| text.get(start..end)).flatten()
}

/// How the value reads: what a text calls `true`, `none` or `512` is no secret string.
fn shape_of(text: &str, value: Range<usize>) -> Shape {
    /// Longer than any number that a text would hold.
    const LONGEST_LITERAL: usize = 40;
    if value.len() > LONGEST_LITERAL {
        return Shape::Text;
    }
    let value = text
        .get(value)
        .unwrap_or_default()
        .trim_end_matches(['}', ']', ')']);
    let word = |expected: &str| value.eq_ignore_ascii_case(expected);
    if word("true") || word("false") || word("null") || word("none") {
        Shape::Exempt
    } else if value.bytes().any(|byte| byte.is_ascii_digit()) && value.parse::<f64>().is_ok() {
        Shape::Other
    } else {
        Shape::Text
    }
}

fn is_secret_name(name: &str, shape: Shape) -> bool {
    shape != Shape::Exempt
        && (is_sensitive(name, shape)
            || matches!(
                compact(name).as_str(),
                "sig" | "signature" | "xamzsignature"
            ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut visit = |range: Range<usize>| {
            found.push(text.get(range).unwrap());
            ControlFlow::Continue(())
        };
        let _ = for_each_assignment(text, &mut visit);
        let _ = for_each_flag(text, &mut visit);
        found
    }

    #[test]
    fn values_of_secret_names_are_found_whatever_the_quoting() {
        for (text, expected) in [
            ("OPENAI_API_KEY=abc123", vec!["abc123"]),
            (r#"{"api_key": "abc", "n": 1}"#, vec!["abc"]),
            ("db.password = 'x' ; token: none", vec!["x"]),
            ("run --password hunter2 --max-tokens 512", vec!["hunter2"]),
            ("total tokens: 512", vec![]),
            ("token=__redacted__", vec![]),
            ("token=token=__redacted__", vec![]),
            ("password=[REDACTED]", vec![]),
            ("a:b", vec![]),
            ("=x", vec![]),
            ("token=", vec![]),
            ("password: true)", vec![]),
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
    }
}
