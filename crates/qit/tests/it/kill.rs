//! `kill -9` of the real program, then going on.

use std::io::{BufRead as _, BufReader};

use crate::program::{notes, qit, run};

/// Lines of events after which the process is killed; a run of the notes agent has fewer than the last.
const POINTS: std::ops::Range<usize> = 1..9;

#[test]
fn a_killed_run_is_recovered_with_the_same_result() {
    // SES-52, section 8 of the engine: whatever was durable stays, nothing is done twice
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let config = "notes_agent/agent.yaml";
    let mut recovered = 0;
    for lines in POINTS {
        let mut child = qit(
            folder.path(),
            &["run", "--config", config, "--format", "jsonl"],
        )
        .spawn()
        .unwrap();
        let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
        let first: serde_json::Value =
            serde_json::from_str(&events.next().unwrap().unwrap()).unwrap();
        for _ in 1..lines {
            events.next();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let id = first["session_id"].as_str().unwrap();
        let inspect = [
            "session",
            "inspect",
            "--config",
            config,
            "--session-id",
            id,
            "--format",
            "json",
        ];
        let found = run(folder.path(), &inspect)
            .exits(0)
            .json_as("session-inspect");
        assert_eq!(found["snapshot_integrity"]["intact"], true, "{found}");
        if found["lifecycle"] == "completed" {
            continue;
        }
        recovered += 1;
        let plain = [
            "run",
            "--config",
            config,
            "--restore",
            id,
            "--format",
            "json",
        ];
        let refused = run(folder.path(), &plain).exits(5).json();
        assert_eq!(refused["error"]["code"], "owner_active", "{refused}");
        let forced = [&plain[..], &["--force"]].concat();
        let object = run(folder.path(), &forced).exits(0).json();
        assert_eq!(
            object["final_result"], "Indexed 2 notes: Session, Artifact.",
            "{object}"
        );
        assert_eq!(object["lifecycle"], "completed");
    }
    assert!(recovered > 0, "no kill came before the end");
}
