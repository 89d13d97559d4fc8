//! Starting the program and reading what it says.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program in a directory, with a home that holds nothing and without a terminal.
pub(crate) fn qit(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qit"));
    command
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("HOME", directory.join("no-home"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a finished process said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Self {
        Said {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one object on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// The one object on stdout; its keys are those of `docs/schemas/qit-NAME.schema.json`.
    #[track_caller]
    pub(crate) fn json_as(&self, schema: &str) -> Value {
        let object = self.json();
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../docs/schemas/qit-{schema}.schema.json"));
        let schema: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for key in schema["required"].as_array().unwrap() {
            assert!(
                object.get(key.as_str().unwrap()).is_some(),
                "{key} in {object}"
            );
        }
        if schema["additionalProperties"] == false {
            for key in object.as_object().unwrap().keys() {
                assert!(schema["properties"].get(key).is_some(), "{key} in {schema}");
            }
        }
        object
    }

    #[track_caller]
    pub(crate) fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self:?}");
        self
    }
}

pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Said {
    Said::of(qit(directory, arguments).output().unwrap())
}

/// A project made from the notes template.
pub(crate) fn notes(directory: &Path) {
    run(directory, &["new", "notes_agent"]).exits(0);
}

/// Changes the configuration of the notes project.
pub(crate) fn change(directory: &Path, from: &str, to: &str) {
    let file = directory.join("notes_agent/agent.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}
