//! TRJ-40 to TRJ-47, TRJ-52: what an append does and what it costs.

use qitos_contracts::error::ContractError as _;
use qitos_contracts::record::Record;

use super::*;
use crate::testing::{clock, raw, record, record_with, records};
use crate::{JournalOptions, SyncPolicy};

#[track_caller]
fn refused(
    writer: &mut JournalWriter,
    records: &[qitos_contracts::record::ProjectedRecord],
    code: &str,
) {
    let next = writer.next_sequence();
    assert_eq!(writer.append(records).unwrap_err().code(), code);
    assert_eq!(writer.next_sequence(), next);
}

#[test]
fn batches_are_stored_in_order_and_found_again() {
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    assert_eq!(writer.next_sequence(), 0);
    let appended = writer.append(&records(0, 3)).unwrap();
    assert!(appended.durable && !appended.already_stored);
    writer.append(&records(3, 4)).unwrap();
    assert_eq!(writer.next_sequence(), 4);
    let stored = reader(&storage).query(&Query::all()).unwrap();
    assert_eq!(stored.len(), 4);
    for (sequence, stored) in (0..).zip(&stored) {
        assert_eq!(stored.canonical_bytes(), record(sequence).canonical_bytes());
    }
    // TRJ-7: a new writer goes on behind the last record.
    drop(writer);
    assert_eq!(super::writer(&storage).next_sequence(), 4);
}

#[test]
fn a_stored_record_is_recognised_wherever_it_stands() {
    // TRJ-42, in the active and in a sealed segment, before and after opening again.
    let storage = three_segments();
    for _ in 0..2 {
        let mut writer = writer(&storage);
        for sequence in [0, 3, 6] {
            let files = storage.files();
            // The same fact at another place in the order.
            let again = record_with(&format!("rec-{sequence}"), 7, "some text");
            let mut facts = again.record().clone();
            facts.run_id = Some(format!("run-{}", sequence % 2).into());
            let again = raw(&facts
                .seal(7, again.record().occurred_at.timestamp().unwrap())
                .unwrap());
            let appended = writer.append(&[again]).unwrap();
            assert!(appended.already_stored && appended.durable, "{sequence}");
            assert_eq!(appended.bytes_written, 0);
            let segments = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
                files
                    .into_iter()
                    .filter(|(name, _)| name.ends_with(".qtj"))
                    .collect()
            };
            assert_eq!(segments(storage.files()), segments(files));
            refused(
                &mut writer,
                &[record_with(&format!("rec-{sequence}"), 7, "another text")],
                "record_id_already_exists",
            );
        }
        refused(
            &mut writer,
            &[record(6), record(7)],
            "partial_duplicate_batch",
        );
        refused(
            &mut writer,
            &[record_with("x", 7, "a"), record_with("x", 8, "a")],
            "duplicate_record_id_in_batch",
        );
    }
}

#[test]
fn sequences_are_contiguous_but_for_announced_gaps() {
    // TRJ-7, SNK-12, SNK-20, decision 68
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    writer.append(&records(0, 2)).unwrap();
    refused(&mut writer, &[record(3)], "journal_sequence_mismatch");
    refused(
        &mut writer,
        &[record_with("new", 1, "x")],
        "journal_sequence_mismatch",
    );
    refused(
        &mut writer,
        &[record(2), record(4)],
        "journal_sequence_mismatch",
    );
    let time = qitos_contracts::clock::Timestamp::from_micros(0);
    let gap = |first, last, at| {
        let record = Record::sink_gap(format!("gap-{first}"), time, "qitos.journal", first, last);
        raw(&record.seal(at, time).unwrap())
    };
    refused(&mut writer, &[gap(3, 5, 6)], "journal_sequence_mismatch");
    refused(&mut writer, &[gap(2, 5, 7)], "journal_sequence_mismatch");
    writer.append(&[gap(2, 5, 6), record(7)]).unwrap();
    drop(writer);
    assert_eq!(super::writer(&storage).next_sequence(), 8);
    assert_eq!(stored_ids(&storage), ["rec-0", "rec-1", "gap-2", "rec-7"]);
    assert_eq!(reader(&storage).validate().unwrap().records, 4);
}

#[test]
fn records_and_frames_have_their_bounds() {
    // TRJ-43, at limit − 1, limit, limit + 1
    let size = record(0).canonical_bytes().len() as u64;
    for (limit, fits) in [(size - 1, false), (size, true), (size + 1, true)] {
        let options = options().with_maximum_record_bytes(limit);
        let storage = FaultyStorage::default();
        let (mut writer, _) = JournalWriter::open_storage(Arc::new(storage), options).unwrap();
        if fits {
            writer.append(&[record(0)]).unwrap();
        } else {
            refused(&mut writer, &[record(0)], "record_too_large");
        }
    }
    let mut options = options();
    options.maximum_frame_bytes = 3 * size;
    let (mut writer, _) =
        JournalWriter::open_storage(Arc::new(FaultyStorage::default()), options).unwrap();
    refused(&mut writer, &records(0, 3), "journal_frame_limit_exceeded");
    writer.append(&records(0, 2)).unwrap();
}

#[test]
fn segments_rotate_and_seal_and_never_change_afterwards() {
    // TRJ-52
    let storage = three_segments();
    let sealed: Vec<_> = storage
        .files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".qtj"))
        .collect();
    assert_eq!(sealed.len(), 3);
    let mut writer = writer(&storage);
    writer.append(&records(7, 9)).unwrap();
    let now: Vec<_> = storage
        .files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".qtj"))
        .collect();
    assert_eq!(now[..2], sealed[..2]);
    let validated = reader(&storage).validate().unwrap();
    assert_eq!((validated.records, validated.sealed_segments), (9, 2));
    assert_eq!(
        storage
            .files()
            .iter()
            .filter(|(name, _)| name.ends_with(".qti"))
            .count(),
        2
    );
}

#[test]
fn a_warm_append_reads_nothing_of_the_history() {
    // TRJ-41, TRJ-90
    let storage = three_segments();
    let mut writer = writer(&storage);
    writer.append(&[record(7)]).unwrap();
    let before = storage.bytes_read();
    let appended = writer.append(&[record(8)]).unwrap();
    assert_eq!(storage.bytes_read(), before);
    let size = record(8).canonical_bytes().len() as u64;
    assert!(appended.bytes_written < size + 512, "{appended:?}");
}

#[test]
fn opening_reads_the_active_segment_and_the_manifest_only() {
    // TRJ-91
    let storage = three_segments();
    drop(writer(&storage));
    let files = storage.files();
    let active = files
        .iter()
        .rfind(|(name, _)| name.ends_with(".qtj"))
        .unwrap()
        .1
        .len() as u64;
    let (_, report) = JournalWriter::open_storage(Arc::new(storage.clone()), options()).unwrap();
    assert!(
        report.bytes_read <= active + 64,
        "{} of {active}",
        report.bytes_read
    );
}

#[test]
fn only_a_sync_makes_a_receipt_durable() {
    // TRJ-45
    let open = |policy| {
        let clock = clock();
        let ids = Arc::new(qitos_contracts::clock::CountingIds::new(1));
        let options = JournalOptions::new(clock.clone(), ids).with_sync(policy);
        let storage = FaultyStorage::default();
        let (writer, _) = JournalWriter::open_storage(Arc::new(storage.clone()), options).unwrap();
        (writer, storage, clock)
    };
    for policy in [SyncPolicy::Group, SyncPolicy::OnFlush] {
        let (mut writer, storage, _) = open(policy);
        assert!(!writer.append(&[record(0)]).unwrap().durable);
        let lost = FaultyStorage::of(&storage.after_power_cut());
        assert!(stored_ids(&lost).is_empty());
        assert!(
            !writer.append(&[record(0)]).unwrap().durable,
            "a duplicate is no more durable"
        );
        assert!(writer.flush().unwrap().durable);
        assert!(writer.append(&[record(0)]).unwrap().durable);
        assert_eq!(
            stored_ids(&FaultyStorage::of(&storage.after_power_cut())),
            ["rec-0"]
        );
    }
    let (mut writer, ..) = open(SyncPolicy::Never);
    assert!(!writer.append(&[record(0)]).unwrap().durable);
    assert!(!writer.flush().unwrap().durable);
    let (mut writer, _, clock) = open(SyncPolicy::GroupWithin(std::time::Duration::from_millis(5)));
    assert!(!writer.append(&[record(0)]).unwrap().durable);
    clock.advance(std::time::Duration::from_millis(5));
    assert!(writer.append(&[record(1)]).unwrap().durable);
}

#[test]
fn a_real_directory_has_one_writer_and_readers_beside_it() {
    // TRJ-44, TRJ-51
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trajectory.journal");
    let (mut writer, _) = JournalWriter::open(&path, options()).unwrap();
    writer.append(&records(0, 3)).unwrap();
    let refused = JournalWriter::open(&path, options()).unwrap_err();
    assert_eq!(refused.code(), "journal_locked");
    assert!(
        refused
            .to_string()
            .contains(&std::process::id().to_string())
    );
    assert!(!refused.to_string().contains("trajectory.journal"));
    let mut reader = JournalReader::open(&path).unwrap();
    assert_eq!(reader.query(&Query::all()).unwrap().len(), 3);
    writer.append(&records(3, 4)).unwrap();
    writer.close().unwrap();
    assert_eq!(
        writer.append(&[record(4)]).unwrap_err().code(),
        "journal_closed"
    );
    // The lock goes with the close, although the closed writer lives on.
    let (next, report) = JournalWriter::open(&path, options()).unwrap();
    assert_eq!((next.next_sequence(), report.torn_bytes), (4, 0));
    assert_eq!(
        JournalWriter::open(&path, options()).unwrap_err().code(),
        "journal_locked"
    );
    drop(writer);
    assert_eq!(
        JournalWriter::open(&path, options()).unwrap_err().code(),
        "journal_locked"
    );
}
