//! A codec below the digests: snapshots are mostly hex digits and the same few phrases (section 18).
//!
//! Canonical bytes are UTF-8, which never holds the bytes 0xF8 to 0xFF. Codec 1 uses four of them as marks: 0xFF stands
//! before 32 bytes that were 64 lower-case hex digits, 0xFE before 16 bytes that were 32 of them, 0xFD before a count
//! and that many bytes that were twice as many digits, 0xF8 before the place and length of a phrase in `dictionary.txt`.
//! Codec 0 is the bytes themselves. Digests are taken over what was packed, never over the packed form, so no digest
//! depends on this file. Every body is packed alone: damage in one does not spread to its neighbours.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The bytes themselves.
const PLAIN: u64 = 0;
/// Hex digits and frequent phrases replaced.
const PACKED: u64 = 1;

const PHRASE: u8 = 0xF8;
const HEX_RUN: u8 = 0xFD;
const HEX_32: u8 = 0xFE;
const HEX_64: u8 = 0xFF;

/// Larger bodies are content, where scanning gains little.
const PACKED_AT_MOST: usize = 64 * 1024;

/// Phrases of root records, components, logs and leaves, one a line. Places in it are stored: it may only be changed
/// together with the codec's number.
const DICTIONARY: &[u8] = include_bytes!("pack/dictionary.txt");
/// A mark with place and length takes 4 bytes.
const SHORTEST_PHRASE: usize = 6;
const LONGEST_PHRASE: usize = 255;
/// Digits that a run of its own kind is worth.
const SHORTEST_RUN: usize = 8;
/// Places that are compared before the longest is taken.
const PLACES_COMPARED: usize = 64;
const HASH_BITS: u32 = 14;
const NOWHERE: u16 = u16::MAX;

/// Where phrases begin in the dictionary, by the hash of their first four bytes.
struct Places {
    first: Vec<u16>,
    next: Vec<u16>,
}

static PLACES: LazyLock<Places> = LazyLock::new(|| {
    let mut places = Places {
        first: vec![NOWHERE; 1 << HASH_BITS],
        next: vec![NOWHERE; DICTIONARY.len()],
    };
    for (place, bytes) in DICTIONARY.windows(4).enumerate() {
        let Ok(number) = u16::try_from(place) else {
            break;
        };
        if let (Some(first), Some(next)) = (
            hash(bytes).and_then(|hash| places.first.get_mut(hash)),
            places.next.get_mut(place),
        ) {
            *next = std::mem::replace(first, number);
        }
    }
    places
});

fn hash(bytes: &[u8]) -> Option<usize> {
    let word = u32::from_le_bytes(*bytes.first_chunk::<4>()?);
    usize::try_from(word.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)).ok()
}

/// Place and length of the longest phrase with which `rest` begins.
fn phrase(rest: &[u8]) -> Option<(u16, usize)> {
    let mut place = *PLACES.first.get(hash(rest)?)?;
    let mut best = None;
    let mut longest = SHORTEST_PHRASE - 1;
    for _ in 0..PLACES_COMPARED {
        let Some(there) = DICTIONARY.get(usize::from(place)..) else {
            break;
        };
        let same = there
            .iter()
            .zip(rest)
            .take(LONGEST_PHRASE)
            .take_while(|(one, other)| one == other)
            .count();
        if same > longest {
            longest = same;
            best = Some((place, same));
        }
        match PLACES.next.get(usize::from(place)) {
            Some(next) => place = *next,
            None => break,
        }
    }
    best
}

/// Chooses the shorter form.
pub(crate) fn pack(bytes: &[u8]) -> (u64, Cow<'_, [u8]>) {
    match packed(bytes) {
        Some(packed) if packed.len() < bytes.len() => (PACKED, packed.into()),
        _ => (PLAIN, bytes.into()),
    }
}

fn packed(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() > PACKED_AT_MOST || bytes.iter().any(|byte| *byte >= PHRASE) {
        return None;
    }
    let mut output = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let digits = rest
            .iter()
            .take(64)
            .take_while(|byte| is_hex(**byte))
            .count();
        let taken = if digits >= 2 * SHORTEST_RUN {
            push_digits(&mut output, rest, digits)?
        } else if let Some((place, length)) = phrase(rest) {
            output.push(PHRASE);
            output.extend_from_slice(&place.to_be_bytes());
            output.push(u8::try_from(length).ok()?);
            length
        } else if digits >= SHORTEST_RUN {
            push_digits(&mut output, rest, digits)?
        } else {
            output.push(*first);
            1
        };
        rest = rest.get(taken..)?;
    }
    Some(output)
}

/// Writes the longest run of digits that a mark can name; how many it took.
fn push_digits(output: &mut Vec<u8>, rest: &[u8], digits: usize) -> Option<usize> {
    let taken = match digits {
        64 => {
            output.push(HEX_64);
            64
        }
        32..64 => {
            output.push(HEX_32);
            32
        }
        fewer => {
            let pairs = fewer / 2;
            output.extend_from_slice(&[HEX_RUN, u8::try_from(pairs).ok()?]);
            2 * pairs
        }
    };
    output.extend(rest.get(..taken)?.chunks_exact(2).map(|pair| {
        pair.iter()
            .fold(0, |byte, digit| byte << 4 | nibble(*digit))
    }));
    Some(taken)
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

const fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.wrapping_sub(b'a' - 10),
    }
}

const fn digit(nibble: u8) -> u8 {
    if nibble < 10 {
        b'0' + nibble
    } else {
        b'a' + nibble - 10
    }
}

/// The bytes that were packed; none for an unknown codec or marks that lead nowhere.
pub(crate) fn unpack(codec: u64, body: &[u8]) -> Option<Vec<u8>> {
    match codec {
        PLAIN => Some(body.to_vec()),
        PACKED => unpacked(body),
        _ => None,
    }
}

fn unpacked(body: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(body.len() * 3);
    let mut rest = body;
    while let Some((first, tail)) = rest.split_first() {
        let (hex_bytes, tail) = match *first {
            HEX_64 => (32, tail),
            HEX_32 => (16, tail),
            HEX_RUN => {
                let (pairs, tail) = tail.split_first()?;
                (usize::from(*pairs), tail)
            }
            PHRASE => {
                let ([high, low, length], tail) = tail.split_first_chunk::<3>()?;
                let place = usize::from(u16::from_be_bytes([*high, *low]));
                output.extend_from_slice(DICTIONARY.get(place..place + usize::from(*length))?);
                rest = tail;
                continue;
            }
            plain => {
                output.push(plain);
                rest = tail;
                continue;
            }
        };
        let (raw, tail) = tail.split_at_checked(hex_bytes)?;
        output.extend(
            raw.iter()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]),
        );
        rest = tail;
    }
    Some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trips(bytes: &[u8]) -> (u64, usize) {
        let (codec, body) = pack(bytes);
        assert_eq!(unpack(codec, &body).as_deref(), Some(bytes));
        assert!(body.len() <= bytes.len());
        (codec, body.len())
    }

    fn phrases() -> impl Iterator<Item = &'static str> {
        std::str::from_utf8(DICTIONARY).unwrap().lines()
    }

    #[test]
    fn whatever_is_packed_comes_back() {
        for length in 0..=200 {
            round_trips(
                "0123456789abcdef"
                    .repeat(13)
                    .get(..length)
                    .unwrap()
                    .as_bytes(),
            );
            round_trips(format!("{}\"\u{10ffff}A", "a".repeat(length)).as_bytes());
        }
        for phrase in phrases() {
            round_trips(phrase.as_bytes());
            round_trips(phrase.get(..phrase.len() - 1).unwrap().as_bytes());
            round_trips(format!("0123456789{phrase}{phrase}\u{e9}").as_bytes());
        }
        assert_eq!(round_trips(&[0xFF, 0xF8, b'a']), (PLAIN, 3));
        assert_eq!(round_trips(&[b'a'; PACKED_AT_MOST]).0, PACKED);
        assert_eq!(round_trips(&[b'a'; PACKED_AT_MOST + 1]).0, PLAIN);
    }

    #[test]
    fn every_phrase_of_the_dictionary_is_found_and_none_crosses_a_line() {
        assert!(DICTIONARY.len() < usize::from(NOWHERE));
        for phrase in phrases() {
            let marks = phrase.len().div_ceil(LONGEST_PHRASE);
            if phrase.len() >= SHORTEST_PHRASE {
                assert_eq!(
                    round_trips(phrase.as_bytes()),
                    (PACKED, 4 * marks),
                    "{phrase}"
                );
            }
        }
        // Canonical JSON holds no line feed, so a phrase ends with its line.
        assert!(DICTIONARY.is_ascii());
    }

    #[test]
    fn the_dictionary_of_codec_1_is_the_one_that_files_were_written_with() {
        let digest = qitos_contracts::digest::Digest::of(DICTIONARY);
        assert_eq!(
            digest.to_string(),
            "d10dec0b28b777b5d6acc95bd5612844c9bc90ec10eef49936120a5bf8204e77"
        );
    }

    #[test]
    fn the_root_of_a_session_shrinks_to_less_than_half() {
        let mut session = qitos_kit::scripted_session::ScriptedSession::new(1);
        for _ in 0..2 {
            let request = session
                .request(qitos_contracts::snapshot::Lifecycle::Created, "x")
                .unwrap();
            let (codec, length) = round_trips(&request.root);
            assert_eq!(codec, PACKED);
            assert!(
                length * 2 < request.root.len(),
                "{length} of {}",
                request.root.len()
            );
            for chunk in &request.chunks {
                round_trips(chunk.bytes());
            }
        }
    }

    #[test]
    fn marks_that_lead_nowhere_are_refused() {
        for body in [
            &[HEX_64, 1][..],
            &[HEX_32],
            &[HEX_RUN],
            &[HEX_RUN, 2, 1],
            &[PHRASE],
            &[PHRASE, 0, 0],
            &[PHRASE, 255, 255, 255],
        ] {
            assert_eq!(unpack(PACKED, body), None);
        }
        assert_eq!(unpack(2, b"x"), None);
    }
}
