//! Rule: is the bad end of a segment what a crash leaves, or damage? (TRJ-49)
//!
//! A crash leaves at most one incomplete or half-written frame at the end, and zero bytes where the
//! system had made the file longer before the data came. A flipped length in the middle looks like a
//! long tail too, but valid frames follow it: then nothing is touched.

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};

/// What the bytes from the first bad offset to the end of the last segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// An unfinished write: it may be dropped.
    Torn,
    /// Anything else, with a stable word for it.
    Damaged(&'static str),
}

/// Judges `tail`, the bytes from the first bad offset of the last, unsealed segment.
///
/// `expected_sequence` is that of the next frame: frames of this journal that follow have it or more.
#[must_use]
pub fn judge(tail: &[u8], expected_sequence: u64) -> Tail {
    if tail.iter().all(|byte| *byte == 0) {
        return Tail::Torn;
    }
    if has_valid_frame_later(tail, expected_sequence) {
        return Tail::Damaged("bad_frame_before_valid_frame");
    }
    match FrameHeader::read(tail) {
        // A whole frame whose checksum fails: only zero bytes may follow.
        Some(header) => {
            let behind = usize::try_from(header.frame_bytes())
                .ok()
                .and_then(|end| tail.get(end..));
            if behind.is_some_and(|rest| rest.iter().any(|byte| *byte != 0)) {
                Tail::Damaged("data_behind_bad_frame")
            } else {
                Tail::Torn
            }
        }
        // Not even a header: part of one, or a frame of which only later pages were written.
        None => Tail::Torn,
    }
}

/// Whether a frame with fitting checksum starts anywhere behind the first byte.
fn has_valid_frame_later(tail: &[u8], expected_sequence: u64) -> bool {
    let mut position = 1;
    while let Some(rest) = tail.get(position..) {
        let Some(step) = rest.iter().position(|byte| *byte == b'Q') else {
            return false;
        };
        position += step;
        let Some(candidate) = tail.get(position..) else {
            return false;
        };
        // A record cannot hold the control byte of a frame type, so candidates are rare and the
        // checksums computed here stay few.
        if let Some(header) = FrameHeader::read(candidate)
            && header.first_sequence >= expected_sequence.saturating_sub(u64::from(u32::MAX))
            && let Ok(end) = usize::try_from(header.frame_bytes())
            && let Some(payload) = candidate.get(FRAME_HEADER_BYTES..end)
            && header.fits(candidate, payload)
        {
            return true;
        }
        position += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameType, write_plain};

    fn frame(sequence: u64) -> Vec<u8> {
        write_plain(FrameType::Batch, 1, sequence, b"{\"some\":\"payload\"}")
    }

    #[test]
    fn every_prefix_of_a_frame_is_torn_with_and_without_zeros_behind() {
        // TRJ-49
        let whole = frame(5);
        for length in 0..whole.len() {
            let mut tail = whole[..length].to_vec();
            assert_eq!(judge(&tail, 5), Tail::Torn, "{length}");
            tail.resize(length + 100, 0);
            assert_eq!(judge(&tail, 5), Tail::Torn, "{length} and zeros");
        }
    }

    #[test]
    fn a_bad_frame_before_a_valid_one_is_damage_whatever_byte_changed() {
        // TRJ-49: etcd's lesson.
        let mut both = frame(5);
        let first = both.len();
        both.extend(frame(6));
        for position in 0..first {
            let mut changed = both.clone();
            changed[position] ^= 0x40;
            assert_eq!(
                judge(&changed, 5),
                Tail::Damaged("bad_frame_before_valid_frame"),
                "{position}"
            );
        }
    }

    #[test]
    fn data_behind_a_bad_frame_is_damage() {
        let mut tail = frame(5);
        let last = tail.len() - 1;
        tail[last] ^= 1;
        assert_eq!(judge(&tail, 5), Tail::Torn);
        tail.extend(b"more");
        assert_eq!(judge(&tail, 5), Tail::Damaged("data_behind_bad_frame"));
    }
}
