//! Agents over providers that answer in one piece, from a configuration to the wire (section 9 of the provider
//! specification).

use std::path::Path;
use std::sync::Arc;

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::credentials::FakeCredentialResolver;
use qitos::kit::loopback::{LoopbackServer, Reply};
use qitos::models::DeltaSink;
use qitos::registry::FactoryRegistry;
use qitos::{EngineResult, RestoreOptions, RunOptions, RunOutcome};
use serde_json::{Value, json};

fn config(
    directory: &Path,
    server: &LoopbackServer,
    provider: &str,
    mode: &str,
    protocol: &str,
) -> AgentConfig {
    let text = format!(
        r#"
schema: qitos.agent
agent: {{name: notes_agent, protocol: {protocol}}}
model:
  provider: {provider}
  model: offline
  api_mode: {mode}
  base_url: {base_url}
  credential: {{ref: offline}}
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

async fn compose(config: &AgentConfig) -> Composition {
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    Composition::build(config, &FactoryRegistry::builtin(), options)
        .await
        .unwrap()
}

fn whole(answer: &Value) -> Reply {
    Reply::whole(200, "application/json", answer.to_string())
}

fn body(server: &LoopbackServer, index: usize) -> Value {
    serde_json::from_slice(&server.requests()[index].body).unwrap()
}

fn completed(result: &EngineResult, answer: &str) {
    assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
    assert_eq!(result.final_result.as_deref(), Some(answer));
}

fn gemini(parts: Value) -> Reply {
    whole(&json!({
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13},
    }))
}

fn signed_call(index: u64, signature: &str) -> Value {
    json!([
        {"text": "Let me see.", "thought": true},
        {
            "functionCall": {"name": "summarize_note", "args": {"index": index}},
            "thoughtSignature": signature,
        },
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_gets_every_signature_back_in_its_part_also_after_a_restart() {
    // PRV-32, PRV-33, PRV-103
    let directory = tempfile::tempdir().unwrap();
    let server = LoopbackServer::start(vec![
        gemini(signed_call(0, "Zmlyc3Q=")),
        // The run ends here; an engine does not repeat what was rejected.
        Reply::whole(400, "application/json", "{}"),
        gemini(signed_call(1, "c2Vjb25k")),
        gemini(json!([{"text": "Indexed."}])),
    ])
    .unwrap();
    let config = config(
        directory.path(),
        &server,
        "gemini",
        "generate_content",
        "native_tool_calls_v1",
    );
    let id = {
        let composition = compose(&config).await;
        let session = composition
            .session(Some("Index both notes".into()), None)
            .await
            .unwrap();
        let result = session.run(RunOptions::default()).await.unwrap();
        assert_eq!(
            result.failure.unwrap().error_code,
            "provider_request_rejected"
        );
        composition.close().await;
        session.id().clone()
    };
    assert_eq!(
        server.requests()[0].request_line,
        "POST /models/offline:generateContent HTTP/1.1"
    );
    let contents = |index: usize| body(&server, index)["contents"].clone();
    let first = contents(1);
    let answer = json!({"role": "model", "parts": signed_call(0, "Zmlyc3Q=")});
    assert_eq!(first[1], answer);
    let result = &first[2]["parts"][0]["functionResponse"];
    assert_eq!(result["name"], "summarize_note");

    // A new process has nothing but what was kept.
    let composition = compose(&config).await;
    let session = composition
        .restore(&id, RestoreOptions::default())
        .await
        .unwrap();
    completed(
        &session.run(RunOptions::default()).await.unwrap(),
        "Indexed.",
    );
    composition.close().await;
    assert_eq!(contents(2), first);
    assert_eq!(contents(3)[1], answer);
    assert_eq!(contents(3)[3]["parts"], signed_call(1, "c2Vjb25k"));
    // The signature is with the resolver alone (PRV-27, PRV-33).
    let store = std::fs::read(directory.path().join(".qitos/sessions.sqlite3")).unwrap();
    assert!(store.windows(14).any(|window| window == b"summarize_note"));
    assert!(!store.windows(8).any(|window| window == b"Zmlyc3Q="));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ollama_is_asked_in_text_in_both_modes() {
    // PRV-8, PRV-100, PRV-104
    let call = "Thought: look\nAction: summarize_note(index=0)";
    let last = "Final Answer: Indexed.";
    for mode in ["chat", "generate"] {
        let reply = |text: &str| {
            whole(&match mode {
                "chat" => {
                    json!({"message": {"content": text}, "done": true, "done_reason": "stop"})
                }
                _ => json!({"response": text, "done": true, "done_reason": "stop"}),
            })
        };
        let directory = tempfile::tempdir().unwrap();
        let server = LoopbackServer::start(vec![reply(call), reply(last)]).unwrap();
        let config = config(directory.path(), &server, "ollama", mode, "react_text_v1");
        let composition = compose(&config).await;
        let session = composition
            .session(Some("Index the note".into()), None)
            .await
            .unwrap();
        completed(
            &session.run(RunOptions::default()).await.unwrap(),
            "Indexed.",
        );
        composition.close().await;
        assert_eq!(
            server.requests()[1].request_line,
            format!("POST /api/{mode} HTTP/1.1")
        );
        let sent = body(&server, 1);
        assert_eq!(
            (&sent["stream"], &sent["options"]["num_predict"]),
            (&json!(false), &json!(2048))
        );
        assert!(sent.get("tools").is_none());
        assert!(sent.to_string().contains("Observation: "), "{sent}");
    }
}

struct Unused;

impl DeltaSink for Unused {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("shown: {text}").into())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_a_whole_provider_to_stream_is_refused_before_sending() {
    // PRV-101
    for (provider, mode, protocol) in [
        ("gemini", "generate_content", "native_tool_calls_v1"),
        ("ollama", "chat", "react_text_v1"),
        ("litellm", "chat_completions", "react_text_v1"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = LoopbackServer::start(Vec::new()).unwrap();
        let config = config(directory.path(), &server, provider, mode, protocol);
        let composition = compose(&config).await;
        let session = composition.session(Some("x".into()), None).await.unwrap();
        let options = RunOptions {
            on_delta: Some(Box::new(Unused)),
            ..RunOptions::default()
        };
        let result = session.run(options).await.unwrap();
        let failure = result.failure.unwrap();
        assert_eq!(
            failure.error_code, "codec_capability_mismatch",
            "{provider}"
        );
        assert_eq!(server.accepted_connections(), 0);
        composition.close().await;
    }
}
