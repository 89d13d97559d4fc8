//! Reads a segment frame by frame, verifying as it goes.

use qitos_contracts::digest::Digest;
use sha2::{Digest as _, Sha256};

use crate::error::{JournalError, Place};
use crate::frame::{BatchDefect, FRAME_HEADER_BYTES, FrameHeader, FrameType, ReadBatch};
use crate::recover_torn_tail::{Tail, judge};
use crate::segment::{SEGMENT_HEADER_BYTES, Seal, SegmentHeader};
use crate::storage::{StoredFile, read_range};

/// Read ahead of the frame that is needed.
const CHUNK_BYTES: usize = 1024 * 1024;

/// What is known before the first frame of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainPoint {
    /// Sequence of the next record.
    pub(crate) next_sequence: u64,
    /// Digest of the last frame.
    pub(crate) last_frame: Option<Digest>,
}

/// One batch frame, borrowed from the scanner.
pub(crate) struct ScannedFrame<'scan> {
    pub(crate) offset: u64,
    pub(crate) header: FrameHeader,
    pub(crate) records: Vec<&'scan [u8]>,
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the end of the file, after the last frame.
    Clean,
    /// After a seal.
    Sealed(Seal),
    /// At a bad offset: the rest of the file is no valid frame.
    Bad,
    /// Where the next segment takes over (TRJ-46).
    Superseded,
}

/// A pass over one segment.
pub(crate) struct Scanner<'file> {
    file: &'file dyn StoredFile,
    name: &'file str,
    file_bytes: u64,
    chunk: Vec<u8>,
    chunk_start: u64,
    hasher: Sha256,
    /// The next segment's first sequence: frames from there on were appended again behind it.
    stop_at: Option<u64>,
    /// End of the last valid frame.
    pub(crate) position: u64,
    pub(crate) point: ChainPoint,
    pub(crate) records: u64,
    pub(crate) first_record: Option<u64>,
    /// Bytes read from the file.
    pub(crate) bytes_read: u64,
}

impl std::fmt::Debug for Scanner<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Scanner({} at {})", self.name, self.position)
    }
}

impl<'file> Scanner<'file> {
    /// Starts behind the header, which the caller has read.
    pub(crate) fn new(
        file: &'file dyn StoredFile,
        name: &'file str,
        header: &SegmentHeader,
        last_frame: Option<Digest>,
        stop_at: Option<u64>,
    ) -> Result<Self, JournalError> {
        let file_bytes = file
            .length()
            .map_err(JournalError::read("measure a segment"))?;
        let mut hasher = Sha256::new();
        hasher.update(header.write());
        Ok(Scanner {
            file,
            name,
            file_bytes,
            chunk: Vec::new(),
            chunk_start: 0,
            hasher,
            stop_at,
            position: SEGMENT_HEADER_BYTES as u64,
            point: ChainPoint {
                next_sequence: header.first_sequence,
                last_frame,
            },
            records: 0,
            first_record: None,
            bytes_read: SEGMENT_HEADER_BYTES as u64,
        })
    }

    fn place(&self) -> Place {
        Place {
            segment: self.name.to_owned(),
            offset: self.position,
        }
    }

    /// The state of the segment's digest up to the last valid frame.
    pub(crate) fn into_hasher(self) -> Sha256 {
        self.hasher
    }

    /// Makes `length` bytes from `position` available, fewer at the end of the file.
    fn load(&mut self, length: usize) -> Result<(), JournalError> {
        let offset = self.position.saturating_sub(self.chunk_start);
        let held = (self.chunk.len() as u64).saturating_sub(offset);
        if held >= length as u64 && self.position >= self.chunk_start {
            return Ok(());
        }
        let left = usize::try_from(self.file_bytes - self.position.min(self.file_bytes))
            .unwrap_or(usize::MAX);
        let wanted = length.max(CHUNK_BYTES).min(left);
        self.chunk = read_range(self.file, self.position, wanted)
            .map_err(JournalError::read("read a segment"))?;
        self.chunk_start = self.position;
        self.bytes_read += self.chunk.len() as u64;
        Ok(())
    }

    fn loaded(&self, from: usize, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(self.position - self.chunk_start)
            .ok()?
            .checked_add(from)?;
        self.chunk.get(start..start.checked_add(length)?)
    }

    /// The next batch, or how the segment ends.
    ///
    /// A frame with fitting checksum that is no batch of this chain is an error, not an end: a crash
    /// leaves no such thing.
    pub(crate) fn next(&mut self) -> Result<Result<ScannedFrame<'_>, End>, JournalError> {
        if self
            .stop_at
            .is_some_and(|sequence| self.point.next_sequence >= sequence)
        {
            let end = if self.position >= self.file_bytes {
                End::Clean
            } else {
                End::Superseded
            };
            // A sealed segment has its seal there.
            if end == End::Clean {
                return Ok(Err(end));
            }
            return self.seal_or(End::Superseded).map(Err);
        }
        if self.position >= self.file_bytes {
            return Ok(Err(End::Clean));
        }
        let Some(header) = self.valid_frame()? else {
            return Ok(Err(End::Bad));
        };
        if header.frame_type == FrameType::Seal {
            return self.seal_or(End::Bad).map(Err);
        }
        let payload_bytes = header.payload_bytes as usize;
        let offset = self.position;
        let place = self.place();
        let frame_bytes = FRAME_HEADER_BYTES + payload_bytes;
        let start = usize::try_from(self.position - self.chunk_start).unwrap_or(usize::MAX);
        let bytes = self
            .chunk
            .get(start..start + frame_bytes)
            .unwrap_or_default();
        let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let batch = match ReadBatch::read(payload) {
            Ok(batch) => batch,
            Err(BatchDefect::Schema) => return Err(JournalError::UnsupportedSchema { place }),
            Err(BatchDefect::Digest) => return Err(JournalError::FrameDigestMismatch { place }),
            Err(BatchDefect::Malformed) => {
                return Err(JournalError::Corrupt {
                    place,
                    reason: "malformed_batch",
                });
            }
        };
        if batch.previous_digest != self.point.last_frame {
            return Err(JournalError::ChainMismatch { place });
        }
        if batch.start_sequence != header.first_sequence
            || batch.records.len() as u64 != u64::from(header.record_count)
            || batch.records.is_empty()
        {
            return Err(JournalError::RecordSequenceMismatch { place });
        }
        let expected = self.point.next_sequence;
        let mut next = expected;
        for record in &batch.records {
            let glance = Glance::of(record).ok_or(JournalError::Corrupt {
                place: place.clone(),
                reason: "malformed_record",
            })?;
            if !glance.follows(next) {
                return Err(JournalError::SequenceMismatch {
                    expected: next,
                    found: glance.sequence,
                    place: Some(place),
                });
            }
            next = glance.sequence.saturating_add(1);
            if self.first_record.is_none() {
                self.first_record = Some(glance.sequence);
            }
        }
        self.hasher.update(bytes);
        self.records += batch.records.len() as u64;
        self.point = ChainPoint {
            next_sequence: next,
            last_frame: Some(batch.digest),
        };
        self.position += frame_bytes as u64;
        Ok(Ok(ScannedFrame {
            offset,
            header,
            records: batch.records,
        }))
    }

    /// The header of the frame at the position, if the frame is whole and its checksum fits.
    fn valid_frame(&mut self) -> Result<Option<FrameHeader>, JournalError> {
        self.load(FRAME_HEADER_BYTES)?;
        let Some(header) = self
            .loaded(0, FRAME_HEADER_BYTES)
            .and_then(FrameHeader::read)
        else {
            return Ok(None);
        };
        if self.position + header.frame_bytes() > self.file_bytes {
            return Ok(None);
        }
        let payload_bytes = header.payload_bytes as usize;
        self.load(FRAME_HEADER_BYTES + payload_bytes)?;
        let fits = match (
            self.loaded(0, FRAME_HEADER_BYTES),
            self.loaded(FRAME_HEADER_BYTES, payload_bytes),
        ) {
            (Some(head), Some(payload)) => header.fits(head, payload),
            _ => false,
        };
        Ok(fits.then_some(header))
    }

    /// A seal at the position that fits what was read, else `otherwise`.
    fn seal_or(&mut self, otherwise: End) -> Result<End, JournalError> {
        let place = self.place();
        let Some(header) = self.valid_frame()? else {
            return Ok(otherwise);
        };
        if header.frame_type != FrameType::Seal {
            return Ok(otherwise);
        }
        let seal = self
            .loaded(FRAME_HEADER_BYTES, header.payload_bytes as usize)
            .and_then(Seal::read)
            .ok_or(JournalError::Corrupt {
                place: place.clone(),
                reason: "malformed_seal",
            })?;
        let sha256 = Digest::from_bytes(self.hasher.clone().finalize().into());
        let fits = seal.sha256 == sha256
            && seal.record_count == self.records
            && Some(seal.first_sequence) == self.first_record
            && seal.last_sequence.checked_add(1) == Some(self.point.next_sequence);
        if !fits {
            return Err(JournalError::Corrupt {
                place,
                reason: "seal_mismatch",
            });
        }
        if self.position + header.frame_bytes() != self.file_bytes {
            return Err(JournalError::Corrupt {
                place,
                reason: "data_behind_seal",
            });
        }
        self.position += header.frame_bytes();
        Ok(End::Sealed(seal))
    }

    /// The verdict on the bytes from the position to the end, after [`End::Bad`] in the last segment.
    pub(crate) fn judge_tail(&self) -> Result<(Tail, Vec<u8>), JournalError> {
        let length = usize::try_from(self.file_bytes - self.position).unwrap_or(usize::MAX);
        let tail = read_range(self.file, self.position, length)
            .map_err(JournalError::read("read a segment"))?;
        Ok((judge(&tail, self.point.next_sequence), tail))
    }
}

/// What scans and indexes need of a record, without reading it as one.
#[derive(Debug)]
pub(crate) struct Glance {
    pub(crate) sequence: u64,
    pub(crate) record_id: String,
    pub(crate) session_id: Option<String>,
    pub(crate) run_id: Option<String>,
    pub(crate) work_item_id: Option<String>,
    pub(crate) kind: String,
    gap: Option<(u64, u64)>,
}

impl Glance {
    pub(crate) fn of(record: &[u8]) -> Option<Glance> {
        let members = qitos_contracts::record::span::object_members(record)?;
        let raw = |key: &[u8]| {
            members
                .iter()
                .find(|member| member.key == key)
                .and_then(|member| record.get(member.value.clone()))
        };
        let text = |key: &[u8]| {
            serde_json::from_slice::<Option<String>>(raw(key)?)
                .ok()
                .flatten()
        };
        let kind = text(b"kind")?;
        let gap = if kind == "loss" {
            announced_gap(raw(b"payload")?)
        } else {
            None
        };
        Some(Glance {
            sequence: std::str::from_utf8(raw(b"sequence")?).ok()?.parse().ok()?,
            record_id: text(b"record_id")?,
            session_id: text(b"session_id"),
            run_id: text(b"run_id"),
            work_item_id: text(b"work_item_id"),
            kind,
            gap,
        })
    }

    /// Whether a record with this sequence may stand after `next - 1`: directly, or behind a gap that it
    /// announces itself (TRJ-7, decision 68).
    pub(crate) fn follows(&self, next: u64) -> bool {
        follows(self.sequence, next, self.gap)
    }
}

/// The rule of [`Glance::follows`] for records that are at hand.
pub(crate) fn follows(sequence: u64, next: u64, gap: Option<(u64, u64)>) -> bool {
    sequence == next
        || gap.is_some_and(|(first, last)| first == next && last.checked_add(1) == Some(sequence))
}

fn announced_gap(payload: &[u8]) -> Option<(u64, u64)> {
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    if value.get("code")?.as_str()? != "sink_gap" {
        return None;
    }
    Some((
        value.get("first_sequence")?.as_u64()?,
        value.get("last_sequence")?.as_u64()?,
    ))
}
