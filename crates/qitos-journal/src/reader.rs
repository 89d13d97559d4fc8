//! Reading beside a writer: a fixed snapshot, pages, queries, validation (TRJ-51, TRJ-55, TRJ-60 to TRJ-67).

use std::path::Path;
use std::sync::Arc;

use qitos_contracts::record::{RecordKind, SealedRecord};

use crate::error::{JournalError, Place};
use crate::frame::{FRAME_HEADER_BYTES, ReadBatch};
use crate::index::{FingerprintMap, Row, SegmentIndex, fingerprint, kind_number};
use crate::manifest::SealedSegment;
use crate::open::{look, look_with, sealed_index, segment_starts};
use crate::segment::{index_name, segment_name};
use crate::storage::{DirectoryStorage, Storage};
use crate::writer::read_frame;

/// Records of a page when nobody asks for a number (TRJ-61).
pub const DEFAULT_PAGE_RECORDS: usize = 128;
/// Most records of a page or a whole query.
pub const MAXIMUM_PAGE_RECORDS: usize = 10_000;
/// A page also ends here; one larger record comes alone.
const MAXIMUM_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Which records are wanted; all given parts must fit, no kinds means all (TRJ-60).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Of this session.
    pub session_id: Option<String>,
    /// Of this run.
    pub run_id: Option<String>,
    /// Of this work item.
    pub work_item_id: Option<String>,
    /// Of these kinds.
    pub kinds: Vec<RecordKind>,
    /// Behind this sequence.
    pub after_sequence: Option<u64>,
}

impl Query {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Query::default()
    }

    /// Of one run.
    #[must_use]
    pub fn with_run(mut self, run_id: &str) -> Self {
        self.run_id = Some(run_id.into());
        self
    }

    /// Of one session.
    #[must_use]
    pub fn with_session(mut self, session_id: &str) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Of one work item.
    #[must_use]
    pub fn with_work_item(mut self, work_item_id: &str) -> Self {
        self.work_item_id = Some(work_item_id.into());
        self
    }

    /// Of some kinds.
    #[must_use]
    pub fn with_kinds(mut self, kinds: &[RecordKind]) -> Self {
        self.kinds = kinds.to_vec();
        self
    }

    /// Behind a sequence.
    #[must_use]
    pub fn with_after(mut self, sequence: u64) -> Self {
        self.after_sequence = Some(sequence);
        self
    }

    fn admits(&self, record: &SealedRecord) -> bool {
        let facts = record.record();
        let fits = |wanted: &Option<String>, own: &Option<Arc<str>>| {
            wanted.is_none() || wanted.as_deref() == own.as_deref()
        };
        fits(&self.session_id, &facts.session_id)
            && fits(&self.run_id, &facts.run_id)
            && fits(&self.work_item_id, &facts.work_item_id)
            && (self.kinds.is_empty() || self.kinds.contains(&facts.kind))
    }
}

/// The query in the form that an index is asked in.
struct RowFilter {
    session: Option<u64>,
    run: Option<u64>,
    work_item: Option<u64>,
    kinds: Vec<u64>,
}

impl RowFilter {
    fn of(query: &Query) -> Self {
        let print = |id: &Option<String>| id.as_deref().map(fingerprint);
        RowFilter {
            session: print(&query.session_id),
            run: print(&query.run_id),
            work_item: print(&query.work_item_id),
            kinds: query
                .kinds
                .iter()
                .map(|kind| kind_number(kind.as_str()))
                .collect(),
        }
    }

    fn may_admit(&self, row: &Row) -> bool {
        self.session.is_none_or(|wanted| wanted == row.session)
            && self.run.is_none_or(|wanted| wanted == row.run)
            && self.work_item.is_none_or(|wanted| wanted == row.work_item)
            && (self.kinds.is_empty() || self.kinds.contains(&row.kind))
    }
}

/// Where the next page of a query begins; bound to that query, its limit and its snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    query: Query,
    limit: usize,
    watermark: Option<u64>,
    after: u64,
}

/// Some records of a fixed snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// In order of sequence.
    pub records: Vec<Arc<SealedRecord>>,
    /// `None` exactly when there are no more (TRJ-61).
    pub next_cursor: Option<Cursor>,
    /// Sequence of the newest record of the snapshot; `None` when it is empty (TRJ-62).
    pub watermark: Option<u64>,
}

/// What validation saw (TRJ-55).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Validated {
    /// Records.
    pub records: u64,
    /// Batches.
    pub frames: u64,
    /// Sealed segments.
    pub sealed_segments: u64,
    /// Bytes behind the last whole frame.
    pub tail_bytes_ignored: u64,
}

/// What the journal takes on disk, as observed; no claim about speed (TRJ-55).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredBytes {
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub segment_bytes: u64,
    /// Bytes of derived indexes.
    pub index_bytes: u64,
}

/// A read-only view of a journal as it was when it was opened.
///
/// Takes no lock, needs no write access, works while a writer appends, sees whole frames only, and
/// repairs nothing (TRJ-51). Later appends are outside the snapshot: open again, or poll with
/// `after_sequence` = watermark.
#[derive(Debug)]
pub struct JournalReader {
    storage: Arc<dyn Storage>,
    sealed: Vec<SealedSegment>,
    /// Start and index of the active segment.
    active: Option<(u64, Arc<SegmentIndex>)>,
    next_sequence: u64,
    tail_bytes_ignored: u64,
    /// The sealed segment looked at last.
    recent: Option<(usize, Arc<SegmentIndex>)>,
    /// Most records of a whole query; smaller in tests only.
    pub(crate) query_cap: usize,
}

impl JournalReader {
    /// Takes a snapshot of the journal in `directory`.
    ///
    /// # Errors
    /// `journal_open_failed`, `journal_read_failed` and every kind of corruption.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        Self::open_storage(Arc::new(DirectoryStorage::new(directory)))
    }

    /// Takes a snapshot of a journal in any storage.
    ///
    /// # Errors
    /// As [`JournalReader::open`].
    pub fn open_storage(storage: Arc<dyn Storage>) -> Result<Self, JournalError> {
        let found = look(storage.as_ref())?;
        let tail_bytes_ignored = found.last.as_ref().map_or(0, |last| last.tail.len() as u64);
        let active = found
            .last
            .filter(|last| !last.header_lost)
            .map(|last| (last.header.first_sequence, Arc::new(last.index)));
        Ok(JournalReader {
            storage,
            sealed: found.sealed,
            active,
            next_sequence: found.point.next_sequence,
            tail_bytes_ignored,
            recent: None,
            query_cap: MAXIMUM_PAGE_RECORDS,
        })
    }

    /// Sequence of the newest record of the snapshot; `None` when it is empty.
    #[must_use]
    pub fn watermark(&self) -> Option<u64> {
        self.next_sequence.checked_sub(1)
    }

    /// Bytes behind the last whole frame, which a writer may just be writing (TRJ-51).
    #[must_use]
    pub fn tail_bytes_ignored(&self) -> u64 {
        self.tail_bytes_ignored
    }

    /// The first page of a query (TRJ-61).
    ///
    /// Its cost follows the page and the index of the segments that it touches, not the history; the
    /// frames that it reads are verified (TRJ-64).
    ///
    /// # Errors
    /// `page_limit_invalid`, `journal_read_failed`, and corruption of what it reads.
    pub fn page(&mut self, query: &Query, limit: usize) -> Result<Page, JournalError> {
        let first = query
            .after_sequence
            .map_or(0, |after| after.saturating_add(1));
        self.page_from(query, limit, first)
    }

    /// The page behind a cursor; the same cursor twice gives equal pages (TRJ-62).
    ///
    /// # Errors
    /// `cursor_filter_mismatch` for a cursor of another snapshot, else as [`JournalReader::page`].
    pub fn next_page(&mut self, cursor: &Cursor) -> Result<Page, JournalError> {
        if cursor.watermark != self.watermark() {
            return Err(JournalError::CursorFilterMismatch);
        }
        self.page_from(&cursor.query, cursor.limit, cursor.after.saturating_add(1))
    }

    /// All records that a query finds, if they are at most 10,000 (TRJ-60).
    ///
    /// # Errors
    /// `query_limit_exceeded`, never a silent cut; else as [`JournalReader::page`].
    pub fn query(&mut self, query: &Query) -> Result<Vec<Arc<SealedRecord>>, JournalError> {
        let mut page = self.page(query, self.query_cap)?;
        let mut records = std::mem::take(&mut page.records);
        while let Some(cursor) = page.next_cursor {
            page = self.next_page(&cursor)?;
            if records.len() + page.records.len() > self.query_cap {
                return Err(JournalError::QueryLimitExceeded);
            }
            records.append(&mut page.records);
        }
        Ok(records)
    }

    fn page_from(&mut self, query: &Query, limit: usize, first: u64) -> Result<Page, JournalError> {
        if !(1..=MAXIMUM_PAGE_RECORDS).contains(&limit) {
            return Err(JournalError::PageLimitInvalid);
        }
        let filter = RowFilter::of(query);
        let mut page = Page {
            records: Vec::new(),
            next_cursor: None,
            watermark: self.watermark(),
        };
        let mut bytes = 0;
        let from = self
            .sealed
            .partition_point(|segment| segment.next_sequence <= first);
        for position in from..=self.sealed.len() {
            let Some((start, index)) = self.segment(position)? else {
                break;
            };
            if self.collect(
                query,
                &filter,
                (start, &index),
                first,
                limit,
                &mut bytes,
                &mut page,
            )? {
                break;
            }
        }
        Ok(page)
    }

    /// The segment at a position, the active one behind all sealed ones.
    fn segment(
        &mut self,
        position: usize,
    ) -> Result<Option<(u64, Arc<SegmentIndex>)>, JournalError> {
        let Some(segment) = self.sealed.get(position) else {
            return Ok(self
                .active
                .as_ref()
                .map(|(start, index)| (*start, Arc::clone(index))));
        };
        if let Some((recent, index)) = &self.recent
            && *recent == position
        {
            return Ok(Some((segment.first_sequence, Arc::clone(index))));
        }
        let previous = position
            .checked_sub(1)
            .and_then(|before| self.sealed.get(before));
        let (index, ..) = sealed_index(
            self.storage.as_ref(),
            segment,
            previous.map(|s| s.last_frame),
        )?;
        let index = Arc::new(index);
        self.recent = Some((position, Arc::clone(&index)));
        Ok(Some((segment.first_sequence, index)))
    }

    /// Adds what a segment has; true when the page is full and its cursor is set.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of one loop, split off for its length"
    )]
    fn collect(
        &self,
        query: &Query,
        filter: &RowFilter,
        (start, index): (u64, &SegmentIndex),
        first: u64,
        limit: usize,
        bytes: &mut usize,
        page: &mut Page,
    ) -> Result<bool, JournalError> {
        let name = segment_name(start);
        let file = self
            .storage
            .open(&name)
            .map_err(JournalError::read("open a segment"))?;
        // The frame that holds `first` is the last one that starts at it or before.
        let skipped = index
            .frames
            .partition_point(|frame| frame.first_sequence <= first)
            .saturating_sub(1);
        let mut row = 0usize;
        for (number, frame) in index.frames.iter().enumerate() {
            let rows = row..row + usize::try_from(frame.records).unwrap_or(0);
            row = rows.end;
            let candidates = index.rows.get(rows).unwrap_or_default();
            if number < skipped || !candidates.iter().any(|row| filter.may_admit(row)) {
                continue;
            }
            let place = || Place {
                segment: name.clone(),
                offset: frame.offset,
            };
            let stored = read_frame(file.as_ref(), &name, frame.offset)?;
            let payload = stored.get(FRAME_HEADER_BYTES..).unwrap_or_default();
            let batch = ReadBatch::read(payload)
                .map_err(|_| JournalError::FrameDigestMismatch { place: place() })?;
            for record in batch.records {
                let record = SealedRecord::read(record).map_err(|source| JournalError::Record {
                    place: place(),
                    source,
                })?;
                if record.sequence() < first || !query.admits(&record) {
                    continue;
                }
                let size = record.canonical_bytes().len();
                let full = page.records.len() == limit
                    || (*bytes + size > MAXIMUM_PAGE_BYTES && !page.records.is_empty());
                if full {
                    page.next_cursor = page.records.last().map(|last| Cursor {
                        query: query.clone(),
                        limit,
                        watermark: page.watermark,
                        after: last.sequence(),
                    });
                    return Ok(true);
                }
                *bytes += size;
                page.records.push(record);
            }
        }
        Ok(false)
    }

    /// Streams every segment and verifies everything: checksums, chain, sequences, digests of frames and
    /// records, seals, duplicate ids (TRJ-55). Memory is 8 to 16 bytes per record for the ids.
    ///
    /// # Errors
    /// The first defect, with its place.
    pub fn validate(&self) -> Result<Validated, JournalError> {
        let mut ids = FingerprintMap::default();
        let mut seen = Validated::default();
        let found = look_with(self.storage.as_ref(), false, &mut |segment, frame| {
            seen.frames += 1;
            let place = || Place {
                segment: segment.to_owned(),
                offset: frame.offset,
            };
            for bytes in &frame.records {
                let record = SealedRecord::read(bytes).map_err(|source| JournalError::Record {
                    place: place(),
                    source,
                })?;
                if ids
                    .insert(fingerprint(&record.record().record_id), 0)
                    .is_some()
                {
                    return Err(JournalError::DuplicateRecordId { place: place() });
                }
                seen.records += 1;
            }
            Ok(())
        })?;
        // A missing seal changes nothing for the records (TRJ-48), but where the manifest knows of one
        // it is damage.
        for (listed, read) in self.sealed.iter().zip(&found.sealed) {
            if listed.first_sequence == read.first_sequence && read.bytes < listed.bytes {
                return Err(JournalError::Corrupt {
                    place: Place {
                        segment: segment_name(read.first_sequence),
                        offset: read.bytes,
                    },
                    reason: "seal_damaged",
                });
            }
        }
        seen.sealed_segments = found.sealed.len() as u64;
        seen.tail_bytes_ignored = found.last.map_or(0, |last| last.tail.len() as u64);
        Ok(seen)
    }

    /// What the journal takes on disk now.
    ///
    /// # Errors
    /// `journal_open_failed`, `journal_read_failed`.
    pub fn measure(&self) -> Result<StoredBytes, JournalError> {
        let mut stored = StoredBytes::default();
        for start in segment_starts(self.storage.as_ref())? {
            let length = |name: &str| self.storage.open(name).and_then(|file| file.length());
            stored.segments += 1;
            stored.segment_bytes +=
                length(&segment_name(start)).map_err(JournalError::read("measure a segment"))?;
            stored.index_bytes += length(&index_name(start)).unwrap_or(0);
        }
        Ok(stored)
    }
}
