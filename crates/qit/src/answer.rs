//! What a command prints when it did what it was asked (CLI-1).

use std::io::Write as _;

use serde_json::Value;

use crate::args::Format;
use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// The result of a command in both forms.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    json: Value,
    exit: ExitCode,
}

/// What every command gives.
pub(crate) type Outcome = Result<Answer, Failure>;

impl Answer {
    /// A command that was done.
    pub(crate) fn new(text: impl Into<String>, json: Value) -> Self {
        Answer {
            text: text.into(),
            json,
            exit: ExitCode::Done,
        }
    }

    /// The same answer with another exit status.
    pub(crate) fn exiting(mut self, exit: ExitCode) -> Self {
        self.exit = exit;
        self
    }

    /// Writes the one object or the text to stdout.
    pub(crate) fn print(self, format: Format) -> ExitCode {
        match format {
            Format::Text => write_line(&self.text),
            Format::Json | Format::Jsonl => write_line(&self.json.to_string()),
        }
        self.exit
    }
}

fn write_line(text: &str) {
    write_out(text);
    if !text.ends_with('\n') && !text.is_empty() {
        write_out("\n");
    }
}

/// Writes to stdout; a closed pipe ends output, not the run (CLI-8).
pub(crate) fn write_out(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes());
    let _ = output.flush();
}

/// Writes a line to stderr.
pub(crate) fn note(text: &str) {
    let mut output = std::io::stderr().lock();
    let _ = writeln!(output, "{text}");
}

/// A command that is typed next, with its path quoted where a shell needs it.
pub(crate) fn quoted(path: &std::path::Path) -> String {
    let text = path.to_string_lossy();
    let plain = text
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "._-/+=:@".contains(character));
    if plain {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
