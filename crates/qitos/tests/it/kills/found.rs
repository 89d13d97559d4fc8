//! What a later process finds, and what section 10 allows it to find.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::checkpoint::{CheckpointStore, VerifyDepth};
use qitos::contracts::ids::{SessionId, SnapshotId};
use qitos::tracing::journal::{JournalReader, Query};
use serde_json::Value;

use super::calls::{Arrival, Kind, call_id, plan};
use super::program::{Ended, effects, journal, receipts, store_file};

/// A durable session and everything that stands outside of its store.
#[derive(Debug)]
pub(super) struct Found {
    inspected: Option<Value>,
    items: Vec<Value>,
    arrivals: BTreeMap<String, Vec<Arrival>>,
    receipted: Vec<(u64, bool)>,
}

/// What is durable of one call.
#[derive(Debug, PartialEq)]
enum Durable {
    /// Not declared, or declared and not started.
    Open,
    /// Its intent and no terminal; whether its effect was reported.
    Started { reported: bool },
    /// Its terminal.
    Closed,
}

/// How a call ended, in three words: status, error code, effect state.
type Terminal = (String, Option<String>, String);

fn terminal(status: &str, code: Option<&str>, effect: &str) -> Terminal {
    (
        status.to_owned(),
        code.map(str::to_owned),
        effect.to_owned(),
    )
}

impl Found {
    /// Reads store, effects, receipts and journal after a process died.
    pub(super) fn read(directory: &Path, session: &SessionId) -> Found {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(Self::read_all(directory, session))
    }

    async fn read_all(directory: &Path, session: &SessionId) -> Found {
        let lines = |file: &Path| -> Vec<String> {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        let mut arrivals: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
        for line in lines(&effects(directory)) {
            let arrival: Arrival = serde_json::from_str(&line).unwrap();
            arrivals
                .entry(arrival.id.clone())
                .or_default()
                .push(arrival);
        }
        let mut found = Found {
            inspected: None,
            items: Vec::new(),
            arrivals,
            receipted: Vec::new(),
        };
        let receipted = lines(&receipts(directory));
        if !store_file(directory).exists() {
            assert!(receipted.is_empty());
            return found;
        }
        let options = OpenOptions::default().create();
        let store = SqliteStore::open(store_file(directory), options)
            .await
            .unwrap();
        for line in receipted {
            let (generation, snapshot) = line.split_once(' ').unwrap();
            let snapshot: SnapshotId = snapshot.parse().unwrap();
            let stored = store.snapshot(&snapshot).await.unwrap().is_some();
            found.receipted.push((generation.parse().unwrap(), stored));
        }
        if let Some(head) = store.head(session).await.unwrap() {
            let inspected = qitos::session::inspect(&store, session).await.unwrap();
            assert_eq!(inspected["snapshot_integrity"]["intact"], true);
            if head.lifecycle.is_terminal() {
                let access = store.groups().chunk_access().unwrap();
                let deep = access.verify(&head.snapshot_id, VerifyDepth::Deep).await;
                assert!(deep.unwrap().intact());
                validate_journals(directory);
            }
            found.inspected = Some(inspected);
            found.items = qitos::session::log_tail(&store, session, 10_000)
                .await
                .unwrap();
        }
        found
    }

    fn at(&self, pointer: &str) -> Value {
        let inspected = self.inspected.as_ref();
        inspected
            .and_then(|inspected| inspected.pointer(pointer))
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn lifecycle(&self) -> String {
        self.at("/lifecycle").as_str().unwrap_or("-").to_owned()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.lifecycle().as_str(),
            "completed" | "cancelled" | "failed"
        )
    }

    pub(super) fn head(&self) -> Value {
        self.at("/head")
    }

    pub(super) fn generation(&self) -> Option<u64> {
        self.at("/head/generation").as_u64()
    }

    pub(super) fn requests(&self) -> u64 {
        self.at("/counters/requests").as_u64().unwrap_or_default()
    }

    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    fn arrived(&self, call: &str) -> &[Arrival] {
        self.arrivals.get(call).map_or(&[], Vec::as_slice)
    }

    fn result(&self, call: &str) -> Option<&Value> {
        self.items
            .iter()
            .filter(|item| item["kind"] == "tool_result")
            .map(result_of)
            .find(|result| result["action_id"] == call)
    }

    fn ended(&self, call: &str) -> Option<Terminal> {
        let result = self.result(call)?;
        let word = |key: &str| result[key].as_str().map(str::to_owned);
        Some((
            word("status").unwrap(),
            word("error_code"),
            word("effect_state").unwrap(),
        ))
    }

    fn durable(&self, call: &str) -> Durable {
        if self.result(call).is_some() {
            return Durable::Closed;
        }
        let slots = self.at("/tool_batch/turn/batch/slots");
        let slot = slots
            .as_array()
            .into_iter()
            .flatten()
            .find(|slot| slot["call_id"] == call);
        match slot {
            Some(slot) if slot["state"] == "started" => Durable::Started {
                reported: !slot["reported"].is_null(),
            },
            _ => Durable::Open,
        }
    }

    /// No commit that was receipted is gone.
    #[track_caller]
    pub(super) fn holds_every_receipt(&self, place: &str) {
        for (generation, stored) in &self.receipted {
            assert!(stored, "{place}: generation {generation} was receipted");
            assert!(self.generation() >= Some(*generation), "{place}");
        }
    }

    /// DUR-9: what had a terminal keeps it, and its place; nothing of the log is lost or changed.
    #[track_caller]
    pub(super) fn goes_on_from(&self, before: Option<&Found>, place: &str) {
        let Some(before) = before else { return };
        assert!(self.generation() >= before.generation(), "{place}");
        let kept = self.items.get(..before.items.len());
        assert_eq!(kept, Some(&before.items[..]), "{place}");
        for call in calls() {
            if before.durable(&call.0) == Durable::Closed {
                let arrivals = |found: &Found| found.arrived(&call.0).len();
                assert_eq!(arrivals(self), arrivals(before), "{place}: {call:?}");
            }
        }
    }

    /// Whether the log says that the cancel was recorded.
    pub(super) fn cancel_is_durable(&self) -> bool {
        self.items
            .iter()
            .filter(|item| item["kind"] == "tool_result")
            .any(|item| result_of(item)["provenance"]["cancel_source"] == "cancel_token")
    }

    /// DUR-12: unstarted calls of a cancelled batch are closed and leave nothing outside.
    #[track_caller]
    pub(super) fn starts_nothing_that_had_not_started(&self, after: &Found, place: &str) {
        for (call, _) in calls() {
            if self.durable(&call) == Durable::Open {
                assert!(after.arrived(&call).is_empty(), "{place}: {call}");
            }
        }
    }

    /// What must hold even while two processes believe that they own the session.
    #[track_caller]
    pub(super) fn has_no_more_than_one_arrival_of_what_is_once_only(&self, place: &str) {
        for (call, kind) in calls() {
            let arrived = self.arrived(&call);
            if matches!(kind, Kind::Once | Kind::Told | Kind::Blind) {
                assert!(arrived.len() <= 1, "{place}: {arrived:?}");
            }
            has_one_key(arrived, place);
        }
    }
}

/// TRJ-42: whoever died left a journal that opens, and nothing stands in it twice.
fn validate_journals(directory: &Path) {
    let journals = (0..).map(|number| journal(directory, number));
    for journal in journals.take_while(|journal| journal.exists()) {
        let mut reader = JournalReader::open(&journal).unwrap();
        reader.validate().unwrap();
        let mut ids = BTreeSet::new();
        for record in reader.query(&Query::all()).unwrap() {
            let id = record.record().record_id.to_string();
            assert!(ids.insert(id), "a record stands twice in the journal");
        }
    }
}

/// The result that an item of the log carries.
fn result_of(item: &Value) -> &Value {
    &item["result"]
}

fn calls() -> Vec<(String, Kind)> {
    let batches = plan().into_iter().enumerate();
    batches
        .flat_map(|(batch, calls)| {
            let calls = calls.into_iter().enumerate();
            calls.map(move |(index, (kind, ..))| (call_id(batch, index), kind))
        })
        .collect()
}

/// TOL-7: however often a call reaches its backend, it does so under one key.
#[track_caller]
fn has_one_key(arrived: &[Arrival], place: &str) {
    let keys = |arrival: &Arrival| arrival.key.clone();
    assert!(
        arrived
            .windows(2)
            .all(|two| keys(&two[0]) == keys(&two[1]) && two[0].attempt != two[1].attempt),
        "{place}: {arrived:?}"
    );
}

fn success(kind: Kind) -> Terminal {
    let effect = match kind {
        Kind::Look | Kind::Repeat | Kind::Blind => "no_effect_declared",
        Kind::Keyed | Kind::Once | Kind::Asked | Kind::Told => "committed",
    };
    terminal("success", None, effect)
}

fn lost(effect: &str) -> Terminal {
    terminal("error", Some("process_lost"), effect)
}

/// The row of section 10 for one call: how it ends, and how often its effect has arrived by then.
fn row(kind: Kind, durable: &Durable, arrived: usize, place: &str) -> (Terminal, usize) {
    let Durable::Started { reported } = *durable else {
        // DUR-4 and earlier: nothing had started, so nothing had arrived.
        assert_eq!(arrived, 0, "{place}: {kind:?} arrived without an intent");
        return (success(kind), 1);
    };
    match kind {
        // DUR-5
        Kind::Look | Kind::Repeat => (success(kind), arrived + 1),
        // DUR-6: dispatched again with its key
        Kind::Keyed => (success(kind), arrived + 1),
        // DUR-6: the backend knows
        Kind::Asked if arrived == 0 => (success(kind), 1),
        Kind::Asked => (lost("committed"), arrived),
        // DUR-6, RES-15: the report stands
        Kind::Told if reported => (lost("committed"), arrived),
        Kind::Once | Kind::Told => (lost("reconciliation_required"), arrived),
        // DUR-7
        Kind::Blind => (lost("unknown"), arrived),
    }
}

/// Compares a session that one process left and another one finished with section 10.
#[track_caller]
pub(super) fn is_as_section_10_says(before: &Found, after: &Found, ended: &Ended, place: &str) {
    after.holds_every_receipt(place);
    after.goes_on_from(Some(before), place);
    assert_eq!(after.lifecycle(), "completed", "{place}");
    assert_eq!(ended.answer.as_deref(), Some("done"), "{place}");
    // DUR-1, DUR-2, DUR-3: a request without an answer counts and is asked again under a new ordinal.
    let lost = u64::from(before.at("/phase") == "asked");
    assert_eq!(ended.requests, super::requests() + lost, "{place}");
    for (call, kind) in calls() {
        let here = format!("{place}: {call} {kind:?}");
        let (durable, arrived) = (before.durable(&call), before.arrived(&call).len());
        has_one_key(after.arrived(&call), &here);
        if durable == Durable::Closed {
            // `goes_on_from` compared its terminal.
            assert_eq!(after.ended(&call).unwrap(), success(kind), "{here}");
            assert_eq!(arrived, 1, "{here}");
            continue;
        }
        let (terminal, arrivals) = row(kind, &durable, arrived, &here);
        let here = format!("{here} {durable:?}");
        assert_eq!(after.ended(&call), Some(terminal), "{here}");
        assert_eq!(after.arrived(&call).len(), arrivals, "{here}");
    }
    // DUR-10, ENG-6: every step is reduced once, its results in declaration order.
    let wanted: Vec<String> = calls().into_iter().map(|(call, _)| call).collect();
    assert_eq!(ended.state, serde_json::json!(wanted), "{place}");
}

/// What holds after any number of deaths, one process at a time.
#[track_caller]
pub(super) fn is_within_what_is_allowed(found: &Found, deaths: u64, place: &str) {
    for (call, kind) in calls() {
        let arrived = found.arrived(&call);
        let here = format!("{place}: {call} {kind:?} {arrived:?}");
        has_one_key(arrived, &here);
        let most = match kind {
            // DUR-5, DUR-6: max_attempts + 1
            Kind::Look | Kind::Repeat | Kind::Keyed if deaths > 0 => 2,
            _ => 1,
        };
        assert!(arrived.len() <= most, "{here}");
        let Some((status, code, effect)) = found.ended(&call) else {
            continue;
        };
        let here = format!("{here} {status} {code:?} {effect}");
        match (status.as_str(), code.as_deref()) {
            ("success", None) => assert!(!arrived.is_empty(), "{here}"),
            ("error", Some("process_lost")) => assert!(deaths > 0, "{here}"),
            ("cancelled", Some("cancelled")) => {}
            _ => panic!("{here}"),
        }
        // RES-5: nothing is said to have happened, or not, unless it did, or did not.
        match effect.as_str() {
            "committed" => assert!(!arrived.is_empty(), "{here}"),
            "rejected" | "not_started" => assert!(arrived.is_empty(), "{here}"),
            _ => {}
        }
    }
}
