//! `qit new` and what it makes.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::run;

#[test]
fn two_commands_give_a_result_without_anything_else() {
    // CLI-11
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let made = run(folder.path(), &["new", "notes_agent"]).exits(0);
    assert!(
        made.stdout
            .contains("qit run --config notes_agent/agent.yaml"),
        "{made:?}"
    );
    let said = run(
        folder.path(),
        &["run", "--config", "notes_agent/agent.yaml"],
    )
    .exits(0);
    assert!(
        said.stdout
            .starts_with("Indexed 2 notes: Session, Artifact.\n"),
        "{said:?}"
    );
    assert!(said.stdout.contains("\nsession    session_"), "{said:?}");
    assert!(
        said.stdout
            .contains("qit session inspect --config notes_agent/agent.yaml --session-id session_"),
        "{said:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(2) * slowness(),
        "{:?}",
        started.elapsed()
    );
}

/// A build without optimisation on a loaded machine is not what the rule is about.
fn slowness() -> u32 {
    if cfg!(debug_assertions) { 10 } else { 1 }
}

#[test]
fn an_existing_target_is_left_as_it_is() {
    // section 4: qit new
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("notes_agent")).unwrap();
    let said = run(folder.path(), &["new", "--agent-name", "notes_agent"]).exits(2);
    assert!(said.stderr.contains("project_exists"), "{said:?}");
    assert_eq!(
        std::fs::read_dir(folder.path().join("notes_agent"))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    for bad in ["Notes", "../x", "a-b"] {
        run(folder.path(), &["new", bad]).exits(2);
    }
}

/// What cargo tells a test of its own package. A build script that watches one of these runs again when it changes,
/// and with it everything is built again that stands on it: here, and then in the next build of the workspace.
fn told_by_cargo() -> impl Iterator<Item = OsString> {
    let told = [
        "CARGO_BIN_",
        "CARGO_CRATE_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
        "CARGO_TARGET_TMPDIR",
    ];
    std::env::vars_os()
        .map(|(name, _)| name)
        .filter(move |name| {
            let name = name.to_string_lossy();
            told.iter().any(|start| name.starts_with(start))
        })
}

#[test]
fn the_generated_crate_builds_and_its_tests_pass_offline() {
    // CLI-12
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap();
    let library = root.join("crates/qitos");
    let arguments = [
        "new",
        "notes_agent",
        "--qitos-path",
        library.to_str().unwrap(),
    ];
    run(folder.path(), &arguments).exits(0);
    let project = folder.path().join("notes_agent");
    // The same versions as here, so that nothing has to be fetched.
    std::fs::copy(root.join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_qit"))
        .ancestors()
        .nth(2)
        .unwrap();
    for command in ["test", "run"] {
        let mut cargo = Command::new(env!("CARGO"));
        for name in told_by_cargo() {
            cargo.env_remove(name);
        }
        let output = cargo
            .args([command, "--offline", "--quiet"])
            .args(["--config", "profile.dev.debug=\"line-tables-only\""])
            .args(["--config", "profile.dev.package.\"*\".debug=false"])
            .args(["--config", "profile.dev.package.sha2.opt-level=3"])
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", target)
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{stdout}\n{stderr}");
        if command == "run" {
            assert!(
                stdout.contains("after 1 tool call: paused\nIndexed 2 notes: Session, Artifact."),
                "{stdout}"
            );
        }
    }
}
