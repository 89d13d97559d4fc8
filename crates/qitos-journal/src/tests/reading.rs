//! TRJ-51, TRJ-55, TRJ-60 to TRJ-64: pages and queries of a fixed snapshot.

use qitos_contracts::error::ContractError as _;
use qitos_contracts::record::RecordKind;

use super::*;
use crate::testing::{record, records};

#[test]
fn pages_joined_are_the_complete_read() {
    // TRJ-61, TRJ-62
    let storage = three_segments();
    for limit in [1, 2, 3, 7, 8, 10_000] {
        let mut reading = reader(&storage);
        let mut page = reading.page(&Query::all(), limit).unwrap();
        let mut seen = Vec::new();
        loop {
            assert!(page.records.len() <= limit);
            assert_eq!(page.watermark, Some(6));
            seen.extend(page.records.iter().map(|record| record.sequence()));
            let Some(cursor) = page.next_cursor.clone() else {
                break;
            };
            let next = reading.next_page(&cursor).unwrap();
            assert_eq!(
                reading.next_page(&cursor).unwrap(),
                next,
                "the same cursor twice"
            );
            page = next;
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6], "limit {limit}");
    }
}

#[test]
fn page_limits_hold_at_their_edge() {
    // TRJ-61
    let mut reading = reader(&three_segments());
    for limit in [0, 10_001] {
        assert_eq!(
            reading.page(&Query::all(), limit).unwrap_err().code(),
            "page_limit_invalid"
        );
    }
    for limit in [1, 10_000] {
        assert!(reading.page(&Query::all(), limit).is_ok());
    }
}

#[test]
fn all_given_parts_of_a_query_must_fit() {
    // TRJ-60
    let storage = three_segments();
    let mut reading = reader(&storage);
    let mut found = |query: Query| -> Vec<u64> {
        reading
            .query(&query)
            .unwrap()
            .iter()
            .map(|record| record.sequence())
            .collect()
    };
    assert_eq!(found(Query::all().with_run("run-1")), [1, 3, 5]);
    assert_eq!(found(Query::all().with_run("run-1").with_after(1)), [3, 5]);
    assert!(found(Query::all().with_run("run-2")).is_empty());
    assert!(found(Query::all().with_session("s")).is_empty());
    assert_eq!(found(Query::all().with_kinds(&[RecordKind::Run])).len(), 7);
    assert!(found(Query::all().with_kinds(&[RecordKind::Loss])).is_empty());
    assert!(found(Query::all().with_after(6)).is_empty());
    assert!(found(Query::all().with_after(u64::MAX)).is_empty());
}

#[test]
fn later_appends_are_outside_the_snapshot() {
    // TRJ-51, TRJ-62
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    assert_eq!(reader(&storage).watermark(), None);
    assert!(stored_ids(&storage).is_empty());
    writer.append(&records(0, 3)).unwrap();
    let mut early = reader(&storage);
    let cursor = early.page(&Query::all(), 2).unwrap().next_cursor.unwrap();
    writer.append(&records(3, 5)).unwrap();
    assert_eq!(early.next_page(&cursor).unwrap().records.len(), 1);
    let mut late = reader(&storage);
    assert_eq!(
        late.next_page(&cursor).unwrap_err().code(),
        "cursor_filter_mismatch"
    );
    let poll = Query::all().with_after(early.watermark().unwrap());
    assert_eq!(late.query(&poll).unwrap().len(), 2);
}

#[test]
fn more_than_the_cap_is_an_error_and_never_a_cut() {
    // TRJ-60
    let storage = FaultyStorage::default();
    let mut writer = writer(&storage);
    let mut capped = |extra: u64| {
        writer.append(&[record(extra)]).unwrap();
        let mut reading = reader(&storage);
        reading.query_cap = 10;
        reading
    };
    for sequence in 0..9 {
        capped(sequence);
    }
    assert_eq!(capped(9).query(&Query::all()).unwrap().len(), 10);
    let mut over = capped(10);
    assert_eq!(
        over.query(&Query::all()).unwrap_err().code(),
        "query_limit_exceeded"
    );
    assert_eq!(over.query(&Query::all().with_after(0)).unwrap().len(), 10);
}

#[test]
fn measuring_reports_what_is_there() {
    // TRJ-55
    let storage = three_segments();
    let stored = reader(&storage).measure().unwrap();
    let bytes: usize = storage
        .files()
        .iter()
        .filter(|(name, _)| name.ends_with(".qtj"))
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert_eq!((stored.segments, stored.segment_bytes), (3, bytes as u64));
    assert!(stored.index_bytes > 0);
}
