//! The one writer of a journal: append, sync, rotate, go on after a failed sync (TRJ-40 to TRJ-47, TRJ-52).

mod change_segment;
mod find_stored;
mod recover;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::digest::Digest;
use qitos_contracts::record::ProjectedRecord;
use sha2::{Digest as _, Sha256};

use crate::error::{JournalError, Place};
use crate::frame::Batch;
use crate::index::{FingerprintMap, Row, SegmentIndex};
use crate::lock::WriterLock;
use crate::manifest::{self, SealedSegment};
use crate::open::look;
use crate::options::{JournalOptions, SyncPolicy};
use crate::scan::{ChainPoint, follows};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name};
use crate::storage::{DirectoryStorage, Storage, StoredFile, append_all, replace_file};
use find_stored::batch_ids;
pub(crate) use find_stored::read_frame;
use recover::{recover, stored_journal_id};

/// Under the policy `group` so many bytes at most stay unsynced.
const GROUP_BYTES: u64 = 1024 * 1024;

/// What write-open had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Bytes of an unfinished frame that were dropped; they are kept in `torn/`.
    pub torn_bytes: u64,
    /// Where they stood.
    pub torn_place: Option<Place>,
    /// Bytes of segments that opening read.
    pub bytes_read: u64,
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Whether the records are on stable storage.
    pub durable: bool,
    /// Whether they were stored before, and nothing was written (TRJ-42).
    pub already_stored: bool,
    /// Bytes written to segments.
    pub bytes_written: u64,
}

/// A place up to which the active segment is known.
#[derive(Clone, Copy, Debug)]
struct Mark {
    bytes: u64,
    records: u64,
    point: ChainPoint,
}

#[derive(Debug)]
struct Active {
    header: SegmentHeader,
    name: String,
    file: Box<dyn StoredFile>,
    /// End of the last whole frame.
    end: Mark,
    /// What is on stable storage, the file's name included.
    synced: Mark,
    first_record: Option<u64>,
    hasher: Sha256,
    index: SegmentIndex,
    state: ActiveState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActiveState {
    Open,
    /// A part of a frame may stand behind the end.
    DirtyTail,
    /// A sync failed: nothing is appended to it and it is not synced again (TRJ-46).
    Poisoned,
    /// Its seal is written.
    Sealed,
}

/// The one writer of a journal.
///
/// Appending costs what the batch costs, whatever the journal holds: it reads no history, writes one
/// frame and rewrites nothing (TRJ-41). Not to be used in a forked child (SNK-18).
#[derive(Debug)]
pub struct JournalWriter {
    storage: Arc<dyn Storage>,
    options: JournalOptions,
    lock: Option<WriterLock>,
    process: u32,
    journal_id: [u8; 16],
    transaction_prefix: String,
    sealed: Vec<SealedSegment>,
    /// Fingerprints of the ids in sealed segments, loaded by the first append.
    sealed_ids: Option<FingerprintMap>,
    active: Active,
    frame: Vec<u8>,
    last_sync_ns: u64,
    syncs: u64,
    closed: bool,
}

impl JournalWriter {
    /// Opens or makes the journal in `directory`, takes its lock and recovers what a crash left.
    ///
    /// # Errors
    /// `journal_locked`, `journal_open_failed`, `journal_no_space`, and every kind of corruption, which
    /// leaves the files untouched.
    ///
    /// # Durability
    /// What is there is synced once, unless the policy is `never`.
    pub fn open(
        directory: &Path,
        options: JournalOptions,
    ) -> Result<(JournalWriter, RecoveryReport), JournalError> {
        let storage = DirectoryStorage::new(directory);
        storage
            .create_directory()
            .map_err(JournalError::open("make the directory"))?;
        let lock = WriterLock::acquire(directory)?;
        Self::open_locked(Arc::new(storage), Some(lock), options)
    }

    /// Opens a journal in any storage; the caller sees to it that there is one writer.
    ///
    /// # Errors
    /// As [`JournalWriter::open`], `journal_locked` apart.
    pub fn open_storage(
        storage: Arc<dyn Storage>,
        options: JournalOptions,
    ) -> Result<(JournalWriter, RecoveryReport), JournalError> {
        Self::open_locked(storage, None, options)
    }

    fn open_locked(
        storage: Arc<dyn Storage>,
        lock: Option<WriterLock>,
        options: JournalOptions,
    ) -> Result<(JournalWriter, RecoveryReport), JournalError> {
        let mut found = look(storage.as_ref())?;
        let journal_id = match found.journal_id {
            Some(id) => id,
            None => stored_journal_id(storage.as_ref(), &found)?
                .unwrap_or_else(|| options.ids.next_id().to_be_bytes()),
        };
        let mut report = RecoveryReport {
            bytes_read: found.bytes_read,
            ..RecoveryReport::default()
        };
        let next_number = found.last_number.map_or(0, |number| number + 1);
        let active = match found.last.take() {
            Some(last) => recover(
                storage.as_ref(),
                last,
                journal_id,
                found.point,
                &options,
                &mut report,
            )?,
            None => start_segment(
                storage.as_ref(),
                segment_header(journal_id, next_number, found.point, &options),
                found.point,
            )
            .map_err(JournalError::open("make a segment"))?,
        };
        if !found.manifest_fits {
            // Derived: without it the next opening reads more (TRJ-48).
            let _ = replace_file(
                storage.as_ref(),
                manifest::NAME,
                &manifest::write(&found.sealed),
            );
        }
        let last_sync_ns = options.clock.monotonic_ns();
        let mut writer = JournalWriter {
            storage,
            options,
            lock,
            process: std::process::id(),
            journal_id,
            transaction_prefix: transaction_prefix(&journal_id),
            sealed: found.sealed,
            sealed_ids: None,
            active,
            frame: Vec::with_capacity(4_096),
            last_sync_ns,
            syncs: 0,
            closed: false,
        };
        if report.torn_bytes > 0 {
            writer.append_torn_record(&report)?;
        }
        Ok((writer, report))
    }

    /// The sequence of the next record; the sequencer continues here (TRJ-7).
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.active.end.point.next_sequence
    }

    /// How many data syncs the writer has made.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Whether everything appended is on stable storage.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.active.synced.bytes == self.active.end.bytes
    }

    /// Whether a receipt may say `persisted` at all; not under the policy `never` (TRJ-45).
    #[must_use]
    pub fn claims_durability(&self) -> bool {
        self.options.sync != SyncPolicy::Never
    }

    /// Appends one batch: all of it or nothing (TRJ-40).
    ///
    /// Records that are stored already, equal apart from `sequence`, `recorded_at` and `digest`, are a
    /// success that writes nothing (TRJ-42). After any error the same batch may be tried again and is
    /// never stored twice.
    ///
    /// # Errors
    /// `record_too_large`, `journal_frame_limit_exceeded`, `duplicate_record_id_in_batch`,
    /// `record_id_already_exists`, `partial_duplicate_batch`, `journal_sequence_mismatch`: nothing was
    /// written. `store_append_failed`, `store_append_uncertain`, `journal_no_space`: the batch is not
    /// stored. `journal_sync_failed`: it is, and whether it is durable is unknown. `journal_closed`,
    /// `writer_forked`, `journal_read_failed`.
    ///
    /// # Durability
    /// According to the [`SyncPolicy`]; the answer says what holds.
    pub fn append(&mut self, records: &[ProjectedRecord]) -> Result<Appended, JournalError> {
        self.check_usable()?;
        if records.is_empty() {
            let durable = self.is_durable();
            return Ok(Appended {
                durable,
                already_stored: false,
                bytes_written: 0,
            });
        }
        self.make_appendable()?;
        self.check_sizes(records)?;
        let ids = batch_ids(records)?;
        match self.stored_among(records, &ids)? {
            0 => {}
            stored if stored == records.len() => return self.already_stored(&ids),
            stored => {
                return Err(JournalError::PartialDuplicate {
                    stored,
                    count: records.len(),
                });
            }
        }
        let next = self.check_order(records)?;
        let bytes_written = self.write_batch(records, &ids, next)?;
        self.sync_as_due()?;
        Ok(Appended {
            durable: self.is_durable(),
            already_stored: false,
            bytes_written,
        })
    }

    /// Syncs what is appended, unless the policy is `never`.
    ///
    /// # Errors
    /// `journal_sync_failed`, after which the next call goes on in a new segment; `journal_no_space`,
    /// `journal_closed`, `writer_forked`.
    pub fn flush(&mut self) -> Result<Appended, JournalError> {
        self.check_usable()?;
        if self.options.sync != SyncPolicy::Never {
            if self.active.state == ActiveState::Poisoned {
                self.replace_poisoned()?;
            }
            self.sync()?;
        }
        Ok(Appended {
            durable: self.is_durable(),
            already_stored: false,
            bytes_written: 0,
        })
    }

    /// Flushes and lets go of the lock: nothing can be appended afterwards, so another writer may follow at once,
    /// however long this value lives.
    ///
    /// # Errors
    /// As [`JournalWriter::flush`].
    pub fn close(&mut self) -> Result<Appended, JournalError> {
        let closed = self.flush();
        self.closed = true;
        self.lock = None;
        closed
    }

    fn check_usable(&self) -> Result<(), JournalError> {
        if self.closed {
            return Err(JournalError::Closed);
        }
        if std::process::id() != self.process {
            return Err(JournalError::WriterForked);
        }
        Ok(())
    }

    /// Brings the active segment to a state in which a frame may follow.
    fn make_appendable(&mut self) -> Result<(), JournalError> {
        match self.active.state {
            ActiveState::Open => Ok(()),
            ActiveState::DirtyTail => {
                self.active
                    .file
                    .truncate(self.active.end.bytes)
                    .map_err(|error| JournalError::AppendFailed { kind: error.kind() })?;
                self.active.state = ActiveState::Open;
                Ok(())
            }
            ActiveState::Poisoned => self.replace_poisoned(),
            ActiveState::Sealed => self.start_next_segment(),
        }
    }

    fn check_sizes(&self, records: &[ProjectedRecord]) -> Result<(), JournalError> {
        let limit_bytes = self.options.maximum_record_bytes;
        for record in records {
            let bytes = record.canonical_bytes().len() as u64;
            if bytes > limit_bytes {
                return Err(JournalError::RecordTooLarge { bytes, limit_bytes });
            }
        }
        Ok(())
    }

    /// The sequences follow each other and what is stored, an announced gap apart; gives the next.
    fn check_order(&self, records: &[ProjectedRecord]) -> Result<u64, JournalError> {
        let mut next = self.next_sequence();
        for record in records {
            let found = record.sequence();
            if !follows(found, next, record.record().announced_gap()) {
                return Err(JournalError::SequenceMismatch {
                    expected: next,
                    found,
                    place: None,
                });
            }
            next = found.saturating_add(1);
        }
        Ok(next)
    }

    fn write_batch(
        &mut self,
        records: &[ProjectedRecord],
        ids: &[u64],
        next_sequence: u64,
    ) -> Result<u64, JournalError> {
        let bytes: Vec<&[u8]> = records
            .iter()
            .map(ProjectedRecord::canonical_bytes)
            .collect();
        let start_sequence = records.first().map_or(0, ProjectedRecord::sequence);
        let transaction_id = format!("{}{start_sequence}", self.transaction_prefix);
        let batch = Batch {
            transaction_id: &transaction_id,
            start_sequence,
            previous_digest: self.active.end.point.last_frame,
            records: &bytes,
        };
        let frame_bytes = batch.frame_bytes_at_most();
        let limit_bytes = self.options.maximum_frame_bytes;
        if frame_bytes > limit_bytes {
            return Err(JournalError::FrameTooLarge {
                bytes: frame_bytes,
                limit_bytes,
            });
        }
        if self.active.end.records > 0
            && self.active.end.bytes.saturating_add(frame_bytes) > self.options.segment_bytes
        {
            self.seal_active()?;
            self.start_next_segment()?;
        }
        let digest = batch.write(&mut self.frame);
        if let Err(failure) = append_all(self.active.file.as_mut(), &self.frame) {
            return Err(self.append_failed(failure));
        }
        let offset = self.active.end.bytes;
        self.active.hasher.update(&self.frame);
        self.active
            .index
            .add_frame(start_sequence, offset, records.len() as u64);
        for (record, id) in records.iter().zip(ids) {
            let facts = record.record();
            let row = Row::of(
                facts.session_id.as_deref(),
                facts.run_id.as_deref(),
                facts.work_item_id.as_deref(),
                facts.kind.as_str(),
            );
            self.active.index.add_record(*id, row, offset);
        }
        if self.active.first_record.is_none() {
            self.active.first_record = Some(start_sequence);
        }
        self.active.end = Mark {
            bytes: offset + self.frame.len() as u64,
            records: self.active.end.records + records.len() as u64,
            point: ChainPoint {
                next_sequence,
                last_frame: Some(digest),
            },
        };
        Ok(self.frame.len() as u64)
    }

    /// Takes a part of a frame back at once, or leaves it to the next append.
    fn append_failed(&mut self, failure: crate::storage::WriteFailure) -> JournalError {
        if failure.bytes_written > 0 && self.active.file.truncate(self.active.end.bytes).is_err() {
            self.active.state = ActiveState::DirtyTail;
        }
        match failure.error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                JournalError::NoSpace
            }
            kind if failure.bytes_written > 0 => JournalError::AppendUncertain {
                bytes_written: failure.bytes_written,
                kind,
            },
            kind => JournalError::AppendFailed { kind },
        }
    }

    fn sync_as_due(&mut self) -> Result<(), JournalError> {
        let unsynced = self.active.end.bytes - self.active.synced.bytes;
        let due = match self.options.sync {
            SyncPolicy::Always => true,
            SyncPolicy::Group => unsynced >= GROUP_BYTES,
            SyncPolicy::GroupWithin(interval) => {
                let now = self.options.clock.monotonic_ns();
                Duration::from_nanos(now.saturating_sub(self.last_sync_ns)) >= interval
            }
            SyncPolicy::OnFlush | SyncPolicy::Never => false,
        };
        if due { self.sync() } else { Ok(()) }
    }

    /// One data sync; a failure poisons the segment. The directory entry is durable since the segment
    /// was made.
    fn sync(&mut self) -> Result<(), JournalError> {
        if self.is_durable() {
            return Ok(());
        }
        self.syncs += 1;
        if let Err(error) = self.active.file.sync() {
            self.active.state = ActiveState::Poisoned;
            return Err(JournalError::SyncFailed { kind: error.kind() });
        }
        self.active.synced = self.active.end;
        self.last_sync_ns = self.options.clock.monotonic_ns();
        Ok(())
    }
}

fn transaction_prefix(journal_id: &[u8; 16]) -> String {
    format!("tx-{}-", Digest::of(journal_id).short_hex(12))
}

fn segment_header(
    journal_id: [u8; 16],
    number: u64,
    point: ChainPoint,
    options: &JournalOptions,
) -> SegmentHeader {
    let micros = u64::try_from(options.clock.now().as_micros()).unwrap_or(0);
    SegmentHeader {
        journal_id,
        number,
        first_sequence: point.next_sequence,
        created_unix_ns: micros.saturating_mul(1_000),
    }
}

/// A segment whose header and name are durable.
fn start_segment(
    storage: &dyn Storage,
    header: SegmentHeader,
    point: ChainPoint,
) -> std::io::Result<Active> {
    let name = segment_name(header.first_sequence);
    let bytes = header.write();
    replace_file(storage, &name, &bytes)?;
    let file = storage.open_append(&name)?;
    let mut hasher = Sha256::new();
    hasher.update(bytes);
    let mark = Mark {
        bytes: SEGMENT_HEADER_BYTES as u64,
        records: 0,
        point,
    };
    Ok(Active {
        header,
        name,
        file,
        end: mark,
        synced: mark,
        first_record: None,
        hasher,
        index: SegmentIndex::default(),
        state: ActiveState::Open,
    })
}
