//! The event sink contract: who gets projected records, and what they answer (section 3 of the
//! trajectory specification, SNK-1 to SNK-20).
//!
//! An [`EventSink`] is owned by one thread and called by a dispatcher, which keeps the order, the bounds
//! and the books. What a sink is given has passed the privacy projection: a [`ProjectedRecord`] has no
//! other constructor.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{ContractError, Performed, Retry};
use crate::record::{Loss, PrivacyView, ProjectedRecord};

/// A place that records go to (SNK-1 to SNK-8).
///
/// # Contract
/// - `receive` may be called any number of times before `close`; the slice is one batch (TRJ-40) in
///   increasing sequence. With [`SinkCapabilities::atomic_batch`] it is taken whole or not at all.
/// - A receipt of `receive` counts that call; receipts of `flush` and `close` count the sink's lifetime:
///   received = accepted + dropped + failed, always (SNK-5). `None` says the same as a receipt that
///   accepts the whole slice.
/// - `flush` returns when every earlier record has its final status (SNK-6). One that could not deliver
///   is never successful (SNK-8).
/// - `close` flushes first and is idempotent: the second returns the first receipt and does nothing
///   (SNK-7). After it `receive` and `flush` fail with `sink_closed`.
/// - `flush` and `close` end by `until`.
///
/// Synchronous, and `Send` without `Sync`: one thread owns it.
pub trait EventSink: Debug + Send + 'static {
    /// What the sink declares; constant after registration.
    fn capabilities(&self) -> SinkCapabilities;

    /// Takes one batch.
    ///
    /// # Errors
    /// The sink's own code; see [`SinkError`].
    fn receive(
        &mut self,
        records: &[ProjectedRecord],
    ) -> Result<Option<DurabilityReceipt>, SinkError>;

    /// Brings everything received to its final status.
    ///
    /// # Errors
    /// The sink's own code; see [`SinkError`].
    fn flush(&mut self, until: Instant) -> Result<Option<DurabilityReceipt>, SinkError>;

    /// Flushes and releases what the sink holds.
    ///
    /// # Errors
    /// The sink's own code; see [`SinkError`].
    fn close(&mut self, until: Instant) -> Result<Option<DurabilityReceipt>, SinkError>;
}

/// What a sink declares (SNK-1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkCapabilities {
    /// Unique among the registrations of a dispatcher.
    pub sink_id: Arc<str>,
    /// The views it may be registered with; default all three.
    pub supported_views: Vec<PrivacyView>,
    /// Whether its receipts may say `persisted`; default false.
    pub durability_receipts: bool,
    /// Whether one `receive` is taken whole or not at all; default false.
    pub atomic_batch: bool,
    /// What happens when its queue is full; default [`Backpressure::Fail`].
    pub backpressure: Backpressure,
    /// Largest record in canonical bytes; default none.
    pub max_record_bytes: Option<u64>,
    /// Whether the same record twice is one record; default false (SNK-17).
    pub idempotent_receive: bool,
    /// Records that its queue holds; default 2048.
    pub queue_records: usize,
    /// Bytes that its queue holds; default 64 MiB.
    pub queue_bytes: u64,
    /// Whether records leave the machine; default false (SNK-3).
    pub leaves_machine: bool,
}

impl SinkCapabilities {
    /// The defaults of SNK-1.
    #[must_use]
    pub fn new(sink_id: impl Into<Arc<str>>) -> Self {
        SinkCapabilities {
            sink_id: sink_id.into(),
            supported_views: PrivacyView::ALL.to_vec(),
            durability_receipts: false,
            atomic_batch: false,
            backpressure: Backpressure::Fail,
            max_record_bytes: None,
            idempotent_receive: false,
            queue_records: 2_048,
            queue_bytes: 64 * 1024 * 1024,
            leaves_machine: false,
        }
    }

    /// With other views.
    #[must_use]
    pub fn with_supported_views(mut self, views: &[PrivacyView]) -> Self {
        self.supported_views = views.to_vec();
        self
    }

    /// With receipts that may say `persisted`.
    #[must_use]
    pub fn with_durability_receipts(mut self) -> Self {
        self.durability_receipts = true;
        self
    }

    /// With batches that are taken whole or not at all.
    #[must_use]
    pub fn with_atomic_batch(mut self) -> Self {
        self.atomic_batch = true;
        self
    }

    /// With another behaviour of a full queue.
    #[must_use]
    pub fn with_backpressure(mut self, backpressure: Backpressure) -> Self {
        self.backpressure = backpressure;
        self
    }

    /// With a largest record.
    #[must_use]
    pub fn with_max_record_bytes(mut self, bytes: u64) -> Self {
        self.max_record_bytes = Some(bytes);
        self
    }

    /// With repeated records counting once.
    #[must_use]
    pub fn with_idempotent_receive(mut self) -> Self {
        self.idempotent_receive = true;
        self
    }

    /// With another queue.
    #[must_use]
    pub fn with_queue(mut self, records: usize, bytes: u64) -> Self {
        self.queue_records = records;
        self.queue_bytes = bytes;
        self
    }

    /// With records leaving the machine.
    #[must_use]
    pub fn with_leaving_machine(mut self) -> Self {
        self.leaves_machine = true;
        self
    }
}

/// What happens to a submitter when the sink's queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backpressure {
    /// It waits, at most the block timeout; then `sink_block_timeout`.
    Block,
    /// The new record is dropped and counted; the oldest stay.
    DropNewest,
    /// The record fails with `sink_capacity_exhausted`.
    #[default]
    Fail,
}

/// What the failure of a sink means for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The run does not go on without it.
    #[default]
    Required,
    /// The run goes on, the failure is reported and counted.
    Optional,
}

/// The status of a receipt (SNK-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiptStatus {
    /// Taken; in memory, a queue or the page cache.
    Accepted,
    /// On stable storage, or acknowledged by a remote that says so (SNK-5).
    Persisted,
    /// Left out by declared policy.
    Dropped,
    /// Not taken.
    Failed,
    /// The same `record_id` is there with another content.
    Conflicted,
}

impl ReceiptStatus {
    /// The word as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ReceiptStatus::Accepted => "accepted",
            ReceiptStatus::Persisted => "persisted",
            ReceiptStatus::Dropped => "dropped",
            ReceiptStatus::Failed => "failed",
            ReceiptStatus::Conflicted => "conflicted",
        }
    }
}

/// What became of records (SNK-4, SNK-5).
///
/// The fields are private so that the counts always add up: received = accepted + dropped + failed, and
/// persisted ≤ accepted. A conflicted record counts as failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurabilityReceipt {
    status: ReceiptStatus,
    counts: SinkCounts,
    operation_id: Option<Arc<str>>,
    detail_code: Option<Arc<str>>,
}

/// Counts of records by their status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Taken, persisted ones included.
    pub accepted: u64,
    /// On stable storage; part of `accepted`.
    pub persisted: u64,
    /// Left out by declared policy.
    pub dropped: u64,
    /// Not taken, conflicted ones included.
    pub failed: u64,
}

impl SinkCounts {
    /// All records that were received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.accepted
            .saturating_add(self.dropped)
            .saturating_add(self.failed)
    }

    /// Adds the counts of another receipt.
    pub fn add(&mut self, other: &SinkCounts) {
        self.accepted = self.accepted.saturating_add(other.accepted);
        self.persisted = self.persisted.saturating_add(other.persisted);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

impl DurabilityReceipt {
    const fn with(status: ReceiptStatus, counts: SinkCounts) -> Self {
        DurabilityReceipt {
            status,
            counts,
            operation_id: None,
            detail_code: None,
        }
    }

    /// `count` records were taken and are not durable yet.
    #[must_use]
    pub const fn accepted(count: u64) -> Self {
        let counts = SinkCounts {
            accepted: count,
            persisted: 0,
            dropped: 0,
            failed: 0,
        };
        Self::with(ReceiptStatus::Accepted, counts)
    }

    /// `count` records were taken and are on stable storage.
    #[must_use]
    pub const fn persisted(count: u64) -> Self {
        let counts = SinkCounts {
            accepted: count,
            persisted: count,
            dropped: 0,
            failed: 0,
        };
        Self::with(ReceiptStatus::Persisted, counts)
    }

    /// `count` records were left out by policy.
    #[must_use]
    pub const fn dropped(count: u64) -> Self {
        let counts = SinkCounts {
            accepted: 0,
            persisted: 0,
            dropped: count,
            failed: 0,
        };
        Self::with(ReceiptStatus::Dropped, counts)
    }

    /// `count` records were not taken.
    #[must_use]
    pub const fn failed(count: u64) -> Self {
        let counts = SinkCounts {
            accepted: 0,
            persisted: 0,
            dropped: 0,
            failed: count,
        };
        Self::with(ReceiptStatus::Failed, counts)
    }

    /// `count` records contradict stored ones; they count as failed.
    #[must_use]
    pub const fn conflicted(count: u64) -> Self {
        let counts = SinkCounts {
            accepted: 0,
            persisted: 0,
            dropped: 0,
            failed: count,
        };
        Self::with(ReceiptStatus::Conflicted, counts)
    }

    /// The books of a sink's lifetime, for `flush` and `close`.
    ///
    /// The status is the worst that the counts admit: failed, then dropped, then accepted; persisted
    /// only if every record is. `persisted` is cut to `accepted`.
    #[must_use]
    pub fn of_lifetime(mut counts: SinkCounts) -> Self {
        counts.persisted = counts.persisted.min(counts.accepted);
        let status = if counts.failed > 0 {
            ReceiptStatus::Failed
        } else if counts.dropped > 0 {
            ReceiptStatus::Dropped
        } else if counts.persisted == counts.accepted && counts.accepted > 0 {
            ReceiptStatus::Persisted
        } else {
            ReceiptStatus::Accepted
        };
        Self::with(status, counts)
    }

    /// With the operation that the receipt is about.
    #[must_use]
    pub fn with_operation(mut self, operation_id: impl Into<Arc<str>>) -> Self {
        self.operation_id = Some(operation_id.into());
        self
    }

    /// With a code that explains the status, such as `already_persisted`.
    #[must_use]
    pub fn with_detail(mut self, detail_code: impl Into<Arc<str>>) -> Self {
        self.detail_code = Some(detail_code.into());
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> ReceiptStatus {
        self.status
    }

    /// The counts.
    #[must_use]
    pub fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// The operation.
    #[must_use]
    pub fn operation_id(&self) -> Option<&str> {
        self.operation_id.as_deref()
    }

    /// The code that explains the status.
    #[must_use]
    pub fn detail_code(&self) -> Option<&str> {
        self.detail_code.as_deref()
    }

    /// Successful ⇔ accepted or persisted (SNK-4).
    #[must_use]
    pub fn is_successful(&self) -> bool {
        matches!(
            self.status,
            ReceiptStatus::Accepted | ReceiptStatus::Persisted
        )
    }
}

/// Why a sink or the dispatcher failed.
///
/// No message echoes a record, a path or the text of the operating system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// `sink_closed`: the sink was closed before (SNK-7).
    #[error("the sink {sink_id} is closed")]
    Closed {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `sink_view_unsupported`: registered with a view it does not take (SNK-2).
    #[error("the sink {sink_id} does not take the view {}", view.as_str())]
    ViewUnsupported {
        /// The sink.
        sink_id: Arc<str>,
        /// The view.
        view: PrivacyView,
    },
    /// `sink_id_duplicate`: another registration has the id (SNK-3).
    #[error("the sink id {sink_id} is registered already")]
    IdDuplicate {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `required_sink_may_drop`: required and dropping contradict each other (SNK-3).
    #[error("the required sink {sink_id} declares that it drops records")]
    RequiredSinkMayDrop {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `dispatcher_closed`: submit, flush or register after close (SNK-20).
    #[error("the dispatcher is closed")]
    DispatcherClosed,
    /// `private_export_refused`: raw records would leave the machine (SNK-3).
    #[error("the sink {sink_id} would take raw records off this machine")]
    PrivateExportRefused {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `record_too_large`: over the declared or configured bound (SNK-16, TRJ-43).
    #[error("a record of {bytes} bytes is over the bound of {limit_bytes}")]
    RecordTooLarge {
        /// Canonical bytes of the record.
        bytes: u64,
        /// The bound.
        limit_bytes: u64,
    },
    /// `sink_capacity_exhausted`: its queue is full.
    #[error("the queue of the sink {sink_id} is full")]
    CapacityExhausted {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `sink_block_timeout`: its queue stayed full.
    #[error("the queue of the sink {sink_id} stayed full for {waited_ms} ms")]
    BlockTimeout {
        /// The sink.
        sink_id: Arc<str>,
        /// How long the submitter waited.
        waited_ms: u64,
    },
    /// `sink_worker_dead`: the thread that owns the sink ended (SNK-14).
    #[error("the worker of the sink {sink_id} ended")]
    WorkerDead {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `sink_panicked`: the sink panicked and is not called again (SNK-14).
    #[error("the sink {sink_id} panicked")]
    Panicked {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `sink_reentrant`: the sink called the dispatcher from `receive` (SNK-15).
    #[error("the sink {sink_id} called its own dispatcher")]
    Reentrant {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `sink_close_timeout`: what was left at the deadline counts as failed (SNK-18).
    #[error("the sink {sink_id} did not close in time")]
    CloseTimeout {
        /// The sink.
        sink_id: Arc<str>,
    },
    /// `writer_forked`: another process than the one that opened the sink (SNK-18).
    #[error("the sink was opened by another process")]
    WriterForked,
    /// A failure with the sink's own code (SNK-9).
    #[error("{message}")]
    Own {
        /// The sink's own stable code.
        code: &'static str,
        /// A lower-case fragment without content of records, paths or system texts.
        message: Arc<str>,
        /// May the same call be repeated?
        retry: Retry,
        /// May the records have been taken?
        performed: Performed,
    },
}

impl ContractError for SinkError {
    fn code(&self) -> &str {
        match self {
            SinkError::Closed { .. } => "sink_closed",
            SinkError::ViewUnsupported { .. } => "sink_view_unsupported",
            SinkError::IdDuplicate { .. } => "sink_id_duplicate",
            SinkError::RequiredSinkMayDrop { .. } => "required_sink_may_drop",
            SinkError::DispatcherClosed => "dispatcher_closed",
            SinkError::PrivateExportRefused { .. } => "private_export_refused",
            SinkError::RecordTooLarge { .. } => "record_too_large",
            SinkError::CapacityExhausted { .. } => "sink_capacity_exhausted",
            SinkError::BlockTimeout { .. } => "sink_block_timeout",
            SinkError::WorkerDead { .. } => "sink_worker_dead",
            SinkError::Panicked { .. } => "sink_panicked",
            SinkError::Reentrant { .. } => "sink_reentrant",
            SinkError::CloseTimeout { .. } => "sink_close_timeout",
            SinkError::WriterForked => "writer_forked",
            SinkError::Own { code, .. } => code,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            SinkError::CapacityExhausted { .. } | SinkError::BlockTimeout { .. } => {
                Retry::AfterDelay
            }
            SinkError::Own { retry, .. } => *retry,
            _ => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        match self {
            SinkError::WorkerDead { .. }
            | SinkError::Panicked { .. }
            | SinkError::CloseTimeout { .. } => Performed::Unknown,
            SinkError::Own { performed, .. } => *performed,
            _ => Performed::No,
        }
    }
}

/// A sink with how it is to be treated (SNK-2).
#[derive(Debug)]
pub struct SinkRegistration {
    sink: Box<dyn EventSink>,
    capabilities: SinkCapabilities,
    failure_policy: FailurePolicy,
    view: PrivacyView,
    allow_private_export: bool,
}

impl SinkRegistration {
    /// Required, in the view `redacted_public`.
    #[must_use]
    pub fn new(sink: Box<dyn EventSink>) -> Self {
        let capabilities = sink.capabilities();
        SinkRegistration {
            sink,
            capabilities,
            failure_policy: FailurePolicy::Required,
            view: PrivacyView::RedactedPublic,
            allow_private_export: false,
        }
    }

    /// With another failure policy.
    #[must_use]
    pub fn with_failure_policy(mut self, failure_policy: FailurePolicy) -> Self {
        self.failure_policy = failure_policy;
        self
    }

    /// With another view.
    #[must_use]
    pub fn with_view(mut self, view: PrivacyView) -> Self {
        self.view = view;
        self
    }

    /// With raw records allowed off this machine (SNK-3).
    #[must_use]
    pub fn with_private_export(mut self) -> Self {
        self.allow_private_export = true;
        self
    }

    /// What the sink declared when it was registered.
    #[must_use]
    pub fn capabilities(&self) -> &SinkCapabilities {
        &self.capabilities
    }

    /// What its failure means.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.failure_policy
    }

    /// The view its records are projected to.
    #[must_use]
    pub fn view(&self) -> PrivacyView {
        self.view
    }

    /// Refuses contradictions before anything is registered (SNK-2, SNK-3); duplicates are the
    /// dispatcher's to find.
    ///
    /// # Errors
    /// `sink_view_unsupported`, `required_sink_may_drop`, `private_export_refused`.
    pub fn check(&self) -> Result<(), SinkError> {
        let sink_id = || Arc::clone(&self.capabilities.sink_id);
        if !self.capabilities.supported_views.contains(&self.view) {
            return Err(SinkError::ViewUnsupported {
                sink_id: sink_id(),
                view: self.view,
            });
        }
        if self.failure_policy == FailurePolicy::Required
            && self.capabilities.backpressure == Backpressure::DropNewest
        {
            return Err(SinkError::RequiredSinkMayDrop { sink_id: sink_id() });
        }
        if self.view == PrivacyView::RawPrivate
            && self.capabilities.leaves_machine
            && !self.allow_private_export
        {
            return Err(SinkError::PrivateExportRefused { sink_id: sink_id() });
        }
        Ok(())
    }

    /// The sink itself, for the thread that is to own it.
    #[must_use]
    pub fn into_sink(self) -> Box<dyn EventSink> {
        self.sink
    }
}

/// Which call of a sink failed (SNK-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SinkOperation {
    /// `receive`.
    Receive,
    /// `flush`.
    Flush,
    /// `close`.
    Close,
}

impl SinkOperation {
    /// The word as it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            SinkOperation::Receive => "receive",
            SinkOperation::Flush => "flush",
            SinkOperation::Close => "close",
        }
    }
}

/// One failure of one sink (SNK-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkFailure {
    /// The sink.
    pub sink_id: Arc<str>,
    /// The call.
    pub operation: SinkOperation,
    /// The sink's own error with its own code.
    pub error: SinkError,
    /// Whether the run needs the sink.
    pub required: bool,
}

impl SinkFailure {
    /// The sink's own code.
    #[must_use]
    pub fn code(&self) -> &str {
        self.error.code()
    }
}

/// A submitter waited for a sink (SNK-9, SNK-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStall {
    /// The sink.
    pub sink_id: Arc<str>,
    /// How long.
    pub waited: Duration,
}

/// A receipt with the sink that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkReceipt {
    /// The sink.
    pub sink_id: Arc<str>,
    /// Its receipt.
    pub receipt: DurabilityReceipt,
}

/// What became of one submit, flush or close at every sink (SNK-9, SNK-10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchReport {
    /// Receipts, in order of registration.
    pub receipts: Vec<SinkReceipt>,
    /// Failures since the last report, in the order in which they were found (SNK-8).
    pub failures: Vec<SinkFailure>,
    /// What was lost, counted.
    pub loss: Loss,
    /// Waits of the submitter over 100 ms.
    pub stalls: Vec<SinkStall>,
}

impl DispatchReport {
    /// Successful ⇔ no failures and all receipts successful (SNK-9).
    #[must_use]
    pub fn is_successful(&self) -> bool {
        self.failures.is_empty()
            && self
                .receipts
                .iter()
                .all(|sink| sink.receipt.is_successful())
    }

    /// The first failure of a required sink; its error carries nothing but the report does (SNK-10).
    #[must_use]
    pub fn required_failure(&self) -> Option<&SinkFailure> {
        self.failures.iter().find(|failure| failure.required)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Narrow(SinkCapabilities);

    impl EventSink for Narrow {
        fn capabilities(&self) -> SinkCapabilities {
            self.0.clone()
        }
        fn receive(
            &mut self,
            records: &[ProjectedRecord],
        ) -> Result<Option<DurabilityReceipt>, SinkError> {
            Ok(Some(DurabilityReceipt::accepted(records.len() as u64)))
        }
        fn flush(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
            Ok(None)
        }
        fn close(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
            Ok(None)
        }
    }

    fn registration(capabilities: SinkCapabilities) -> SinkRegistration {
        SinkRegistration::new(Box::new(Narrow(capabilities)))
    }

    #[track_caller]
    fn refused(registration: &SinkRegistration, code: &str) {
        assert_eq!(registration.check().unwrap_err().code(), code);
    }

    #[test]
    fn registrations_that_contradict_themselves_are_refused() {
        // SNK-2, SNK-3
        let plain = || SinkCapabilities::new("s");
        assert!(registration(plain()).check().is_ok());
        assert_eq!(registration(plain()).view(), PrivacyView::RedactedPublic);
        assert_eq!(
            registration(plain()).failure_policy(),
            FailurePolicy::Required
        );
        let narrow = plain().with_supported_views(&[PrivacyView::SafeDiagnostic]);
        refused(&registration(narrow), "sink_view_unsupported");
        let dropping = plain().with_backpressure(Backpressure::DropNewest);
        refused(&registration(dropping.clone()), "required_sink_may_drop");
        let optional = registration(dropping).with_failure_policy(FailurePolicy::Optional);
        assert!(optional.check().is_ok());
        let remote =
            || registration(plain().with_leaving_machine()).with_view(PrivacyView::RawPrivate);
        refused(&remote(), "private_export_refused");
        assert!(remote().with_private_export().check().is_ok());
    }

    #[test]
    fn counts_of_receipts_always_add_up() {
        // SNK-4, SNK-5
        let mut books = SinkCounts::default();
        for receipt in [
            DurabilityReceipt::accepted(2),
            DurabilityReceipt::persisted(3),
            DurabilityReceipt::dropped(5),
            DurabilityReceipt::failed(7),
            DurabilityReceipt::conflicted(11),
        ] {
            books.add(&receipt.counts());
            let successful = matches!(
                receipt.status(),
                ReceiptStatus::Accepted | ReceiptStatus::Persisted
            );
            assert_eq!(receipt.is_successful(), successful);
        }
        assert_eq!(
            (books.received(), books.accepted, books.persisted),
            (28, 5, 3)
        );
        assert_eq!(
            DurabilityReceipt::of_lifetime(books).status(),
            ReceiptStatus::Failed
        );
        let some = SinkCounts {
            accepted: 2,
            persisted: 9,
            dropped: 0,
            failed: 0,
        };
        let all = DurabilityReceipt::of_lifetime(some);
        assert_eq!(
            (all.status(), all.counts().persisted),
            (ReceiptStatus::Persisted, 2)
        );
        let none = DurabilityReceipt::of_lifetime(SinkCounts::default());
        assert_eq!(none.status(), ReceiptStatus::Accepted);
    }

    #[test]
    fn a_report_is_successful_only_without_any_failure() {
        // SNK-9, SNK-10
        let mut report = DispatchReport::default();
        assert!(report.is_successful());
        report.receipts.push(SinkReceipt {
            sink_id: "s".into(),
            receipt: DurabilityReceipt::dropped(1),
        });
        assert!(!report.is_successful());
        report.receipts.clear();
        report.failures.push(SinkFailure {
            sink_id: "s".into(),
            operation: SinkOperation::Flush,
            error: SinkError::WriterForked,
            required: false,
        });
        assert!(!report.is_successful());
        assert!(report.required_failure().is_none());
        assert_eq!(report.failures[0].code(), "writer_forked");
    }
}
