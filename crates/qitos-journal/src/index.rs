//! Derived indexes: where an id, a sequence, a run stands (TRJ-53).
//!
//! Never trusted over frames: a hit is confirmed by reading the record, and an index that is missing,
//! stale or damaged is made again from its segment. Ids are kept as 64 bits of their SHA-256.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use qitos_contracts::digest::Digest;
use qitos_contracts::record::RecordKind;

use crate::scan::Glance;
use crate::segment::SegmentHeader;

const MAGIC: [u8; 4] = *b"QTI1";
const HEADER_BYTES: usize = 64;
const ID_BYTES: usize = 16;
const FRAME_BYTES: usize = 24;
const ROW_BYTES: usize = 32;

/// 64 bits of the SHA-256 of an id; the same in every version and on every machine.
pub(crate) fn fingerprint(id: &str) -> u64 {
    let digest = Digest::of(id.as_bytes());
    let mut bytes = [0; 8];
    for (slot, byte) in bytes.iter_mut().zip(digest.as_bytes()) {
        *slot = *byte;
    }
    u64::from_le_bytes(bytes)
}

/// Fingerprints are random already.
#[derive(Debug, Default)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(crate) type FingerprintMap = HashMap<u64, u64, BuildHasherDefault<PassThrough>>;

/// One batch in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameEntry {
    /// Sequence of its first record.
    pub(crate) first_sequence: u64,
    pub(crate) offset: u64,
    pub(crate) records: u64,
}

/// What queries filter by; 0 stands for an absent id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) session: u64,
    pub(crate) run: u64,
    pub(crate) work_item: u64,
    pub(crate) kind: u64,
}

impl Row {
    pub(crate) fn of(
        session: Option<&str>,
        run: Option<&str>,
        work_item: Option<&str>,
        kind: &str,
    ) -> Row {
        let print = |id: Option<&str>| id.map_or(0, fingerprint);
        Row {
            session: print(session),
            run: print(run),
            work_item: print(work_item),
            kind: kind_number(kind),
        }
    }
}

/// A kind's place in the vocabulary; unknown words get a number of their own.
pub(crate) fn kind_number(kind: &str) -> u64 {
    RecordKind::ALL
        .iter()
        .position(|known| known.as_str() == kind)
        .map_or(u64::MAX, |position| position as u64)
}

/// The index of one segment, in memory.
#[derive(Debug, Default)]
pub(crate) struct SegmentIndex {
    ids: FingerprintMap,
    /// Offsets of ids whose fingerprint another id had first.
    collisions: Vec<(u64, u64)>,
    pub(crate) frames: Vec<FrameEntry>,
    pub(crate) rows: Vec<Row>,
}

impl SegmentIndex {
    pub(crate) fn add_frame(&mut self, first_sequence: u64, offset: u64, records: u64) {
        self.frames.push(FrameEntry {
            first_sequence,
            offset,
            records,
        });
    }

    pub(crate) fn add_record(&mut self, id: u64, row: Row, offset: u64) {
        if let Some(other) = self.ids.insert(id, offset) {
            self.collisions.push((id, other));
        }
        self.rows.push(row);
    }

    pub(crate) fn add_glance(&mut self, glance: &Glance, offset: u64) {
        let row = Row::of(
            glance.session_id.as_deref(),
            glance.run_id.as_deref(),
            glance.work_item_id.as_deref(),
            &glance.kind,
        );
        self.add_record(fingerprint(&glance.record_id), row, offset);
    }

    /// Offsets of the frames that may hold the id.
    pub(crate) fn frames_of(&self, id: u64) -> Vec<u64> {
        let Some(first) = self.ids.get(&id) else {
            return Vec::new();
        };
        let others = self.collisions.iter().filter(|(other, _)| *other == id);
        std::iter::once(*first)
            .chain(others.map(|(_, offset)| *offset))
            .collect()
    }

    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = u64> + '_ {
        self.ids.keys().copied()
    }

    /// The bytes of the index file.
    pub(crate) fn write(&self, header: &SegmentHeader, segment_bytes: u64) -> Vec<u8> {
        let mut ids: Vec<(u64, u64)> = self.ids.iter().map(|(id, offset)| (*id, *offset)).collect();
        ids.extend_from_slice(&self.collisions);
        ids.sort_unstable();
        let mut bytes = Vec::with_capacity(
            HEADER_BYTES + ids.len() * (ID_BYTES + ROW_BYTES) + self.frames.len() * FRAME_BYTES + 4,
        );
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[1, 0, 0, 0]);
        bytes.extend_from_slice(&header.journal_id);
        for number in [
            header.number,
            header.first_sequence,
            segment_bytes,
            self.rows.len() as u64,
            self.frames.len() as u64,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (id, offset) in ids {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        for frame in &self.frames {
            for number in [frame.first_sequence, frame.offset, frame.records] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for row in &self.rows {
            for number in [row.session, row.run, row.work_item, row.kind] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads an index file if it is whole and belongs to this segment as it is now.
    pub(crate) fn read(bytes: &[u8], header: &SegmentHeader, segment_bytes: u64) -> Option<Self> {
        let (body, check) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if crc32c::crc32c(body).to_le_bytes() != check {
            return None;
        }
        if body.get(..8)? != [MAGIC.as_slice(), &[1, 0, 0, 0]].concat()
            || body.get(8..24)? != header.journal_id
        {
            return None;
        }
        let mut numbers = body
            .get(24..)?
            .chunks_exact(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
        let mut next = || numbers.next();
        if next()? != header.number || next()? != header.first_sequence || next()? != segment_bytes
        {
            return None;
        }
        let (records, frames) = (
            usize::try_from(next()?).ok()?,
            usize::try_from(next()?).ok()?,
        );
        let expected = records
            .checked_mul(ID_BYTES + ROW_BYTES)?
            .checked_add(frames.checked_mul(FRAME_BYTES)?)?
            .checked_add(HEADER_BYTES)?;
        if expected != body.len() {
            return None;
        }
        let mut index = SegmentIndex::default();
        index.ids.reserve(records);
        for _ in 0..records {
            let (id, offset) = (next()?, next()?);
            if let Some(other) = index.ids.insert(id, offset) {
                index.collisions.push((id, other));
            }
        }
        for _ in 0..frames {
            index.add_frame(next()?, next()?, next()?);
        }
        for _ in 0..records {
            index.rows.push(Row {
                session: next()?,
                run: next()?,
                work_item: next()?,
                kind: next()?,
            });
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_files_round_trip_and_are_refused_when_stale_or_changed() {
        // TRJ-53
        let header = SegmentHeader {
            journal_id: [1; 16],
            number: 2,
            first_sequence: 5,
            created_unix_ns: 0,
        };
        let mut index = SegmentIndex::default();
        index.add_frame(5, 64, 2);
        index.add_record(7, Row::of(Some("s"), None, None, "run"), 64);
        index.add_record(7, Row::of(Some("s"), Some("r"), None, "step"), 90);
        let bytes = index.write(&header, 1_000);
        let read = SegmentIndex::read(&bytes, &header, 1_000).unwrap();
        assert_eq!((&read.frames, &read.rows), (&index.frames, &index.rows));
        let mut offsets = read.frames_of(7);
        offsets.sort_unstable();
        assert_eq!(offsets, [64, 90]);
        assert!(read.frames_of(8).is_empty());
        assert!(SegmentIndex::read(&bytes, &header, 1_001).is_none());
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 1;
            assert!(
                SegmentIndex::read(&changed, &header, 1_000).is_none(),
                "byte {position}"
            );
            assert!(SegmentIndex::read(&bytes[..position], &header, 1_000).is_none());
        }
    }
}
