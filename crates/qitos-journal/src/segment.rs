//! Segment files: their names, headers and seals (section 4 of the trajectory specification, TRJ-52).

use qitos_contracts::canonical_json::ObjectWriter;
use qitos_contracts::digest::Digest;

/// Bytes of a segment header.
pub const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"QTJ1";
const FORMAT: u16 = 1;
const CHECKED_BYTES: usize = 60;

/// The header of a segment, 64 bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The same in every segment of a journal.
    pub journal_id: [u8; 16],
    /// 0, 1, 2 …
    pub number: u64,
    /// The sequence that the first record of the segment has, an announced gap apart.
    pub first_sequence: u64,
    /// Nanoseconds since 1970; evidence only.
    pub created_unix_ns: u64,
}

impl SegmentHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn write(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let parts: [&[u8]; 8] = [
            &MAGIC,
            &FORMAT.to_le_bytes(),
            &0u16.to_le_bytes(),
            &self.journal_id,
            &self.number.to_le_bytes(),
            &self.first_sequence.to_le_bytes(),
            &self.created_unix_ns.to_le_bytes(),
            &[0; 12],
        ];
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let (checked, check) = bytes.split_at_mut(CHECKED_BYTES);
        for (slot, byte) in checked.iter_mut().zip(parts.concat()) {
            *slot = byte;
        }
        check.copy_from_slice(&crc32c::crc32c(checked).to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if it is not whole and unchanged.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<SegmentHeader> {
        let checked = bytes.get(..CHECKED_BYTES)?;
        let check: [u8; 4] = bytes
            .get(CHECKED_BYTES..SEGMENT_HEADER_BYTES)?
            .try_into()
            .ok()?;
        let number = |offset: usize| -> Option<u64> {
            Some(u64::from_le_bytes(
                bytes.get(offset..offset + 8)?.try_into().ok()?,
            ))
        };
        if checked.get(..4)? != MAGIC
            || checked.get(4..6)? != FORMAT.to_le_bytes()
            || u32::from_le_bytes(check) != crc32c::crc32c(checked)
        {
            return None;
        }
        Some(SegmentHeader {
            journal_id: bytes.get(8..24)?.try_into().ok()?,
            number: number(24)?,
            first_sequence: number(32)?,
            created_unix_ns: number(40)?,
        })
    }

    /// Whether the bytes are a header of another format version, and otherwise whole.
    #[must_use]
    pub fn is_other_format(bytes: &[u8]) -> bool {
        bytes.get(..3) == Some(b"QTJ".as_slice())
            && bytes.get(..CHECKED_BYTES).is_some_and(|checked| {
                bytes.get(CHECKED_BYTES..SEGMENT_HEADER_BYTES)
                    == Some(crc32c::crc32c(checked).to_le_bytes().as_slice())
            })
            && SegmentHeader::read(bytes).is_none()
    }
}

/// `seg-{first sequence, 20 digits}.qtj`.
#[must_use]
pub fn segment_name(first_sequence: u64) -> String {
    format!("seg-{first_sequence:020}.qtj")
}

/// The first sequence in a segment's name; `None` for other files.
#[must_use]
pub fn sequence_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("seg-")?.strip_suffix(".qtj")?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// `seg-{first sequence}.qti`, the index beside a sealed segment.
#[must_use]
pub fn index_name(first_sequence: u64) -> String {
    format!("seg-{first_sequence:020}.qti")
}

/// What the last frame of a sealed segment says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Sequence of the first record.
    pub first_sequence: u64,
    /// Sequence of the last record.
    pub last_sequence: u64,
    /// Records in the segment.
    pub record_count: u64,
    /// SHA-256 of the segment up to the seal frame.
    pub sha256: Digest,
}

impl Seal {
    /// The payload of the seal frame: canonical JSON.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(192);
        let mut object = ObjectWriter::new(&mut payload);
        object.key("first_sequence").u64(self.first_sequence);
        object.key("last_sequence").u64(self.last_sequence);
        object.key("record_count").u64(self.record_count);
        object.key("sha256").digest(&self.sha256);
        object.end();
        payload
    }

    /// Reads the payload of a seal frame.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Seal> {
        let value = qitos_contracts::canonical_json::read_canonical(payload).ok()?;
        let number = |key: &str| value.get(key)?.as_u64();
        Some(Seal {
            first_sequence: number("first_sequence")?,
            last_sequence: number("last_sequence")?,
            record_count: number("record_count")?,
            sha256: value.get("sha256")?.as_str()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_refuse_every_changed_byte() {
        let header = SegmentHeader {
            journal_id: [7; 16],
            number: 3,
            first_sequence: 1_000,
            created_unix_ns: u64::MAX,
        };
        let bytes = header.write();
        assert_eq!(SegmentHeader::read(&bytes), Some(header));
        for position in 0..bytes.len() {
            let mut changed = bytes;
            changed[position] ^= 1;
            assert_eq!(SegmentHeader::read(&changed), None, "byte {position}");
            assert_eq!(SegmentHeader::read(&bytes[..position]), None);
        }
        assert!(!SegmentHeader::is_other_format(&bytes));
    }

    #[test]
    fn names_carry_the_first_sequence() {
        assert_eq!(segment_name(42), "seg-00000000000000000042.qtj");
        assert_eq!(sequence_of_name(&segment_name(u64::MAX)), Some(u64::MAX));
        for name in [
            "seg-42.qtj",
            "seg-00000000000000000042.qti",
            "LOCK",
            "seg-0000000000000000004é.qtj",
        ] {
            assert_eq!(sequence_of_name(name), None, "{name}");
        }
    }

    #[test]
    fn seals_round_trip() {
        let seal = Seal {
            first_sequence: 1,
            last_sequence: 9,
            record_count: 9,
            sha256: Digest::of(b"x"),
        };
        assert_eq!(Seal::read(&seal.write()), Some(seal));
        assert_eq!(Seal::read(b"{}"), None);
    }
}
