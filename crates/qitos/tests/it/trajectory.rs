//! The dispatcher in front of a journal on disk.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use qitos::checkpoint::MemoryCheckpointStore;
use qitos::models::scripted::{Answer, ScriptedModel, Step};
use qitos::tool::ToolRegistry;
use qitos::tool::permission::{PermissionPolicy, PermissionRule, RuleEffect};
use qitos::{Engine, RunOptions, StopReason};
use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_contracts::error::{Performed, Retry};
use qitos_contracts::event::{
    DurabilityReceipt, EventSink, SinkCapabilities, SinkError, SinkRegistration,
};
use qitos_contracts::record::{PrivacyView, ProjectedRecord, Record, RecordKind};
use qitos_contracts::snapshot::Lifecycle;
use qitos_journal::{JournalOptions, JournalReader, JournalSink, Query};
use qitos_kernel::dispatcher::Dispatcher;

use super::engine::Counter;

fn open(directory: &Path) -> Dispatcher {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_000_000)));
    let options = JournalOptions::new(clock.clone(), Arc::new(CountingIds::new(1)));
    let (sink, _) = JournalSink::open(directory, options).unwrap();
    let next = sink.next_sequence();
    let mut dispatcher = Dispatcher::new(clock, next);
    let registration = SinkRegistration::new(Box::new(sink)).with_view(PrivacyView::RawPrivate);
    dispatcher.register(registration).unwrap();
    dispatcher
}

fn records(name: &str) -> Vec<Record> {
    (0..2)
        .map(|index| {
            let id = format!("{name}-{index}");
            Record::new(RecordKind::Session, id, Timestamp::from_micros(0))
        })
        .collect()
}

#[tokio::test]
async fn records_sent_again_after_a_reopening_are_stored_once_and_leave_no_gap() {
    // TRJ-7, TRJ-42, SNK-20
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trajectory.journal");
    let until = Instant::now() + Duration::from_secs(30);
    let first = open(&path);
    assert!(first.submit(records("a")).await.report.is_successful());
    assert!(first.close(until).await.is_successful());
    let second = open(&path);
    assert_eq!(second.next_sequence(), 2);
    for name in ["a", "b"] {
        let submitted = second.submit(records(name)).await;
        assert!(submitted.report.is_successful(), "{submitted:?}");
    }
    assert_eq!(second.next_sequence(), 4);
    assert!(second.close(until).await.is_successful());
    assert_eq!(open(&path).next_sequence(), 4);
}

/// A journal whose disk is full at one call, or from there on for a while.
#[derive(Debug)]
struct FullDisk {
    journal: JournalSink,
    call: usize,
    fails: Range<usize>,
}

impl EventSink for FullDisk {
    fn capabilities(&self) -> SinkCapabilities {
        self.journal.capabilities()
    }

    fn receive(
        &mut self,
        records: &[ProjectedRecord],
    ) -> Result<Option<DurabilityReceipt>, SinkError> {
        self.call += 1;
        if self.fails.contains(&(self.call - 1)) {
            return Err(SinkError::Own {
                code: "journal_no_space",
                message: "the disk is full".into(),
                retry: Retry::AfterDelay,
                performed: Performed::No,
            });
        }
        self.journal.receive(records)
    }

    fn flush(&mut self, until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        self.journal.flush(until)
    }

    fn close(&mut self, until: Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        self.journal.close(until)
    }
}

static PAID: AtomicUsize = AtomicUsize::new(0);

/// Has an effect outside.
#[qitos::tool]
fn pay() -> usize {
    PAID.fetch_add(1, Ordering::SeqCst)
}

/// How often the run stopped on its sink, whether the close was clean, and the kinds of what the journal holds.
async fn pay_once(fails: Range<usize>) -> (usize, bool, Vec<RecordKind>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trajectory.journal");
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_000_000)));
    let options = JournalOptions::new(clock.clone(), Arc::new(CountingIds::new(1)));
    let (journal, _) = JournalSink::open(&path, options).unwrap();
    let mut dispatcher = Dispatcher::new(clock, 0);
    let sink = FullDisk {
        journal,
        call: 0,
        fails: fails.clone(),
    };
    let registration = SinkRegistration::new(Box::new(sink)).with_view(PrivacyView::RawPrivate);
    dispatcher.register(registration).unwrap();
    let dispatcher = Arc::new(dispatcher);

    let steps = vec![
        Step::answer(Answer::call("c1", "pay", "{}")),
        Step::answer(Answer::text("paid")),
    ];
    let mut tools = ToolRegistry::new();
    tools.register(Pay).unwrap();
    let allow = vec![PermissionRule::for_tool(RuleEffect::Allow, "pay")];
    let engine = Engine::builder(
        Counter,
        Arc::new(ScriptedModel::new("test", steps).unwrap()),
    )
    .tools(tools)
    .permissions(PermissionPolicy::new(allow, None).unwrap())
    .store(Arc::new(MemoryCheckpointStore::new()))
    .dispatcher(Arc::clone(&dispatcher))
    .build()
    .unwrap();

    PAID.store(0, Ordering::SeqCst);
    let session = engine.session("pay").await.unwrap();
    let mut stops = 0;
    loop {
        let result = session.run(RunOptions::default()).await.unwrap();
        if result.stop_reason == StopReason::Final {
            assert_eq!(result.final_result.as_deref(), Some("paid"), "{fails:?}");
            break;
        }
        assert_eq!(
            (result.stop_reason, result.lifecycle),
            (StopReason::TrajectorySinkFailed, Lifecycle::Paused),
            "{fails:?}: {result:?}"
        );
        stops += 1;
        assert!(stops < 20, "{fails:?}");
    }
    assert_eq!(PAID.load(Ordering::SeqCst), 1, "{fails:?}");
    let closed = dispatcher
        .close(Instant::now() + Duration::from_secs(30))
        .await;
    let mut reader = JournalReader::open(&path).unwrap();
    reader.validate().unwrap();
    let records = reader.query(&Query::all()).unwrap();
    let kinds = records.iter().map(|record| record.record().kind);
    (stops, closed.failures.is_empty(), kinds.collect())
}

#[tokio::test]
async fn a_full_disk_at_any_record_stops_before_the_next_effect_and_loses_nothing() {
    // TRJ-7, SNK-20, trajectory section 3: the effect happens once, the journal has no hole and no gap.
    let (stops, clean, whole) = pay_once(0..0).await;
    assert_eq!((stops, clean), (0, true));
    let count = |kinds: &[RecordKind], kind| kinds.iter().filter(|k| **k == kind).count();
    let (mut stopped, mut unclean) = (0, 0);
    for at in 0..whole.len() {
        for length in [1, 3] {
            let (stops, clean, kinds) = pay_once(at..at + length).await;
            stopped += stops;
            assert_eq!(count(&kinds, RecordKind::Loss), 0, "{at} {length}");
            if !clean {
                // The disk was still full at the close: its report says so, and what is there has no hole.
                unclean += 1;
                continue;
            }
            for kind in [
                RecordKind::ModelResponse,
                RecordKind::ToolBatch,
                RecordKind::ToolResult,
            ] {
                let wanted = count(&whole, kind);
                assert_eq!(count(&kinds, kind), wanted, "{at} {length} {kind:?}");
            }
            assert!(kinds.len() >= whole.len(), "{at} {length}");
        }
    }
    // Only a disk that fills at the very last record and stays full is left to the close.
    assert!(stopped > 0 && unclean == 1, "{stopped} {unclean}");
}
