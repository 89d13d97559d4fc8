//! Three model requests over a real server on loopback, streamed, with native tools (section 11 of the provider
//! specification): the normal run, the interrupted run, and going on afterwards.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::contracts::checkpoint::CheckpointStore;
use qitos::contracts::snapshot::Lifecycle;
use qitos::credentials::FakeCredentialResolver;
use qitos::kit::loopback::{LoopbackServer, Reply};
use qitos::models::DeltaSink;
use qitos::registry::FactoryRegistry;
use qitos::tool::{CallCtx, EffectClass, Facts, Reconciled, Returned, Tool, ToolError, ToolSpec};
use qitos::{EngineResult, RestoreOptions, RunOptions, RunOutcome, StopReason};
use serde_json::{Value, json};

/// `add` waits until `multiply` is done when it is asked for 2 + 3, so that results come in reverse order.
#[derive(Debug)]
struct Arithmetic {
    spec: ToolSpec,
    multiplied: Arc<tokio::sync::Notify>,
    executions: Arc<AtomicUsize>,
}

impl Arithmetic {
    fn pair() -> (Arithmetic, Arithmetic, Arc<AtomicUsize>) {
        let (multiplied, executions) = (
            Arc::new(tokio::sync::Notify::new()),
            Arc::new(AtomicUsize::new(0)),
        );
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": false,
        });
        let make = |name: &str| Arithmetic {
            spec: ToolSpec::new(name, "does arithmetic", schema.clone())
                .read_only()
                .with_concurrency_safe(true),
            multiplied: Arc::clone(&multiplied),
            executions: Arc::clone(&executions),
        };
        (make("add"), make("multiply"), executions)
    }
}

#[async_trait::async_trait]
impl Tool for Arithmetic {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn validate(&self, _args: &Value) -> Result<(), ToolError> {
        Ok(())
    }

    fn effect(
        &self,
        _args: &Value,
        _slot: &qitos::contracts::ids::SlotId,
    ) -> Result<EffectClass, ToolError> {
        Ok(EffectClass::Pure)
    }

    fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
        Ok(false)
    }

    async fn execute(&self, args: Arc<Value>, _ctx: CallCtx) -> Result<Returned, ToolError> {
        self.executions.fetch_add(1, Ordering::SeqCst);
        let (a, b) = (
            args["a"].as_i64().unwrap_or(0),
            args["b"].as_i64().unwrap_or(0),
        );
        if &*self.spec.name == "multiply" {
            self.multiplied.notify_one();
            return Ok(Returned::Value(json!(a * b)));
        }
        if (a, b) == (2, 3) {
            self.multiplied.notified().await;
            // The other task has to be through its own end before this one returns.
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
        }
        Ok(Returned::Value(json!(a + b)))
    }

    async fn reconcile(
        &self,
        _effect: &qitos::contracts::ids::EffectRef,
        _key: &str,
    ) -> Reconciled {
        Reconciled::Unknown
    }
}

/// Collects what was streamed.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<String>>);

impl DeltaSink for Shown {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().map_err(|_| "poisoned")?.push_str(text);
        Ok(())
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn calls(calls: &[(&str, &str, &str)]) -> Reply {
    let list: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, arguments))| {
            json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    Reply::event_stream()
        .piece(event(
            &json!({"choices": [{"index": 0, "delta": {"tool_calls": list}}]}),
        ))
        .piece(event(
            &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
        ))
        .piece("data: [DONE]\n\n")
        .end()
}

fn text(text: &str) -> Reply {
    Reply::event_stream()
        .piece(event(
            &json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
        ))
        .piece(event(
            &json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        ))
        .piece("data: [DONE]\n\n")
        .end()
}

fn cut_off() -> Reply {
    let piece = json!({"choices": [{"index": 0, "delta": {"tool_calls": [
        {"index": 0, "id": "three", "type": "function", "function": {"name": "add", "arguments": "{\"a\":5"}}]}}]});
    Reply::event_stream().piece(event(&piece)).end()
}

fn first() -> Reply {
    calls(&[
        ("one", "add", r#"{"a":2,"b":3}"#),
        ("two", "multiply", r#"{"a":2,"b":3}"#),
    ])
}

fn second() -> Reply {
    calls(&[("three", "add", r#"{"a":5,"b":6}"#)])
}

fn config(directory: &Path, base_url: &str, requests: u64) -> AgentConfig {
    let text = format!(
        r#"
schema: qitos.agent
agent: {{name: consumer, protocol: json_decision_multi_v1}}
model:
  provider: openai_compatible
  model: offline
  base_url: {base_url}
  credential: {{ref: offline}}
  request: {{max_tokens: 10240}}
tools: {{preset: none, include: [add, multiply]}}
runtime:
  environment: {{type: unsafe_host, workspace: .}}
  session: {{mode: durable, store: sqlite}}
  trajectory: {{enabled: true, privacy: private}}
budgets: {{max_steps: 5, max_requests: {requests}}}
"#
    );
    AgentConfig::from_str(&text, Format::Yaml, directory).unwrap()
}

async fn compose(config: &AgentConfig) -> (Composition, Arc<AtomicUsize>) {
    let (add, multiply, executions) = Arithmetic::pair();
    let registry = FactoryRegistry::builtin()
        .tool("add", add)
        .tool("multiply", multiply);
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    (
        Composition::build(config, &registry, options)
            .await
            .unwrap(),
        executions,
    )
}

fn streaming(shown: &Shown) -> RunOptions {
    RunOptions {
        on_delta: Some(Box::new(shown.clone())),
        ..RunOptions::default()
    }
}

async fn results(
    store: &dyn CheckpointStore,
    session: &qitos::contracts::ids::SessionId,
) -> Vec<String> {
    let items = qitos::session::log_tail(store, session, 100).await.unwrap();
    items
        .iter()
        .filter(|item| item["kind"] == "tool_result")
        .map(|item| {
            format!(
                "{}={}",
                item["call_id"].as_str().unwrap(),
                item["result"]["output"]
            )
        })
        .collect()
}

fn body(server: &LoopbackServer, index: usize) -> Value {
    serde_json::from_slice(&server.requests()[index].body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_requests_with_results_in_reverse_order() {
    // PRV-110, PRV-111, PRV-80, LOG-12
    let directory = tempfile::tempdir().unwrap();
    let server =
        LoopbackServer::start(vec![first(), second(), text(r#"{"final_answer":"11"}"#)]).unwrap();
    let (composition, executions) = compose(&config(directory.path(), &server.base_url(), 3)).await;
    let session = composition
        .session(Some("compute".into()), None)
        .await
        .unwrap();
    let shown = Shown::default();
    let result = session.run(streaming(&shown)).await.unwrap();
    assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
    assert_eq!(result.final_result.as_deref(), Some("11"));
    assert_eq!(
        (result.usage.requests, executions.load(Ordering::SeqCst)),
        (3, 3)
    );
    assert_eq!(
        result.usage.usage_unknown, 3,
        "usage nobody told stays unknown"
    );
    assert_eq!(shown.0.lock().unwrap().as_str(), r#"{"final_answer":"11"}"#);
    for index in 0..3 {
        let body = body(&server, index);
        assert_eq!(
            (body["stream"].as_bool(), body["max_tokens"].as_u64()),
            (Some(true), Some(10_240))
        );
    }
    let sent = body(&server, 1);
    let order: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["two", "one"], "results travel in completion order");
    let store = composition.store().unwrap();
    assert_eq!(
        results(&**store, session.id()).await,
        ["two=6", "one=5", "three=11"]
    );
    composition.close().await;
    assert!(server.wait_until_no_connection(std::time::Duration::from_secs(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_stream_executes_nothing_and_the_session_goes_on() {
    // PRV-112, PRV-114, decision 71
    let directory = tempfile::tempdir().unwrap();
    let broken = LoopbackServer::start(vec![first(), cut_off()]).unwrap();
    let id = {
        let (composition, executions) =
            compose(&config(directory.path(), &broken.base_url(), 3)).await;
        let session = composition
            .session(Some("compute".into()), None)
            .await
            .unwrap();
        let result = session.run(streaming(&Shown::default())).await.unwrap();
        let failure = result.failure.clone().unwrap();
        assert_eq!(failure.error_code, "provider_stream_protocol_error");
        assert!(
            failure.message.contains("missing_terminal"),
            "{}",
            failure.message
        );
        assert_eq!(
            (result.outcome, result.stop_reason),
            (RunOutcome::Failed, StopReason::UnrecoverableError)
        );
        assert_eq!(
            (result.lifecycle, result.final_result.as_deref()),
            (Lifecycle::Paused, None)
        );
        assert_eq!(
            (result.usage.requests, executions.load(Ordering::SeqCst)),
            (2, 2)
        );
        assert_eq!(
            results(&**composition.store().unwrap(), session.id()).await,
            ["two=6", "one=5"]
        );
        composition.close().await;
        session.id().clone()
    };
    let healthy = LoopbackServer::start(vec![second(), text(r#"{"final_answer":"11"}"#)]).unwrap();
    let (composition, executions) =
        compose(&config(directory.path(), &healthy.base_url(), 5)).await;
    let refused = composition
        .restore(&id, RestoreOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        qitos::contracts::error::ContractError::code(&refused),
        "config_digest_mismatch"
    );
    let accept = RestoreOptions {
        accept_config_change: true,
        ..RestoreOptions::default()
    };
    let session = composition.restore(&id, accept).await.unwrap();
    let result: EngineResult = session.run(streaming(&Shown::default())).await.unwrap();
    assert_eq!(result.final_result.as_deref(), Some("11"), "{result:?}");
    assert_eq!(
        (result.usage.requests, executions.load(Ordering::SeqCst)),
        (4, 1)
    );
    assert_eq!(
        results(&**composition.store().unwrap(), &id).await,
        ["two=6", "one=5", "three=11"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_key_leaves_a_session_that_goes_on_with_another() {
    // decision 71, section 4: 401 is not retried
    let directory = tempfile::tempdir().unwrap();
    let refusing = LoopbackServer::start(vec![Reply::whole(
        401,
        "application/json",
        r#"{"error":{"message":"no"}}"#,
    )])
    .unwrap();
    let (composition, _) = compose(&config(directory.path(), &refusing.base_url(), 5)).await;
    let session = composition
        .session(Some("compute".into()), None)
        .await
        .unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(
        result.failure.as_ref().unwrap().error_code,
        "provider_authentication_failed"
    );
    assert_eq!(
        (result.lifecycle, refusing.requests().len()),
        (Lifecycle::Paused, 1)
    );
    let id = session.id().clone();
    composition.close().await;
    drop((session, composition));
    let healthy = LoopbackServer::start(vec![Reply::whole(
        200,
        "application/json",
        json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": "{\"final_answer\":\"fine\"}"},
            "finish_reason": "stop"}]})
        .to_string(),
    )])
    .unwrap();
    let (composition, _) = compose(&config(directory.path(), &healthy.base_url(), 5)).await;
    let accept = RestoreOptions {
        accept_config_change: true,
        ..RestoreOptions::default()
    };
    let session = composition.restore(&id, accept).await.unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.final_result.as_deref(), Some("fine"), "{result:?}");
}
