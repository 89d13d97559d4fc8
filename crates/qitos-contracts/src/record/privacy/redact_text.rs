//! Redaction inside a text that goes to a model or a person and must stay readable (PRJ-9).

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};

use super::FindingCode;
use super::value_rule::{finding_in, for_each_host_path, for_each_secret};

const SECRET: &str = "[REDACTED]";
const PATH: &str = "[REDACTED_PATH]";

/// How often each kind was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedactionCounts {
    /// Secrets that became `[REDACTED]`.
    pub secrets: u64,
    /// Host paths that became `[REDACTED_PATH]`.
    pub host_paths: u64,
}

/// Replaces secrets by `[REDACTED]` and host paths by `[REDACTED_PATH]`, each on its own (PRJ-9).
///
/// Deterministic and pure; applying it again changes nothing. Where a secret is disguised so that its
/// place in the text is not known, the whole text is replaced. Local endpoints stay.
#[must_use]
pub fn redact_text(text: &str) -> (Cow<'_, str>, RedactionCounts) {
    let mut counts = RedactionCounts::default();
    let mut places: Vec<(Range<usize>, &'static str)> = Vec::new();
    for_each_secret(text, true, |place| {
        places.push((place, SECRET));
        ControlFlow::Continue(())
    });
    for_each_host_path(text, |place| places.push((place, PATH)));
    let replaced = if places.is_empty() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(replace(text, places, &mut counts))
    };
    let whole = match finding_in(&replaced) {
        Some(FindingCode::SecretValue) => SECRET,
        Some(FindingCode::HostPath) => PATH,
        _ => return (replaced, counts),
    };
    if whole == SECRET {
        counts.secrets += 1;
    } else {
        counts.host_paths += 1;
    }
    (Cow::Borrowed(whole), counts)
}

/// Secrets win over the paths they overlap; of two secrets the earlier is widened by the later.
fn replace(
    text: &str,
    mut places: Vec<(Range<usize>, &'static str)>,
    counts: &mut RedactionCounts,
) -> String {
    places.sort_by_key(|(place, _)| (place.start, usize::MAX - place.end));
    let mut merged: Vec<(Range<usize>, &'static str)> = Vec::with_capacity(places.len());
    for (place, mark) in places {
        match merged.last_mut() {
            Some((last, last_mark)) if place.start < last.end => {
                last.end = last.end.max(place.end);
                if mark == SECRET {
                    *last_mark = SECRET;
                }
            }
            _ => merged.push((place, mark)),
        }
    }
    let mut output = String::with_capacity(text.len());
    let mut done = 0;
    for (place, mark) in merged {
        output.push_str(text.get(done..place.start).unwrap_or_default());
        output.push_str(mark);
        done = place.end;
        if mark == SECRET {
            counts.secrets += 1;
        } else {
            counts.host_paths += 1;
        }
    }
    output.push_str(text.get(done..).unwrap_or_default());
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, secrets: u64, host_paths: u64) {
        let (redacted, counts) = redact_text(text);
        assert_eq!(redacted, expected);
        assert_eq!(
            counts,
            RedactionCounts {
                secrets,
                host_paths
            }
        );
        let (again, nothing) = redact_text(&redacted);
        assert_eq!(
            (again.as_ref(), nothing),
            (expected, RedactionCounts::default())
        );
    }

    #[test]
    fn secrets_and_paths_are_replaced_where_they_stand() {
        // PRJ-9
        check("plain", "plain", 0, 0);
        check(
            "password=hunter2 in /home/a/x.py:3",
            "password=[REDACTED] in [REDACTED_PATH]",
            1,
            1,
        );
        check(
            "Authorization: Bearer abc.def-123",
            "Authorization: [REDACTED] [REDACTED]",
            2,
            0,
        );
        check("see (/Users/bob/p), ok", "see ([REDACTED_PATH]), ok", 0, 1);
        check("é /etc/é end", "é [REDACTED_PATH] end", 0, 1);
        check(
            "https://bob:pw@host.example/x",
            "https://[REDACTED]@host.example/x",
            1,
            0,
        );
        check("ls 2>/dev/null", "ls 2>/dev/null", 0, 0);
        check("s\u{200b}k-AAAAAAAAAAAAAAA", "[REDACTED]", 1, 0);
        check(
            "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\nrest",
            "[REDACTED]\nrest",
            1,
            0,
        );
    }
}
