//! Opening: which segments there are, where the chain stands, and what a crash left (TRJ-48, TRJ-49).

use qitos_contracts::digest::Digest;
use sha2::Sha256;

use crate::error::{JournalError, Place};
use crate::index::SegmentIndex;
use crate::manifest::{self, SealedSegment};
use crate::recover_torn_tail::{Tail, judge};
use crate::scan::{ChainPoint, End, Glance, ScannedFrame, Scanner};
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_name, sequence_of_name};
use crate::storage::{Storage, StoredFile, read_range};

/// The last segment, as far as it is valid.
#[derive(Debug)]
pub(crate) struct LastSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) name: String,
    /// End of the last valid frame.
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) first_record: Option<u64>,
    pub(crate) index: SegmentIndex,
    pub(crate) hasher: Sha256,
    /// What stands behind the last valid frame.
    pub(crate) tail: Vec<u8>,
    /// The header itself is to be written again.
    pub(crate) header_lost: bool,
}

/// Everything that opening found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) journal_id: Option<[u8; 16]>,
    pub(crate) sealed: Vec<SealedSegment>,
    /// Whether the sealed segments are those of the manifest.
    pub(crate) manifest_fits: bool,
    pub(crate) last: Option<LastSegment>,
    pub(crate) point: ChainPoint,
    /// Highest segment number seen.
    pub(crate) last_number: Option<u64>,
    /// Bytes read from segments.
    pub(crate) bytes_read: u64,
}

/// The first sequences of the segments in `storage`, in order.
pub(crate) fn segment_starts(storage: &dyn Storage) -> Result<Vec<u64>, JournalError> {
    let names = storage
        .names()
        .map_err(JournalError::open("list the segments"))?;
    let mut starts: Vec<u64> = names
        .iter()
        .filter_map(|name| sequence_of_name(name))
        .collect();
    starts.sort_unstable();
    Ok(starts)
}

pub(crate) fn read_whole(storage: &dyn Storage, name: &str) -> Option<Vec<u8>> {
    let file = storage.open(name).ok()?;
    let length = usize::try_from(file.length().ok()?).ok()?;
    read_range(file.as_ref(), 0, length).ok()
}

/// Looks at the journal without changing anything.
///
/// Reads the manifest and the segments that it does not name: in the usual case the active one (TRJ-91).
pub(crate) fn look(storage: &dyn Storage) -> Result<Found, JournalError> {
    look_with(storage, true, &mut |_, _| Ok(()))
}

/// What is called with each frame that is read: the segment's name and the frame.
pub(crate) type Visit<'visit> =
    &'visit mut dyn FnMut(&str, &ScannedFrame<'_>) -> Result<(), JournalError>;

/// As [`look`]; without trust in the manifest every segment is read.
pub(crate) fn look_with(
    storage: &dyn Storage,
    trust_manifest: bool,
    visit: Visit<'_>,
) -> Result<Found, JournalError> {
    let starts = segment_starts(storage)?;
    let mut found = Found {
        journal_id: None,
        sealed: Vec::new(),
        manifest_fits: false,
        last: None,
        point: ChainPoint {
            next_sequence: 0,
            last_frame: None,
        },
        last_number: None,
        bytes_read: 0,
    };
    if trust_manifest
        && let Some(listed) = read_whole(storage, manifest::NAME)
            .as_deref()
            .and_then(manifest::read)
        && fits(&listed, &starts)
    {
        if let Some(last) = listed.last() {
            found.point = ChainPoint {
                next_sequence: last.next_sequence,
                last_frame: Some(last.last_frame),
            };
            found.last_number = Some(last.number);
        }
        found.manifest_fits = true;
        found.sealed = listed;
    }
    let mut rest = starts
        .get(found.sealed.len()..)
        .unwrap_or_default()
        .iter()
        .copied()
        .peekable();
    while let Some(start) = rest.next() {
        let follower = rest.peek().copied();
        look_at_segment(storage, start, follower, &mut found, visit)?;
    }
    Ok(found)
}

/// Whether the manifest names the first segments that are there, without holes.
fn fits(listed: &[SealedSegment], starts: &[u64]) -> bool {
    let mut next = 0;
    listed.len() <= starts.len()
        && listed.iter().zip(starts).all(|(segment, start)| {
            let continues = segment.first_sequence == *start && segment.first_sequence == next;
            next = segment.next_sequence;
            continues
        })
}

/// Reads one segment that the manifest does not name.
fn look_at_segment(
    storage: &dyn Storage,
    start: u64,
    follower: Option<u64>,
    found: &mut Found,
    visit: Visit<'_>,
) -> Result<(), JournalError> {
    let name = segment_name(start);
    let at = |offset: u64| Place {
        segment: name.clone(),
        offset,
    };
    if start != found.point.next_sequence {
        return Err(JournalError::SequenceMismatch {
            expected: found.point.next_sequence,
            found: start,
            place: Some(at(0)),
        });
    }
    let file = storage
        .open(&name)
        .map_err(JournalError::read("open a segment"))?;
    let head = read_range(file.as_ref(), 0, SEGMENT_HEADER_BYTES)
        .map_err(JournalError::read("read a segment header"))?;
    let Some(header) = SegmentHeader::read(&head) else {
        if SegmentHeader::is_other_format(&head) {
            return Err(JournalError::UnsupportedSchema { place: at(0) });
        }
        if follower.is_some() {
            return Err(JournalError::Corrupt {
                place: at(0),
                reason: "bad_segment_header",
            });
        }
        return headless(file.as_ref(), &name, start, found);
    };
    let belongs = header.first_sequence == start
        && found.journal_id.is_none_or(|id| id == header.journal_id)
        && found
            .last_number
            .is_none_or(|number| header.number > number);
    if !belongs {
        return Err(JournalError::Corrupt {
            place: at(0),
            reason: "foreign_segment",
        });
    }
    found.journal_id = Some(header.journal_id);
    found.last_number = Some(header.number);
    let mut scanner = Scanner::new(
        file.as_ref(),
        &name,
        &header,
        found.point.last_frame,
        follower,
    )?;
    let mut index = SegmentIndex::default();
    let end = loop {
        match scanner.next()? {
            Ok(frame) => {
                visit(&name, &frame)?;
                index.add_frame(
                    frame.header.first_sequence,
                    frame.offset,
                    frame.records.len() as u64,
                );
                for record in &frame.records {
                    let glance = Glance::of(record).ok_or(JournalError::Corrupt {
                        place: at(frame.offset),
                        reason: "malformed_record",
                    })?;
                    index.add_glance(&glance, frame.offset);
                }
            }
            Err(end) => break end,
        }
    };
    found.point = scanner.point;
    found.bytes_read += scanner.bytes_read;
    let (bytes, records, first_record) = (scanner.position, scanner.records, scanner.first_record);
    let is_whole = match (end, follower) {
        (End::Sealed(_), _) => true,
        (End::Clean | End::Superseded, Some(next)) => found.point.next_sequence == next,
        (End::Clean, None) => false,
        (End::Superseded, None) => false,
        (End::Bad, Some(_)) => {
            return Err(JournalError::Corrupt {
                place: at(bytes),
                reason: "bad_frame",
            });
        }
        (End::Bad, None) => false,
    };
    if let (true, Some(last_frame)) = (is_whole, found.point.last_frame) {
        found.sealed.push(SealedSegment {
            number: header.number,
            first_sequence: start,
            next_sequence: found.point.next_sequence,
            record_count: records,
            bytes,
            last_frame,
        });
        found.manifest_fits = false;
        return Ok(());
    }
    if follower.is_some() {
        return Err(JournalError::Corrupt {
            place: at(bytes),
            reason: "segment_ends_early",
        });
    }
    let tail = if end == End::Bad {
        match scanner.judge_tail()? {
            (Tail::Torn, tail) => tail,
            (Tail::Damaged(reason), _) => {
                return Err(JournalError::Corrupt {
                    place: at(bytes),
                    reason,
                });
            }
        }
    } else {
        Vec::new()
    };
    let hasher = scanner.into_hasher();
    found.last = Some(LastSegment {
        header,
        name,
        bytes,
        records,
        first_record,
        index,
        hasher,
        tail,
        header_lost: false,
    });
    Ok(())
}

/// The last segment without its header: a bad frame at 0 (TRJ-49).
fn headless(
    file: &dyn StoredFile,
    name: &str,
    start: u64,
    found: &mut Found,
) -> Result<(), JournalError> {
    let length = usize::try_from(
        file.length()
            .map_err(JournalError::read("measure a segment"))?,
    )
    .unwrap_or(usize::MAX);
    let tail = read_range(file, 0, length).map_err(JournalError::read("read a segment"))?;
    found.bytes_read += tail.len() as u64;
    if let Tail::Damaged(reason) = judge(&tail, start) {
        return Err(JournalError::Corrupt {
            place: Place {
                segment: name.to_owned(),
                offset: 0,
            },
            reason,
        });
    }
    let number = found.last_number.map_or(0, |number| number + 1);
    let header = SegmentHeader {
        journal_id: found.journal_id.unwrap_or_default(),
        number,
        first_sequence: start,
        created_unix_ns: 0,
    };
    found.last = Some(LastSegment {
        header,
        name: name.to_owned(),
        bytes: 0,
        records: 0,
        first_record: None,
        index: SegmentIndex::default(),
        hasher: Sha256::default(),
        tail,
        header_lost: true,
    });
    Ok(())
}

/// The index of a sealed segment: its file if that fits, else made again from the segment (TRJ-53).
///
/// The second value says whether it had to be made again.
pub(crate) fn sealed_index(
    storage: &dyn Storage,
    segment: &SealedSegment,
    previous_frame: Option<Digest>,
) -> Result<(SegmentIndex, SegmentHeader, bool), JournalError> {
    let name = segment_name(segment.first_sequence);
    let at = |offset: u64| Place {
        segment: name.clone(),
        offset,
    };
    let file = storage
        .open(&name)
        .map_err(JournalError::read("open a segment"))?;
    let head = read_range(file.as_ref(), 0, SEGMENT_HEADER_BYTES)
        .map_err(JournalError::read("read a segment header"))?;
    let header = SegmentHeader::read(&head).ok_or(JournalError::Corrupt {
        place: at(0),
        reason: "bad_segment_header",
    })?;
    let stored = read_whole(storage, &crate::segment::index_name(segment.first_sequence));
    if let Some(index) = stored
        .as_deref()
        .and_then(|bytes| SegmentIndex::read(bytes, &header, segment.bytes))
    {
        return Ok((index, header, false));
    }
    let mut scanner = Scanner::new(
        file.as_ref(),
        &name,
        &header,
        previous_frame,
        Some(segment.next_sequence),
    )?;
    let mut index = SegmentIndex::default();
    while let Ok(frame) = scanner.next()? {
        index.add_frame(
            frame.header.first_sequence,
            frame.offset,
            frame.records.len() as u64,
        );
        for record in &frame.records {
            let glance = Glance::of(record).ok_or(JournalError::Corrupt {
                place: at(frame.offset),
                reason: "malformed_record",
            })?;
            index.add_glance(&glance, frame.offset);
        }
    }
    if scanner.point.next_sequence != segment.next_sequence {
        let place = at(scanner.position);
        return Err(JournalError::Corrupt {
            place,
            reason: "segment_ends_early",
        });
    }
    Ok((index, header, true))
}
