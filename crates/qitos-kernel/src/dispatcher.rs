//! Hands records to sinks: one sequence, one projection per view, one bounded queue and thread per sink.
//!
//! A journal is *direct*: `submit` returns after its receipt. Every other sink has a queue, and what it
//! fails later stands in the next report (SNK-8). Nothing here needs a runtime (SNK-15).
//!
//! Section 3 of the trajectory specification (SNK-1 to SNK-20), TRJ-7, TRJ-8.

mod announce;
mod queue;
mod sequence;
#[cfg(test)]
mod tests;
mod timer;
mod unacked;
mod wait;
mod worker;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qitos_contracts::clock::Clock;
use qitos_contracts::event::{
    DispatchReport, DurabilityReceipt, SinkError, SinkOperation, SinkReceipt, SinkRegistration,
};
use qitos_contracts::record::Record;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use queue::{Command, Deferred, SinkQueue};
use sequence::Sequencer;
use timer::Timer;

const BLOCK_TIMEOUT: Duration = Duration::from_secs(5);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

static NEXT_DISPATCHER: AtomicU64 = AtomicU64::new(0);

/// Replaces known secrets in a record before it is sealed (TRJ-8); must not panic.
pub type Redactor = Arc<dyn Fn(&mut Record) + Send + Sync>;

/// Gives records their sequence and hands them to every registered sink.
///
/// # Contract
/// Every sink gets every operation, whatever the others did (SNK-10), in strictly increasing sequence
/// also under concurrent submits (SNK-13). A required sink that failed shows in the report; the caller
/// then lets no effect out. Dropping the dispatcher asks the sinks to close and does not wait for them.
pub struct Dispatcher {
    identity: u64,
    process: u32,
    clock: Arc<dyn Clock>,
    redactor: Option<Redactor>,
    block_timeout: Duration,
    sinks: Vec<Arc<SinkQueue>>,
    sequencer: Mutex<Sequencer>,
    deferred: Deferred,
    timer: Timer,
    closed: OnceCell<DispatchReport>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Dispatcher")
            .field("sinks", &self.sinks.len())
            .finish_non_exhaustive()
    }
}

/// What became of one submit.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// What every sink said, and what failed since the last report.
    pub report: DispatchReport,
    /// A required sink failed or did not take everything: no outside effect may be started.
    pub required_failed: bool,
}

impl Dispatcher {
    /// A dispatcher without sinks whose first record gets `next_sequence`, the one after the journal's
    /// last record (TRJ-7).
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, next_sequence: u64) -> Self {
        Dispatcher {
            identity: NEXT_DISPATCHER.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            clock,
            redactor: None,
            block_timeout: BLOCK_TIMEOUT,
            sinks: Vec::new(),
            sequencer: Mutex::new(Sequencer::new(next_sequence)),
            deferred: Deferred::default(),
            timer: Timer::default(),
            closed: OnceCell::new(),
        }
    }

    /// With known secrets replaced in every record before its digest is made (TRJ-8).
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = Some(redactor);
        self
    }

    /// With another time that a submitter waits for a full `block` queue; default 5 s (SNK-13).
    #[must_use]
    pub fn with_block_timeout(mut self, block_timeout: Duration) -> Self {
        self.block_timeout = block_timeout;
        self
    }

    /// Adds a sink and starts the thread that owns it; after an error nothing is registered.
    ///
    /// # Errors
    /// `dispatcher_closed`, `sink_id_duplicate`, `sink_view_unsupported`, `required_sink_may_drop`,
    /// `private_export_refused` (SNK-2, SNK-3); `sink_worker_dead` if no thread can be had.
    pub fn register(&mut self, registration: SinkRegistration) -> Result<(), SinkError> {
        if self.sequencer().closed {
            return Err(SinkError::DispatcherClosed);
        }
        registration.check()?;
        let capabilities = registration.capabilities().clone();
        let sink_id = Arc::clone(&capabilities.sink_id);
        if self.sinks.iter().any(|sink| sink.sink_id() == sink_id) {
            return Err(SinkError::IdDuplicate { sink_id });
        }
        let queue = Arc::new(SinkQueue::new(
            capabilities,
            registration.failure_policy(),
            registration.view(),
            Arc::clone(&self.deferred),
        ));
        let place = (self.identity, self.sinks.len());
        let (owned, clock) = (Arc::clone(&queue), Arc::clone(&self.clock));
        std::thread::Builder::new()
            .name("qitos-sink".into())
            .spawn(move || worker::run(owned, registration.into_sink(), clock, place))
            .map_err(|_| SinkError::WorkerDead { sink_id })?;
        self.sinks.push(queue);
        Ok(())
    }

    /// Whether no sink is registered; then `submit` does nothing and costs nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// The sequence of the next record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.sequencer().next
    }

    /// What each sink lost, for the run summary: `{sink_id: {dropped, failed, first_sequence,
    /// last_sequence}}`, without the sinks that lost nothing (SNK-11).
    #[must_use]
    pub fn sink_loss(&self) -> Value {
        let mut losses = Map::new();
        for sink in &self.sinks {
            let total = sink.lock().total;
            if total.count() > 0 {
                let loss = json!({
                    "dropped": total.dropped,
                    "failed": total.failed,
                    "first_sequence": total.span.map(|(first, _)| first),
                    "last_sequence": total.span.map(|(_, last)| last),
                });
                losses.insert(sink.sink_id().to_string(), loss);
            }
        }
        Value::Object(losses)
    }

    /// Seals the records in order and hands them to every sink.
    ///
    /// Returns after the receipts of direct sinks and when all `block` queues took their records or the
    /// block timeout passed (SNK-13, SNK-20). A record that cannot be sealed fails at every sink.
    ///
    /// # Cancel safety
    /// Dropping loses the report and takes back what still waits for room; what was queued is delivered.
    pub async fn submit(&self, drafts: Vec<Record>) -> Submitted {
        if self.sinks.is_empty() {
            return Submitted {
                report: DispatchReport::default(),
                required_failed: false,
            };
        }
        if let Some(report) = self.refusal(SinkOperation::Receive, drafts.len() as u64) {
            return self.submitted(report);
        }
        let mut drafts = drafts;
        if let Some(redactor) = &self.redactor {
            drafts.iter_mut().for_each(|draft| redactor(draft));
        }
        let Some((offers, mut report)) = self.sequence(drafts) else {
            return self.submitted(self.after_close(SinkOperation::Receive));
        };
        for offer in offers {
            self.settle(offer, &mut report).await;
        }
        self.complete(&mut report);
        self.submitted(report)
    }

    /// Waits until every earlier record has its final status at every sink, or until `until`.
    ///
    /// The receipts count the lifetime of each sink (SNK-5, SNK-6); the failures are all since the last
    /// report (SNK-8).
    ///
    /// # Cancel safety
    /// Dropping loses the report; the sinks flush all the same.
    pub async fn flush(&self, until: Instant) -> DispatchReport {
        if let Some(report) = self.refusal(SinkOperation::Flush, 0) {
            return report;
        }
        if self.sequencer().closed {
            return self.after_close(SinkOperation::Flush);
        }
        let mut report = DispatchReport::default();
        let mut asked = Vec::with_capacity(self.sinks.len());
        {
            let mut sequencer = self.sequencer();
            self.announce_losses(&mut sequencer, false);
            for sink in &self.sinks {
                let (reply, answer) = tokio::sync::oneshot::channel();
                asked.push((sink.control(Command::Flush { until, reply }), answer));
            }
        }
        self.answers(asked, SinkOperation::Flush, until, &mut report)
            .await;
        report
    }

    /// Flushes and closes all sinks at the same time, by `until` (SNK-18).
    ///
    /// What is left then counts as failed with `sink_close_timeout`. A second close returns the first
    /// report and does nothing (SNK-7).
    ///
    /// # Cancel safety
    /// Dropping leaves the dispatcher closed for records; calling it again finishes the close.
    pub async fn close(&self, until: Instant) -> DispatchReport {
        if let Some(report) = self.refusal(SinkOperation::Close, 0) {
            return report;
        }
        let closing = self.closed.get_or_init(|| self.close_once(until));
        tokio::select! {
            biased;
            report = closing => report.clone(),
            // Only a close that another caller gave more time is not over by then.
            () = self.timer.at(until + Duration::from_millis(50)) => {
                let mut report = DispatchReport::default();
                for sink in &self.sinks {
                    let error = SinkError::CloseTimeout { sink_id: sink.sink_id() };
                    report.failures.push(sink.failure(SinkOperation::Close, error));
                }
                report
            }
        }
    }

    async fn close_once(&self, until: Instant) -> DispatchReport {
        let mut report = DispatchReport::default();
        let mut asked = Vec::with_capacity(self.sinks.len());
        {
            let mut sequencer = self.sequencer();
            if !sequencer.closed {
                self.announce_losses(&mut sequencer, true);
            }
            sequencer.closed = true;
            for sink in &self.sinks {
                let (reply, answer) = tokio::sync::oneshot::channel();
                let reply = Some(reply);
                asked.push((sink.control(Command::Close { until, reply }), answer));
            }
        }
        self.answers(asked, SinkOperation::Close, until, &mut report)
            .await;
        report
    }

    fn sequencer(&self) -> MutexGuard<'_, Sequencer> {
        self.sequencer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that must not go any further: from a sink of ours, or in a forked child.
    fn refusal(&self, operation: SinkOperation, records: u64) -> Option<DispatchReport> {
        let mut report = DispatchReport::default();
        if std::process::id() != self.process {
            let failures = self
                .sinks
                .iter()
                .map(|sink| sink.failure(operation, SinkError::WriterForked));
            report.failures.extend(failures);
            return Some(report);
        }
        let index = worker::serves(self.identity)?;
        let sink = self.sinks.get(index)?;
        for sink in self.sinks.iter().filter(|_| records > 0) {
            sink.count_unoffered(records);
        }
        let sink_id = sink.sink_id();
        report
            .failures
            .push(sink.failure(operation, SinkError::Reentrant { sink_id }));
        Some(report)
    }

    fn after_close(&self, operation: SinkOperation) -> DispatchReport {
        let mut report = DispatchReport::default();
        for sink in &self.sinks {
            report
                .failures
                .push(sink.failure(operation, SinkError::DispatcherClosed));
        }
        self.complete(&mut report);
        report
    }

    /// Adds the failures and the loss since the last report.
    fn complete(&self, report: &mut DispatchReport) {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = std::mem::take(&mut *deferred);
        drop(deferred);
        failures.append(&mut report.failures);
        report.failures = failures;
        for sink in &self.sinks {
            let lost = std::mem::take(&mut sink.lock().unreported);
            if lost.count() > 0 {
                let scope = sink.capabilities.sink_id.to_string();
                report.loss.add(
                    "sink_delivery_lost",
                    scope,
                    "sink_copy_incomplete",
                    lost.count(),
                );
            }
        }
    }

    fn submitted(&self, report: DispatchReport) -> Submitted {
        let lacking = |receipt: &SinkReceipt| {
            !receipt.receipt.is_successful()
                && self
                    .sinks
                    .iter()
                    .any(|sink| sink.is_required() && sink.sink_id() == receipt.sink_id)
        };
        let required_failed =
            report.required_failure().is_some() || report.receipts.iter().any(lacking);
        Submitted {
            report,
            required_failed,
        }
    }

    fn receipt(sink: &SinkQueue, receipt: DurabilityReceipt) -> SinkReceipt {
        SinkReceipt {
            sink_id: sink.sink_id(),
            receipt,
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        for sink in &self.sinks {
            // An ended sink needs no close.
            let _ = sink.control(Command::Close { until, reply: None });
        }
    }
}
