//! A codec below the digests: snapshots are mostly hex digits and the same few words (section 18).
//!
//! Canonical bytes are UTF-8, which never holds the bytes 0xF8 to 0xFF. Codec 1 uses three of them as marks: 0xFF
//! stands before 32 bytes that were 64 lower-case hex digits, 0xFE before 16 bytes that were 32 of them, 0xF8 before
//! the index of a word that most records repeat. Codec 0 is the bytes themselves. Digests are taken over what was
//! packed, never over the packed form, so no digest depends on this file.

/// The bytes themselves.
const PLAIN: u64 = 0;
/// Hex digits and frequent words replaced.
const PACKED: u64 = 1;

const WORD: u8 = 0xF8;
const HEX_32: u8 = 0xFE;
const HEX_64: u8 = 0xFF;

/// Larger bodies are content, where scanning gains little.
const PACKED_AT_MOST: usize = 64 * 1024;

/// Words of root records, logs and nodes. All begin with a quotation mark; where one begins another the longer stands
/// first. The index is stored: entries may only be appended, and only with a new codec number.
const WORDS: [&str; 46] = [
    r#"","layout":"inline","owner":"qitos.session","payload":{"#,
    r#"","layout":"inline","owner":"qitos.tool_runtime","payload":{"#,
    r#"","layout":"inline","owner":"qitos."#,
    r#"","layout":"map","owner":"qitos.session","required":true,"schema_version":"qitos.session.engine_progress/v1","slot":"engine_progress"},{"bytes":"#,
    r#"","layout":"map","owner":"qitos.session","required":true,"schema_version":"qitos.session.agent_state/v1","slot":"agent_state"},{"bytes":"#,
    r#"","layout":"map","owner":"qitos.conversation","required":true,"schema_version":"qitos.conversation_component/v1","slot":"conversation"},{"bytes":"#,
    r#"","layout":"map","owner":"qitos."#,
    r#"","layout":"blob","owner":"qitos."#,
    r#""required":true,"schema_version":"qitos.session.agent_state/v1","slot":"agent_state"}"#,
    r#""required":true,"schema_version":"qitos.session.engine_progress/v1","slot":"engine_progress"}"#,
    r#""required":true,"schema_version":"qitos.session.budget_capability/v1","slot":"budget_capability"}"#,
    r#""required":true,"schema_version":"qitos.session.trace_lineage/v1","slot":"trace_lineage"}"#,
    r#""required":false,"schema_version":"qitos.session.fork_lineage/v1","slot":"fork_lineage"}"#,
    r#""required":true,"schema_version":"qitos.conversation_component/v1","slot":"conversation"}"#,
    r#""required":true,"schema_version":"qitos.tool_batch_component/v1","slot":"tool_batch"}"#,
    r#""required":true,"schema_version":"qitos.work_graph.snapshot_component/v3","slot":"work_graph"}"#,
    r#""required":true,"schema_version":"qitos.tool_effects_component/v1","slot":"tool_effects"}"#,
    r#""required":true,"schema_version":"qitos.sandbox.snapshot_component/v1","slot":"sandbox"}"#,
    r#""required":true,"schema_version":""#,
    r#""artifact_refs":[],"components":[{"bytes":"#,
    r#""components":[{"bytes":"#,
    r#""created_at":""#,
    r#"","head_generation":"#,
    r#""integrity":{"algorithm":"sha256-tree/v1","digest":""#,
    r#""},"lifecycle":"running","parent":{"checkpoint_id":{"kind":"checkpoint","value":"checkpoint_"#,
    r#""},"lifecycle":""#,
    r#"","parent":{"checkpoint_id":{"kind":"checkpoint","value":"checkpoint_"#,
    r#""},"root_digest":""#,
    r#"","snapshot_id":{"kind":"snapshot","value":"snapshot_"#,
    r#""}},"resolver_references":["#,
    r#""schema_version":3,"session_id":{"kind":"session","value":"session_"#,
    r#""},"snapshot_id":{"kind":"snapshot","value":"snapshot_"#,
    r#""},"timing":{"captured_at":""#,
    r#"","pause_requested_at":null,"safe_boundary_at":null}}"#,
    r#""expected_capability":"agent.module","namespace":"agent","reference_id":""#,
    r#""expected_capability":"model.call","namespace":"model","reference_id":""#,
    r#""expected_capability":"tools.execute","namespace":"tool_registry","reference_id":""#,
    r#""expected_capability":"checkpoint.session","namespace":"checkpoint_store","reference_id":"default:session","version":1}"#,
    r#""expected_capability":""#,
    r#"","version":1}"#,
    r#""parts":{"/"#,
    r#""/exchange_log/items":["log",""#,
    r#"":["log",""#,
    r#"":["blob",""#,
    r#""fanout":4,"levels":[[[""#,
    r#""children":[[""#,
];

/// Chooses the shorter form.
pub(crate) fn pack(bytes: &[u8]) -> (u64, std::borrow::Cow<'_, [u8]>) {
    match packed(bytes) {
        Some(packed) if packed.len() < bytes.len() => (PACKED, packed.into()),
        _ => (PLAIN, bytes.into()),
    }
}

fn packed(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() > PACKED_AT_MOST || bytes.iter().any(|byte| *byte >= WORD) {
        return None;
    }
    let mut output = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if *first == b'"'
            && let Some((index, tail)) = word(rest)
        {
            output.extend_from_slice(&[WORD, index]);
            rest = tail;
            continue;
        }
        let run = rest
            .iter()
            .take(64)
            .take_while(|byte| is_hex(**byte))
            .count();
        let (mark, digits) = match run {
            64 => (Some(HEX_64), 64),
            32..64 => (Some(HEX_32), 32),
            // Up to where a word or another run may begin, so that no byte is looked at twice.
            0 => (
                None,
                1 + rest
                    .iter()
                    .skip(1)
                    .take_while(|byte| is_dull(**byte))
                    .count(),
            ),
            short => (None, short),
        };
        let (taken, tail) = rest.split_at_checked(digits)?;
        match mark {
            Some(mark) => {
                output.push(mark);
                output.extend(taken.chunks_exact(2).map(|pair| {
                    pair.iter()
                        .fold(0, |byte, digit| byte << 4 | nibble(*digit))
                }));
            }
            None => output.extend_from_slice(taken),
        }
        rest = tail;
    }
    Some(output)
}

/// Bit n of entry b: byte b stands at `place` of word n. Which words may follow is so told without comparing any.
#[expect(
    clippy::indexing_slicing,
    reason = "evaluated at compile time, where an index out of bounds does not compile"
)]
const fn words_by_byte(place: usize) -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < WORDS.len() {
        table[WORDS[index].as_bytes()[place] as usize] |= 1 << index;
        index += 1;
    }
    table
}

static SECOND: [u64; 256] = words_by_byte(1);
static THIRD: [u64; 256] = words_by_byte(2);

fn word(rest: &[u8]) -> Option<(u8, &[u8])> {
    let [_, second, third, ..] = rest else {
        return None;
    };
    let mut left = SECOND.get(usize::from(*second))? & THIRD.get(usize::from(*third))?;
    while left != 0 {
        let index = left.trailing_zeros();
        if let Some(tail) = rest.strip_prefix(WORDS.get(index as usize)?.as_bytes()) {
            return Some((u8::try_from(index).ok()?, tail));
        }
        left &= left - 1;
    }
    None
}

/// Neither begins a word nor is a hex digit.
const fn is_dull(byte: u8) -> bool {
    byte != b'"' && !is_hex(byte)
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
    let mut output = Vec::with_capacity(body.len() * 2);
    let mut rest = body;
    while let Some((first, tail)) = rest.split_first() {
        let hex_bytes = match *first {
            HEX_64 => 32,
            HEX_32 => 16,
            WORD => {
                let (index, tail) = tail.split_first()?;
                output.extend_from_slice(WORDS.get(usize::from(*index))?.as_bytes());
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
        for word in WORDS {
            assert_eq!(round_trips(word.as_bytes()), (PACKED, 2), "{word}");
            round_trips(word.get(..word.len() - 1).unwrap().as_bytes());
        }
        assert_eq!(round_trips(&[0xFF, 0xF8, b'a']), (PLAIN, 3));
        assert_eq!(round_trips(&[b'a'; PACKED_AT_MOST]).0, PACKED);
        assert_eq!(round_trips(&[b'a'; PACKED_AT_MOST + 1]).0, PLAIN);
    }

    #[test]
    fn words_begin_with_a_quotation_mark_and_none_hides_a_later_one() {
        for (index, word) in WORDS.iter().enumerate() {
            assert!(word.starts_with('"'));
            for later in WORDS.iter().skip(index + 1) {
                assert!(!later.starts_with(word), "{word} hides {later}");
            }
        }
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
        for body in [&[HEX_64, 1][..], &[HEX_32], &[WORD], &[WORD, 255]] {
            assert_eq!(unpack(PACKED, body), None);
        }
        assert_eq!(unpack(2, b"x"), None);
    }
}
