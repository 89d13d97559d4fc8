//! What is refused, what breaks, and who still hears of it.

use qitos_contracts::error::ContractError;

use super::*;

fn register(sink: SinkRegistration, dispatcher: &mut Dispatcher) -> String {
    dispatcher.register(sink).unwrap_err().code().to_owned()
}

#[test]
fn contradictory_registrations_are_refused_and_register_nothing() {
    // SNK-2, SNK-3
    let (mut dispatcher, _) = with(vec![]);
    let views = &[PrivacyView::RedactedPublic];
    let (sink, _) = taking(plain("narrow").with_supported_views(views));
    assert_eq!(register(sink, &mut dispatcher), "sink_view_unsupported");
    let dropping = plain("dropping").with_backpressure(Backpressure::DropNewest);
    let (sink, _) = taking(dropping);
    assert_eq!(register(sink, &mut dispatcher), "required_sink_may_drop");
    let (sink, _) = taking(plain("remote").with_leaving_machine());
    assert_eq!(register(sink, &mut dispatcher), "private_export_refused");
    assert!(dispatcher.is_empty());
    dispatcher.register(taking(plain("copy")).0).unwrap();
    let (sink, _) = taking(plain("copy"));
    assert_eq!(register(sink, &mut dispatcher), "sink_id_duplicate");
    run(dispatcher.close(soon()));
    let (sink, _) = taking(plain("late"));
    assert_eq!(register(sink, &mut dispatcher), "dispatcher_closed");
}

#[test]
fn records_after_close_are_refused_and_counted() {
    // SNK-7, SNK-20
    let (sink, seen) = taking(plain("copy"));
    let (dispatcher, _) = with(vec![sink]);
    let first = run(dispatcher.close(soon()));
    let submitted = run(dispatcher.submit(records("late", 2)));
    assert!(submitted.required_failed);
    assert_eq!(codes(&submitted.report), ["dispatcher_closed"]);
    assert_eq!(codes(&run(dispatcher.flush(soon()))), ["dispatcher_closed"]);
    assert_eq!(dispatcher.sink_loss()["copy"]["failed"], 2);
    assert_eq!(run(dispatcher.close(soon())), first);
    assert!(sequences(&seen).is_empty());
}

#[test]
fn a_failure_found_later_stands_in_the_next_report_under_the_sinks_own_code() {
    // SNK-8, SNK-9, SNK-10
    let (bad, _) = failing(plain("bad"), 0..1);
    let (good, seen) = taking(plain("good"));
    let (dispatcher, _) = with(vec![bad, good]);
    let submitted = run(dispatcher.submit(records("a", 1)));
    let mut said: Vec<String> = codes(&submitted.report)
        .iter()
        .map(ToString::to_string)
        .collect();
    let flushed = run(dispatcher.flush(soon()));
    said.extend(codes(&flushed).iter().map(ToString::to_string));
    assert_eq!(said, ["backend_down"]);
    assert!(!flushed.is_successful());
    assert_eq!(sequences(&seen).first(), Some(&0));
    assert_eq!(dispatcher.sink_loss()["bad"]["failed"], 1);
}

#[test]
fn a_panic_ends_one_sink_and_leaves_the_others_alone() {
    // SNK-14
    let script: Script = Box::new(|_| panic!("a sink that panics"));
    let (bad, _) = scripted(plain("bad"), script);
    let (good, seen) = taking(plain("good"));
    let (dispatcher, _) = with(vec![optional(bad), good]);
    run(dispatcher.submit(records("a", 1)));
    run(dispatcher.flush(soon()));
    let submitted = run(dispatcher.submit(records("b", 1)));
    assert!(!submitted.required_failed);
    assert!(codes(&submitted.report).contains(&"sink_panicked"));
    run(dispatcher.close(soon()));
    let seen = seen.lock().unwrap();
    let ids: Vec<_> = seen
        .iter()
        .map(|r| r.record().record_id.to_string())
        .collect();
    assert!(
        ids.contains(&"a-0".into()) && ids.contains(&"b-0".into()),
        "{ids:?}"
    );
    assert_eq!(dispatcher.sink_loss()["bad"]["failed"], 2);
}

#[test]
fn close_returns_by_its_deadline_though_a_sink_hangs() {
    // SNK-18
    let (hanging, _, entries, gate) = gated(plain("hanging"));
    let (good, _, good_entries, good_gate) = gated(plain("good"));
    drop(good_gate);
    let (dispatcher, _) = with(vec![hanging, good]);
    run(dispatcher.submit(records("a", 2)));
    entries.recv().unwrap();
    good_entries.recv().unwrap();
    let began = Instant::now();
    let report = run(dispatcher.close(began + Duration::from_millis(50)));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(codes(&report).contains(&"sink_close_timeout"), "{report:?}");
    assert_eq!(report.receipts[0].receipt.counts().failed, 2);
    assert_eq!(dispatcher.sink_loss()["hanging"]["failed"], 2);
    drop(gate);
}

#[test]
fn a_queued_sink_learns_of_its_gap_before_the_next_record() {
    // SNK-12
    let (bad, seen) = failing(plain("bad"), 0..1);
    let (dispatcher, _) = with(vec![bad]);
    run(dispatcher.submit(records("a", 2)));
    run(dispatcher.flush(soon()));
    run(dispatcher.submit(records("b", 1)));
    run(dispatcher.close(soon()));
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].record().payload["code"], "sink_gap");
    assert_eq!(seen[1].record().record_id.to_string(), "b-0");
}

#[test]
fn a_sink_that_submits_from_its_own_call_is_refused_without_deadlock() {
    // SNK-15
    let shared: Arc<Mutex<Option<Arc<Dispatcher>>>> = Arc::default();
    let (told, answers) = channel();
    let inner = Arc::clone(&shared);
    let script: Script = Box::new(move |_| {
        if let Some(dispatcher) = inner.lock().unwrap().take() {
            let submitted = run(dispatcher.submit(records("inner", 1)));
            let said = codes(&submitted.report).join(",");
            told.send(said).unwrap();
        }
        Ok(None)
    });
    let (sink, _) = scripted(plain("loop"), script);
    let (dispatcher, _) = with(vec![sink]);
    let dispatcher = Arc::new(dispatcher);
    *shared.lock().unwrap() = Some(Arc::clone(&dispatcher));
    run(dispatcher.submit(records("a", 1)));
    assert_eq!(answers.recv().unwrap(), "sink_reentrant");
    run(dispatcher.close(soon()));
}

#[test]
fn an_optional_journal_that_missed_records_announces_the_gap_and_goes_on() {
    // SNK-12, SNK-20
    let (direct, seen) = failing(journal(), 0..1);
    let (dispatcher, _) = with(vec![optional(direct)]);
    let submitted = run(dispatcher.submit(records("a", 2)));
    assert_eq!(codes(&submitted.report), ["backend_down"]);
    assert!(!submitted.required_failed);
    assert!(
        run(dispatcher.submit(records("b", 1)))
            .report
            .is_successful()
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].record().payload["code"], "sink_gap");
    assert_eq!((seen[0].sequence(), seen[1].sequence()), (2, 3));
}

#[test]
fn records_that_the_journal_had_already_use_no_sequence_and_leave_no_gap() {
    // TRJ-7, TRJ-42, SNK-20
    let mut call = 0;
    let script: Script = Box::new(move |records| {
        call += 1;
        let receipt = DurabilityReceipt::persisted(records.len() as u64);
        Ok(Some(if call == 2 {
            receipt.with_detail("already_persisted")
        } else {
            receipt
        }))
    });
    let (direct, seen) = scripted(journal(), script);
    let (dispatcher, _) = with(vec![direct]);
    for name in ["a", "a", "b"] {
        let submitted = run(dispatcher.submit(records(name, 2)));
        assert!(submitted.report.is_successful(), "{submitted:?}");
    }
    assert_eq!(sequences(&seen), [0, 1, 2, 3, 2, 3]);
    assert_eq!(dispatcher.next_sequence(), 4);
    assert_eq!(dispatcher.sink_loss(), json!({}));
}

fn required_journal() -> SinkCapabilities {
    journal().with_idempotent_receive()
}

#[test]
fn a_required_journal_gets_what_it_missed_before_anything_newer_and_no_gap() {
    // TRJ-7, SNK-20: only an optional journal has holes.
    for failures in 1..4 {
        let (sink, seen) = failing(required_journal(), 1..1 + failures);
        let (dispatcher, _) = with(vec![sink]);
        assert!(!run(dispatcher.submit(records("a", 2))).required_failed);
        for call in 0..failures {
            let submitted = run(dispatcher.submit(records(&format!("b{call}"), 2)));
            assert!(submitted.required_failed, "{failures} {call}");
            assert_eq!(codes(&submitted.report), ["backend_down"]);
        }
        let submitted = run(dispatcher.submit(records("c", 1)));
        assert!(!submitted.required_failed, "{failures}");
        let last = 2 + 2 * failures as u64;
        assert_eq!(sequences(&seen), (0..=last).collect::<Vec<_>>());
        assert!(run(dispatcher.close(soon())).failures.is_empty());
    }
}

#[test]
fn a_flush_and_a_close_send_what_a_required_journal_missed() {
    // TRJ-7, SNK-20
    for close in [false, true] {
        let (sink, seen) = failing(required_journal(), 0..1);
        let (dispatcher, _) = with(vec![sink]);
        assert!(run(dispatcher.submit(records("a", 2))).required_failed);
        let report = if close {
            run(dispatcher.close(soon()))
        } else {
            run(dispatcher.flush(soon()))
        };
        assert!(report.failures.is_empty(), "{report:?}");
        assert_eq!(sequences(&seen), [0, 1]);
    }
}

#[test]
fn what_a_required_journal_never_takes_is_named_at_the_close() {
    // SNK-7, SNK-9
    let (sink, seen) = failing(required_journal(), 0..usize::MAX);
    let (dispatcher, _) = with(vec![sink]);
    assert!(run(dispatcher.submit(records("a", 3))).required_failed);
    assert_eq!(codes(&run(dispatcher.close(soon()))), ["backend_down"]);
    assert_eq!(dispatcher.sink_loss()["qitos.journal"]["failed"], 3);
    assert!(sequences(&seen).is_empty());
}

#[test]
fn a_panic_while_records_are_sent_again_ends_the_sink() {
    // SNK-14
    let mut call = 0;
    let script: Script = Box::new(move |_| {
        call += 1;
        match call {
            1 => Err(broken()),
            2 => panic!("a sink that panics"),
            _ => Ok(None),
        }
    });
    let (sink, seen) = scripted(required_journal(), script);
    let (dispatcher, _) = with(vec![sink]);
    for _ in 0..3 {
        assert!(run(dispatcher.submit(records("a", 1))).required_failed);
    }
    assert!(run(dispatcher.close(soon())).required_failure().is_some());
    assert!(sequences(&seen).is_empty());
}

#[test]
fn a_required_journal_is_owed_at_most_what_its_queue_may_hold() {
    // TRJ-7, SNK-13: at the bound, one below and one above.
    for (owed, whole) in [(3, true), (4, true), (5, false)] {
        let capabilities = required_journal().with_queue(4, 1 << 20);
        let (sink, seen) = failing(capabilities, 0..1);
        let (dispatcher, _) = with(vec![sink]);
        assert!(run(dispatcher.submit(records("a", owed))).required_failed);
        assert!(!run(dispatcher.submit(records("b", 1))).required_failed);
        let first = sequences(&seen).first().copied();
        // What is too much to keep is announced, as nothing else could say that it is missing.
        let expected = if whole { 0 } else { owed as u64 };
        assert_eq!(first, Some(expected), "{owed}");
        assert_eq!(run(dispatcher.close(soon())).failures.len(), 0);
    }
}
