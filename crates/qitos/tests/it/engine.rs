//! The engine end to end: scripted model, real tools, real stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qitos::checkpoint::{CheckpointStore, MemoryCheckpointStore};
use qitos::contracts::decision::Decision;
use qitos::contracts::snapshot::Lifecycle;
use qitos::models::scripted::{Answer, ScriptedModel, Step};
use qitos::tool::permission::{PermissionPolicy, PermissionRule, RuleEffect};
use qitos::tool::{ToolError, ToolRegistry};
use qitos::{
    AgentError, AgentModule, Budget, Engine, EngineBuilder, EnginePolicy, ExecutorMode, History,
    Observation, Reduced, RestoreOptions, RunOptions, RunOutcome, StopReason, Takeover, Task,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub(crate) struct Count {
    pub(crate) steps: u64,
    pub(crate) results: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Counter;

#[async_trait::async_trait]
impl AgentModule for Counter {
    type State = Count;

    fn name(&self) -> &str {
        "counter"
    }

    fn init_state(&self, _task: &Task) -> Result<Count, AgentError> {
        Ok(Count::default())
    }

    fn reduce(
        &self,
        state: &Count,
        seen: &Observation,
        _decision: &Decision,
    ) -> Result<Reduced<Count>, AgentError> {
        let mut next = state.clone();
        next.steps += 1;
        next.results.extend(
            seen.action_results
                .iter()
                .map(|result| result.status().as_str().to_owned()),
        );
        Ok(Reduced::Continue(next))
    }
}

static ADDED: AtomicUsize = AtomicUsize::new(0);

/// Adds two numbers.
#[qitos::tool(read_only, concurrency_safe)]
async fn add(a: i64, b: i64) -> i64 {
    ADDED.fetch_add(1, Ordering::SeqCst);
    a + b
}

/// Fails in order.
#[qitos::tool(read_only)]
fn refuse() -> Result<String, ToolError> {
    Err(ToolError::new("no_such_thing", "there is no such thing"))
}

/// Writes somewhere without saying where.
#[qitos::tool]
async fn write(text: String) -> usize {
    text.len()
}

pub(crate) fn tools() -> ToolRegistry {
    let mut tools = ToolRegistry::new();
    tools
        .register(Add)
        .unwrap()
        .register(Refuse)
        .unwrap()
        .register(Write)
        .unwrap();
    tools
}

pub(crate) fn engine(steps: Vec<Step>) -> EngineBuilder {
    let model = Arc::new(ScriptedModel::new("test", steps).unwrap());
    let allow = ["add", "refuse", "write"]
        .map(|name| PermissionRule::for_tool(RuleEffect::Allow, name))
        .to_vec();
    Engine::builder(Counter, model)
        .tools(tools())
        .permissions(PermissionPolicy::new(allow, None).unwrap())
}

fn call(id: &str, name: &str, arguments: &str) -> Step {
    Step::answer(Answer::call(id, name, arguments))
}

fn text(text: &str) -> Step {
    Step::answer(Answer::text(text))
}

#[tokio::test]
async fn an_agent_calls_tools_and_answers() {
    // ENG-1, ENG-10
    let store = Arc::new(MemoryCheckpointStore::new());
    let engine = engine(vec![
        call("c1", "add", r#"{"a":2,"b":3}"#),
        call("c2", "refuse", "{}"),
        text("done"),
    ])
    .store(store.clone())
    .build()
    .unwrap();
    let session = engine.session("add things").await.unwrap();
    assert_eq!(session.lifecycle(), Lifecycle::Created);
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(
        (result.outcome, result.stop_reason),
        (RunOutcome::Completed, StopReason::Final),
        "{result:?}"
    );
    assert_eq!(result.final_result.as_deref(), Some("done"));
    assert_eq!(
        result.state["results"],
        serde_json::json!(["success", "error"])
    );
    assert_eq!(
        (
            result.usage.requests,
            result.usage.tool_calls,
            result.step_count
        ),
        (3, 2, 3)
    );
    let head = store.head(session.id()).await.unwrap().unwrap();
    assert_eq!(head.lifecycle, Lifecycle::Completed);
    // One create, one start with D1, then two commits per read-only step, one for the end.
    assert_eq!(head.generation, 6);
}

#[tokio::test]
async fn an_exhausted_budget_leaves_a_session_that_goes_on_with_a_larger_one() {
    // CFG-30, decision 71
    let store = Arc::new(MemoryCheckpointStore::new());
    let steps = || vec![call("c1", "add", r#"{"a":1,"b":1}"#), text("done")];
    let small = Budget {
        max_steps: 10,
        max_requests: Some(1),
        ..Budget::default()
    };
    let engine_small = engine(steps())
        .store(store.clone())
        .budget(small)
        .build()
        .unwrap();
    let session = engine_small.session("task").await.unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(
        (result.outcome, result.stop_reason),
        (RunOutcome::Stopped, StopReason::BudgetRequests)
    );
    assert_eq!(
        (result.lifecycle, result.usage.requests),
        (Lifecycle::Paused, 1)
    );
    let id = session.id().clone();
    drop(session);
    let larger = engine(vec![text("done")])
        .store(store.clone())
        .build()
        .unwrap();
    let restored = larger
        .restore(
            &id,
            RestoreOptions {
                accept_config_change: true,
                ..RestoreOptions::default()
            },
        )
        .await
        .unwrap();
    let result = restored.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.final_result.as_deref(), Some("done"));
    assert_eq!(result.usage.requests, 2);
}

#[tokio::test]
async fn a_log_of_more_chunks_than_one_read_returns_is_restored() {
    // STO-51, SES-49: 2 leaves per step, and 2 subtrees of 1,024 leaves that one question asks for together.
    const STEPS: u64 = 1_030;
    let store = Arc::new(MemoryCheckpointStore::new());
    let calls = (0..STEPS).map(|index| {
        let arguments = format!(r#"{{"a":{index},"b":1}}"#);
        call(&format!("c{index}"), "add", &arguments)
    });
    let budget = Budget {
        max_steps: 2 * STEPS,
        max_requests: Some(STEPS),
        ..Budget::default()
    };
    let first = engine(calls.collect())
        .history(History::Window(2))
        .store(store.clone())
        .budget(budget)
        .build()
        .unwrap();
    let session = first.session("task").await.unwrap();
    session.run(RunOptions::default()).await.unwrap();
    let id = session.id().clone();
    drop(session);
    let second = engine(vec![text("done")])
        .history(History::Window(2))
        .store(store)
        .build()
        .unwrap();
    let options = RestoreOptions {
        accept_config_change: true,
        ..RestoreOptions::default()
    };
    let restored = second.restore(&id, options).await.unwrap();
    let larger = Budget {
        max_steps: 2 * STEPS,
        ..Budget::default()
    };
    restored.set_budget(larger).unwrap();
    let result = restored.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.final_result.as_deref(), Some("done"));
    assert_eq!(result.usage.tool_calls, STEPS);
}

#[tokio::test]
async fn a_restored_session_fences_its_old_owner() {
    // SES-30, SES-46, SES-47
    let store = Arc::new(MemoryCheckpointStore::new());
    let budget = Budget {
        max_requests: Some(1),
        ..Budget::default()
    };
    let first = engine(vec![call("c1", "add", r#"{"a":1,"b":1}"#), text("x")])
        .store(store.clone())
        .budget(budget.clone())
        .build()
        .unwrap();
    let old = first.session("task").await.unwrap();
    old.run(RunOptions::default()).await.unwrap();
    let second = engine(vec![text("second")])
        .store(store.clone())
        .build()
        .unwrap();
    let new = second
        .restore(
            old.id(),
            RestoreOptions {
                accept_config_change: true,
                ..RestoreOptions::default()
            },
        )
        .await
        .unwrap();
    old.set_budget(Budget::default()).unwrap();
    let fenced = old.run(RunOptions::default()).await.unwrap();
    assert_eq!(
        fenced.store_failure.as_deref(),
        Some("superseded_owner"),
        "{fenced:?}"
    );
    assert_eq!(
        new.run(RunOptions::default())
            .await
            .unwrap()
            .final_result
            .as_deref(),
        Some("second")
    );
}

#[tokio::test]
async fn parallel_results_are_logged_as_they_complete() {
    // EXE-4, LOG-12
    let store = Arc::new(MemoryCheckpointStore::new());
    let two =
        Answer::call("c1", "add", r#"{"a":1,"b":1}"#).and_call("c2", "add", r#"{"a":2,"b":2}"#);
    let policy = EnginePolicy {
        mode: ExecutorMode::Parallel,
        ..EnginePolicy::default()
    };
    let engine = engine(vec![Step::answer(two), text("done")])
        .policy(policy)
        .store(store.clone())
        .build()
        .unwrap();
    let session = engine.session("task").await.unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.usage.tool_calls, 2);
    let items = qitos::session::log_tail(&*store, session.id(), 10)
        .await
        .unwrap();
    let kinds: Vec<&str> = items
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "user",
            "assistant",
            "tool_result",
            "tool_result",
            "assistant"
        ]
    );
}

#[tokio::test]
async fn an_unclaimed_effect_needs_a_rule() {
    // PRM-3, PRM-7
    let model = Arc::new(
        ScriptedModel::new(
            "test",
            vec![call("c1", "write", r#"{"text":"x"}"#), text("done")],
        )
        .unwrap(),
    );
    let engine = Engine::builder(Counter, model)
        .tools(tools())
        .build()
        .unwrap();
    let result = engine
        .session("task")
        .await
        .unwrap()
        .run(RunOptions::default())
        .await
        .unwrap();
    assert_eq!(result.state["results"], serde_json::json!(["skipped"]));
    assert_eq!(result.usage.tool_calls, 0);
}

#[tokio::test]
async fn a_created_session_is_recovered_and_run_by_another_process() {
    // SES-9, SES-52
    let store = Arc::new(MemoryCheckpointStore::new());
    let first = engine(vec![]).store(store.clone()).build().unwrap();
    let id = first.session("task").await.unwrap().id().clone();
    let second = engine(vec![text("done")])
        .store(store.clone())
        .build()
        .unwrap();
    assert_eq!(
        second
            .restore(&id, RestoreOptions::default())
            .await
            .unwrap_err()
            .error_code
            .as_str(),
        "invalid_lifecycle_operation"
    );
    let session = second
        .recover(&id, Takeover::Force, RestoreOptions::default())
        .await
        .unwrap();
    assert_eq!(
        session
            .run(RunOptions::default())
            .await
            .unwrap()
            .final_result
            .as_deref(),
        Some("done")
    );
}
