//! Copies of a text in which disguises are taken off, for scanning only (TRJ-30, TRJ-31).

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// Format characters (general category Cf): invisible, so they hide words from a scan.
const FORMAT_CHARACTERS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{202a}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

fn is_format_character(character: char) -> bool {
    !character.is_ascii()
        && FORMAT_CHARACTERS
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&character))
}

/// NFKC without format characters; ASCII is its own scan copy.
pub(super) fn scan_copy(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(
            text.nfkc()
                .filter(|character| !is_format_character(*character))
                .collect(),
        )
    }
}

/// The text with its percent escapes decoded once, if it has any.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut rest = text.as_bytes();
    let mut decoded: Option<Vec<u8>> = None;
    let mut plain_until = 0;
    while let Some(position) = rest.iter().position(|byte| *byte == b'%') {
        let (plain, escape) = rest.split_at(position);
        let digits = escape.get(1..3).and_then(hex_pair);
        let output = match (&mut decoded, digits) {
            (None, None) => {
                plain_until += position + 1;
                rest = escape.get(1..).unwrap_or_default();
                continue;
            }
            (None, Some(_)) => {
                let mut output = Vec::with_capacity(text.len());
                output.extend_from_slice(text.as_bytes().get(..plain_until).unwrap_or_default());
                decoded.insert(output)
            }
            (Some(output), _) => output,
        };
        output.extend_from_slice(plain);
        output.push(digits.unwrap_or(b'%'));
        rest = escape
            .get(if digits.is_some() { 3 } else { 1 }..)
            .unwrap_or_default();
    }
    let mut decoded = decoded?;
    decoded.extend_from_slice(rest);
    Some(String::from_utf8_lossy(&decoded).into_owned())
}

fn hex_pair(digits: &[u8]) -> Option<u8> {
    let nibble = |digit: &u8| {
        char::from(*digit)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
    };
    match digits {
        [high, low] => Some(nibble(high)? << 4 | nibble(low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disguises_come_off() {
        assert_eq!(scan_copy("pass\u{200b}word"), "password");
        assert_eq!(scan_copy("\u{ff50}\u{ff57}"), "pw");
        assert_eq!(
            percent_decoded("100% %2Fhome%2fx %zz").as_deref(),
            Some("100% /home/x %zz")
        );
        assert_eq!(percent_decoded("100% plain"), None);
        assert_eq!(percent_decoded("%"), None);
        assert_eq!(percent_decoded("%f"), None);
        assert_eq!(percent_decoded("%ff").as_deref(), Some("\u{fffd}"));
    }
}
