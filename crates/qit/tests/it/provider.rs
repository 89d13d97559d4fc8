//! Runs against an OpenAI-compatible server on loopback: whole, refused, cut.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use qitos::kit::loopback::{LoopbackServer, Reply};
use serde_json::{Value, json};

use crate::program::{Said, run};

pub(crate) const CONFIG: &str = "agent.yaml";

/// A project whose model answers at `base_url`, with a credentials file outside of it.
pub(crate) fn project(folder: &Path, base_url: &str) {
    let text = format!(
        r#"schema: qitos.agent
agent: {{name: notes_agent, protocol: react_text_v1}}
model:
  provider: openai_compatible
  model: offline
  base_url: {base_url}
  credential: {{ref: main}}
tools: {{preset: demo_notes}}
runtime:
  environment: {{type: unsafe_host, workspace: .}}
budgets: {{max_steps: 5, max_requests: 5}}
dataset:
  - task: Summarize the first note
"#
    );
    let project = folder.join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join(CONFIG), text).unwrap();
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(folder.join("keys"))
        .unwrap();
    key(folder, "sk-canary-first");
}

fn key(folder: &Path, value: &str) {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(folder.join("keys/credentials.yaml"))
        .unwrap();
    write!(file, "credentials:\n  main: {value}\n").unwrap();
}

pub(crate) fn answer(text: &str) -> Reply {
    Reply::event_stream()
        .piece(delta(text))
        .piece(
            "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n",
        )
        .piece("data: [DONE]\n\n")
        .end()
}

pub(crate) fn delta(text: &str) -> String {
    let piece = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    format!("data: {piece}\n\n")
}

pub(crate) const CALL: &str = "Thought: look\nAction: summarize_note(index=0)";
pub(crate) const FINAL: &str = "Thought: seen\nFinal Answer: one note";

pub(crate) fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec![
        "run",
        "--config",
        CONFIG,
        "--credentials",
        "../keys/credentials.yaml",
        "--format",
        "json",
    ];
    all.extend(more);
    all
}

fn ran(folder: &Path, more: &[&str]) -> Said {
    run(&folder.join("project"), &arguments(more))
}

fn restored(folder: &Path, first: &Value) -> Value {
    let id = first["session_id"].as_str().unwrap();
    ran(folder, &["--restore", id]).exits(0).json()
}

/// No byte below the project, and nothing said, holds a key.
fn no_canary(folder: &Path, said: &str) {
    // CRD-9
    assert!(!said.contains("canary"), "{said}");
    let mut open = vec![folder.join("project")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(9).any(|window| window == b"sk-canary");
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn a_server_answers_a_run_with_a_tool() {
    // CLI-2
    let folder = tempfile::tempdir().unwrap();
    let server = LoopbackServer::start(vec![answer(CALL), answer(FINAL)]).unwrap();
    project(folder.path(), &server.base_url());
    let said = ran(folder.path(), &[]).exits(0);
    let object = said.json_as("run");
    assert_eq!(object["final_result"], "one note", "{object}");
    assert_eq!(object["tool_calls"], 1);
    assert_eq!(object["credential"]["ref"], "main");
    assert_eq!(
        server.requests()[0].header("authorization"),
        Some("Bearer sk-canary-first")
    );
    no_canary(folder.path(), &format!("{said:?}"));
}

#[test]
fn a_refused_key_rests_the_session_and_a_new_one_goes_on() {
    // table of section 4: 6; CRD-10
    let folder = tempfile::tempdir().unwrap();
    let refusal = Reply::whole(
        401,
        "application/json",
        r#"{"error": {"message": "bad key", "code": "invalid_api_key"}}"#,
    );
    let server = LoopbackServer::start(vec![refusal, answer(FINAL)]).unwrap();
    project(folder.path(), &server.base_url());
    let said = ran(folder.path(), &[]).exits(6);
    let first = said.json_as("run");
    assert_eq!(first["lifecycle"], "paused", "{first}");
    key(folder.path(), "sk-canary-second");
    assert_eq!(restored(folder.path(), &first)["final_result"], "one note");
    assert_eq!(
        server.requests()[1].header("authorization"),
        Some("Bearer sk-canary-second")
    );
    no_canary(folder.path(), &format!("{said:?}"));
}

#[test]
fn an_interrupted_stream_is_an_error_and_the_session_goes_on() {
    // PRV-112, table of section 4: 6
    let folder = tempfile::tempdir().unwrap();
    let cut = Reply::event_stream().piece(delta("Thought: s")).end();
    let server = LoopbackServer::start(vec![answer(CALL), cut, answer(FINAL)]).unwrap();
    project(folder.path(), &server.base_url());
    let first = ran(folder.path(), &[]).exits(6).json();
    assert_eq!(first["lifecycle"], "paused", "{first}");
    assert_eq!(first["tool_calls"], 1);
    assert_eq!(first["final_result"], Value::Null);
    let second = restored(folder.path(), &first);
    assert_eq!(second["final_result"], "one note");
    assert_eq!(second["tool_calls"], 1, "the tool is not called again");
}

#[test]
fn each_credential_failure_is_told_before_any_request() {
    // table of section 4: 3; CRD-3, CRD-6
    let folder = tempfile::tempdir().unwrap();
    let server = LoopbackServer::start(Vec::new()).unwrap();
    project(folder.path(), &server.base_url());
    let project = folder.path().join("project");
    for (more, code) in [
        (
            &["--credentials", "../keys/absent.yaml"][..],
            "credential_file_security_invalid",
        ),
        (
            &["--credentials-from-env"][..],
            "credential_resolution_failed",
        ),
        (&[][..], "credential_file_security_invalid"),
    ] {
        let mut all = vec!["run", "--config", CONFIG, "--format", "json"];
        all.extend(more);
        let object = run(&project, &all).exits(3).json();
        assert_eq!(object["error"]["code"], code, "{object}");
    }
    assert_eq!(server.accepted_connections(), 0);
}
