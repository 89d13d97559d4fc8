//! Repository rules as tests, schema and error-page generation, fuzzing.

use std::process::ExitCode;

mod error_pages;
mod fuzz;
mod repository;
mod schema;
#[cfg(test)]
mod tidy;

fn main() -> ExitCode {
    let root = repository::root();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", arguments.as_slice()),
    };
    let done = match task {
        "schema" => schema::write(&root),
        "error-pages" => error_pages::write(&root),
        "fuzz" => fuzz::run(&root, rest),
        _ => Err("usage: cargo xtask schema|error-pages|fuzz".to_owned()),
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
