//! Cutting a text to its head and tail (PRJ-4).

use std::borrow::Cow;

use crate::record::privacy::redact_text;

/// Cuts a text of `original` characters to at most `limit`, its marker line included.
///
/// 70 % of what remains is head, 30 % tail, cut between Unicode scalars. Also gives the number of characters of
/// the text that are shown. Where the limit has no room for the marker, nothing of the text is shown.
pub(super) fn cut_text(
    text: &str,
    original: usize,
    limit: usize,
    artifact_id: Option<&str>,
    reason: &str,
) -> (String, usize) {
    // The marker is as long for any number that it may hold as for the largest.
    let reserved = marker(original, original, artifact_id, reason)
        .chars()
        .count()
        + 2;
    let shown = limit.saturating_sub(reserved);
    let head = shown * 7 / 10;
    let tail = shown - head;
    let head_end = byte_of_character(text, head);
    let head_text = text.get(..head_end).unwrap_or_default();
    let tail_start = byte_of_character(text, original - tail);
    let tail_text = safe_tail(text.get(tail_start..).unwrap_or_default());
    if shown == 0 {
        let marker = marker(original, original, artifact_id, reason);
        return (marker.chars().take(limit).collect(), 0);
    }
    let shown = head + tail_text.chars().count();
    let marker = marker(original - shown, original, artifact_id, reason);
    (format!("{head_text}\n{marker}\n{tail_text}"), shown)
}

/// The tail without a first word that only reads as a path or secret because its beginning was cut off.
fn safe_tail(tail: &str) -> &str {
    if matches!(redact_text(tail).0, Cow::Borrowed(same) if same == tail) {
        return tail;
    }
    let rest = tail
        .find(char::is_whitespace)
        .and_then(|word| tail.get(word..));
    match rest {
        Some(rest) if matches!(redact_text(rest).0, Cow::Borrowed(same) if same == rest) => rest,
        _ => "",
    }
}

fn marker(omitted: usize, original: usize, artifact_id: Option<&str>, reason: &str) -> String {
    match artifact_id {
        Some(id) => format!("[{omitted} of {original} characters omitted; artifact {id}]"),
        None => format!("[{omitted} of {original} characters omitted; no artifact: {reason}]"),
    }
}

/// The byte where character number `count` starts.
fn byte_of_character(text: &str, count: usize) -> usize {
    text.char_indices()
        .nth(count)
        .map_or(text.len(), |(byte, _)| byte)
}
