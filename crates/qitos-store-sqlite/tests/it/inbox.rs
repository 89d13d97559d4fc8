//! The inbox (SES-63).

use std::sync::Arc;

use qitos_contracts::checkpoint::{CheckpointStore, Commit, InboxAppend, InboxKind};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::SessionId;
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;

use crate::subject::{block_on, commit, for_each_store, refused, running};

fn entry(item: &str, payload: &[u8]) -> InboxAppend {
    InboxAppend::new(item.parse().unwrap(), InboxKind::Steering, payload.to_vec()).unwrap()
}

fn waiting(store: &dyn CheckpointStore, session: &SessionId) -> Vec<(u64, String)> {
    let inbox = store.groups().inbox().unwrap();
    block_on(inbox.take(session, 1_000))
        .unwrap()
        .into_iter()
        .map(|entry| (entry.sequence, entry.item_id.to_string()))
        .collect()
}

fn consuming(session: &mut ScriptedSession, sequence: u64) -> Arc<Commit> {
    let mut request = session.request(Lifecycle::Running, "took").unwrap();
    request.consumed_inbox = Some(sequence);
    Arc::new(Commit::new(request).unwrap())
}

#[test]
fn entries_are_kept_in_sequence_until_a_commit_consumes_them() {
    for_each_store(|store| {
        // K68
        let mut session = running(store, 1);
        let id = session.session_id().clone();
        let inbox = store.groups().inbox().unwrap();
        for (sequence, item) in ["a", "b", "c"].iter().enumerate() {
            let receipt = block_on(inbox.append(&id, entry(item, b"{}"))).unwrap();
            assert_eq!(
                (receipt.sequence, receipt.replayed),
                (sequence as u64, false)
            );
        }
        let again = block_on(inbox.append(&id, entry("b", b"{}"))).unwrap();
        assert_eq!((again.sequence, again.replayed), (1, true));
        let other = block_on(inbox.append(&id, entry("b", b"[]"))).unwrap_err();
        assert_eq!(other.code(), "checkpoint_conflict");
        let head = block_on(store.head(&id)).unwrap().unwrap();
        assert_eq!(head.generation, 1);

        // An owner that dies after taking finds the same entries again.
        assert_eq!(waiting(store, &id).len(), 3);
        let beyond = consuming(&mut session.clone().diverging(1), 3);
        assert_eq!(refused(store, &beyond).code(), "corrupt_snapshot");
        assert_eq!(waiting(store, &id).len(), 3);
        let stale = {
            let mut ahead = session.clone().diverging(2);
            ahead.commit(Lifecycle::Running, "lost").unwrap();
            consuming(&mut ahead, 1)
        };
        assert_eq!(refused(store, &stale).code(), "generation_conflict");
        assert_eq!(waiting(store, &id).len(), 3);

        let took = consuming(&mut session, 1);
        commit(store, &took);
        commit(store, &took);
        assert_eq!(waiting(store, &id), [(2, "c".to_owned())]);
        commit(store, &consuming(&mut session, 2));
        assert_eq!(waiting(store, &id), []);
        // What was consumed is still the same entry, not a new one.
        let late = block_on(inbox.append(&id, entry("a", b"{}"))).unwrap();
        assert!(late.replayed);
        let next = block_on(inbox.append(&id, entry("d", b"{}"))).unwrap();
        assert_eq!(next.sequence, 3);
    });
}

#[test]
fn only_a_living_session_has_an_inbox() {
    for_each_store(|store| {
        let inbox = store.groups().inbox().unwrap();
        let unknown = ScriptedSession::new(50);
        let error = block_on(inbox.append(unknown.session_id(), entry("a", b"{}"))).unwrap_err();
        assert_eq!(error.code(), "session_not_found");
        assert_eq!(waiting(store, unknown.session_id()), []);
        let mut session = running(store, 2);
        commit(store, &session.commit(Lifecycle::Cancelled, "x").unwrap());
        let error = block_on(inbox.append(session.session_id(), entry("a", b"{}"))).unwrap_err();
        assert_eq!(error.code(), "invalid_lifecycle_operation");
    });
}

#[test]
fn the_bounds_of_an_inbox_hold_at_the_limit() {
    let largest = 512 * 1024;
    for (length, fits) in [(largest - 1, true), (largest, true), (largest + 1, false)] {
        let made = InboxAppend::new("a".parse().unwrap(), InboxKind::Wake, vec![b'1'; length]);
        assert_eq!(made.is_ok(), fits, "{length}");
    }
    let store = qitos_kit::in_memory::MemoryCheckpointStore::new();
    let session = running(&store, 3);
    let inbox = store.groups().inbox().unwrap();
    for number in 0..4_096 {
        block_on(inbox.append(session.session_id(), entry(&format!("i{number}"), b"{}"))).unwrap();
    }
    let error = block_on(inbox.append(session.session_id(), entry("more", b"{}"))).unwrap_err();
    assert_eq!(error.code(), "size_limit_exceeded");
}
