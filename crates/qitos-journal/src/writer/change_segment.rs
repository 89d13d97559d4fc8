//! From one segment to the next: sealing (TRJ-52) and going on after a failed sync (TRJ-46).

use qitos_contracts::digest::Digest;
use sha2::{Digest as _, Sha256};

use super::{Active, ActiveState, JournalWriter, Mark, segment_header, start_segment};
use crate::error::{JournalError, Place};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameType, ReadBatch, write_plain};
use crate::index::SegmentIndex;
use crate::manifest::{self, SealedSegment};
use crate::scan::Glance;
use crate::segment::{SEGMENT_HEADER_BYTES, Seal, index_name, segment_name};
use crate::storage::{append_all, read_range, replace_file};

impl JournalWriter {
    /// TRJ-52: the seal is the last frame of the segment and is durable before the next one is made.
    pub(super) fn seal_active(&mut self) -> Result<(), JournalError> {
        let end = self.active.end;
        let first_sequence = self.active.first_record.unwrap_or_default();
        let seal = Seal {
            first_sequence,
            last_sequence: end.point.next_sequence.saturating_sub(1),
            record_count: end.records,
            sha256: Digest::from_bytes(self.active.hasher.clone().finalize().into()),
        };
        let count = u32::try_from(end.records).unwrap_or(u32::MAX);
        let frame = write_plain(FrameType::Seal, count, first_sequence, &seal.write());
        if let Err(failure) = append_all(self.active.file.as_mut(), &frame) {
            return Err(self.append_failed(failure));
        }
        self.syncs += 1;
        if let Err(error) = self.active.file.sync() {
            self.active.state = ActiveState::Poisoned;
            return Err(JournalError::SyncFailed { kind: error.kind() });
        }
        self.active.synced = end;
        self.active.state = ActiveState::Sealed;
        Ok(())
    }

    /// Makes the segment behind a sealed one, then the derived files.
    pub(super) fn start_next_segment(&mut self) -> Result<(), JournalError> {
        let point = self.active.end.point;
        let header = segment_header(
            self.journal_id,
            self.active.header.number + 1,
            point,
            &self.options,
        );
        let next = start_segment(self.storage.as_ref(), header, point).map_err(new_segment)?;
        let sealed_bytes = self.active.file.length().unwrap_or(self.active.end.bytes);
        let old = std::mem::replace(&mut self.active, next);
        self.retire(old, sealed_bytes);
        Ok(())
    }

    /// Remembers a segment that is finished. Index and manifest are derived: a failure to write them
    /// costs the next opening time, nothing else.
    fn retire(&mut self, old: Active, bytes: u64) {
        let Some(last_frame) = old.synced.point.last_frame else {
            return;
        };
        let ordinal = self.sealed.len() as u64;
        if let Some(ids) = &mut self.sealed_ids {
            ids.extend(old.index.fingerprints().map(|id| (id, ordinal)));
        }
        self.sealed.push(SealedSegment {
            number: old.header.number,
            first_sequence: old.header.first_sequence,
            next_sequence: old.synced.point.next_sequence,
            record_count: old.synced.records,
            bytes,
            last_frame,
        });
        if old.state == ActiveState::Sealed {
            let name = index_name(old.header.first_sequence);
            let index = old.index.write(&old.header, bytes);
            let _ = replace_file(self.storage.as_ref(), &name, &index);
        }
        let listed = manifest::write(&self.sealed);
        let _ = replace_file(self.storage.as_ref(), manifest::NAME, &listed);
    }

    /// Goes on after a failed sync (TRJ-46): the frames that were not acknowledged are read back, verified
    /// and written to a new segment; only its sync earns `persisted`.
    ///
    /// The new segment begins where the acknowledged frames end, and readers leave the old one there, so
    /// the poisoned file is neither synced nor changed. If nothing in it was acknowledged, the new one
    /// takes its place.
    pub(super) fn replace_poisoned(&mut self) -> Result<(), JournalError> {
        let (from, to) = (self.active.synced, self.active.end);
        let length = usize::try_from(to.bytes - from.bytes).unwrap_or(usize::MAX);
        let frames = read_range(self.active.file.as_ref(), from.bytes, length)
            .map_err(JournalError::read("read back unsynced frames"))?;
        let place = Place {
            segment: self.active.name.clone(),
            offset: from.bytes,
        };
        let old_is_empty = from.records == 0;
        let number = self.active.header.number + u64::from(!old_is_empty);
        let header = segment_header(self.journal_id, number, from.point, &self.options);
        let shift = from.bytes - SEGMENT_HEADER_BYTES as u64;
        let (index, first_record) = index_of_frames(&frames, SEGMENT_HEADER_BYTES as u64)
            .filter(|_| frames.len() == length)
            .ok_or(JournalError::Corrupt {
                place,
                reason: "unsynced_frames_lost",
            })?;
        let mut content = header.write().to_vec();
        content.extend_from_slice(&frames);
        let name = segment_name(header.first_sequence);
        let storage = self.storage.as_ref();
        self.syncs += 1;
        let file = replace_file(storage, &name, &content)
            .and_then(|()| storage.open_append(&name))
            .map_err(new_segment)?;
        let mut hasher = Sha256::new();
        hasher.update(&content);
        let end = Mark {
            bytes: to.bytes - shift,
            records: to.records - from.records,
            point: to.point,
        };
        let fresh = Active {
            header,
            name,
            file,
            end,
            synced: end,
            first_record,
            hasher,
            index,
            state: ActiveState::Open,
        };
        let old = std::mem::replace(&mut self.active, fresh);
        self.last_sync_ns = self.options.clock.monotonic_ns();
        if !old_is_empty {
            let bytes = old.synced.bytes;
            self.retire(old, bytes);
        }
        Ok(())
    }
}

fn new_segment(error: std::io::Error) -> JournalError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            JournalError::NoSpace
        }
        kind => JournalError::SyncFailed { kind },
    }
}

/// The index of frames that are at hand, and the sequence of their first record; `None` if one is bad.
fn index_of_frames(bytes: &[u8], first_offset: u64) -> Option<(SegmentIndex, Option<u64>)> {
    let mut index = SegmentIndex::default();
    let mut first_record = None;
    let mut rest = bytes;
    let mut offset = first_offset;
    while !rest.is_empty() {
        let header = FrameHeader::read(rest)?;
        let length = usize::try_from(header.frame_bytes()).ok()?;
        let (frame, behind) = rest.split_at_checked(length)?;
        let payload = frame.get(FRAME_HEADER_BYTES..)?;
        if header.frame_type != FrameType::Batch || !header.fits(frame, payload) {
            return None;
        }
        let batch = ReadBatch::read(payload).ok()?;
        index.add_frame(header.first_sequence, offset, batch.records.len() as u64);
        for record in batch.records {
            let glance = Glance::of(record)?;
            first_record = first_record.or(Some(glance.sequence));
            index.add_glance(&glance, offset);
        }
        offset += length as u64;
        rest = behind;
    }
    Some((index, first_record))
}
