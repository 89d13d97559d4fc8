//! Repository rules as tests, schema and error-page generation.

use std::process::ExitCode;

mod error_pages;
mod repository;
mod schema;
#[cfg(test)]
mod tidy;

fn main() -> ExitCode {
    let root = repository::root();
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("schema") => schema::write(&root),
        Some("error-pages") => error_pages::write(&root),
        _ => Err("usage: cargo xtask schema|error-pages".to_owned()),
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
