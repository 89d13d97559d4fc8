//! Is a record stored already? (TRJ-42)

use qitos_contracts::record::ProjectedRecord;

use super::{Appended, JournalWriter};
use crate::error::{JournalError, Place};
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, ReadBatch};
use crate::index::{FingerprintMap, fingerprint};
use crate::open::sealed_index;
use crate::scan::Glance;
use crate::segment::{index_name, segment_name};
use crate::storage::{StoredFile, read_range, replace_file};

impl JournalWriter {
    /// How many of the records are stored already; an equal id with another fact is an error (TRJ-42).
    pub(super) fn stored_among(
        &mut self,
        records: &[ProjectedRecord],
        ids: &[u64],
    ) -> Result<usize, JournalError> {
        self.load_sealed_ids()?;
        let mut stored = 0;
        for (record, id) in records.iter().zip(ids) {
            let Some(bytes) = self.stored_record(*id, &record.record().record_id)? else {
                continue;
            };
            if !record.sealed().same_fact(&bytes) {
                return Err(JournalError::RecordIdExists);
            }
            stored += 1;
        }
        Ok(stored)
    }

    fn load_sealed_ids(&mut self) -> Result<(), JournalError> {
        if self.sealed_ids.is_some() {
            return Ok(());
        }
        let mut ids = FingerprintMap::default();
        let mut previous = None;
        for (ordinal, segment) in self.sealed.iter().enumerate() {
            let (index, header, rebuilt) = sealed_index(self.storage.as_ref(), segment, previous)?;
            if rebuilt {
                let name = index_name(segment.first_sequence);
                let bytes = index.write(&header, segment.bytes);
                let _ = replace_file(self.storage.as_ref(), &name, &bytes);
            }
            ids.extend(index.fingerprints().map(|id| (id, ordinal as u64)));
            previous = Some(segment.last_frame);
        }
        self.sealed_ids = Some(ids);
        Ok(())
    }

    /// The bytes of the stored record with this id. Costs a look into a map unless there is one.
    fn stored_record(&self, id: u64, record_id: &str) -> Result<Option<Vec<u8>>, JournalError> {
        for offset in self.active.index.frames_of(id) {
            let file = self.active.file.as_ref();
            if let Some(bytes) = record_in_frame(file, &self.active.name, offset, record_id)? {
                return Ok(Some(bytes));
            }
        }
        let Some(ordinal) = self.sealed_ids.as_ref().and_then(|ids| ids.get(&id)) else {
            return Ok(None);
        };
        // The map knows the newest segment with this fingerprint; an id that collides with it would be
        // in an older one.
        let newest = usize::try_from(*ordinal).unwrap_or(usize::MAX);
        for (at, segment) in self
            .sealed
            .iter()
            .enumerate()
            .take(newest.saturating_add(1))
            .rev()
        {
            let previous = at
                .checked_sub(1)
                .and_then(|p| self.sealed.get(p))
                .map(|s| s.last_frame);
            let (index, ..) = sealed_index(self.storage.as_ref(), segment, previous)?;
            let offsets = index.frames_of(id);
            if offsets.is_empty() {
                continue;
            }
            let name = segment_name(segment.first_sequence);
            let file = self
                .storage
                .open(&name)
                .map_err(JournalError::read("open a segment"))?;
            for offset in offsets {
                if let Some(bytes) = record_in_frame(file.as_ref(), &name, offset, record_id)? {
                    return Ok(Some(bytes));
                }
            }
        }
        Ok(None)
    }

    /// A success that writes nothing; it is durable if the stored records are.
    pub(super) fn already_stored(&mut self, ids: &[u64]) -> Result<Appended, JournalError> {
        let synced = self.active.synced.bytes;
        let unsynced = |id: &u64| {
            self.active
                .index
                .frames_of(*id)
                .into_iter()
                .any(|offset| offset >= synced)
        };
        if ids.iter().any(unsynced) {
            self.sync_as_due()?;
        }
        let synced = self.active.synced.bytes;
        let durable = !ids.iter().any(|id| {
            self.active
                .index
                .frames_of(*id)
                .into_iter()
                .any(|at| at >= synced)
        });
        Ok(Appended {
            durable,
            already_stored: true,
            bytes_written: 0,
        })
    }
}

/// Fingerprints of the batch; the same id twice is refused.
pub(super) fn batch_ids(records: &[ProjectedRecord]) -> Result<Vec<u64>, JournalError> {
    let ids: Vec<u64> = records
        .iter()
        .map(|record| fingerprint(&record.record().record_id))
        .collect();
    if records.len() > 1 {
        let mut seen = std::collections::HashSet::with_capacity(records.len());
        if !records
            .iter()
            .all(|record| seen.insert(&*record.record().record_id))
        {
            return Err(JournalError::DuplicateInBatch);
        }
    }
    Ok(ids)
}

/// Reads the frame at `offset` and gives the record with this id, if it is there.
fn record_in_frame(
    file: &dyn StoredFile,
    name: &str,
    offset: u64,
    record_id: &str,
) -> Result<Option<Vec<u8>>, JournalError> {
    let frame = read_frame(file, name, offset)?;
    let payload = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    let Ok(batch) = ReadBatch::read(payload) else {
        return Ok(None);
    };
    for record in batch.records {
        if Glance::of(record).is_some_and(|glance| glance.record_id == record_id) {
            return Ok(Some(record.to_vec()));
        }
    }
    Ok(None)
}

/// One whole frame whose checksum fits.
pub(crate) fn read_frame(
    file: &dyn StoredFile,
    name: &str,
    offset: u64,
) -> Result<Vec<u8>, JournalError> {
    let corrupt = || JournalError::Corrupt {
        place: Place {
            segment: name.to_owned(),
            offset,
        },
        reason: "bad_frame",
    };
    let head = read_range(file, offset, FRAME_HEADER_BYTES)
        .map_err(JournalError::read("read a frame header"))?;
    let header = FrameHeader::read(&head).ok_or_else(corrupt)?;
    let length = usize::try_from(header.frame_bytes()).unwrap_or(usize::MAX);
    let frame = read_range(file, offset, length).map_err(JournalError::read("read a frame"))?;
    let payload = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    if frame.len() == length && header.fits(&frame, payload) {
        Ok(frame)
    } else {
        Err(corrupt())
    }
}
