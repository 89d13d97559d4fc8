//! The journal as an event sink (SNK-20).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use qitos_contracts::error::ContractError as _;
use qitos_contracts::event::{
    Backpressure, DurabilityReceipt, EventSink, SinkCapabilities, SinkCounts, SinkError,
};
use qitos_contracts::record::ProjectedRecord;

use crate::error::JournalError;
use crate::options::JournalOptions;
use crate::writer::{Appended, JournalWriter, RecoveryReport};

/// The id under which a journal is registered.
pub const JOURNAL_SINK_ID: &str = "qitos.journal";
const ALREADY_PERSISTED: &str = "already_persisted";

/// A journal that takes records as a sink: atomic batches, `block`, receipts under the sync policy.
///
/// A repeated record is one record and costs nothing (TRJ-42), so a dispatcher may send again whatever it
/// has no receipt for. `receive` returns after the append; no queue stands between.
#[derive(Debug)]
pub struct JournalSink {
    writer: JournalWriter,
    capabilities: SinkCapabilities,
    counts: SinkCounts,
    closed: Option<DurabilityReceipt>,
}

impl JournalSink {
    /// Opens the journal in `directory` and registers as [`JOURNAL_SINK_ID`].
    ///
    /// # Errors
    /// As [`JournalWriter::open`].
    pub fn open(
        directory: &Path,
        options: JournalOptions,
    ) -> Result<(JournalSink, RecoveryReport), JournalError> {
        let largest = options.maximum_record_bytes;
        let (writer, report) = JournalWriter::open(directory, options)?;
        Ok((JournalSink::new(writer, largest), report))
    }

    /// A sink over a writer that is open already.
    #[must_use]
    pub fn new(writer: JournalWriter, maximum_record_bytes: u64) -> JournalSink {
        let capabilities = SinkCapabilities::new(JOURNAL_SINK_ID)
            .with_durability_receipts()
            .with_atomic_batch()
            .with_idempotent_receive()
            .with_backpressure(Backpressure::Block)
            .with_max_record_bytes(maximum_record_bytes);
        JournalSink {
            writer,
            capabilities,
            counts: SinkCounts::default(),
            closed: None,
        }
    }

    /// The sequence at which the sequencer continues (TRJ-7).
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.writer.next_sequence()
    }

    fn closed_error(&self) -> SinkError {
        SinkError::Closed {
            sink_id: Arc::clone(&self.capabilities.sink_id),
        }
    }

    /// The books of the lifetime; what was accepted is persisted once the writer has synced it all.
    fn lifetime(&mut self, flushed: Appended) -> DurabilityReceipt {
        if flushed.durable && self.writer.claims_durability() {
            self.counts.persisted = self.counts.accepted;
        }
        DurabilityReceipt::of_lifetime(self.counts)
    }
}

impl EventSink for JournalSink {
    fn capabilities(&self) -> SinkCapabilities {
        self.capabilities.clone()
    }

    fn receive(
        &mut self,
        records: &[ProjectedRecord],
    ) -> Result<Option<DurabilityReceipt>, SinkError> {
        let count = records.len() as u64;
        let appended = if self.closed.is_some() {
            Err(self.closed_error())
        } else {
            self.writer.append(records).map_err(SinkError::from)
        };
        match appended {
            Ok(appended) => {
                let receipt = if appended.durable && self.writer.claims_durability() {
                    DurabilityReceipt::persisted(count)
                } else {
                    DurabilityReceipt::accepted(count)
                };
                self.counts.add(&receipt.counts());
                Ok(Some(if appended.already_stored {
                    receipt.with_detail(ALREADY_PERSISTED)
                } else {
                    receipt
                }))
            }
            Err(error) => {
                // Counted, not ignored (SNK-7). What may yet become durable counts as failed as well:
                // sending it again gives the receipt that says so.
                self.counts.add(&DurabilityReceipt::failed(count).counts());
                Err(error)
            }
        }
    }

    /// One sync cannot be interrupted, so the deadline is not looked at.
    fn flush(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        if self.closed.is_some() {
            return Err(self.closed_error());
        }
        let flushed = self.writer.flush()?;
        Ok(Some(self.lifetime(flushed)))
    }

    fn close(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        if let Some(receipt) = &self.closed {
            return Ok(Some(receipt.clone()));
        }
        let flushed = self.writer.close();
        let receipt = match &flushed {
            Ok(appended) => self.lifetime(*appended),
            Err(_) => DurabilityReceipt::of_lifetime(self.counts),
        };
        self.closed = Some(receipt.clone());
        flushed.map_err(SinkError::from).map(|_| Some(receipt))
    }
}

impl From<JournalError> for SinkError {
    fn from(error: JournalError) -> Self {
        let code = match &error {
            JournalError::RecordTooLarge { bytes, limit_bytes } => {
                return SinkError::RecordTooLarge {
                    bytes: *bytes,
                    limit_bytes: *limit_bytes,
                };
            }
            JournalError::WriterForked => return SinkError::WriterForked,
            JournalError::AppendFailed { .. } => "store_append_failed",
            JournalError::AppendUncertain { .. } => "store_append_uncertain",
            JournalError::NoSpace => "journal_no_space",
            JournalError::SyncFailed { .. } => "journal_sync_failed",
            JournalError::FrameTooLarge { .. } => "journal_frame_limit_exceeded",
            JournalError::RecordIdExists => "record_id_already_exists",
            JournalError::PartialDuplicate { .. } => "partial_duplicate_batch",
            JournalError::DuplicateInBatch => "duplicate_record_id_in_batch",
            JournalError::SequenceMismatch { .. } => "journal_sequence_mismatch",
            JournalError::Corrupt { .. } => "journal_corrupt",
            JournalError::Closed => "journal_closed",
            JournalError::ReadFailed { .. } => "journal_read_failed",
            _ => "journal_open_failed",
        };
        SinkError::Own {
            code,
            message: error.to_string().into(),
            retry: error.retry(),
            performed: error.performed(),
        }
    }
}
