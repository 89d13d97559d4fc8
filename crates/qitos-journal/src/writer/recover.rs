//! Makes what a crash left appendable (TRJ-48, TRJ-49).

use qitos_contracts::record::privacy::project_record;
use qitos_contracts::record::{PrivacyView, Record, RecordKind};

use super::{Active, ActiveState, JournalWriter, Mark, RecoveryReport, start_segment};
use crate::error::{JournalError, Place};
use crate::open::{Found, LastSegment, read_whole};
use crate::options::{JournalOptions, SyncPolicy};
use crate::scan::ChainPoint;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name};
use crate::storage::{Storage, append_all, read_range};

impl JournalWriter {
    /// TRJ-49: what was dropped is itself recorded.
    pub(super) fn append_torn_record(
        &mut self,
        report: &RecoveryReport,
    ) -> Result<(), JournalError> {
        let (segment, offset) = report
            .torn_place
            .as_ref()
            .map_or(("", 0), |place| (place.segment.as_str(), place.offset));
        let number = self.active.header.number;
        let now = self.options.clock.now();
        let id = format!(
            "torn-{number}-{offset}-{}-{}",
            report.torn_bytes,
            now.as_micros()
        );
        let mut record = Record::new(RecordKind::Loss, id, now);
        record
            .payload
            .insert("code".into(), "torn_tail_discarded".into());
        record.payload.insert("scope".into(), segment.into());
        record
            .payload
            .insert("count".into(), report.torn_bytes.into());
        record
            .payload
            .insert("consequence".into(), "information_unavailable".into());
        let place = || Place {
            segment: segment.to_owned(),
            offset,
        };
        let projected = record
            .seal(self.next_sequence(), now)
            .and_then(|sealed| project_record(&sealed, PrivacyView::RawPrivate))
            .map_err(|source| JournalError::Record {
                place: place(),
                source,
            })?;
        self.append(&[projected]).map(|_| ())
    }
}

/// The journal id from a sealed segment, when the manifest spared reading any.
pub(super) fn stored_journal_id(
    storage: &dyn Storage,
    found: &Found,
) -> Result<Option<[u8; 16]>, JournalError> {
    let Some(segment) = found.sealed.last() else {
        return Ok(None);
    };
    let name = segment_name(segment.first_sequence);
    let file = storage
        .open(&name)
        .map_err(JournalError::read("open a segment"))?;
    let head = read_range(file.as_ref(), 0, SEGMENT_HEADER_BYTES)
        .map_err(JournalError::read("read a segment header"))?;
    match SegmentHeader::read(&head) {
        Some(header) => Ok(Some(header.journal_id)),
        None => Err(JournalError::Corrupt {
            place: Place {
                segment: name,
                offset: 0,
            },
            reason: "bad_segment_header",
        }),
    }
}

/// Makes the last segment appendable: keeps a torn tail aside, cuts it, syncs what stays (TRJ-49).
pub(super) fn recover(
    storage: &dyn Storage,
    last: LastSegment,
    journal_id: [u8; 16],
    point: ChainPoint,
    options: &JournalOptions,
    report: &mut RecoveryReport,
) -> Result<Active, JournalError> {
    if !last.tail.is_empty() {
        keep_tail(storage, &last).map_err(JournalError::open("keep a torn tail"))?;
        report.torn_bytes = last.tail.len() as u64;
        report.torn_place = Some(Place {
            segment: last.name.clone(),
            offset: last.bytes,
        });
    }
    if last.header_lost {
        let header = SegmentHeader {
            journal_id,
            ..last.header
        };
        return start_segment(storage, header, point).map_err(JournalError::open("make a segment"));
    }
    let mut file = storage
        .open_append(&last.name)
        .map_err(JournalError::open("open a segment"))?;
    if !last.tail.is_empty() {
        file.truncate(last.bytes)
            .map_err(JournalError::open("cut a torn tail"))?;
    }
    // A writer that was killed may have left frames that nobody synced.
    if options.sync != SyncPolicy::Never {
        file.sync()
            .map_err(|error| JournalError::SyncFailed { kind: error.kind() })?;
        storage
            .sync_directory()
            .map_err(|error| JournalError::SyncFailed { kind: error.kind() })?;
    }
    let end = Mark {
        bytes: last.bytes,
        records: last.records,
        point,
    };
    let nothing = Mark {
        bytes: SEGMENT_HEADER_BYTES as u64,
        records: 0,
        point: ChainPoint {
            next_sequence: last.header.first_sequence,
            last_frame: None,
        },
    };
    Ok(Active {
        header: last.header,
        name: last.name,
        file,
        end,
        synced: if options.sync == SyncPolicy::Never {
            nothing
        } else {
            end
        },
        first_record: last.first_record,
        hasher: last.hasher,
        index: last.index,
        state: ActiveState::Open,
    })
}

/// `torn/{segment}-{offset}.bin`; an older tail of the same place is never overwritten.
fn keep_tail(storage: &dyn Storage, last: &LastSegment) -> std::io::Result<()> {
    let segment = last.name.trim_end_matches(".qtj");
    let mut name = format!("torn/{segment}-{}.bin", last.bytes);
    let mut copy = 1;
    while let Some(kept) = read_whole(storage, &name) {
        if kept == last.tail {
            return Ok(());
        }
        name = format!("torn/{segment}-{}-{copy}.bin", last.bytes);
        copy += 1;
    }
    let mut file = storage.create(&name)?;
    append_all(file.as_mut(), &last.tail).map_err(|failure| failure.error)?;
    file.sync()?;
    storage.sync_directory()
}
