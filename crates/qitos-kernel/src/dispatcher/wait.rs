//! What a submitter waits for: room in full queues, receipts of direct sinks, answers to flush and close.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos_contracts::event::{
    DispatchReport, DurabilityReceipt, SinkError, SinkOperation, SinkStall,
};
use tokio::sync::oneshot;

use super::Dispatcher;
use super::queue::{Answer, Offered, SinkQueue};
use super::sequence::Offer;

const STALL: Duration = Duration::from_millis(100);

/// Takes back what waits if the submitter goes away, so that waiting records never outnumber waiters.
struct Ticket {
    sink: Arc<SinkQueue>,
    number: u64,
    held: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.held {
            self.sink.give_up(self.number);
        }
    }
}

impl Dispatcher {
    /// Waits for what was offered to one sink and enters it into the report.
    pub(super) async fn settle(&self, offer: Offer, report: &mut DispatchReport) {
        let Some(sink) = self.sinks.get(offer.index) else {
            return;
        };
        let Offered {
            mut counts,
            mut error,
            waiting,
            reply,
        } = offer.offered;
        if counts.received() == 0 && waiting.is_none() && reply.is_none() {
            return;
        }
        let began = Instant::now();
        if let Some((number, count, admitted)) = waiting {
            let mut ticket = Ticket {
                sink: Arc::clone(sink),
                number,
                held: true,
            };
            let until = began + self.block_timeout;
            let in_time = tokio::select! {
                biased;
                admitted = admitted => admitted.is_ok(),
                () = self.timer.at(until) => false,
            };
            ticket.held = false;
            let left = if in_time {
                0
            } else {
                self.left(sink, number, count)
            };
            counts.accepted = counts.accepted.saturating_add(count - left);
            counts.failed = counts.failed.saturating_add(left);
            if left > 0 {
                error.get_or_insert(self.why_left(sink, began.elapsed()));
            }
        }
        let mut receipt = DurabilityReceipt::of_lifetime(counts);
        if let Some(reply) = reply {
            // No answer and no room: the batch was taken back above.
            match reply.await {
                Ok(delivery) => {
                    self.take_back_unused(sink);
                    receipt = delivery.receipt;
                    error = delivery.error.or(error);
                }
                Err(_) => {
                    let dead = SinkError::WorkerDead {
                        sink_id: sink.sink_id(),
                    };
                    receipt = DurabilityReceipt::failed(counts.received());
                    error.get_or_insert(dead);
                }
            }
        } else if counts.dropped > 0 && error.is_none() {
            receipt = receipt.with_detail("sink_capacity_exhausted");
        }
        let waited = began.elapsed();
        if waited > STALL {
            report.stalls.push(SinkStall {
                sink_id: sink.sink_id(),
                waited,
            });
        }
        if let Some(error) = error {
            let failure = sink.failure(SinkOperation::Receive, error);
            report.failures.push(failure);
        }
        report.receipts.push(Self::receipt(sink, receipt));
    }

    /// What of `count` waiting records was not admitted; an ended sink admitted none of them.
    fn left(&self, sink: &SinkQueue, ticket: u64, count: u64) -> u64 {
        if sink.lock().ended.is_some() {
            return count;
        }
        sink.give_up(ticket).min(count)
    }

    fn why_left(&self, sink: &SinkQueue, waited: Duration) -> SinkError {
        let ended = sink.lock().ended.clone();
        ended.unwrap_or_else(|| SinkError::BlockTimeout {
            sink_id: sink.sink_id(),
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Collects the answers of all sinks by `until`, then everything since the last report.
    pub(super) async fn answers(
        &self,
        asked: Vec<(Result<(), Answer>, oneshot::Receiver<Answer>)>,
        operation: SinkOperation,
        until: Instant,
        report: &mut DispatchReport,
    ) {
        let mut failures = Vec::new();
        for (sink, (queued, answer)) in self.sinks.iter().zip(asked) {
            let answered = match queued {
                Err(ended) => Some(ended),
                Ok(()) => tokio::select! {
                    biased;
                    answer = answer => answer.ok(),
                    () = self.timer.at(until) => None,
                },
            };
            let (receipt, error) = answered.unwrap_or_else(|| {
                let error = SinkError::CloseTimeout {
                    sink_id: sink.sink_id(),
                };
                if operation == SinkOperation::Close {
                    sink.end(error.clone());
                }
                (sink.lock().lifetime(None), Some(error))
            });
            if let Some(error) = error {
                failures.push(sink.failure(operation, error));
            }
            report.receipts.push(Self::receipt(sink, receipt));
        }
        report.failures.append(&mut failures);
        self.complete(report);
    }
}
