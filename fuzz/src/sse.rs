//! The decoder against the second reading, in three cuts and under small limits.

use qitos_providers::sse::{SseDecoder, SseError, SseLimits};

use crate::memory;
use crate::naive_events::{self, Event};

/// What a decoder gave.
#[derive(Debug, PartialEq)]
struct Decoded {
    events: Vec<Event>,
    error: Option<SseError>,
    last: Option<Event>,
}

/// Checks one input: two bytes for a cut, one for small limits, then a body.
///
/// # Panics
/// If a rule is broken.
pub fn check_sse(input: &[u8]) {
    let [cut_high, cut_low, limit, body @ ..] = input else {
        return;
    };
    let cut = usize::from(u16::from_be_bytes([*cut_high, *cut_low])) % (body.len() + 1);
    let decoded = in_any_cut(body, cut, SseLimits::default());
    let reading = naive_events::read(body);
    assert_eq!(decoded.events, reading.events, "PRV-58");
    let error = reading.invalid.then_some(SseError::InvalidUtf8);
    assert_eq!(decoded.error, error, "PRV-58");
    let last = reading
        .open
        .filter(|(_, data)| !reading.invalid && is_whole(data));
    assert_eq!(decoded.last, last, "PRV-59");

    // Small limits end it early, at the same place in every cut, and never add anything.
    let limits = SseLimits {
        event_bytes: usize::from(*limit & 0x0F) * 8,
        body_bytes: usize::from(*limit >> 4) * 32,
    };
    let short = in_any_cut(body, cut, limits);
    assert!(decoded.events.starts_with(&short.events), "PRV-60");
    if body.len() > limits.body_bytes {
        assert!(short.error.is_some(), "PRV-60: {} bytes", body.len());
    }
    for (kind, data) in &short.events {
        assert!(kind.len() + data.len() <= limits.event_bytes + data.matches('\n').count());
    }
}

fn in_any_cut(body: &[u8], cut: usize, limits: SseLimits) -> Decoded {
    let (left, right) = body.split_at(cut);
    let whole = decode(&[body], limits);
    assert_eq!(
        decode(&[left, right], limits),
        whole,
        "PRV-51: cut at {cut}"
    );
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(decode(&bytes, limits), whole, "PRV-51: byte by byte");
    whole
}

fn decode(chunks: &[&[u8]], limits: SseLimits) -> Decoded {
    let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    memory::bounded(length, || {
        let mut decoder = SseDecoder::new(limits);
        let mut decoded = Decoded {
            events: Vec::new(),
            error: None,
            last: None,
        };
        for chunk in chunks {
            let mut position = 0;
            loop {
                match decoder.next_event(chunk, &mut position) {
                    Ok(Some(event)) => decoded
                        .events
                        .push((event.kind.to_owned(), event.data.to_owned())),
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.next_event(chunk, &mut position), Err(error));
                        assert_eq!(decoder.finish(), Err(error));
                        decoded.error = Some(error);
                        return decoded;
                    }
                }
            }
            assert_eq!(position, chunk.len(), "a chunk is used up");
        }
        assert_eq!(decoder.consumed(), length);
        decoded.last = decoder
            .finish()
            .unwrap_or_else(|error| panic!("a rest is never an error: {error}"))
            .map(|event| (event.kind.to_owned(), event.data.to_owned()));
        decoded
    })
}

/// Whether nothing can be missing from an event left open (PRV-59).
fn is_whole(data: &str) -> bool {
    data.trim() == "[DONE]"
        || (data.trim().starts_with('{')
            && serde_json::from_str::<serde_json::Value>(data.trim()).is_ok())
}
