//! Signed thinking that a provider wants back in place, over a real server and two processes' worth of compositions
//! (PRV-29 to PRV-34).

use std::path::Path;
use std::sync::Arc;

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::contracts::ids::SessionId;
use qitos::credentials::FakeCredentialResolver;
use qitos::kit::loopback::{LoopbackServer, Reply};
use qitos::registry::FactoryRegistry;
use qitos::{Budget, EngineResult, RestoreOptions, RunOptions, RunOutcome};
use serde_json::{Value, json};

/// White space, escapes and padding that any re-encoding or trimming would change.
const THINKING: &str = " I add:\n\t2 + 3 \"now\" \\u00e9\u{2028} ";
const SIGNATURE: &str = "EqQBCkYIAxgCKkA+/w==";

/// Adds two numbers.
#[qitos::tool(read_only)]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn answer(content: &Value, reason: &str) -> Reply {
    let body = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "large",
        "content": content, "stop_reason": reason, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 5},
    });
    Reply::whole(200, "application/json", body.to_string())
}

/// Text before the thinking, so that putting all thinking first would be seen.
fn blocks(number: u64) -> Value {
    json!([
        {"type": "thinking", "thinking": THINKING, "signature": format!("{SIGNATURE}{number}")},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
        {"type": "text", "text": "I call it."},
        {"type": "thinking", "thinking": "", "signature": format!("{number}{SIGNATURE}")},
        {"type": "tool_use", "id": format!("toolu_{number}"), "name": "add", "input": {"a": 2, "b": number}},
    ])
}

fn calling(number: u64) -> Reply {
    answer(&blocks(number), "tool_use")
}

fn done() -> Reply {
    answer(&json!([{"type": "text", "text": "5"}]), "end_turn")
}

fn config(directory: &Path, base_url: &str, allow_loss: bool) -> AgentConfig {
    let text = format!(
        r#"
schema: qitos.agent
agent: {{name: thinker, protocol: native_tool_calls_v1}}
model:
  provider: anthropic
  model: large
  base_url: {base_url}
  credential: {{ref: offline}}
context: {{allow_codec_loss: {allow_loss}}}
tools: {{preset: none, include: [add]}}
runtime:
  environment: {{type: unsafe_host, workspace: .}}
  session: {{mode: durable, store: sqlite}}
  trajectory: {{enabled: true, privacy: private}}
budgets: {{max_steps: 1}}
"#
    );
    AgentConfig::from_str(&text, Format::Yaml, directory).unwrap()
}

async fn compose(config: &AgentConfig) -> Composition {
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    let registry = FactoryRegistry::builtin().tool("add", Add);
    Composition::build(config, &registry, options)
        .await
        .unwrap()
}

/// The first step in a composition of its own, which is then closed.
async fn first_step(directory: &Path, server: &LoopbackServer) -> SessionId {
    let composition = compose(&config(directory, &server.base_url(), false)).await;
    let session = composition.session(Some("add".into()), None).await.unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    assert_eq!(result.outcome, RunOutcome::Stopped, "{result:?}");
    let id = session.id().clone();
    composition.close().await;
    id
}

/// Takes the session up as another process would.
async fn go_on(config: &AgentConfig, id: &SessionId) -> EngineResult {
    let composition = compose(config).await;
    let options = RestoreOptions {
        accept_config_change: true,
        ..RestoreOptions::default()
    };
    let session = composition.restore(id, options).await.unwrap();
    session
        .set_budget(Budget {
            max_steps: 9,
            ..Budget::default()
        })
        .unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    composition.close().await;
    result
}

/// The content of the assistant messages of request `index`.
fn assistant_content(server: &LoopbackServer, index: usize) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&server.requests()[index].body).unwrap();
    body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "assistant")
        .map(|message| message["content"].clone())
        .collect()
}

fn every_file(directory: &Path, seen: &mut Vec<(std::path::PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            every_file(&path, seen);
        } else {
            seen.push((path.clone(), std::fs::read(path).unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thinking_goes_back_byte_for_byte_in_its_places_after_a_restart() {
    // PRV-27, PRV-32, PRV-33, PRV-34
    let directory = tempfile::tempdir().unwrap();
    let server = LoopbackServer::start(vec![calling(1), calling(2), done()]).unwrap();
    let id = first_step(directory.path(), &server).await;
    let result = go_on(&config(directory.path(), &server.base_url(), false), &id).await;
    assert_eq!(result.final_result.as_deref(), Some("5"), "{result:?}");
    assert_eq!(assistant_content(&server, 1), [blocks(1)]);
    assert_eq!(assistant_content(&server, 2), [blocks(1), blocks(2)]);

    let mut files = Vec::new();
    every_file(directory.path(), &mut files);
    let holds = |bytes: &[u8]| {
        bytes
            .windows(SIGNATURE.len())
            .any(|window| window == SIGNATURE.as_bytes())
    };
    let holders: Vec<_> = files.iter().filter(|(_, bytes)| holds(bytes)).collect();
    assert_eq!(holders.len(), 2, "one body for each answer");
    for (path, _) in holders {
        let folder = path.parent().unwrap().file_name().unwrap();
        assert_eq!(
            folder, "continuations",
            "{path:?}: signatures are nowhere else"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_state_refuses_the_request_or_is_a_declared_loss() {
    // PRV-31
    for allow_loss in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let server = LoopbackServer::start(vec![calling(1), done()]).unwrap();
        let id = first_step(directory.path(), &server).await;
        let mut files = Vec::new();
        every_file(directory.path(), &mut files);
        let lost = files
            .iter()
            .filter(|(path, _)| path.parent().unwrap().ends_with("continuations"));
        for (path, _) in lost {
            std::fs::remove_file(path).unwrap();
        }
        let result = go_on(
            &config(directory.path(), &server.base_url(), allow_loss),
            &id,
        )
        .await;
        if allow_loss {
            assert_eq!(result.final_result.as_deref(), Some("5"), "{result:?}");
            let content = &assistant_content(&server, 1)[0];
            let kinds: Vec<&str> = content
                .as_array()
                .unwrap()
                .iter()
                .map(|block| block["type"].as_str().unwrap())
                .collect();
            assert_eq!(kinds, ["text", "tool_use"]);
        } else {
            assert_eq!(server.requests().len(), 1, "nothing was sent");
            let failure = result.failure.unwrap();
            assert_eq!(failure.error_code, "continuation_not_found");
        }
    }
}
