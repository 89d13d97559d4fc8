//! SNK-4 to SNK-8, SNK-20: the journal as a sink.

use std::time::Instant;

use qitos_contracts::error::ContractError as _;
use qitos_contracts::event::{Backpressure, EventSink as _, ReceiptStatus};

use super::*;
use crate::JournalSink;
use crate::storage::faulty::Fault;
use crate::testing::{record, records};

fn sink(storage: &FaultyStorage) -> JournalSink {
    JournalSink::new(writer(storage), 16 * 1024 * 1024)
}

#[test]
fn the_journal_declares_what_it_keeps() {
    // SNK-1, SNK-20
    let capabilities = sink(&FaultyStorage::default()).capabilities();
    assert_eq!(&*capabilities.sink_id, "qitos.journal");
    assert!(capabilities.atomic_batch && capabilities.durability_receipts);
    assert!(capabilities.idempotent_receive);
    assert_eq!(capabilities.backpressure, Backpressure::Block);
}

#[test]
fn counts_add_up_and_close_is_idempotent() {
    // SNK-5, SNK-7
    let storage = FaultyStorage::default();
    let mut sink = sink(&storage);
    let until = Instant::now();
    let receipt = sink.receive(&records(0, 3)).unwrap().unwrap();
    assert_eq!(
        (receipt.status(), receipt.counts().persisted),
        (ReceiptStatus::Persisted, 3)
    );
    let again = sink.receive(&records(0, 3)).unwrap().unwrap();
    assert_eq!(again.detail_code(), Some("already_persisted"));
    assert_eq!(
        sink.receive(&[record(9)]).unwrap_err().code(),
        "journal_sequence_mismatch"
    );
    let flushed = sink.flush(until).unwrap().unwrap();
    assert_eq!(flushed.counts().received(), 7);
    assert_eq!((flushed.counts().accepted, flushed.counts().failed), (6, 1));
    assert!(!flushed.is_successful());
    let files = storage.files();
    let closed = sink.close(until).unwrap();
    assert_eq!(sink.close(until).unwrap(), closed);
    assert_eq!(storage.files(), files);
    assert_eq!(
        sink.receive(&[record(3)]).unwrap_err().code(),
        "sink_closed"
    );
    assert_eq!(sink.flush(until).unwrap_err().code(), "sink_closed");
    assert_eq!(storage.files(), files);
}

#[test]
fn a_flush_that_could_not_sync_is_no_success() {
    // SNK-8
    let storage = FaultyStorage::default();
    let options = options().with_sync(crate::SyncPolicy::OnFlush);
    let (writer, _) = JournalWriter::open_storage(Arc::new(storage.clone()), options).unwrap();
    let mut sink = JournalSink::new(writer, 1 << 20);
    let receipt = sink.receive(&records(0, 2)).unwrap().unwrap();
    assert_eq!(receipt.status(), ReceiptStatus::Accepted);
    storage.fail_at(0, Fault::Sync);
    assert_eq!(
        sink.flush(Instant::now()).unwrap_err().code(),
        "journal_sync_failed"
    );
    let receipt = sink.flush(Instant::now()).unwrap().unwrap();
    assert_eq!(
        (receipt.status(), receipt.counts().persisted),
        (ReceiptStatus::Persisted, 2)
    );
    assert_eq!(
        stored_ids(&FaultyStorage::of(&storage.after_power_cut())).len(),
        2
    );
}

#[test]
fn errors_tell_no_content_and_no_path() {
    let mut sink = sink(&FaultyStorage::default());
    let error = sink.receive(&[record(5)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the sequence 5 does not follow; 0 is next"
    );
}
