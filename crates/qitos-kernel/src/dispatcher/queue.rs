//! The bounded queue in front of one sink, and the books of what became of its records (SNK-11, SNK-13).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use qitos_contracts::event::{
    Backpressure, DurabilityReceipt, FailurePolicy, SinkCapabilities, SinkCounts, SinkError,
    SinkFailure, SinkOperation,
};
use qitos_contracts::record::{PrivacyView, ProjectedRecord};
use tokio::sync::oneshot;

/// Failures that the next report is to carry (SNK-8), in the order in which they were found.
pub(super) type Deferred = Arc<Mutex<Vec<SinkFailure>>>;

/// Records that go to a sink in one `receive`.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) records: Vec<ProjectedRecord>,
    /// The batch starts with the `sink_gap` record that heals a gap from here (SNK-20).
    pub(super) gap_from: Option<u64>,
}

impl Batch {
    pub(super) fn span(&self) -> (u64, u64) {
        let at = |record: Option<&ProjectedRecord>| record.map_or(0, ProjectedRecord::sequence);
        (at(self.records.first()), at(self.records.last()))
    }

    fn bytes(&self) -> u64 {
        self.records.iter().map(size).sum()
    }
}

pub(super) fn size(record: &ProjectedRecord) -> u64 {
    record.canonical_bytes().len() as u64
}

/// What the sink answered to one direct batch.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) receipt: DurabilityReceipt,
    pub(super) error: Option<SinkError>,
}

/// What the sink answered to `flush` or `close`: the books of its lifetime, and why it failed.
pub(super) type Answer = (DurabilityReceipt, Option<SinkError>);

/// What a worker is told, in order.
#[derive(Debug)]
pub(super) enum Command {
    Receive {
        batch: Batch,
        reply: Option<oneshot::Sender<Delivery>>,
    },
    /// These records never come, so a gap is to be announced before the next one (SNK-12).
    Missed { first: u64, last: u64 },
    Flush {
        until: Instant,
        reply: oneshot::Sender<Answer>,
    },
    Close {
        until: Instant,
        reply: Option<oneshot::Sender<Answer>>,
    },
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    command: Command,
    admitted: Option<oneshot::Sender<()>>,
}

/// Records that did not reach the sink.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lost {
    pub(super) dropped: u64,
    pub(super) failed: u64,
    pub(super) span: Option<(u64, u64)>,
}

impl Lost {
    fn add(&mut self, other: Lost) {
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.failed = self.failed.saturating_add(other.failed);
        self.span = match (self.span, other.span) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    pub(super) fn count(&self) -> u64 {
        self.dropped.saturating_add(self.failed)
    }
}

/// A gap of a direct sink, healed by a batch that announces it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) first: u64,
    /// A batch with the announcement is on its way.
    pub(super) announced: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    admitted: VecDeque<Command>,
    waiting: VecDeque<Waiting>,
    /// Admitted and in the hands of the sink.
    records: usize,
    bytes: u64,
    in_flight: Option<(u64, u64, u64)>,
    /// Set when the sink is not to be called again.
    pub(super) ended: Option<SinkError>,
    /// What the sink was handed and what became of it.
    pub(super) delivered: SinkCounts,
    /// What never reached it.
    undelivered: SinkCounts,
    pub(super) total: Lost,
    /// Since the last report.
    pub(super) unreported: Lost,
    /// Since the last `loss` record.
    pub(super) unpublished: Lost,
    pub(super) published_at_ns: Option<u64>,
    pub(super) gap: Option<Gap>,
    /// Sequences of the last direct batch, which the sink had already under others.
    pub(super) unused: Option<(u64, u64)>,
    next_ticket: u64,
}

impl State {
    pub(super) fn lose(&mut self, lost: Lost) {
        self.total.add(lost);
        self.unreported.add(lost);
        self.unpublished.add(lost);
    }

    /// The receipt of a lifetime, with what the sink itself says about what it was handed (SNK-5).
    pub(super) fn lifetime(&self, own: Option<DurabilityReceipt>) -> DurabilityReceipt {
        if let Some(own) = own {
            if self.undelivered.received() == 0 {
                return own;
            }
            let mut counts = own.counts();
            counts.add(&self.undelivered);
            return DurabilityReceipt::of_lifetime(counts);
        }
        let mut counts = self.delivered;
        counts.add(&self.undelivered);
        DurabilityReceipt::of_lifetime(counts)
    }
}

/// What became of an offer before anybody waits.
#[derive(Debug, Default)]
pub(super) struct Offered {
    pub(super) counts: SinkCounts,
    pub(super) error: Option<SinkError>,
    /// Records that wait for room, under this ticket.
    pub(super) waiting: Option<(u64, u64, oneshot::Receiver<()>)>,
    pub(super) reply: Option<oneshot::Receiver<Delivery>>,
}

/// One registered sink as its submitters see it.
#[derive(Debug)]
pub(super) struct SinkQueue {
    pub(super) capabilities: SinkCapabilities,
    pub(super) failure_policy: FailurePolicy,
    pub(super) view: PrivacyView,
    /// Submitters wait for its receipt (SNK-20).
    pub(super) direct: bool,
    pub(super) deferred: Deferred,
    state: Mutex<State>,
    wake: Condvar,
}

impl SinkQueue {
    pub(super) fn new(
        capabilities: SinkCapabilities,
        failure_policy: FailurePolicy,
        view: PrivacyView,
        deferred: Deferred,
    ) -> Self {
        let direct = capabilities.durability_receipts
            && capabilities.atomic_batch
            && capabilities.backpressure == Backpressure::Block;
        SinkQueue {
            capabilities,
            failure_policy,
            view,
            direct,
            deferred,
            state: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sink_id(&self) -> Arc<str> {
        Arc::clone(&self.capabilities.sink_id)
    }

    pub(super) fn is_required(&self) -> bool {
        self.failure_policy == FailurePolicy::Required
    }

    pub(super) fn failure(&self, operation: SinkOperation, error: SinkError) -> SinkFailure {
        SinkFailure {
            sink_id: self.sink_id(),
            operation,
            error,
            required: self.is_required(),
        }
    }

    pub(super) fn defer(&self, operation: SinkOperation, error: SinkError) {
        let failure = self.failure(operation, error);
        self.deferred
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(failure);
    }

    /// Records that will never be offered, such as refused ones and those after close.
    pub(super) fn count_unoffered(&self, count: u64) {
        let mut state = self.lock();
        self.miss(&mut state, count, None, false);
    }

    /// Records that cannot be shown in the view of the sink.
    pub(super) fn count_unprojected(&self, count: u64, span: Option<(u64, u64)>) {
        let mut state = self.lock();
        self.miss(&mut state, count, span, false);
    }

    /// Counts records that do not reach the sink and opens the gap that they leave.
    fn miss(&self, state: &mut State, count: u64, span: Option<(u64, u64)>, dropped: bool) {
        let mut lost = Lost {
            span,
            ..Lost::default()
        };
        let counted = if dropped {
            lost.dropped = count;
            DurabilityReceipt::dropped(count)
        } else {
            lost.failed = count;
            DurabilityReceipt::failed(count)
        };
        state.undelivered.add(&counted.counts());
        state.lose(lost);
        if let Some((first, last)) = span
            && state.ended.is_none()
        {
            self.open_gap(state, first, last);
        }
    }

    fn open_gap(&self, state: &mut State, first: u64, last: u64) {
        if self.direct {
            let first = state.gap.map_or(first, |gap| gap.first.min(first));
            state.gap = Some(Gap {
                first,
                announced: false,
            });
            return;
        }
        let tail = match state.waiting.back_mut() {
            Some(waiting) => Some(&mut waiting.command),
            None => state.admitted.back_mut(),
        };
        if let Some(Command::Missed { last: known, .. }) = tail {
            *known = last;
            return;
        }
        let ticket = u64::MAX;
        self.append(state, ticket, Command::Missed { first, last });
    }

    fn append(&self, state: &mut State, ticket: u64, command: Command) {
        if state.waiting.is_empty() {
            state.admitted.push_back(command);
        } else {
            state.waiting.push_back(Waiting {
                ticket,
                command,
                admitted: None,
            });
        }
    }

    /// Offers records in order; call it under the lock that gives sequences.
    pub(super) fn offer(&self, records: Vec<ProjectedRecord>, gap_from: Option<u64>) -> Offered {
        let mut offered = Offered::default();
        let mut state = self.lock();
        let batch = Batch { records, gap_from };
        if let Some(error) = state.ended.clone() {
            self.refuse(&mut state, &batch, error, &mut offered);
        } else if self.direct {
            self.offer_direct(&mut state, batch, &mut offered);
        } else {
            self.offer_runs(&mut state, batch.records, &mut offered);
        }
        drop(state);
        self.wake.notify_one();
        offered
    }

    fn refuse(&self, state: &mut State, batch: &Batch, error: SinkError, offered: &mut Offered) {
        let count = batch.records.len() as u64;
        if count == 0 {
            return;
        }
        let dropped = self.capabilities.backpressure == Backpressure::DropNewest
            && matches!(error, SinkError::CapacityExhausted { .. });
        self.miss(state, count, Some(batch.span()), dropped);
        let counted = if dropped {
            DurabilityReceipt::dropped(count)
        } else {
            DurabilityReceipt::failed(count)
        };
        offered.counts.add(&counted.counts());
        if !dropped {
            offered.error.get_or_insert(error);
        }
    }

    /// The largest record that may go in whole (SNK-16); what no queue can hold is oversize as well.
    fn record_bound(&self) -> u64 {
        let declared = self.capabilities.max_record_bytes.unwrap_or(u64::MAX);
        if self.direct {
            declared
        } else {
            declared.min(self.capabilities.queue_bytes)
        }
    }

    /// The record, its stub, or why it cannot go.
    fn within_bound(&self, record: ProjectedRecord) -> Result<ProjectedRecord, SinkError> {
        let (bytes, limit_bytes) = (size(&record), self.record_bound());
        if bytes <= limit_bytes {
            return Ok(record);
        }
        let too_large = SinkError::RecordTooLarge { bytes, limit_bytes };
        if self.is_required() {
            return Err(too_large);
        }
        match record.without_payload() {
            Ok(stub) if size(&stub) <= limit_bytes => Ok(stub),
            _ => Err(too_large),
        }
    }

    fn offer_direct(&self, state: &mut State, mut batch: Batch, offered: &mut Offered) {
        let mut fitting = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            match self.within_bound(record.clone()) {
                Ok(record) => fitting.push(record),
                // A direct batch is taken whole or not at all.
                Err(error) => return self.refuse(state, &batch, error, offered),
            }
        }
        batch.records = fitting;
        if batch.records.is_empty() {
            return;
        }
        if let (Some(gap), Some(_)) = (state.gap.as_mut(), batch.gap_from) {
            gap.announced = true;
        }
        let (sender, receiver) = oneshot::channel();
        offered.reply = Some(receiver);
        let command = Command::Receive {
            batch,
            reply: Some(sender),
        };
        self.admit_or_wait(state, vec![command], offered);
    }

    fn offer_runs(&self, state: &mut State, records: Vec<ProjectedRecord>, offered: &mut Offered) {
        let mut run = Vec::with_capacity(records.len());
        for record in records {
            let sequence = record.sequence();
            match self.within_bound(record) {
                Ok(record) => run.push(record),
                Err(error) => {
                    self.offer_run(state, std::mem::take(&mut run), offered);
                    self.miss(state, 1, Some((sequence, sequence)), false);
                    offered.counts.failed = offered.counts.failed.saturating_add(1);
                    offered.error.get_or_insert(error);
                }
            }
        }
        self.offer_run(state, run, offered);
    }

    fn offer_run(&self, state: &mut State, run: Vec<ProjectedRecord>, offered: &mut Offered) {
        if run.is_empty() {
            return;
        }
        let batch = Batch {
            records: run,
            gap_from: None,
        };
        if self.capabilities.backpressure == Backpressure::Block {
            let command = Command::Receive { batch, reply: None };
            self.admit_or_wait(state, vec![command], offered);
            return;
        }
        let (fitting, rest) = self.split(state, batch);
        if let Some(fitting) = fitting {
            offered.counts.accepted = offered
                .counts
                .accepted
                .saturating_add(fitting.records.len() as u64);
            self.admit(state, fitting, None);
        }
        if let Some(rest) = rest {
            let error = SinkError::CapacityExhausted {
                sink_id: self.sink_id(),
            };
            self.refuse(state, &rest, error, offered);
        }
    }

    fn admit(&self, state: &mut State, batch: Batch, reply: Option<oneshot::Sender<Delivery>>) {
        state.records = state.records.saturating_add(batch.records.len());
        state.bytes = state.bytes.saturating_add(batch.bytes());
        state.admitted.push_back(Command::Receive { batch, reply });
    }

    /// What fits now and what does not; atomic batches are not divided.
    fn split(&self, state: &State, mut batch: Batch) -> (Option<Batch>, Option<Batch>) {
        let most = self.capabilities.queue_records.max(1);
        let mut room_records = most.saturating_sub(state.records);
        let mut room_bytes = self.capabilities.queue_bytes.saturating_sub(state.bytes);
        let mut fitting = 0;
        for record in &batch.records {
            let bytes = size(record);
            if room_records == 0 || bytes > room_bytes {
                break;
            }
            room_records -= 1;
            room_bytes -= bytes;
            fitting += 1;
        }
        if fitting == batch.records.len() || (self.direct && state.records == 0) {
            return (Some(batch), None);
        }
        if fitting == 0 || self.capabilities.atomic_batch {
            return (None, Some(batch));
        }
        let rest = batch.records.split_off(fitting);
        let rest = Batch {
            records: rest,
            gap_from: None,
        };
        (Some(batch), Some(rest))
    }

    fn admit_or_wait(&self, state: &mut State, commands: Vec<Command>, offered: &mut Offered) {
        let ticket = match &offered.waiting {
            Some((ticket, ..)) => *ticket,
            None => state.next_ticket,
        };
        for command in commands {
            let count = match &command {
                Command::Receive { batch, .. } => batch.records.len() as u64,
                _ => 0,
            };
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back(Waiting {
                ticket,
                command,
                admitted: Some(sender),
            });
            let before = state.records;
            self.admit_waiting(state);
            if state.waiting.is_empty() {
                offered.counts.accepted = offered.counts.accepted.saturating_add(count);
            } else {
                let now = (state.records.saturating_sub(before) as u64).min(count);
                offered.counts.accepted = offered.counts.accepted.saturating_add(now);
                let waits = offered.waiting.as_ref().map_or(0, |(_, waits, _)| *waits);
                offered.waiting = Some((ticket, waits.saturating_add(count - now), receiver));
                state.next_ticket = ticket.saturating_add(1);
            }
        }
    }

    /// Moves what has room now from the waiting to the admitted, in order.
    fn admit_waiting(&self, state: &mut State) {
        while let Some(Waiting {
            ticket,
            command,
            admitted,
        }) = state.waiting.pop_front()
        {
            let Command::Receive { batch, reply } = command else {
                state.admitted.push_back(command);
                continue;
            };
            match self.split(state, batch) {
                (Some(batch), None) => {
                    self.admit(state, batch, reply);
                    if let Some(admitted) = admitted {
                        let _ = admitted.send(());
                    }
                }
                (fitting, rest) => {
                    if let Some(fitting) = fitting {
                        self.admit(state, fitting, None);
                    }
                    if let Some(batch) = rest {
                        let command = Command::Receive { batch, reply };
                        state.waiting.push_front(Waiting {
                            ticket,
                            command,
                            admitted,
                        });
                    }
                    return;
                }
            }
        }
    }

    /// Takes back what still waits under `ticket`; the number of its records, counted as failed.
    pub(super) fn give_up(&self, ticket: u64) -> u64 {
        let mut state = self.lock();
        let mut given_up = 0;
        let mut kept = VecDeque::with_capacity(state.waiting.len());
        for mut waiting in std::mem::take(&mut state.waiting) {
            if let Command::Receive { batch, .. } = &waiting.command
                && waiting.ticket == ticket
            {
                let (count, (first, last)) = (batch.records.len() as u64, batch.span());
                given_up += count;
                if self.direct {
                    self.miss(&mut state, count, Some((first, last)), false);
                    continue;
                }
                let lost = DurabilityReceipt::failed(count);
                state.undelivered.add(&lost.counts());
                state.lose(Lost {
                    dropped: 0,
                    failed: count,
                    span: Some((first, last)),
                });
                waiting.command = Command::Missed { first, last };
                waiting.admitted = None;
            }
            kept.push_back(waiting);
        }
        state.waiting = kept;
        self.admit_waiting(&mut state);
        drop(state);
        self.wake.notify_one();
        given_up
    }

    /// Queues a call that is no record; the sink's end is the answer if it has ended.
    pub(super) fn control(&self, command: Command) -> Result<(), Answer> {
        let mut state = self.lock();
        if let Some(error) = state.ended.clone() {
            return Err((state.lifetime(None), Some(error)));
        }
        self.append(&mut state, u64::MAX, command);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// The next command for the worker; `None` when it is to end.
    pub(super) fn next(&self) -> Option<Command> {
        let mut state = self.lock();
        loop {
            if state.ended.is_some() {
                return None;
            }
            self.admit_waiting(&mut state);
            if let Some(command) = state.admitted.pop_front() {
                if let Command::Receive { batch, .. } = &command {
                    let (first, last) = batch.span();
                    state.in_flight = Some((batch.records.len() as u64, first, last));
                }
                return Some(command);
            }
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The sink is done with a batch of this size; `false` if its books were closed meanwhile.
    pub(super) fn release(&self, state: &mut State, records: usize, bytes: u64) -> bool {
        state.records = state.records.saturating_sub(records);
        state.bytes = state.bytes.saturating_sub(bytes);
        self.admit_waiting(state);
        state.in_flight.take().is_some()
    }

    /// Ends the sink: what is queued or in its hands counts as failed, nobody waits any more.
    pub(super) fn end(&self, error: SinkError) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(error.clone());
        if let Some((count, first, last)) = state.in_flight.take() {
            self.miss(&mut state, count, Some((first, last)), false);
        }
        let mut left: Vec<Command> = state.admitted.drain(..).collect();
        left.extend(state.waiting.drain(..).map(|waiting| waiting.command));
        state.records = 0;
        state.bytes = 0;
        let mut answers = Vec::new();
        for command in left {
            match command {
                Command::Receive { batch, reply } => {
                    let count = batch.records.len() as u64;
                    self.miss(&mut state, count, Some(batch.span()), false);
                    if let Some(reply) = reply {
                        let delivery = Delivery {
                            receipt: DurabilityReceipt::failed(count),
                            error: Some(error.clone()),
                        };
                        let _ = reply.send(delivery);
                    }
                }
                Command::Flush { reply, .. } => answers.push(reply),
                Command::Close { reply, .. } => answers.extend(reply),
                Command::Missed { .. } => {}
            }
        }
        let receipt = state.lifetime(None);
        for reply in answers {
            let _ = reply.send((receipt.clone(), Some(error.clone())));
        }
        drop(state);
        self.wake.notify_all();
    }

    /// The sink closed as asked; everything is in its books.
    pub(super) fn finish(&self) {
        let closed = SinkError::Closed {
            sink_id: self.sink_id(),
        };
        self.end(closed);
    }
}
