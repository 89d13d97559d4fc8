//! Effects whose outcome nobody knows, and the answers that people give (SES-53, RES-19, EXE-12).

use std::sync::Arc;
use std::time::Duration;

use qitos::checkpoint::{CheckpointStore, InboxAppend, InboxKind, MemoryCheckpointStore};
use qitos::contracts::ids::SlotId;
use qitos::contracts::snapshot::Lifecycle;
use qitos::kernel::PauseStatus;
use qitos::kernel::{Disposition, resolve_effect};
use qitos::models::scripted::{Answer, Gate, ScriptedModel, Step};
use qitos::tool::ToolRegistry;
use qitos::tool::permission::{PermissionPolicy, PermissionRule, RuleEffect};
use qitos::{Budget, Engine, RestoreOptions, RunOptions, RunOutcome, Session};
use serde_json::Value;

use super::engine::Counter;

/// Writes somewhere and never says that it did.
#[qitos::tool(timeout_ms = 20)]
async fn linger() -> usize {
    std::future::pending().await
}

/// Reads a number.
#[qitos::tool(read_only)]
async fn look() -> u64 {
    7
}

fn engine(store: &Arc<MemoryCheckpointStore>, steps: Vec<Step>, max_steps: u64) -> Engine {
    let mut tools = ToolRegistry::new();
    tools.register(Linger).unwrap().register(Look).unwrap();
    let allow = ["linger", "look"]
        .map(|name| PermissionRule::for_tool(RuleEffect::Allow, name))
        .to_vec();
    let shared: Arc<dyn CheckpointStore> = store.clone();
    Engine::builder(
        Counter,
        Arc::new(ScriptedModel::new("test", steps).unwrap()),
    )
    .tools(tools)
    .permissions(PermissionPolicy::new(allow, None).unwrap())
    .budget(Budget {
        max_steps,
        ..Budget::default()
    })
    .store(shared)
    .build()
    .unwrap()
}

fn call() -> Step {
    Step::answer(Answer::call("c1", "linger", "{}"))
}

/// A session that rests after its first step with one unknown effect.
async fn resting(store: &Arc<MemoryCheckpointStore>) -> Session {
    let session = engine(store, vec![call()], 1)
        .session("task")
        .await
        .unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.outcome, RunOutcome::Stopped);
    session
}

async fn ledger(session: &Session) -> Vec<Value> {
    let found = session.inspect().await.unwrap();
    found["tool_effects"]["effects"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

fn slot_of(ledger: &[Value]) -> SlotId {
    ledger[0]["slot_id"].as_str().unwrap().parse().unwrap()
}

/// Restores, asks for a pause while the model thinks, and says how the run ended.
async fn pause_in_next_run(store: &Arc<MemoryCheckpointStore>, session: &Session) -> PauseStatus {
    let gate = Gate::new();
    let steps = vec![
        Step::answer(Answer::call("c2", "look", "{}")).after(&gate),
        Step::answer(Answer::text("done")),
    ];
    let engine = engine(store, steps, 9);
    let options = RestoreOptions::default();
    let session = engine.restore(session.id(), options).await.unwrap();
    session
        .set_budget(Budget {
            max_steps: 9,
            ..Budget::default()
        })
        .unwrap();
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run(RunOptions::default()).await.unwrap() }
    });
    while session.pause().await.is_err() {
        assert!(!running.is_finished(), "the run waits at the gate");
        tokio::task::yield_now().await;
    }
    gate.open();
    let receipt = session
        .pause_barrier(Duration::from_secs(20))
        .await
        .unwrap();
    running.await.unwrap();
    receipt.status
}

#[tokio::test]
async fn an_undeclared_write_that_was_cut_is_in_the_ledger_and_keeps_the_session_from_pausing() {
    // EXE-12, SES-58
    let store = Arc::new(MemoryCheckpointStore::new());
    let session = resting(&store).await;
    let ledger = ledger(&session).await;
    assert_eq!(ledger.len(), 1);
    assert_eq!(ledger[0]["resolution"], Value::Null);
    let status = pause_in_next_run(&store, &session).await;
    assert_eq!(status, PauseStatus::FinishedFirst);
}

#[tokio::test]
async fn an_answer_of_another_process_settles_it_beside_the_terminal() {
    // SES-53, SES-63, RES-19
    let store = Arc::new(MemoryCheckpointStore::new());
    let session = resting(&store).await;
    let before = ledger(&session).await;
    let slot = slot_of(&before);
    let answer = || {
        resolve_effect(
            &*store,
            session.id(),
            &slot,
            Disposition::Committed,
            "seen it",
        )
    };
    assert!(!answer().await.unwrap().replayed);
    assert!(
        answer().await.unwrap().replayed,
        "giving it again changes nothing"
    );
    let other = resolve_effect(&*store, session.id(), &slot, Disposition::Rejected, "no").await;
    assert_eq!(
        other.unwrap_err().error_code.as_str(),
        "generation_conflict"
    );

    let status = pause_in_next_run(&store, &session).await;
    assert_eq!(status, PauseStatus::Persisted);
    let after = ledger(&session).await;
    assert_eq!(after[0]["resolution"], "committed");
    assert_eq!(after[0]["evidence"], "seen it");
    assert_eq!(
        after[0]["result"], before[0]["result"],
        "the terminal stays"
    );
}

#[tokio::test]
async fn an_answer_to_nothing_is_refused_and_nothing_is_written() {
    // SES-53
    let store = Arc::new(MemoryCheckpointStore::new());
    let session = resting(&store).await;
    let slot = slot_of(&ledger(&session).await);
    let other: SlotId = "batch_none:0".parse().unwrap();
    let resolve = |slot: SlotId, evidence: String| {
        let session = session.clone();
        async move {
            let answer = session.resolve_effect(&slot, Disposition::Rejected, &evidence);
            answer
                .await
                .map_err(|error| error.error_code.as_str().to_owned())
        }
    };
    let refused = resolve(other, "x".into()).await;
    assert_eq!(refused.unwrap_err(), "invalid_lifecycle_operation");
    let long = resolve(slot.clone(), "x".repeat(4_097)).await;
    assert_eq!(long.unwrap_err(), "size_limit_exceeded");
    let inbox = store.groups().inbox.unwrap();
    assert!(inbox.take(session.id(), 9).await.unwrap().is_empty());
    for bytes in [4_096, 4_095] {
        let fits = resolve(slot.clone(), "x".repeat(bytes)).await;
        // The second answer differs from the first, which waits.
        assert_eq!(fits.is_ok(), bytes == 4_096);
    }
}

#[tokio::test]
async fn entries_that_mean_nothing_do_not_block_those_behind_them() {
    // SES-63
    let store = Arc::new(MemoryCheckpointStore::new());
    let session = resting(&store).await;
    let slot = slot_of(&ledger(&session).await);
    let inbox = store.groups().inbox.unwrap();
    for (name, kind, payload) in [
        ("approval-1", InboxKind::Approval, "{}"),
        ("reconcile-1", InboxKind::Reconcile, "no json"),
        ("wake-1", InboxKind::Wake, "{}"),
    ] {
        let entry = InboxAppend::new(name.parse().unwrap(), kind, payload.into()).unwrap();
        inbox.append(session.id(), entry).await.unwrap();
    }
    session
        .resolve_effect(&slot, Disposition::Rejected, "looked")
        .await
        .unwrap();
    let status = pause_in_next_run(&store, &session).await;
    assert_eq!(status, PauseStatus::Persisted);
    assert!(inbox.take(session.id(), 9).await.unwrap().is_empty());
    assert_eq!(ledger(&session).await[0]["resolution"], "rejected");
    let found = session.inspect().await.unwrap();
    assert_eq!(found["lifecycle"], Lifecycle::Paused.as_str());
}
