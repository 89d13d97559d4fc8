//! SIGINT and SIGTERM.

use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::Duration;

use qitos::kit::loopback::{Gate, LoopbackServer, Reply};
use serde_json::Value;

use crate::program::{qit, run};
use crate::provider::{CALL, FINAL, answer, arguments, delta, project};

#[test]
fn the_first_signal_pauses_at_the_next_boundary() {
    // CLI-8, cli.signals
    for (name, status) in [("INT", 130), ("TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::new();
        let held = Reply::event_stream()
            .piece(delta(CALL))
            .wait(&gate)
            .piece("data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n")
            .piece("data: [DONE]\n\n")
            .end();
        let server = LoopbackServer::start(vec![held, answer(FINAL)]).unwrap();
        project(folder.path(), &server.base_url());
        let directory = folder.path().join("project");
        let mut child = qit(&directory, &arguments(&[])).spawn().unwrap();
        assert!(server.wait_for_requests(1, Duration::from_secs(60)));
        let pid = child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap();
        assert!(sent.success());
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(errors.any(|line| line.unwrap().contains("pausing at the next safe boundary")));
        gate.open();
        let output = child.wait_with_output().unwrap();
        let object: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(status), "{object}");
        assert_eq!(object["lifecycle"], "paused", "{object}");
        assert_eq!(object["tool_calls"], 1, "{object}");
        let id = object["session_id"].as_str().unwrap();
        let object = run(&directory, &arguments(&["--restore", id]))
            .exits(0)
            .json();
        assert_eq!(object["final_result"], "one note");
    }
}

#[test]
fn the_second_signal_leaves_the_run_and_the_session_goes_on_elsewhere() {
    // CLI-8, cli.signals; DUR-2: the request that was left counts.
    let folder = tempfile::tempdir().unwrap();
    let held = Reply::event_stream().piece(delta(CALL)).hang();
    let server = LoopbackServer::start(vec![held, answer(CALL), answer(FINAL)]).unwrap();
    project(folder.path(), &server.base_url());
    let directory = folder.path().join("project");
    let mut child = qit(&directory, &arguments(&[])).spawn().unwrap();
    assert!(server.wait_for_requests(1, Duration::from_secs(60)));
    let pid = child.id().to_string();
    let send = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    };
    send("INT");
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(errors.any(|line| line.unwrap().contains("once more leaves the run")));
    send("TERM");
    let output = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{object}");
    assert_eq!(object["error"]["code"], "run_interrupted", "{object}");
    let list = [
        "session",
        "list",
        "--config",
        "agent.yaml",
        "--format",
        "json",
    ];
    let listed = run(&directory, &list).exits(0).json();
    let id = listed["sessions"][0]["session_id"].as_str().unwrap();
    let object = run(&directory, &arguments(&["--restore", id, "--force"]))
        .exits(0)
        .json();
    assert_eq!(object["final_result"], "one note", "{object}");
    assert_eq!(object["budget"]["used"]["requests"], 3, "{object}");
}

#[test]
fn a_pause_from_another_process_is_honoured_by_the_owner() {
    // SES-57, SES-63
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new();
    let held = Reply::event_stream()
        .piece(delta(CALL))
        .wait(&gate)
        .piece(
            "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n",
        )
        .piece("data: [DONE]\n\n")
        .end();
    let second = Reply::event_stream().piece(delta("Thought: s")).hang();
    let server = LoopbackServer::start(vec![held, second]).unwrap();
    project(folder.path(), &server.base_url());
    let directory = folder.path().join("project");
    let child = qit(&directory, &arguments(&[])).spawn().unwrap();
    assert!(server.wait_for_requests(1, Duration::from_secs(60)));
    let list = [
        "session",
        "list",
        "--config",
        "agent.yaml",
        "--format",
        "json",
    ];
    let listed = run(&directory, &list).exits(0).json_as("session-list");
    let id = listed["sessions"][0]["session_id"].as_str().unwrap();
    let pause = [
        "session",
        "pause",
        "--config",
        "agent.yaml",
        "--session-id",
        id,
        "--format",
        "json",
    ];
    let asked = run(&directory, &pause).exits(0).json_as("session-pause");
    assert_eq!(asked["status"], "accepted");
    // The request stands in the store before the answer ends, so the owner hears of it at the latest between steps.
    gate.open();
    let output = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(8), "{object}");
    assert_eq!(object["stop_reason"], "interrupt");
    let asked = run(&directory, &pause).exits(0).json();
    assert_eq!(asked["status"], "persisted");
}
