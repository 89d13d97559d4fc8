//! The Responses dialect behind a configuration, over a real server on loopback: what the server holds is not sent
//! again, what it does not hold returns to its place, and nothing falls back to Chat (PRV-9, PRV-32).

use std::path::Path;
use std::sync::Arc;

use qitos::compose::{Composition, CompositionOptions};
use qitos::config::{AgentConfig, Format};
use qitos::credentials::FakeCredentialResolver;
use qitos::kit::loopback::{LoopbackServer, Reply};
use qitos::registry::FactoryRegistry;
use qitos::{EngineResult, RunOptions, RunOutcome};
use serde_json::{Value, json};

fn text_of(provider: &str, base_url: &str, extra: &str) -> String {
    format!(
        r#"
schema: qitos.agent
agent: {{name: responses}}
model:
  provider: {provider}
  model: offline
  api_mode: responses
  base_url: {base_url}
  credential: {{ref: offline}}
  request: {{max_tokens: 10240, extra_body: {extra}}}
tools: {{preset: demo_notes}}
runtime:
  environment: {{type: unsafe_host, workspace: .}}
  session: {{mode: durable, store: sqlite}}
budgets: {{max_steps: 5}}
"#
    )
}

fn config(directory: &Path, provider: &str, base_url: &str, extra: &str) -> AgentConfig {
    let text = text_of(provider, base_url, extra);
    AgentConfig::from_str(&text, Format::Yaml, directory).unwrap()
}

async fn run(config: &AgentConfig) -> EngineResult {
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    let composition = Composition::build(config, &FactoryRegistry::builtin(), options)
        .await
        .unwrap();
    let session = composition
        .session(Some("index the notes".into()), None)
        .await
        .unwrap();
    let result = session.run(RunOptions::default()).await.unwrap();
    composition.close().await;
    result
}

fn answer(id: &str, output: Value) -> Reply {
    let body = json!({"id": id, "status": "completed", "output": output});
    Reply::whole(200, "application/json", body.to_string())
}

fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"})
}

fn asks() -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "summarize_note",
           "arguments": "{\"index\":0}", "status": "completed"})
}

fn says(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn two_answers() -> LoopbackServer {
    LoopbackServer::start(vec![
        answer("resp_1", json!([reasoning(), asks()])),
        answer("resp_2", json!([says("done")])),
    ])
    .unwrap()
}

fn body(server: &LoopbackServer, index: usize) -> Value {
    serde_json::from_slice(&server.requests()[index].body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_answer_is_gone_on_from_at_openai_and_azure_prv_8_prv_32() {
    for (provider, header, value) in [
        ("openai_compatible", "authorization", "Bearer fake::offline"),
        ("azure_openai", "api-key", "fake::offline"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let server = two_answers();
        let base_url = format!("{}/openai/v1", server.base_url());
        let result = run(&config(directory.path(), provider, &base_url, "{}")).await;
        assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
        assert_eq!(result.final_result.as_deref(), Some("done"));
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        for request in &requests {
            assert_eq!(request.request_line, "POST /openai/v1/responses HTTP/1.1");
            assert_eq!(request.header(header), Some(value));
        }
        let (first, second) = (body(&server, 0), body(&server, 1));
        assert_eq!(first["max_output_tokens"], 10_240);
        assert!(first.get("previous_response_id").is_none());
        assert_eq!(second["previous_response_id"], "resp_1");
        let input = second["input"].as_array().unwrap();
        assert_eq!(input[0]["type"], "function_call_output");
        assert_eq!(input[0]["call_id"], "call_1");
        let sent = second["input"].to_string();
        assert!(!sent.contains("index the notes") && !sent.contains("opaque"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_storage_reasoning_returns_in_front_of_its_call_prv_27_prv_32() {
    let directory = tempfile::tempdir().unwrap();
    let server = two_answers();
    let config = config(
        directory.path(),
        "openai_compatible",
        &server.base_url(),
        "{store: false}",
    );
    let result = run(&config).await;
    assert_eq!(result.outcome, RunOutcome::Completed, "{result:?}");
    let second = body(&server, 1);
    assert_eq!(second["include"], json!(["reasoning.encrypted_content"]));
    assert!(second.get("previous_response_id").is_none());
    let input = second["input"].as_array().unwrap();
    let at = input.iter().position(|item| *item == reasoning()).unwrap();
    assert_eq!(input[at + 1]["call_id"], "call_1");
    assert_eq!(input[at + 1]["type"], "function_call");
    assert_eq!(input[at + 2]["type"], "function_call_output");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_responses_request_is_not_repeated_on_chat_prv_9() {
    let directory = tempfile::tempdir().unwrap();
    let refusing = || Reply::whole(404, "application/json", r#"{"error":{"code":"x"}}"#);
    let server = LoopbackServer::start(vec![refusing(), refusing()]).unwrap();
    let config = config(
        directory.path(),
        "openai_compatible",
        &server.base_url(),
        "{}",
    );
    let result = run(&config).await;
    assert_eq!(result.outcome, RunOutcome::Failed);
    assert_eq!(
        result.failure.unwrap().error_code,
        "provider_request_rejected"
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn another_api_mode_names_those_there_are_prv_8() {
    let directory = tempfile::tempdir().unwrap();
    let text = text_of("azure_openai", "https://h.invalid/openai/v1", "{}")
        .replace("api_mode: responses", "api_mode: messages");
    let config = AgentConfig::from_str(&text, Format::Yaml, directory.path()).unwrap();
    let options = CompositionOptions {
        credential_resolver: Some(Arc::new(FakeCredentialResolver::new())),
        ..CompositionOptions::default()
    };
    let error = Composition::build(&config, &FactoryRegistry::builtin(), options)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("chat_completions, responses"),
        "{error}"
    );
}
