//! The thread that owns one sink (SNK-13, SNK-14, SNK-17).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use qitos_contracts::clock::Clock;
use qitos_contracts::error::{Performed, Retry};
use qitos_contracts::event::{DurabilityReceipt, EventSink, SinkCounts, SinkError, SinkOperation};
use qitos_contracts::record::ProjectedRecord;

use super::announce;
use super::queue::{Batch, Command, Delivery, Lost, SinkQueue, size};
use super::unacked::Unacked;

const FAILURES_BEFORE_SUSPENSION: u32 = 5;
const FIRST_BACKOFF_NS: u64 = 1_000_000_000;
const LONGEST_BACKOFF_NS: u64 = 60_000_000_000;
/// A journal's word for records that it had already: it used none of their sequences (TRJ-42).
const ALREADY_PERSISTED: &str = "already_persisted";

thread_local! {
    /// Which dispatcher, and which of its sinks, this thread works for.
    static SERVES: Cell<Option<(u64, usize)>> = const { Cell::new(None) };
}

/// The sink of this dispatcher whose thread this is (SNK-15).
pub(super) fn serves(dispatcher: u64) -> Option<usize> {
    SERVES
        .get()
        .and_then(|(owner, index)| (owner == dispatcher).then_some(index))
}

/// However the thread ends, nobody is left waiting for it.
struct EndGuard(Arc<SinkQueue>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        let dead = SinkError::WorkerDead {
            sink_id: self.0.sink_id(),
        };
        self.0.end(dead);
    }
}

/// Runs until the sink is closed, panics or is given up.
pub(super) fn run(
    queue: Arc<SinkQueue>,
    sink: Box<dyn EventSink>,
    clock: Arc<dyn Clock>,
    place: (u64, usize),
) {
    SERVES.set(Some(place));
    let guard = EndGuard(Arc::clone(&queue));
    let mut worker = Worker {
        queue,
        sink,
        clock,
        missed: None,
        unacked: Unacked::default(),
        failures_in_a_row: 0,
        suspended_until_ns: None,
        last_error: None,
    };
    while let Some(command) = worker.queue.next() {
        if !worker.perform(command) {
            break;
        }
    }
    drop(guard);
    let Worker { sink, .. } = worker;
    // A destructor that panics concerns nobody any more.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(sink)));
}

struct Worker {
    queue: Arc<SinkQueue>,
    sink: Box<dyn EventSink>,
    clock: Arc<dyn Clock>,
    /// What a queued sink missed since its last record (SNK-12).
    missed: Option<(u64, u64)>,
    unacked: Unacked,
    failures_in_a_row: u32,
    suspended_until_ns: Option<u64>,
    last_error: Option<SinkError>,
}

impl Worker {
    /// `false` when the sink is not to be called again.
    fn perform(&mut self, command: Command) -> bool {
        match command {
            Command::Missed { first, last } => {
                self.note_missed(first, last);
                true
            }
            Command::Receive { batch, reply } => {
                let (delivery, alive) = self.receive(batch);
                if !alive && let Some(error) = delivery.error.clone() {
                    self.queue.end(error);
                }
                match reply {
                    Some(reply) => drop(reply.send(delivery)),
                    None => {
                        if let Some(error) = delivery.error {
                            self.queue.defer(SinkOperation::Receive, error);
                        }
                    }
                }
                alive
            }
            Command::Flush { until, reply } => {
                let (own, error, alive) = self.call_in_order(|sink| sink.flush(until));
                let receipt = self.queue.lock().lifetime(own);
                if !alive && let Some(error) = error.clone() {
                    self.queue.end(error);
                }
                let _ = reply.send((receipt, error));
                alive
            }
            Command::Close { until, reply } => {
                self.close(until, reply);
                false
            }
        }
    }

    fn close(
        &mut self,
        until: Instant,
        reply: Option<tokio::sync::oneshot::Sender<super::queue::Answer>>,
    ) {
        let (own, error, alive) = self.call_in_order(|sink| sink.close(until));
        if let Some((failed, span)) = self.unacked.left() {
            self.queue.lock().lose(Lost {
                dropped: 0,
                failed,
                span: Some(span),
            });
        }
        let receipt = self.queue.lock().lifetime(own);
        match (&error, alive) {
            (Some(error), false) => self.queue.end(error.clone()),
            _ => self.queue.finish(),
        }
        if let Some(reply) = reply {
            let _ = reply.send((receipt, error));
        }
    }

    /// Calls the sink; a panic is a failure after which it is not called again (SNK-14).
    fn call(
        &mut self,
        call: impl FnOnce(&mut dyn EventSink) -> Result<Option<DurabilityReceipt>, SinkError>,
    ) -> (Option<DurabilityReceipt>, Option<SinkError>, bool) {
        match catch_unwind(AssertUnwindSafe(|| call(self.sink.as_mut()))) {
            Ok(Ok(receipt)) => (receipt, None, true),
            Ok(Err(error)) => (None, Some(error), true),
            Err(_) => {
                let error = SinkError::Panicked {
                    sink_id: self.queue.sink_id(),
                };
                (None, Some(error), false)
            }
        }
    }

    /// Calls the sink after what it is owed; a debt that stays is a failure of this call as well.
    fn call_in_order(
        &mut self,
        call: impl FnOnce(&mut dyn EventSink) -> Result<Option<DurabilityReceipt>, SinkError>,
    ) -> (Option<DurabilityReceipt>, Option<SinkError>, bool) {
        let owed = self.resend();
        if let Some((error, false)) = owed {
            return (None, Some(error), false);
        }
        let (own, error, alive) = self.call(call);
        (own, error.or(owed.map(|(error, _)| error)), alive)
    }

    fn note_missed(&mut self, first: u64, last: u64) {
        let first = self.missed.map_or(first, |(known, _)| known.min(first));
        self.missed = Some((first, last));
    }

    /// Why the sink is not to be asked now.
    fn withheld(&self, batch: &Batch) -> Option<SinkError> {
        let gap = self.queue.lock().gap;
        if gap.is_some_and(|gap| batch.gap_from != Some(gap.first)) {
            // The batch was numbered before the gap was known; the next one announces it.
            return Some(self.last_error.clone().unwrap_or_else(|| SinkError::Own {
                code: "sink_gap",
                message: "records before this one are missing".into(),
                retry: Retry::AfterDelay,
                performed: Performed::No,
            }));
        }
        let until = self.suspended_until_ns?;
        if self.clock.monotonic_ns() >= until {
            return None;
        }
        self.last_error.clone()
    }

    fn receive(&mut self, batch: Batch) -> (Delivery, bool) {
        let (first, last) = batch.span();
        let bytes = batch.records.iter().map(size).sum();
        let queued = batch.records.len();
        let mut records = batch.records;
        let gap_from = batch.gap_from;
        let (owed, alive) = self.resend().unzip();
        let withheld = owed.or_else(|| {
            self.withheld(&Batch {
                records: Vec::new(),
                gap_from,
            })
        });
        let gap = self
            .missed
            .and_then(|missed| self.gap_record(missed, records.first()));
        if withheld.is_none()
            && let Some(gap) = gap
        {
            records.insert(0, gap);
        }
        let asked = withheld.is_none();
        let (own, error, alive) = match withheld {
            Some(error) => (None, Some(error), alive.unwrap_or(true)),
            None => self.call(|sink| sink.receive(&records)),
        };
        let count = records.len() as u64;
        let receipt = match (own, &error) {
            (_, Some(_)) => DurabilityReceipt::failed(count),
            (Some(own), None) => balanced(own, count),
            (None, None) => DurabilityReceipt::accepted(count),
        };
        let error = error.or_else(|| unsuccessful(&receipt));
        self.note_outcome(asked, error.as_ref());
        let kept = alive && self.keep(&records, &receipt, gap_from);
        self.enter(&receipt, (first, last), queued, bytes, kept);
        (Delivery { receipt, error }, alive)
    }

    /// Sends again what a required journal did not take, oldest first; why it still does not, and whether it may be
    /// asked again.
    fn resend(&mut self) -> Option<(SinkError, bool)> {
        while let Some(batch) = self.unacked.oldest() {
            let count = batch.len() as u64;
            let batch = batch.to_vec();
            let (own, error, alive) = self.call(|sink| sink.receive(&batch));
            let receipt = own.map_or_else(
                || DurabilityReceipt::accepted(count),
                |own| balanced(own, count),
            );
            if let Some(error) = error.or_else(|| unsuccessful(&receipt)) {
                self.last_error = Some(error.clone());
                return Some((error, alive));
            }
            self.unacked.acknowledge();
            self.queue.lock().delivered.add(&receipt.counts());
        }
        None
    }

    /// Keeps a batch that a required journal did not take at all, unless a gap covers it already.
    fn keep(
        &mut self,
        records: &[ProjectedRecord],
        receipt: &DurabilityReceipt,
        gap_from: Option<u64>,
    ) -> bool {
        let queue = &self.queue;
        let again = queue.direct && queue.is_required() && queue.capabilities.idempotent_receive;
        let failed = receipt.counts().failed == records.len() as u64;
        let covered = gap_from.is_some() || queue.lock().gap.is_some();
        again && failed && !covered && self.unacked.keep(records, &queue.capabilities)
    }

    /// Enters the outcome of a batch into the books; `kept` if it will be sent again.
    fn enter(
        &mut self,
        receipt: &DurabilityReceipt,
        span: (u64, u64),
        queued: usize,
        bytes: u64,
        kept: bool,
    ) {
        let queue = Arc::clone(&self.queue);
        let mut state = queue.lock();
        if !queue.release(&mut state, queued, bytes) {
            return;
        }
        let counts = receipt.counts();
        state.delivered.add(&counts);
        if kept {
            return;
        }
        // The announcement of a gap is no lost fact of its own.
        let most = queued as u64;
        let lost = Lost {
            dropped: counts.dropped.min(most),
            failed: counts.failed.min(most),
            span: Some(span),
        };
        if lost.count() > 0 {
            state.lose(lost);
        }
        let unused = receipt.detail_code() == Some(ALREADY_PERSISTED);
        let intact = lost.count() == 0 && !(queue.direct && unused);
        if queue.direct {
            if intact {
                state.gap = None;
            } else {
                if lost.count() == 0 && state.gap.is_none() {
                    state.unused = Some(span);
                }
                let first = state.gap.map_or(span.0, |gap| gap.first);
                state.gap = Some(super::queue::Gap {
                    first,
                    announced: false,
                });
            }
        }
        drop(state);
        if intact {
            self.missed = None;
        } else if !queue.direct {
            self.note_missed(span.0, span.1);
        }
    }

    /// Suspends an optional sink after repeated failures, longer each time (SNK-17).
    fn note_outcome(&mut self, asked: bool, error: Option<&SinkError>) {
        let Some(error) = error else {
            self.failures_in_a_row = 0;
            self.suspended_until_ns = None;
            self.last_error = None;
            return;
        };
        if !asked {
            return;
        }
        self.last_error = Some(error.clone());
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if self.queue.is_required() || self.failures_in_a_row < FAILURES_BEFORE_SUSPENSION {
            return;
        }
        let doublings = (self.failures_in_a_row - FAILURES_BEFORE_SUSPENSION).min(6);
        let pause = (FIRST_BACKOFF_NS << doublings).min(LONGEST_BACKOFF_NS);
        self.suspended_until_ns = Some(self.clock.monotonic_ns().saturating_add(pause));
    }

    /// Takes the place of the last missed record, which this sink never saw: its order stays strict.
    fn gap_record(
        &self,
        (first, last): (u64, u64),
        next: Option<&ProjectedRecord>,
    ) -> Option<ProjectedRecord> {
        let now = self.clock.now();
        let mut gap = announce::gap(&self.queue.capabilities.sink_id, first, last, last, now);
        if let Some(next) = next {
            gap.session_id.clone_from(&next.record().session_id);
            gap.run_id.clone_from(&next.record().run_id);
        }
        let sealed = gap.seal_history(last, now.into()).ok()?;
        qitos_contracts::record::privacy::project_record(&sealed, self.queue.view).ok()
    }
}

/// A receipt whose counts do not make up the batch counts what is missing as failed (SNK-5).
fn balanced(own: DurabilityReceipt, count: u64) -> DurabilityReceipt {
    let counts = own.counts();
    if counts.received() == count {
        return own;
    }
    let accepted = counts.accepted.min(count);
    let dropped = counts.dropped.min(count - accepted);
    DurabilityReceipt::of_lifetime(SinkCounts {
        accepted,
        persisted: counts.persisted.min(accepted),
        dropped,
        failed: count - accepted - dropped,
    })
}

/// An answer that is no error and no success either; its code is the word of its status (SNK-4).
fn unsuccessful(receipt: &DurabilityReceipt) -> Option<SinkError> {
    if receipt.is_successful() {
        return None;
    }
    Some(SinkError::Own {
        code: receipt.status().as_str(),
        message: "the sink did not take every record".into(),
        retry: Retry::Never,
        performed: Performed::Unknown,
    })
}
