//! Which strings hold secrets, host paths or local endpoints (TRJ-31; look-alike folding is not built yet).
//!
//! Everything here is linear in the length of the text (TRJ-94): the regular expressions do not
//! backtrack, and what needs overlapping matches is scanned by hand.

use std::ops::{ControlFlow, Range};
use std::sync::LazyLock;

use regex::Regex;

use super::FindingCode;
use super::assignment::{for_each_assignment, for_each_flag};
use super::base64;
use super::normalize::{percent_decoded, scan_copy};

/// ASCII white space, written out: the engine is built without Unicode tables.
const SPACE: &str = r"\t\n\x0B\x0C\r ";
/// What may stand before a path.
const BEFORE: &str = r#"(?:^|[\t\n\x0B\x0C\r "'=(\[{<>,;:|\x60])"#;
const ROOTS: &str = "Applications|Library|System|Users|Volumes|etc|home|mnt|opt|private|root|srv|tmp|usr|var|workspace";
const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants that every test compiles"
)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("constant pattern")
}

static KNOWN_PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?-u:\b)(?:sk-[A-Za-z0-9_-]{12,}",
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?-u:\b)",
        r"|gh[pousr]_[A-Za-z0-9]{20,}",
        r"|github_pat_[0-9A-Za-z_]{20,}",
        r"|glpat-[0-9A-Za-z_-]{16,}",
        r"|xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"|AIza[0-9A-Za-z_-]{35}",
        r"|hf_[A-Za-z0-9]{20,}",
        r"|npm_[A-Za-z0-9]{30,}",
        r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
        r"|eyJ[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]{8,}\.[0-9A-Za-z_-]*)",
    ))
});
static PRIVATE_KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"));
static URL_CREDENTIALS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?-u:\b)[A-Za-z][A-Za-z0-9+.-]*://([^{SPACE}/@:]*:[^{SPACE}/@]+)@"
    ))
});
static BEARER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?-u:\b)(?i-u:bearer)[{SPACE}]+([A-Za-z0-9._~+/=-]{{8,}})"
    ))
});
static BASIC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?-u:\b)(?i-u:basic)[{SPACE}]+([A-Za-z0-9+/_-]{{6,}}={{0,2}})"
    ))
});
static HOST_PATH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r#"{BEFORE}(?:/(?:{ROOTS})(?:/|$|[{SPACE}"')\],;:])|[A-Za-z]:[\\/]|\\\\[^\\{SPACE}]+\\[^\\{SPACE}]+|(?i-u:file)://|~[0-9A-Za-z_-]*[/\\]|/(?:[A-Za-z0-9._-]+/)+[A-Za-z0-9._-]*)"#
    ))
});
static LOCAL_NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?:^|[^A-Za-z0-9.-])(?:(?:[A-Za-z0-9-]+\.)*(?i-u:localhost)(?:$|[^A-Za-z0-9-])",
        r"|(?:[A-Za-z0-9-]+\.)+(?i-u:local|internal)(?:$|[^A-Za-z0-9.-]|[.-]+(?:$|[^A-Za-z0-9.-])))",
        r"|\[(?i-u:::1|fe80:[0-9a-f:%]*|f[cd][0-9a-f]{2}:[0-9a-f:]*)\]",
    ))
});
static LOCAL_ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(
        r"(?:^|[^0-9.])(?:127\.{OCTET}\.{OCTET}\.{OCTET}|10\.{OCTET}\.{OCTET}\.{OCTET}|172\.(?:1[6-9]|2[0-9]|3[01])\.{OCTET}\.{OCTET}|192\.168\.{OCTET}\.{OCTET}|169\.254\.{OCTET}\.{OCTET}|0\.0\.0\.0)(?:$|[^0-9.]|\.+(?:$|[^0-9.]))"
    ))
});

/// What `text` discloses, the worst first: a secret, a host path, a local endpoint.
///
/// Three forms are scanned: the text, its scan copy, its once-percent-decoded text.
pub(in crate::record) fn finding_in(text: &str) -> Option<FindingCode> {
    if is_plain_word(text) {
        return None;
    }
    let copy = scan_copy(text);
    let copy = (copy != text).then_some(copy);
    let decoded = percent_decoded(text);
    let forms = || {
        [Some(text), copy.as_deref(), decoded.as_deref()]
            .into_iter()
            .flatten()
    };
    if forms().any(|form| holds_secret(form, true)) {
        Some(FindingCode::SecretValue)
    } else if forms().any(holds_host_path) {
        Some(FindingCode::HostPath)
    } else if forms().any(holds_local_endpoint) {
        Some(FindingCode::LocalEndpoint)
    } else {
        None
    }
}

/// Short words of letters, digits and `_`: no pattern but one fits into them, so keys cost nothing.
fn is_plain_word(text: &str) -> bool {
    text.len() < 16
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.eq_ignore_ascii_case("localhost")
}

fn holds_secret(text: &str, look_into_base64: bool) -> bool {
    let mut found = false;
    for_each_secret(text, look_into_base64, |_| {
        found = true;
        ControlFlow::Break(())
    });
    found
}

/// Calls `visit` with the place of each secret until it breaks.
pub(super) fn for_each_secret(
    text: &str,
    look_into_base64: bool,
    mut visit: impl FnMut(Range<usize>) -> ControlFlow<()>,
) {
    // The order is from cheap to costly; the caller that wants one finding stops at the first.
    let _ = visit_secrets(text, look_into_base64, &mut visit);
}

fn visit_secrets(
    text: &str,
    look_into_base64: bool,
    visit: &mut dyn FnMut(Range<usize>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for found in KNOWN_PREFIX.find_iter(text) {
        visit(found.range())?;
    }
    if text.contains("-----BEGIN ") {
        for found in PRIVATE_KEY.find_iter(text) {
            visit(found.start()..private_key_end(text, found.end()))?;
        }
    }
    if text.contains("://") && text.contains('@') {
        for found in URL_CREDENTIALS.captures_iter(text) {
            if let Some(group) = found.get(1) {
                visit(group.range())?;
            }
        }
    }
    for found in BEARER.captures_iter(text) {
        if let Some(group) = found.get(1) {
            let token = group.as_str();
            if token.len() >= 20 || token.bytes().any(|byte| byte.is_ascii_digit()) {
                visit(group.range())?;
            }
        }
    }
    for found in BASIC.captures_iter(text) {
        if let Some(group) = found.get(1)
            && base64::printable(group.as_str()).is_some_and(|decoded| decoded.contains(':'))
        {
            visit(group.range())?;
        }
    }
    for_each_assignment(text, visit)?;
    for_each_flag(text, visit)?;
    if look_into_base64 {
        for run in base64::runs(text) {
            let encoded = text.get(run.clone()).unwrap_or_default();
            let decoded =
                base64::printable(encoded).filter(|decoded| decoded.chars().count() >= 12);
            if decoded.is_some_and(|decoded| holds_secret(&decoded, false)) {
                visit(run)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// A key ends with its end line, or with the text.
fn private_key_end(text: &str, from: usize) -> usize {
    const END: &str = "-----END ";
    let rest = text.get(from..).unwrap_or_default();
    let Some(end_line) = rest.find(END) else {
        return text.len();
    };
    let after = end_line + END.len();
    rest.get(after..)
        .and_then(|tail| tail.find("-----"))
        .map_or(text.len(), |dashes| from + after + dashes + 5)
}

fn holds_host_path(text: &str) -> bool {
    if !text.bytes().any(|byte| matches!(byte, b'/' | b'\\')) {
        return false;
    }
    let scanned = blank_constants(text);
    HOST_PATH.is_match(&scanned)
}

/// Calls `visit` with the place of each host path: from its first character to the end of its word.
pub(super) fn for_each_host_path(text: &str, mut visit: impl FnMut(Range<usize>)) {
    if !text.bytes().any(|byte| matches!(byte, b'/' | b'\\')) {
        return;
    }
    let scanned = blank_constants(text);
    let mut done = 0;
    for found in HOST_PATH.find_iter(&scanned) {
        // The match starts with what stands before the path, unless the text does.
        let first = found.as_str().bytes().next();
        let own = first
            .is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'\\' | b'~'));
        let start = if own {
            found.start()
        } else {
            found.start() + 1
        };
        if start < done {
            continue;
        }
        let rest = text.get(start..).unwrap_or_default();
        let length = rest
            .find(|character: char| {
                character.is_whitespace() || "\"'()[]{}<>,;|`".contains(character)
            })
            .unwrap_or(rest.len());
        done = start + length;
        visit(start..done);
    }
}

const CONSTANT_PATHS: [&str; 11] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/bin/sh",
    "/bin/bash",
];
const ENVIRONMENT_PROGRAM: &str = "/usr/bin/env";

/// Paths that every machine has identify nobody: spaces of the same length stand in their place.
fn blank_constants(text: &str) -> std::borrow::Cow<'_, str> {
    let is_path_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    let bytes = text.as_bytes();
    let mut blanked: Option<Vec<u8>> = None;
    for (position, _) in text.match_indices('/') {
        // Only a path of its own: `/x/bin/sh` is some directory of this machine.
        let stands_alone = position
            .checked_sub(1)
            .and_then(|before| bytes.get(before))
            .is_none_or(|byte| !is_path_byte(*byte));
        if !stands_alone {
            continue;
        }
        let rest = text.get(position..).unwrap_or_default();
        let constant = CONSTANT_PATHS
            .iter()
            .chain([&ENVIRONMENT_PROGRAM])
            .find(|constant| {
                rest.strip_prefix(**constant)
                    .is_some_and(|tail| tail.bytes().next().is_none_or(|byte| !is_path_byte(byte)))
            });
        if let Some(constant) = constant {
            let copy = blanked.get_or_insert_with(|| bytes.to_vec());
            if let Some(place) = copy.get_mut(position..position + constant.len()) {
                place.fill(b' ');
            }
        }
    }
    match blanked {
        Some(copy) => String::from_utf8_lossy(&copy).into_owned().into(),
        None => text.into(),
    }
}

fn holds_local_endpoint(text: &str) -> bool {
    LOCAL_NAME.is_match(text) || LOCAL_ADDRESS.is_match(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_behind_another_assignment_is_found() {
        // TRJ-31: a value may itself be an assignment.
        for text in [
            "url: api_key=abc",
            "https://x.example/?sig=abc",
            "a=b=token=c",
        ] {
            assert_eq!(finding_in(text), Some(FindingCode::SecretValue), "{text}");
        }
    }

    #[test]
    fn constants_are_no_paths_unless_they_are_part_of_one() {
        for text in [
            "cat </dev/null >/dev/stderr",
            "#!/bin/sh",
            "#!/usr/bin/env python",
        ] {
            assert_eq!(finding_in(text), None, "{text}");
        }
        for text in ["/data/x/bin/sh", "/dev/nullable/x", "/bin/sh.d/x"] {
            assert_eq!(finding_in(text), Some(FindingCode::HostPath), "{text}");
        }
    }

    #[test]
    fn local_addresses_respect_their_ranges() {
        for text in [
            "172.16.0.1",
            "x 172.31.255.255.",
            "[fe80::1%25]",
            "db.internal",
            "A.LOCAL.",
        ] {
            assert_eq!(finding_in(text), Some(FindingCode::LocalEndpoint), "{text}");
        }
        for text in [
            "172.32.0.1",
            "11.0.0.1",
            "110.0.0.5",
            "10.0.0.256",
            "internal affairs",
            "x.locale",
        ] {
            assert_eq!(finding_in(text), None, "{text}");
        }
    }
}
