//! Records of the dispatcher's own: what sinks missed (SNK-11, SNK-12).

use qitos_contracts::clock::Timestamp;
use qitos_contracts::record::{Record, RecordKind};

use super::queue::Lost;

/// What tells the other sinks that one of them lost records.
pub(super) fn loss(sink_id: &str, lost: Lost, sequence: u64, now: Timestamp) -> Record {
    let record_id = format!("loss:{}:{sequence}", now.as_micros());
    let mut record = Record::new(RecordKind::Loss, record_id, now);
    let payload = &mut record.payload;
    payload.insert("code".into(), "sink_delivery_lost".into());
    payload.insert("scope".into(), sink_id.into());
    payload.insert("count".into(), lost.count().into());
    payload.insert("consequence".into(), "sink_copy_incomplete".into());
    if let Some((first, last)) = lost.span {
        payload.insert("first_sequence".into(), first.into());
        payload.insert("last_sequence".into(), last.into());
    }
    record
}

/// What tells the sink itself that it misses `first` to `last`.
pub(super) fn gap(sink_id: &str, first: u64, last: u64, sequence: u64, now: Timestamp) -> Record {
    let record_id = format!("gap:{}:{sequence}", now.as_micros());
    Record::sink_gap(record_id, now, sink_id, first, last)
}
