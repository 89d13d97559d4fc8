//! Repository rules as tests, schema and error-page generation.

use std::path::PathBuf;
use std::process::ExitCode;

mod schema;

/// The root of the repository.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("schema") => schema::write(&root()),
        _ => Err("usage: cargo xtask schema".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            report(&message);
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "this is a command-line program")]
fn report(message: &str) {
    eprintln!("{message}");
}
