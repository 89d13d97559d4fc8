//! TRJ-46, TRJ-47: every write and every sync fails once, and nothing is lost, doubled or overstated.

use std::io::ErrorKind;

use qitos_contracts::error::{ContractError as _, Performed};

use super::*;
use crate::storage::faulty::Fault;
use crate::testing::{record, records};

const BATCHES: u64 = 6;

/// Appends six batches of two records over several segments, with one planned fault, sending again what
/// failed; gives the codes seen.
///
/// After each receipt a power cut is played: everything acknowledged must be there.
fn run(operation: usize, fault: Fault) -> (bool, Vec<String>) {
    let storage = FaultyStorage::default();
    storage.fail_at(operation, fault);
    let mut codes = Vec::new();
    let open = || {
        let mut options = options();
        options.segment_bytes = 5_000;
        JournalWriter::open_storage(Arc::new(storage.clone()), options)
    };
    let mut writer = match open() {
        Ok((writer, _)) => writer,
        Err(error) => {
            codes.push(error.code().to_owned());
            storage.heal();
            open().unwrap().0
        }
    };
    let mut acknowledged = 0;
    for batch in 0..BATCHES {
        let batch = records(2 * batch, 2 * batch + 2);
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries < 6, "no progress: {codes:?}");
            match writer.append(&batch) {
                Ok(appended) => {
                    assert!(appended.durable);
                    break;
                }
                Err(error) => codes.push(error.code().to_owned()),
            }
        }
        acknowledged += 2;
        let left = FaultyStorage::of(&storage.after_power_cut());
        let there = reader(&left).watermark().map_or(0, |last| last + 1);
        assert!(
            there >= acknowledged,
            "acknowledged {acknowledged}, there {there}"
        );
    }
    let pending = storage.fault_is_pending();
    storage.heal();
    drop(writer);
    let expected: Vec<String> = (0..2 * BATCHES)
        .map(|sequence| format!("rec-{sequence}"))
        .collect();
    for files in [storage.files(), storage.after_power_cut()] {
        let left = FaultyStorage::of(&files);
        assert_eq!(stored_ids(&left), expected);
        assert_eq!(reader(&left).validate().unwrap().records, 2 * BATCHES);
        let (mut writer, _) =
            JournalWriter::open_storage(Arc::new(left.clone()), options()).unwrap();
        writer.append(&[record(2 * BATCHES)]).unwrap();
        assert_eq!(reader(&left).validate().unwrap().records, 2 * BATCHES + 1);
    }
    (pending, codes)
}

/// Fails operation 0, 1, 2 … until a run meets no fault.
fn enumerate(fault: Fault) -> Vec<String> {
    let mut seen = Vec::new();
    for operation in 0.. {
        let (pending, codes) = run(operation, fault);
        for code in codes {
            if !seen.contains(&code) {
                seen.push(code);
            }
        }
        if pending {
            assert!(operation > 10, "the runs had more operations than that");
            return seen;
        }
    }
    seen
}

#[test]
fn every_failed_write_is_sent_again_once_and_stored_once() {
    let seen = enumerate(Fault::Write(ErrorKind::Other));
    assert!(seen.contains(&"store_append_failed".into()), "{seen:?}");
}

#[test]
fn every_full_disk_leaves_what_was_acknowledged() {
    let seen = enumerate(Fault::Write(ErrorKind::StorageFull));
    assert!(seen.contains(&"journal_no_space".into()), "{seen:?}");
}

#[test]
fn every_short_write_is_taken_back() {
    let seen = enumerate(Fault::ShortWrite(ErrorKind::Other));
    assert!(seen.contains(&"store_append_uncertain".into()), "{seen:?}");
}

#[test]
fn every_failed_sync_is_followed_by_a_new_segment() {
    let seen = enumerate(Fault::Sync);
    assert!(seen.contains(&"journal_sync_failed".into()), "{seen:?}");
}

#[test]
fn every_single_operation_may_fail() {
    let _ = enumerate(Fault::Any);
}

#[test]
fn a_failed_sync_never_earns_persisted_from_the_same_segment() {
    // TRJ-46
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    writer.append(&[record(0)]).unwrap();
    storage.fail_at(0, Fault::Sync);
    let error = writer.append(&[record(1)]).unwrap_err();
    assert_eq!(
        (error.code(), error.performed()),
        ("journal_sync_failed", Performed::Unknown)
    );
    let poisoned = segments(&storage)[0].clone();
    // The same record again: stored in a new segment, durable there, never twice.
    let appended = writer.append(&[record(1)]).unwrap();
    assert!(appended.already_stored && appended.durable);
    let now = segments(&storage);
    assert_eq!(now.len(), 2);
    assert_eq!(now[0], poisoned, "neither changed nor synced again");
    assert_eq!(now[1].0, crate::segment::segment_name(1));
    writer.append(&[record(2)]).unwrap();
    drop(writer);
    for files in [storage.files(), storage.after_power_cut()] {
        assert_eq!(
            stored_ids(&FaultyStorage::of(&files)),
            ["rec-0", "rec-1", "rec-2"]
        );
    }
}

fn segments(storage: &FaultyStorage) -> Vec<(String, Vec<u8>)> {
    storage
        .files()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".qtj"))
        .collect()
}

#[test]
fn a_tail_that_cannot_be_cut_is_cut_before_the_next_append() {
    // TRJ-47
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    writer.append(&[record(0)]).unwrap();
    storage.fail_truncate();
    storage.fail_at(0, Fault::ShortWrite(ErrorKind::Other));
    assert_eq!(
        writer.append(&[record(1)]).unwrap_err().code(),
        "store_append_uncertain"
    );
    assert_eq!(
        writer.append(&[record(1)]).unwrap_err().code(),
        "store_append_failed"
    );
    // Readers beside it see whole frames only.
    assert_eq!(stored_ids(&storage), ["rec-0"]);
    storage.heal();
    writer.append(&[record(1)]).unwrap();
    assert_eq!(stored_ids(&storage), ["rec-0", "rec-1"]);
}
