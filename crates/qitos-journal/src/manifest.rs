//! `MANIFEST`: the sealed segments, so that opening need not read them (TRJ-52).
//!
//! Derived as well: without it, or with one that does not fit, the segments themselves are read (TRJ-48).

use qitos_contracts::canonical_json::{ObjectWriter, read_canonical};
use qitos_contracts::digest::Digest;
use qitos_contracts::record::INDEX_SCHEMA;

/// One sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedSegment {
    pub(crate) number: u64,
    /// Of the header and the name.
    pub(crate) first_sequence: u64,
    pub(crate) next_sequence: u64,
    pub(crate) record_count: u64,
    pub(crate) bytes: u64,
    pub(crate) last_frame: Digest,
}

pub(crate) const NAME: &str = "MANIFEST";

pub(crate) fn write(segments: &[SealedSegment]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64 + segments.len() * 200);
    let mut object = ObjectWriter::new(&mut bytes);
    object.key("schema_version").str(INDEX_SCHEMA);
    let mut list = object.key("segments").array();
    for segment in segments {
        let mut entry = list.item().object();
        entry.key("bytes").u64(segment.bytes);
        entry.key("first_sequence").u64(segment.first_sequence);
        entry.key("last_frame").digest(&segment.last_frame);
        entry.key("next_sequence").u64(segment.next_sequence);
        entry.key("number").u64(segment.number);
        entry.key("record_count").u64(segment.record_count);
        entry.end();
    }
    list.end();
    object.end();
    bytes.push(b'\n');
    let check = Digest::of(&bytes);
    bytes.extend_from_slice(check.to_hex().as_bytes());
    bytes.push(b'\n');
    bytes
}

pub(crate) fn read(bytes: &[u8]) -> Option<Vec<SealedSegment>> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let (body, check) = bytes.split_at_checked(line)?;
    if check.strip_suffix(b"\n")? != Digest::of(body).to_hex().as_bytes() {
        return None;
    }
    let value = read_canonical(body.strip_suffix(b"\n")?).ok()?;
    if value.get("schema_version")?.as_str()? != INDEX_SCHEMA {
        return None;
    }
    value
        .get("segments")?
        .as_array()?
        .iter()
        .map(|entry| {
            let number = |key: &str| entry.get(key)?.as_u64();
            Some(SealedSegment {
                number: number("number")?,
                first_sequence: number("first_sequence")?,
                next_sequence: number("next_sequence")?,
                record_count: number("record_count")?,
                bytes: number("bytes")?,
                last_frame: entry.get("last_frame")?.as_str()?.parse().ok()?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_manifest_is_none() {
        let segments = [SealedSegment {
            number: 0,
            first_sequence: 0,
            next_sequence: 9,
            record_count: 9,
            bytes: 1_000,
            last_frame: Digest::of(b"x"),
        }];
        let bytes = write(&segments);
        assert_eq!(read(&bytes).as_deref(), Some(segments.as_slice()));
        assert_eq!(read(&write(&[])), Some(Vec::new()));
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 1;
            assert_eq!(read(&changed), None, "byte {position}");
            assert_eq!(read(&bytes[..position]), None);
        }
    }
}
