//! What a required journal has not taken yet (TRJ-7, SNK-20).
//!
//! An optional journal announces what it missed and goes on; a required one may have no hole. Its worker keeps the
//! batches that failed and sends them again, oldest first, before anything newer. Each batch goes as it was: what is
//! uncertain may be stored already, and a journal takes a batch that it knows only as a whole (TRJ-42).

use std::collections::VecDeque;

use qitos_contracts::event::SinkCapabilities;
use qitos_contracts::record::ProjectedRecord;

use super::queue::size;

#[derive(Debug, Default)]
pub(super) struct Unacked {
    batches: VecDeque<Vec<ProjectedRecord>>,
    records: usize,
    bytes: u64,
}

impl Unacked {
    /// Keeps a batch; `false` if that would be more than the sink's queue may hold.
    pub(super) fn keep(&mut self, batch: &[ProjectedRecord], bounds: &SinkCapabilities) -> bool {
        let records = self.records.saturating_add(batch.len());
        let bytes = batch.iter().map(size).fold(self.bytes, u64::saturating_add);
        if records > bounds.queue_records || bytes > bounds.queue_bytes {
            return false;
        }
        (self.records, self.bytes) = (records, bytes);
        self.batches.push_back(batch.to_vec());
        true
    }

    pub(super) fn oldest(&self) -> Option<&[ProjectedRecord]> {
        self.batches.front().map(Vec::as_slice)
    }

    /// The sink has the oldest batch.
    pub(super) fn acknowledge(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.records = self.records.saturating_sub(batch.len());
            self.bytes = batch.iter().map(size).fold(self.bytes, u64::saturating_sub);
        }
    }

    /// How many records are left, and their first and last sequence.
    pub(super) fn left(&self) -> Option<(u64, (u64, u64))> {
        let first = self.batches.front()?.first()?.sequence();
        let last = self.batches.back()?.last()?.sequence();
        Some((self.records as u64, (first, last)))
    }
}
