//! `qit completions`: a script for a shell.

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use crate::answer::Answer;
use crate::args::Arguments;

/// The script on stdout.
pub(crate) fn perform(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "qit", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let json = json!({"shell": shell.to_string(), "script": script});
    Answer::new(script, json)
}
