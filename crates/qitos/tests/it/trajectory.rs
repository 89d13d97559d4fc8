//! The dispatcher in front of a journal on disk.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos_contracts::clock::{CountingIds, ManualClock, Timestamp};
use qitos_contracts::event::SinkRegistration;
use qitos_contracts::record::{PrivacyView, Record, RecordKind};
use qitos_journal::{JournalOptions, JournalSink};
use qitos_kernel::dispatcher::Dispatcher;

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
