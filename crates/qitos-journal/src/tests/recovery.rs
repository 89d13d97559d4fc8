//! TRJ-48 to TRJ-50, TRJ-53: every cut, every changed byte, every missing side file.

use qitos_contracts::error::ContractError as _;

use super::*;
use crate::testing::{record, records};

fn small() -> FaultyStorage {
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    writer.append(&records(0, 2)).unwrap();
    writer.append(&records(2, 3)).unwrap();
    writer.append(&records(3, 4)).unwrap();
    storage
}

fn segment(files: &[(String, Vec<u8>)]) -> usize {
    files
        .iter()
        .rposition(|(name, _)| name.ends_with(".qtj"))
        .unwrap()
}

/// Ends of the batches of [`small`], and the records up to there.
fn frame_ends(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut ends = vec![(64, 0)];
    let mut at = 64;
    let mut stored = 0;
    while let Some(header) = bytes.get(at..).and_then(crate::frame::FrameHeader::read) {
        at += header.frame_bytes() as usize;
        stored += header.record_count as usize;
        ends.push((at, stored));
    }
    ends
}

#[test]
fn truncation_at_every_byte_loses_the_unfinished_frame_only() {
    // TRJ-48, TRJ-49
    let files = small().files();
    let at = segment(&files);
    let whole = files[at].1.clone();
    let ends = frame_ends(&whole);
    assert_eq!(ends.last(), Some(&(whole.len(), 4)));
    for length in 0..whole.len() {
        let mut cut = files.clone();
        cut[at].1.truncate(length);
        let storage = FaultyStorage::of(&cut);
        let kept = ends.iter().rev().find(|(end, _)| *end <= length);
        let (kept_bytes, stored) = kept.copied().unwrap_or((0, 0));
        let torn = (length - kept_bytes) as u64;
        // A reader ignores the tail and changes nothing (TRJ-51).
        let reading = reader(&storage);
        assert_eq!(reading.tail_bytes_ignored(), torn, "{length}");
        assert_eq!(
            reading.watermark().map_or(0, |last| last + 1),
            stored as u64
        );
        assert_eq!(storage.files(), cut);
        // A writer drops it, keeps the bytes aside and says so in a record.
        let (mut writer, report) =
            JournalWriter::open_storage(Arc::new(storage.clone()), options()).unwrap();
        assert_eq!(report.torn_bytes, torn, "{length}");
        if torn > 0 {
            let kept = storage.files();
            let aside = kept
                .iter()
                .find(|(name, _)| name.starts_with("torn/"))
                .unwrap();
            assert_eq!(aside.1, whole[kept_bytes..length]);
            let records = reader(&storage).query(&Query::all()).unwrap();
            let loss = &records.last().unwrap().record().payload;
            assert_eq!(loss["code"], "torn_tail_discarded");
            assert_eq!(loss["count"], torn);
        }
        let next = writer.next_sequence();
        writer
            .append(&[crate::testing::record_with("after", next, "x")])
            .unwrap();
        drop(writer);
        assert_eq!(
            reader(&storage).validate().unwrap().tail_bytes_ignored,
            0,
            "{length}"
        );
        assert_eq!(
            stored_ids(&storage)[..stored],
            ["rec-0", "rec-1", "rec-2", "rec-3"][..stored]
        );
    }
}

#[test]
fn zeros_behind_the_last_frame_are_torn() {
    // TRJ-49
    let files = small().files();
    let at = segment(&files);
    for length in [1, 24, 5_000] {
        let mut grown = files.clone();
        let bytes = &mut grown[at].1;
        bytes.resize(bytes.len() + length, 0);
        let storage = FaultyStorage::of(&grown);
        let (_, report) = JournalWriter::open_storage(Arc::new(storage), options()).unwrap();
        assert_eq!(report.torn_bytes, length as u64);
    }
}

#[test]
fn no_changed_byte_gives_a_wrong_record_or_a_panic() {
    // TRJ-49, TRJ-50: the last frame may be dropped as torn, everything else is reported.
    let files = small().files();
    let at = segment(&files);
    let whole = files[at].1.clone();
    let ends = frame_ends(&whole);
    let last_frame = ends[ends.len() - 2].0;
    for position in 0..whole.len() {
        // Each bit has its turn.
        let mut changed = files.clone();
        changed[at].1[position] ^= 0x01 << (position % 8);
        let storage = FaultyStorage::of(&changed);
        match JournalWriter::open_storage(Arc::new(storage.clone()), options()) {
            Ok((_, report)) => {
                assert!(position >= last_frame, "byte {position} went unnoticed");
                assert!(report.torn_bytes > 0, "byte {position}");
                if position % 16 == 0 {
                    assert_eq!(stored_ids(&storage)[..3], ["rec-0", "rec-1", "rec-2"]);
                }
            }
            Err(error) => {
                // A shorter length in the last header leaves data behind a bad frame.
                assert!(position < last_frame + 8, "byte {position}: {error}");
                assert_eq!(storage.files(), changed, "untouched");
                assert!(JournalReader::open_storage(Arc::new(storage)).is_err());
            }
        }
    }
}

#[test]
fn no_changed_byte_of_a_sealed_segment_escapes_validation() {
    // TRJ-50, TRJ-55
    let files = three_segments().files();
    let sealed = files
        .iter()
        .position(|(name, _)| name.ends_with(".qtj"))
        .unwrap();
    for position in 0..files[sealed].1.len() {
        let mut changed = files.clone();
        changed[sealed].1[position] ^= 0x04;
        let storage = FaultyStorage::of(&changed);
        // Opening trusts the manifest and does not read it (TRJ-91); validation does.
        let reading = reader(&storage);
        assert!(reading.validate().is_err(), "byte {position}");
        let mut reading = reading;
        if position % 16 == 0
            && let Ok(records) = reading.query(&Query::all())
        {
            for (sequence, found) in (0..).zip(records) {
                assert_eq!(found.canonical_bytes(), record(sequence).canonical_bytes());
            }
        }
    }
}

#[test]
fn missing_or_damaged_side_files_change_nothing() {
    // TRJ-48, TRJ-53
    let files = three_segments().files();
    let side: Vec<String> = files
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| !name.ends_with(".qtj"))
        .collect();
    assert_eq!(side.len(), 3, "{side:?}");
    for name in &side {
        for damage in [None, Some(0), Some(10)] {
            let mut changed = files.clone();
            let at = changed.iter().position(|(other, _)| other == name).unwrap();
            match damage {
                None => drop(changed.remove(at)),
                Some(byte) => changed[at].1[byte] ^= 1,
            }
            let storage = FaultyStorage::of(&changed);
            assert_eq!(stored_ids(&storage).len(), 7, "{name}");
            let mut writer = writer(&storage);
            assert!(writer.append(&[record(0)]).unwrap().already_stored);
            writer.append(&[record(7)]).unwrap();
            assert_eq!(reader(&storage).validate().unwrap().records, 8);
        }
    }
}

#[test]
fn a_missing_segment_is_noticed() {
    // TRJ-50
    let files = three_segments().files();
    let segments: Vec<usize> = (0..files.len())
        .filter(|at| files[*at].0.ends_with(".qtj"))
        .collect();
    for at in &segments[..2] {
        let mut changed = files.clone();
        changed.remove(*at);
        let storage = FaultyStorage::of(&changed);
        let error = JournalWriter::open_storage(Arc::new(storage), options()).unwrap_err();
        assert_eq!(error.code(), "journal_sequence_mismatch");
    }
}

#[test]
fn a_foreign_segment_is_refused() {
    let files = small().files();
    let at = segment(&files);
    let mut two = three_segments().files();
    two.retain(|(name, _)| name.ends_with(".qtj"));
    let last = two.len() - 1;
    let first_sequence = crate::segment::sequence_of_name(&two[last].0).unwrap();
    let foreign = crate::segment::SegmentHeader {
        journal_id: [9; 16],
        number: 9,
        first_sequence,
        created_unix_ns: 0,
    };
    two[last].1[..64].copy_from_slice(&foreign.write());
    let error =
        JournalWriter::open_storage(Arc::new(FaultyStorage::of(&two)), options()).unwrap_err();
    assert_eq!(error.code(), "journal_corrupt");
    let mut newer = files.clone();
    let header = &mut newer[at].1[..64];
    header[4] = 2;
    let check = crc32c::crc32c(&header[..60]).to_le_bytes();
    header[60..].copy_from_slice(&check);
    let error =
        JournalWriter::open_storage(Arc::new(FaultyStorage::of(&newer)), options()).unwrap_err();
    assert_eq!(error.code(), "unsupported_journal_schema");
}
