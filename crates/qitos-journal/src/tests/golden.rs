//! `fixtures/journals/`: files of every format version, which every later reader must read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use qitos_contracts::record::RecordKind;

use super::*;
use crate::storage::DirectoryStorage;
use crate::testing::{golden_record, raw, record_with};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/journals")
        .join(name)
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Batches of one, two and three records in two sealed segments and an open one.
fn write(directory: &Path) {
    let mut options = options();
    options.segment_bytes = 4_000;
    let storage = Arc::new(DirectoryStorage::new(directory));
    let (mut writer, _) = JournalWriter::open_storage(storage, options).unwrap();
    writer.append(&[raw(&golden_record())]).unwrap();
    let texts = ["plain", "", "é\u{0}\n\"/\u{7f} \u{1f600}", "{\"a\": 1}"];
    for batch in 0..6u64 {
        let first = writer.next_sequence();
        let records: Vec<_> = (first..first + batch % 3 + 1)
            .map(|sequence| {
                let text = texts[usize::try_from(sequence % 4).unwrap()].repeat(40);
                record_with(&format!("rec-{}", sequence + 1), sequence, &text)
            })
            .collect();
        writer.append(&records).unwrap();
    }
    writer.close().unwrap();
}

#[track_caller]
fn holds_what_v1_holds(directory: &Path, records: usize) {
    let mut reader = JournalReader::open(directory).unwrap();
    reader.validate().unwrap();
    let found = reader.query(&Query::all()).unwrap();
    assert_eq!(found.len(), records);
    for (record, sequence) in found.iter().zip(0u64..) {
        assert_eq!(record.sequence(), sequence);
        assert_eq!(*record.record().record_id, *format!("rec-{}", sequence + 1));
        assert_eq!(record.record().kind, RecordKind::Run);
    }
    let golden = golden_record();
    assert_eq!(found[0].record().payload, golden.record().payload);
    let third = found[2].record().payload["text"].as_str().unwrap();
    assert_eq!(third, "é\u{0}\n\"/\u{7f} \u{1f600}".repeat(40));
}

#[test]
fn a_journal_of_format_1_is_read_and_written_as_it_was() {
    // TRJ-40, TRJ-52, docs/journal-format.md: the bytes of this format do not change any more.
    let golden = fixture("v1/trajectory.journal");
    holds_what_v1_holds(&golden, 13);
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let (written, kept) = (files(folder.path()), files(&golden));
    assert_eq!(
        written.keys().collect::<Vec<_>>(),
        kept.keys().collect::<Vec<_>>()
    );
    for (name, bytes) in &kept {
        assert!(written[name] == *bytes, "{name} has other bytes");
    }
}

#[test]
fn a_torn_journal_of_format_1_is_recovered_by_todays_writer() {
    // TRJ-48, TRJ-49
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files(&fixture("v1-torn/trajectory.journal")) {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    holds_what_v1_holds(folder.path(), 10);
    let (mut writer, report) = JournalWriter::open(folder.path(), options()).unwrap();
    assert!(report.torn_bytes > 0);
    // The recovery tells of it in a record of its own.
    let next = writer.next_sequence();
    assert_eq!(next, 11);
    writer
        .append(&[record_with("rec-new", next, "goes on")])
        .unwrap();
    writer.close().unwrap();
    let mut reader = JournalReader::open(folder.path()).unwrap();
    reader.validate().unwrap();
    assert_eq!(reader.query(&Query::all()).unwrap().len(), 12);
}
