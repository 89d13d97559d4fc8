mod append;
mod faults;
mod golden;
mod reading;
mod recovery;
mod sink;

use std::sync::Arc;

use crate::storage::faulty::FaultyStorage;
use crate::testing::options;
use crate::{JournalReader, JournalWriter, Query};

fn writer(storage: &FaultyStorage) -> JournalWriter {
    JournalWriter::open_storage(Arc::new(storage.clone()), options())
        .unwrap()
        .0
}

fn reader(storage: &FaultyStorage) -> JournalReader {
    JournalReader::open_storage(Arc::new(storage.clone())).unwrap()
}

/// Ids of everything stored, read and verified.
fn stored_ids(storage: &FaultyStorage) -> Vec<String> {
    reader(storage)
        .query(&Query::all())
        .unwrap()
        .iter()
        .map(|record| record.record().record_id.to_string())
        .collect()
}

/// A journal with three segments: two sealed.
fn three_segments() -> FaultyStorage {
    let storage = FaultyStorage::default();
    let mut options = options();
    options.segment_bytes = 5_000;
    let (mut writer, _) = JournalWriter::open_storage(Arc::new(storage.clone()), options).unwrap();
    for sequence in 0..7 {
        writer.append(&[crate::testing::record(sequence)]).unwrap();
    }
    storage
}
