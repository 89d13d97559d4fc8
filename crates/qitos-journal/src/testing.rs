//! What the tests of this crate share.

use std::sync::Arc;

use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_contracts::record::privacy::project_record;
use qitos_contracts::record::{
    PrivacyView, ProjectedRecord, Record, RecordKind, RecordTime, SealedRecord,
};

use crate::options::JournalOptions;

/// Vector (b) of the trajectory specification.
pub(crate) fn golden_record() -> Arc<SealedRecord> {
    let occurred: RecordTime = "2026-01-01T00:00:00+00:00".parse().unwrap();
    let mut record = Record::new(RecordKind::Run, "rec-1", occurred);
    record.run_id = Some("run-1".into());
    record.session_id = Some("session-1".into());
    record.payload = serde_json::from_str(r#"{"status":"running","ratio":1e-7}"#).unwrap();
    record
        .seal_history(0, "2026-01-01T00:00:01+00:00".parse().unwrap())
        .unwrap()
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_micros(
        1_767_225_600_000_000,
    )))
}

pub(crate) fn options() -> JournalOptions {
    JournalOptions::new(clock(), Arc::new(CountingIds::new(7)))
}

pub(crate) fn raw(sealed: &Arc<SealedRecord>) -> ProjectedRecord {
    project_record(sealed, PrivacyView::RawPrivate).unwrap()
}

/// A record with `id` at `sequence` whose payload tells `text`.
pub(crate) fn record_with(id: &str, sequence: u64, text: &str) -> ProjectedRecord {
    let time = Timestamp::from_micros(1_767_225_600_000_000);
    let mut record = Record::new(RecordKind::Run, id, time);
    record.run_id = Some(format!("run-{}", sequence % 2).into());
    record.payload.insert("text".into(), text.into());
    raw(&record.seal(sequence, time).unwrap())
}

pub(crate) fn record(sequence: u64) -> ProjectedRecord {
    record_with(&format!("rec-{sequence}"), sequence, "some text")
}

pub(crate) fn records(from: u64, to: u64) -> Vec<ProjectedRecord> {
    (from..to).map(record).collect()
}
