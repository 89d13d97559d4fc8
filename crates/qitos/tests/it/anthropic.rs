//! An agent over Anthropic Messages, from a configuration to the wire.

use std::path::Path;
use std::sync::{Arc, Mutex};

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::credentials::FakeCredentialResolver;
use qitos::kit::loopback::{LoopbackServer, Reply};
use qitos::models::DeltaSink;
use qitos::registry::FactoryRegistry;
use qitos::{RunOptions, RunOutcome};
use serde_json::{Value, json};

fn config(directory: &Path, server: &LoopbackServer) -> AgentConfig {
    let text = format!(
        r#"
schema: qitos.agent
agent: {{name: notes_agent, protocol: native_tool_calls_v1}}
model:
  provider: anthropic
  model: claude-offline
  base_url: {base_url}
  credential: {{ref: offline}}
  request:
    max_tokens: 4096
    extra_body: {{thinking: {{type: enabled, budget_tokens: 1024}}}}
tools: {{preset: demo_notes}}
runtime:
  environment: {{type: unsafe_host, workspace: .}}
  session: {{mode: durable, store: sqlite}}
  trajectory: {{enabled: true, privacy: private}}
budgets: {{max_steps: 6, max_requests: 6}}
"#,
        base_url = server.base_url(),
    );
    AgentConfig::from_str(&text, Format::Yaml, directory).unwrap()
}

/// A stream of whole blocks: each in its start event, but for what the dialect sends in pieces.
fn stream(blocks: &[Value], stop_reason: &str) -> Reply {
    let mut events = vec![json!({"type": "message_start", "message": {"id": "msg_01"}})];
    for (index, block) in blocks.iter().enumerate() {
        let mut start = block.clone();
        let piece = match block["type"].as_str() {
            Some("text") => {
                start["text"] = "".into();
                Some(json!({"type": "text_delta", "text": block["text"]}))
            }
            Some("thinking") => {
                start["signature"] = "".into();
                Some(json!({"type": "signature_delta", "signature": block["signature"]}))
            }
            Some("tool_use") => {
                start["input"] = json!({});
                let input = block["input"].to_string();
                Some(json!({"type": "input_json_delta", "partial_json": input}))
            }
            _ => None,
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.extend(
            piece.map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}}));
    events.push(json!({"type": "message_stop"}));
    let body: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    Reply::event_stream().piece(body).end()
}

#[derive(Clone, Default)]
struct Shown(Arc<Mutex<String>>);

impl DeltaSink for Shown {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().unwrap().push_str(text);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thinking_server_tools_and_paused_turns_go_back_as_they_came() {
    // PRV-27, PRV-32, PRV-33, PRV-A14, PRV-A17
    let thinking = [
        json!({"type": "thinking", "thinking": " Let me\nsee. ", "signature": "c2lnbmF0dXJl"}),
        json!({"type": "text", "text": "Reading."}),
        json!({"type": "tool_use", "id": "toolu_1", "name": "summarize_note", "input": {"index": 0}}),
        json!({"type": "tool_use", "id": "toolu_2", "name": "summarize_note", "input": {"index": 1}}),
    ];
    let paused = [
        json!({"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}),
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}}),
    ];
    let server = LoopbackServer::start(vec![
        stream(&thinking, "tool_use"),
        stream(&paused, "pause_turn"),
        stream(&[json!({"type": "text", "text": "Indexed."})], "end_turn"),
    ])
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    let config = config(directory.path(), &server);
    let composition = Composition::build(&config, &FactoryRegistry::builtin(), options)
        .await
        .unwrap();
    let session = composition
        .session(Some("Index both notes".into()), None)
        .await
        .unwrap();
    let shown = Shown::default();
    let options = RunOptions {
        on_delta: Some(Box::new(shown.clone())),
        ..RunOptions::default()
    };
    let result = session.run(options).await.unwrap();
    composition.close().await;
    assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
    assert_eq!(result.final_result.as_deref(), Some("Indexed."));
    assert_eq!(*shown.0.lock().unwrap(), "Reading.Indexed.");

    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let sent: Vec<Value> = requests
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect();
    assert_eq!(requests[0].request_line, "POST /v1/messages HTTP/1.1");
    assert!(requests[0].header("x-api-key").is_some());
    assert_eq!(sent[0]["max_tokens"], 4_096);
    assert_eq!(sent[0]["thinking"]["budget_tokens"], 1_024);
    let second = sent[1]["messages"].as_array().unwrap();
    let answered = second.len() - 2;
    assert_eq!(
        second[answered],
        json!({"role": "assistant", "content": thinking})
    );
    let results = second[answered + 1]["content"].as_array().unwrap();
    let mut ids: Vec<&str> = results
        .iter()
        .map(|block| block["tool_use_id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["toolu_1", "toolu_2"]);
    let third = sent[2]["messages"].as_array().unwrap();
    assert_eq!(third[..second.len()], second[..]);
    assert_eq!(
        third[second.len()..],
        [json!({"role": "assistant", "content": paused})]
    );
    // Opaque strings are with the resolver alone.
    let store = std::fs::read(directory.path().join(".qitos/sessions.sqlite3")).unwrap();
    let holds = |text: &[u8]| store.windows(text.len()).any(|window| window == text);
    assert!(holds(b"summarize_note"));
    assert!(!holds(b"c2lnbmF0dXJl") && !holds(b"cmVkYWN0ZWQ="));
}
