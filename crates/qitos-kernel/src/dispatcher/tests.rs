//! Each rule with its id; gates instead of sleeps.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use qitos_contracts::clock::{Clock, ManualClock, Timestamp};
use qitos_contracts::error::{Performed, Retry};
use qitos_contracts::event::{
    Backpressure, DispatchReport, DurabilityReceipt, EventSink, FailurePolicy, SinkCapabilities,
    SinkError, SinkRegistration,
};
use qitos_contracts::record::{PrivacyView, ProjectedRecord, Record, RecordKind};
use serde_json::json;

use super::Dispatcher;

mod bounds;
mod failures;

type Seen = Arc<Mutex<Vec<ProjectedRecord>>>;
type Script =
    Box<dyn FnMut(&[ProjectedRecord]) -> Result<Option<DurabilityReceipt>, SinkError> + Send>;

struct Scripted {
    capabilities: SinkCapabilities,
    seen: Seen,
    script: Script,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Scripted")
    }
}

impl EventSink for Scripted {
    fn capabilities(&self) -> SinkCapabilities {
        self.capabilities.clone()
    }

    fn receive(
        &mut self,
        records: &[ProjectedRecord],
    ) -> Result<Option<DurabilityReceipt>, SinkError> {
        let answer = (self.script)(records)?;
        self.seen.lock().unwrap().extend_from_slice(records);
        Ok(answer)
    }

    fn flush(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        Ok(None)
    }

    fn close(&mut self, _until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        Ok(None)
    }
}

fn plain(id: &str) -> SinkCapabilities {
    SinkCapabilities::new(id)
}

fn journal() -> SinkCapabilities {
    plain("qitos.journal")
        .with_durability_receipts()
        .with_atomic_batch()
        .with_backpressure(Backpressure::Block)
}

fn scripted(capabilities: SinkCapabilities, script: Script) -> (SinkRegistration, Seen) {
    let seen = Seen::default();
    let sink = Scripted {
        capabilities,
        seen: Arc::clone(&seen),
        script,
    };
    let registration = SinkRegistration::new(Box::new(sink)).with_view(PrivacyView::RawPrivate);
    (registration, seen)
}

fn taking(capabilities: SinkCapabilities) -> (SinkRegistration, Seen) {
    scripted(capabilities, Box::new(|_| Ok(None)))
}

fn broken() -> SinkError {
    SinkError::Own {
        code: "backend_down",
        message: "the backend is down".into(),
        retry: Retry::AfterDelay,
        performed: Performed::No,
    }
}

/// Fails the calls whose numbers are in `fails`.
fn failing(
    capabilities: SinkCapabilities,
    fails: std::ops::Range<usize>,
) -> (SinkRegistration, Seen) {
    let mut call = 0;
    let script = move |_: &[ProjectedRecord]| {
        call += 1;
        if fails.contains(&(call - 1)) {
            Err(broken())
        } else {
            Ok(None)
        }
    };
    scripted(capabilities, Box::new(script))
}

/// Tells `entered` of every call and waits for a word.
fn gated(capabilities: SinkCapabilities) -> (SinkRegistration, Seen, Receiver<()>, Sender<()>) {
    let (entered, entries) = channel();
    let (gate, opened) = channel::<()>();
    let script = move |_: &[ProjectedRecord]| {
        let _ = entered.send(());
        let _ = opened.recv();
        Ok(None)
    };
    let (registration, seen) = scripted(capabilities, Box::new(script));
    (registration, seen, entries, gate)
}

fn optional(registration: SinkRegistration) -> SinkRegistration {
    registration.with_failure_policy(FailurePolicy::Optional)
}

fn with(sinks: Vec<SinkRegistration>) -> (Dispatcher, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_000_000)));
    let shared: Arc<dyn Clock> = clock.clone();
    let mut dispatcher = Dispatcher::new(shared, 0);
    for sink in sinks {
        dispatcher.register(sink).unwrap();
    }
    (dispatcher, clock)
}

fn records(name: &str, count: usize) -> Vec<Record> {
    (0..count)
        .map(|index| {
            let id = format!("{name}-{index}");
            Record::new(RecordKind::Session, id, Timestamp::from_micros(0))
        })
        .collect()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn sequences(seen: &Seen) -> Vec<u64> {
    seen.lock()
        .unwrap()
        .iter()
        .map(ProjectedRecord::sequence)
        .collect()
}

fn codes(report: &DispatchReport) -> Vec<&str> {
    report
        .failures
        .iter()
        .map(|failure| failure.code())
        .collect()
}

/// Runs a future on this thread without any runtime (SNK-15).
fn run<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn submit_flush_and_close_need_no_runtime_and_give_one_sequence_to_all() {
    // TRJ-7, TRJ-8, SNK-15, SNK-20
    let ((direct, stored), (other, seen)) = (taking(journal()), taking(plain("copy")));
    let (dispatcher, _) = with(vec![direct, other]);
    let submitted = run(dispatcher.submit(records("a", 3)));
    assert!(submitted.report.is_successful() && !submitted.required_failed);
    assert_eq!(sequences(&stored), [0, 1, 2]);
    let report = run(dispatcher.flush(soon()));
    assert!(report.is_successful(), "{report:?}");
    assert_eq!(sequences(&seen), [0, 1, 2]);
    assert_eq!(dispatcher.next_sequence(), 3);
    let closed = run(dispatcher.close(soon()));
    assert!(closed.is_successful(), "{closed:?}");
    assert_eq!(run(dispatcher.close(soon())), closed);
    assert_eq!(dispatcher.sink_loss(), json!({}));
}
