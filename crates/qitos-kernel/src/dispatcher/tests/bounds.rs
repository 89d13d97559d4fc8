//! What a queue takes and what it does with the rest (SNK-13, SNK-16).

use std::sync::Barrier;

use super::*;

/// Submits so many records that one more than `held` is asked for, with the sink stopped in its first
/// call, and gives back what the submit said, what the sink saw and what it lost.
fn overfill(
    backpressure: Backpressure,
    asked: usize,
) -> (Vec<String>, DurabilityReceipt, Vec<u64>, serde_json::Value) {
    let capabilities = plain("copy")
        .with_backpressure(backpressure)
        .with_queue(4, 1 << 20);
    let (registration, seen, entries, gate) = gated(capabilities);
    let (dispatcher, _) = with(vec![optional(registration)]);
    // One record is in the hands of the sink and still counts against the bound.
    run(dispatcher.submit(records("first", 1)));
    entries.recv().unwrap();
    let submitted = run(dispatcher.submit(records("more", asked)));
    drop(gate);
    let receipt = submitted.report.receipts[0].receipt.clone();
    let said = codes(&submitted.report)
        .into_iter()
        .map(ToOwned::to_owned)
        .collect();
    run(dispatcher.flush(soon()));
    (said, receipt, sequences(&seen), dispatcher.sink_loss())
}

#[test]
fn a_failing_queue_takes_up_to_its_bound_and_reports_the_rest_as_failed() {
    // SNK-13 with limit - 1, limit, limit + 1; SNK-5: the counts add up
    for (asked, failed) in [(2, 0), (3, 0), (4, 1)] {
        let (said, receipt, _, loss) = overfill(Backpressure::Fail, asked);
        let counts = receipt.counts();
        assert_eq!(counts.failed, failed, "{asked}");
        assert_eq!(counts.received(), asked as u64);
        if failed > 0 {
            assert_eq!(said, ["sink_capacity_exhausted"]);
            assert_eq!(loss["copy"]["failed"], 1);
            assert_eq!(loss["copy"]["first_sequence"], asked);
        } else {
            assert!(said.is_empty() && loss == json!({}), "{said:?} {loss}");
        }
    }
}

#[test]
fn a_dropping_queue_counts_what_it_drops_and_keeps_the_earlier_records() {
    // SNK-11, SNK-13
    for (asked, dropped) in [(2, 0), (3, 0), (4, 1)] {
        let (said, receipt, seen, loss) = overfill(Backpressure::DropNewest, asked);
        assert!(said.is_empty(), "{said:?}");
        assert_eq!(receipt.counts().dropped, dropped, "{asked}");
        assert_eq!(receipt.counts().received(), asked as u64);
        assert_eq!(seen, (0..=asked as u64 - dropped).collect::<Vec<_>>());
        let expected = if dropped > 0 { json!(1) } else { json!(null) };
        assert_eq!(loss["copy"]["dropped"], expected);
    }
}

#[test]
fn a_full_blocking_queue_gives_up_after_its_time_and_others_drain() {
    // SNK-10, SNK-13
    let capabilities = plain("slow")
        .with_backpressure(Backpressure::Block)
        .with_queue(2, 1 << 20);
    let (slow, _, entries, gate) = gated(capabilities);
    let (copy, seen) = taking(plain("copy"));
    let (dispatcher, _) = with(vec![optional(slow), copy]);
    let dispatcher = dispatcher.with_block_timeout(Duration::from_millis(120));
    run(dispatcher.submit(records("first", 1)));
    entries.recv().unwrap();
    let submitted = run(dispatcher.submit(records("more", 2)));
    assert_eq!(codes(&submitted.report), ["sink_block_timeout"]);
    assert_eq!(submitted.report.stalls.len(), 1, "{submitted:?}");
    assert!(!submitted.required_failed);
    let slow = submitted.report.receipts[0].receipt.counts();
    assert_eq!((slow.accepted, slow.failed), (1, 1));
    drop(gate);
    run(dispatcher.close(soon()));
    let seen = sequences(&seen);
    assert_eq!(seen.get(..3), Some(&[0, 1, 2][..]), "{seen:?}");
}

#[test]
fn sequences_increase_strictly_under_eight_concurrent_submitters() {
    // SNK-13, TRJ-7
    let ((direct, stored), (copy, seen)) = (taking(journal()), taking(plain("copy")));
    let (dispatcher, _) = with(vec![direct, copy]);
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for submitter in 0..8 {
            let (dispatcher, barrier) = (&dispatcher, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..20 {
                    let name = format!("s{submitter}-{round}");
                    let submitted = run(dispatcher.submit(records(&name, 2)));
                    assert!(submitted.report.is_successful(), "{submitted:?}");
                }
            });
        }
    });
    assert!(run(dispatcher.close(soon())).is_successful());
    let all: Vec<u64> = (0..320).collect();
    assert_eq!(sequences(&stored), all);
    assert_eq!(sequences(&seen), all);
}

fn sized(bytes: usize) -> Vec<Record> {
    let mut made = records("sized", 1);
    made[0]
        .payload
        .insert("text".into(), "x".repeat(bytes).into());
    made
}

#[test]
fn an_oversize_record_fails_a_required_sink_and_reaches_an_optional_one_as_a_stub() {
    // SNK-16
    let (probe, probed) = taking(plain("probe"));
    let (dispatcher, _) = with(vec![probe]);
    run(dispatcher.submit(sized(4000)));
    run(dispatcher.flush(soon()));
    let limit = probed.lock().unwrap()[0].canonical_bytes().len() as u64;
    for (extra, whole) in [(1, true), (0, true), (-1_i64, false)] {
        let bound = limit.saturating_add_signed(extra);
        let (required, kept) = taking(plain("required").with_max_record_bytes(bound));
        let (lenient, stubs) = taking(plain("optional").with_max_record_bytes(bound));
        let (other, seen) = taking(plain("other"));
        let (dispatcher, _) = with(vec![required, optional(lenient), other]);
        let submitted = run(dispatcher.submit(sized(4000)));
        run(dispatcher.flush(soon()));
        assert_eq!(submitted.required_failed, !whole);
        let expected: &[&str] = if whole { &[] } else { &["record_too_large"] };
        assert_eq!(codes(&submitted.report), expected);
        assert_eq!(sequences(&kept).contains(&0), whole);
        let stub = &stubs.lock().unwrap()[0];
        let payload = &stub.record().payload;
        assert_eq!(payload.contains_key("omitted_bytes"), !whole);
        assert!(
            seen.lock().unwrap()[0]
                .record()
                .payload
                .contains_key("text")
        );
    }
}
