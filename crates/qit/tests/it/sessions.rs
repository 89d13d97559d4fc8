//! Stored sessions: list, inspect, fork, pause, budgets.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::{change, notes, qit, run};

const CONFIG: &str = "notes_agent/agent.yaml";

fn json(directory: &Path, arguments: &[&str], status: i32) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["--format", "json"]);
    run(directory, &all).exits(status).json()
}

/// Every file below a directory with its bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let digest = qitos::contracts::digest::Digest::of(&std::fs::read(&path).unwrap());
                found.insert(path, digest.to_hex());
            }
        }
    }
    found
}

#[test]
fn looking_at_sessions_changes_no_file() {
    // cli.inspect_read_only, SES-64
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let ran = json(folder.path(), &["run", "--config", CONFIG], 0);
    let id = ran["session_id"].as_str().unwrap();
    assert_eq!(ran["tool_calls"], 2);
    assert_eq!(ran["close"]["status"], "closed");
    let before = contents(folder.path());
    let found = json(
        folder.path(),
        &["session", "inspect", "--config", CONFIG, "--session-id", id],
        0,
    );
    assert_eq!(found["lifecycle"], "completed");
    assert_eq!(found["head"]["generation"], ran["generation"]);
    assert_eq!(found["snapshot_integrity"]["intact"], true);
    let listed = json(folder.path(), &["session", "list", "--config", CONFIG], 0);
    assert_eq!(listed["sessions"][0]["session_id"], id);
    let none = ["session", "list", "--config", CONFIG, "--state", "paused"];
    assert_eq!(
        json(folder.path(), &none, 0)["sessions"],
        serde_json::json!([])
    );
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn looking_at_what_a_killed_run_left_changes_nothing_of_it() {
    // cli.inspect_read_only, SES-64; `-shm` holds the locks of whoever looks and nothing else.
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let arguments = ["run", "--config", CONFIG, "--format", "jsonl"];
    let mut child = qit(folder.path(), &arguments).spawn().unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&events.next().unwrap().unwrap()).unwrap();
    let id = first["session_id"].as_str().unwrap();
    events.next();
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = || {
        let mut files = contents(folder.path());
        files.retain(|path, _| !path.to_string_lossy().ends_with("-shm"));
        files
    };
    let before = kept();
    let logs = before
        .keys()
        .filter(|path| path.to_string_lossy().ends_with("-wal"));
    assert_eq!(logs.count(), 1, "{before:?}");
    let inspect = ["session", "inspect", "--config", CONFIG, "--session-id", id];
    let found = json(folder.path(), &inspect, 0);
    assert_eq!(found["snapshot_integrity"]["intact"], true, "{found}");
    let listed = json(folder.path(), &["session", "list", "--config", CONFIG], 0);
    assert_eq!(listed["sessions"][0]["session_id"], id);
    assert_eq!(kept(), before);
    let restore = ["run", "--config", CONFIG, "--restore", id, "--force"];
    if found["lifecycle"] != "completed" {
        assert_eq!(json(folder.path(), &restore, 0)["lifecycle"], "completed");
    }
}

#[test]
fn an_exhausted_budget_is_told_and_a_larger_one_goes_on() {
    // table of section 4: 7; CFG-14
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    change(folder.path(), "max_requests: 6", "max_requests: 1");
    let ran = json(folder.path(), &["run", "--config", CONFIG], 7);
    assert_eq!(ran["lifecycle"], "paused");
    let id = ran["session_id"].as_str().unwrap();
    change(folder.path(), "max_requests: 1", "max_requests: 6");
    let refused = json(
        folder.path(),
        &["run", "--config", CONFIG, "--restore", id],
        5,
    );
    assert_eq!(refused["error"]["code"], "config_digest_mismatch");
    let accepted = [
        "run",
        "--config",
        CONFIG,
        "--restore",
        id,
        "--accept-config-change",
    ];
    let ran = json(folder.path(), &accepted, 0);
    assert_eq!(ran["final_result"], "Indexed 2 notes: Session, Artifact.");
}

#[test]
fn a_fork_leaves_its_parent_and_runs_by_itself() {
    // CFG-26, SES-41
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    change(folder.path(), "max_requests: 6", "max_requests: 1");
    let ran = json(folder.path(), &["run", "--config", CONFIG], 7);
    let id = ran["session_id"].as_str().unwrap();
    let fork = ["session", "fork", "--config", CONFIG, "--session-id", id];
    let first = json(folder.path(), &fork, 0);
    let operation = first["receipt"]["operation_id"]
        .as_str()
        .map(str::to_owned)
        .unwrap_or_else(|| {
            first["receipt"]["operation_id"]["value"]
                .as_str()
                .unwrap()
                .to_owned()
        });
    let child = first["session_id"].as_str().unwrap();
    assert_ne!(child, id);
    let again = [&fork[..], &["--operation-id", &operation]].concat();
    assert_eq!(json(folder.path(), &again, 0)["session_id"], child);
    let parent = json(
        folder.path(),
        &["session", "inspect", "--config", CONFIG, "--session-id", id],
        0,
    );
    assert_eq!(parent["head"]["generation"], ran["generation"]);
    let pause = ["session", "pause", "--config", CONFIG, "--session-id", id];
    assert_eq!(json(folder.path(), &pause, 0)["status"], "persisted");
}

#[test]
fn a_finished_session_is_neither_restored_nor_paused() {
    // table of section 4: 5
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let ran = json(folder.path(), &["run", "--config", CONFIG], 0);
    let id = ran["session_id"].as_str().unwrap();
    let refused = json(
        folder.path(),
        &["run", "--config", CONFIG, "--restore", id],
        5,
    );
    assert_eq!(refused["error"]["code"], "invalid_lifecycle_operation");
    let pause = ["session", "pause", "--config", CONFIG, "--session-id", id];
    assert_eq!(
        json(folder.path(), &pause, 5)["error"]["code"],
        "invalid_lifecycle_operation"
    );
}
