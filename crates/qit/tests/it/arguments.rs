//! Usage, errors and formats.

use crate::program::{change, notes, run};

#[test]
fn unknown_flags_and_commands_are_refused_with_the_nearest_spelling() {
    // CLI-10
    let folder = tempfile::tempdir().unwrap();
    for (arguments, nearest) in [
        (&["run", "--confg", "x"][..], "`--config`"),
        (&["sesion", "list"][..], "`session`"),
        (&["session", "inspekt"][..], "`inspect`"),
        (&["run", "--config", "x", "--tas", "y"][..], "`--task`"),
    ] {
        let said = run(folder.path(), arguments).exits(2);
        assert!(said.stdout.is_empty(), "{said:?}");
        assert!(said.stderr.starts_with("error[usage_error]: "), "{said:?}");
        assert!(said.stderr.contains(nearest), "{said:?}");
    }
    let said = run(folder.path(), &["run", "--config", "x", "--api-key", "sk"]).exits(2);
    assert!(!said.stderr.contains("sk\n"), "{said:?}");
}

#[test]
fn json_is_exactly_one_object_also_on_failure() {
    // CLI-1
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    for (arguments, status) in [
        (&["--format", "json", "run", "--confg"][..], 2),
        (&["run", "--config", "absent.yaml", "--format=json"][..], 2),
        (
            &[
                "session",
                "inspect",
                "--config",
                "notes_agent/agent.yaml",
                "--session-id",
                "x",
                "--format",
                "json",
            ][..],
            2,
        ),
        (
            &[
                "session",
                "inspect",
                "--config",
                "notes_agent/agent.yaml",
                "--session-id",
                "session_0123456789abcdef",
                "--format",
                "json",
            ][..],
            5,
        ),
        (
            &[
                "conformance",
                "provider",
                "--builtin",
                "openai",
                "--format",
                "json",
            ][..],
            2,
        ),
    ] {
        let said = run(folder.path(), arguments).exits(status);
        let object = said.json_as("error");
        assert_eq!(object["exit_code"], status, "{object}");
        assert!(object["error"]["code"].is_string(), "{object}");
    }
    let config = ["--config", "notes_agent/agent.yaml"];
    for (arguments, schema) in [
        (&["doctor"][..], "doctor"),
        (&["completions", "bash"][..], "completions"),
        (
            &[&["session", "list"][..], &config].concat()[..],
            "session-list",
        ),
        (
            &[&["run", "--dry-run"][..], &config].concat()[..],
            "run-dry",
        ),
        (&["new", "another"][..], "new"),
    ] {
        let all = [arguments, &["--format", "json"]].concat();
        run(folder.path(), &all).exits(0).json_as(schema);
    }
    assert!(
        run(folder.path(), &["schema", "--format", "json"])
            .exits(0)
            .json()["$id"]
            .is_string()
    );
}

#[test]
fn errors_name_code_place_field_and_remedy() {
    // CLI-6, CFG-7
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    change(folder.path(), "budgets:", "budgts:");
    let said = run(
        folder.path(),
        &["run", "--config", "notes_agent/agent.yaml"],
    )
    .exits(2);
    assert!(
        said.stderr.contains("error[config_unknown_field]: "),
        "{said:?}"
    );
    assert!(
        said.stderr.contains("\n  --> agent.yaml:20:1 (budgts)\n"),
        "{said:?}"
    );
    assert!(said.stderr.contains("\nhelp: "), "{said:?}");
}

#[test]
fn each_wrong_configuration_has_its_exit_status() {
    // table of section 4, CLI-3, CFG-19
    for (from, to, status, code) in [
        (
            "provider: fake ",
            "provider: fakes ",
            2,
            "agent_composition_failed",
        ),
        (
            "provider: fake ",
            "provider: openai ",
            3,
            "agent_composition_failed",
        ),
        (
            "type: unsafe_host ",
            "type: local ",
            4,
            "agent_composition_failed",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        notes(folder.path());
        change(folder.path(), from, to);
        let config = [
            "run",
            "--config",
            "notes_agent/agent.yaml",
            "--format",
            "json",
        ];
        let object = run(folder.path(), &config).exits(status).json();
        assert_eq!(object["error"]["code"], code, "{object}");
        assert!(
            !folder
                .path()
                .join("notes_agent/.qitos/sessions.sqlite3")
                .exists()
        );
    }
}

#[test]
fn a_dry_run_creates_nothing() {
    // CLI-5
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let said = run(
        folder.path(),
        &["run", "--config", "notes_agent/agent.yaml", "--dry-run"],
    );
    assert!(said.exits(0).stdout.contains("config_digest"));
    let kept: Vec<_> = std::fs::read_dir(folder.path().join("notes_agent/.qitos"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(kept, ["agent.schema.json"]);
}

#[test]
fn stdin_is_read_only_for_a_dash() {
    // CLI-4
    use std::io::Write as _;
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    let arguments = ["run", "--config", "notes_agent/agent.yaml", "--task", "-"];
    let mut child = crate::program::qit(folder.path(), &arguments)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"Index them")
        .unwrap();
    crate::program::Said::of(child.wait_with_output().unwrap()).exits(0);
    // An open pipe that nobody writes to.
    let mut child = crate::program::qit(folder.path(), &arguments[..3])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
}
