//! Frames: one atomic batch each (TRJ-40).

use qitos_contracts::canonical_json::{write_str, write_u64};
use qitos_contracts::digest::Digest;
use qitos_contracts::record::span::{array_items, digest_without, object_members};
use qitos_contracts::record::{JOURNAL_SCHEMA, STORE_SCHEMA};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 24;
/// Largest payload of a frame (TRJ-43).
pub const MAXIMUM_FRAME_BYTES: u64 = 64 * 1024 * 1024;
const MAGIC: [u8; 2] = *b"QF";
const CHECKED_HEADER_BYTES: usize = 20;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// A batch of records.
    Batch,
    /// The end of a segment.
    Seal,
}

impl FrameType {
    const fn byte(self) -> u8 {
        match self {
            FrameType::Batch => 1,
            FrameType::Seal => 2,
        }
    }
}

/// The header of a frame, 24 bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame holds.
    pub frame_type: FrameType,
    /// Bytes of the payload behind the header.
    pub payload_bytes: u32,
    /// Records of a batch; of a seal, records of the segment.
    pub record_count: u32,
    /// Sequence of the first record.
    pub first_sequence: u64,
    checksum: u32,
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

impl FrameHeader {
    /// Reads a header whose magic, type, flags and length are admissible; the checksum is checked with
    /// the payload.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<FrameHeader> {
        if bytes.get(..2)? != MAGIC || *bytes.get(3)? != 0 {
            return None;
        }
        let frame_type = match bytes.get(2)? {
            1 => FrameType::Batch,
            2 => FrameType::Seal,
            _ => return None,
        };
        let header = FrameHeader {
            frame_type,
            payload_bytes: u32::from_le_bytes(field(bytes, 4)?),
            record_count: u32::from_le_bytes(field(bytes, 8)?),
            first_sequence: u64::from_le_bytes(field(bytes, 12)?),
            checksum: u32::from_le_bytes(field(bytes, 20)?),
        };
        (u64::from(header.payload_bytes) <= MAXIMUM_FRAME_BYTES).then_some(header)
    }

    /// Whether header and payload are what was written (CRC32C of header\[0..20\] + payload).
    #[must_use]
    pub fn fits(&self, header: &[u8], payload: &[u8]) -> bool {
        header
            .get(..CHECKED_HEADER_BYTES)
            .is_some_and(|checked| checksum(checked, payload) == self.checksum)
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), payload)
}

/// Fills in the header in front of a payload; `frame` starts with 24 free bytes.
fn finish(frame: &mut [u8], frame_type: FrameType, record_count: u32, first_sequence: u64) {
    let Some((header, payload)) = frame.split_at_mut_checked(FRAME_HEADER_BYTES) else {
        return;
    };
    let Ok(payload_bytes) = u32::try_from(payload.len()) else {
        return;
    };
    let mut fields = [0u8; FRAME_HEADER_BYTES];
    let (checked, check) = fields.split_at_mut(CHECKED_HEADER_BYTES);
    let parts: [&[u8]; 6] = [
        &MAGIC,
        &[frame_type.byte()],
        &[0],
        &payload_bytes.to_le_bytes(),
        &record_count.to_le_bytes(),
        &first_sequence.to_le_bytes(),
    ];
    for (slot, byte) in checked.iter_mut().zip(parts.concat()) {
        *slot = byte;
    }
    check.copy_from_slice(&checksum(checked, payload).to_le_bytes());
    header.copy_from_slice(&fields);
}

/// What a batch frame is made of.
#[derive(Debug)]
pub(crate) struct Batch<'records> {
    pub(crate) transaction_id: &'records str,
    pub(crate) start_sequence: u64,
    pub(crate) previous_digest: Option<Digest>,
    pub(crate) records: &'records [&'records [u8]],
}

/// Bytes that the payload of a batch takes besides its records.
const ENVELOPE_BYTES: usize = 512;

impl Batch<'_> {
    /// Upper bound of the frame's size, before anything is written.
    pub(crate) fn frame_bytes_at_most(&self) -> u64 {
        let records: u64 = self
            .records
            .iter()
            .map(|record| record.len() as u64 + 1)
            .sum();
        records + self.transaction_id.len() as u64 + ENVELOPE_BYTES as u64
    }

    /// Writes the whole frame into `frame` and gives its digest.
    ///
    /// The payload is canonical JSON; its digest comes first, so it is hashed from behind it and filled
    /// in without writing anything twice.
    pub(crate) fn write(&self, frame: &mut Vec<u8>) -> Digest {
        const OPENING: &[u8] = b"{\"frame_digest\":\"";
        frame.clear();
        frame.resize(FRAME_HEADER_BYTES, 0);
        frame.extend_from_slice(OPENING);
        let hexadecimal = frame.len();
        frame.extend_from_slice(&[b'0'; 64]);
        frame.extend_from_slice(b"\",");
        let rest = frame.len();
        frame.extend_from_slice(b"\"journal_schema\":");
        write_str(JOURNAL_SCHEMA, frame);
        frame.extend_from_slice(b",\"previous_digest\":");
        match self.previous_digest {
            Some(digest) => write_str(&digest.to_hex(), frame),
            None => frame.extend_from_slice(b"null"),
        }
        frame.extend_from_slice(b",\"records\":[");
        for (index, record) in self.records.iter().enumerate() {
            if index > 0 {
                frame.push(b',');
            }
            frame.extend_from_slice(record);
        }
        frame.extend_from_slice(b"],\"start_sequence\":");
        write_u64(self.start_sequence, frame);
        frame.extend_from_slice(b",\"store_schema\":");
        write_str(STORE_SCHEMA, frame);
        frame.extend_from_slice(b",\"transaction_id\":");
        write_str(self.transaction_id, frame);
        frame.push(b'}');
        let digest = Digest::of_parts(&[b"{", frame.get(rest..).unwrap_or_default()]);
        if let Some(place) = frame.get_mut(hexadecimal..hexadecimal + 64) {
            place.copy_from_slice(digest.to_hex().as_bytes());
        }
        let count = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        finish(frame, FrameType::Batch, count, self.start_sequence);
        digest
    }
}

/// Writes a frame around any payload; for seals.
pub(crate) fn write_plain(
    frame_type: FrameType,
    record_count: u32,
    first_sequence: u64,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    frame.extend_from_slice(payload);
    finish(&mut frame, frame_type, record_count, first_sequence);
    frame
}

/// What a batch payload says, with its records as stored.
#[derive(Debug)]
pub(crate) struct ReadBatch<'payload> {
    pub(crate) digest: Digest,
    pub(crate) previous_digest: Option<Digest>,
    pub(crate) start_sequence: u64,
    pub(crate) records: Vec<&'payload [u8]>,
}

/// Why a payload with a fitting checksum is no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchDefect {
    Malformed,
    Schema,
    Digest,
}

impl<'payload> ReadBatch<'payload> {
    /// Takes a payload apart and verifies its digest over the bytes as they stand.
    pub(crate) fn read(payload: &'payload [u8]) -> Result<Self, BatchDefect> {
        let members = object_members(payload).ok_or(BatchDefect::Malformed)?;
        let raw = |key: &[u8]| {
            members
                .iter()
                .find(|member| member.key == key)
                .and_then(|member| payload.get(member.value.clone()))
        };
        let text = |key: &[u8]| {
            raw(key)?
                .strip_prefix(b"\"")?
                .strip_suffix(b"\"")
                .and_then(|t| std::str::from_utf8(t).ok())
        };
        if text(b"journal_schema") != Some(JOURNAL_SCHEMA)
            || text(b"store_schema") != Some(STORE_SCHEMA)
        {
            return Err(BatchDefect::Schema);
        }
        let digest: Digest = text(b"frame_digest")
            .and_then(|t| t.parse().ok())
            .ok_or(BatchDefect::Malformed)?;
        if digest_without(payload, &members, &[b"frame_digest"]) != digest {
            return Err(BatchDefect::Digest);
        }
        let previous_digest = match raw(b"previous_digest") {
            Some(b"null") => None,
            _ => Some(
                text(b"previous_digest")
                    .and_then(|t| t.parse().ok())
                    .ok_or(BatchDefect::Malformed)?,
            ),
        };
        let start_sequence = raw(b"start_sequence")
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse().ok())
            .ok_or(BatchDefect::Malformed)?;
        let list = raw(b"records").ok_or(BatchDefect::Malformed)?;
        let items = array_items(list).ok_or(BatchDefect::Malformed)?;
        let records = items
            .into_iter()
            .map(|place| list.get(place).unwrap_or_default())
            .collect();
        Ok(ReadBatch {
            digest,
            previous_digest,
            start_sequence,
            records,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden_record;

    #[test]
    fn vector_c_frame_of_the_golden_record() {
        // TRJ-40: the payload is byte for byte the line of the text journal.
        let record = golden_record();
        let mut frame = Vec::new();
        let digest = Batch {
            transaction_id: "tx-1",
            start_sequence: 0,
            previous_digest: None,
            records: &[record.canonical_bytes()],
        }
        .write(&mut frame);
        assert_eq!(
            digest.to_hex(),
            "3930f08906f7c4e0435086c6f505543f79df0959c76b7273357afc0d0cc81814"
        );
        let payload = &frame[FRAME_HEADER_BYTES..];
        assert_eq!(payload.len(), 1_300);
        assert_eq!(crc32c::crc32c(payload), 0x05a2_1b9c);
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        let header = FrameHeader::read(&frame).unwrap();
        assert!(header.fits(&frame, payload));
        assert_eq!((header.record_count, header.first_sequence), (1, 0));
        let read = ReadBatch::read(payload).unwrap();
        assert_eq!(read.digest, digest);
        assert_eq!(read.previous_digest, None);
        assert_eq!(read.records, [record.canonical_bytes()]);
    }

    #[test]
    fn a_changed_byte_never_fits() {
        let record = golden_record();
        let mut frame = Vec::new();
        let _ = Batch {
            transaction_id: "tx-1",
            start_sequence: 0,
            previous_digest: Some(Digest::ZERO),
            records: &[record.canonical_bytes()],
        }
        .write(&mut frame);
        for position in 0..frame.len() {
            let mut changed = frame.clone();
            changed[position] ^= 0x10;
            let fits = FrameHeader::read(&changed).is_some_and(|header| {
                changed
                    .get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.payload_bytes as usize)
                    .is_some_and(|payload| header.fits(&changed, payload))
            });
            assert!(!fits, "byte {position}");
            let _ = ReadBatch::read(&changed[FRAME_HEADER_BYTES..]);
        }
    }
}
