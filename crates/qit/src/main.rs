//! The qit command: run, inspect and check durable agents.
//!
//! | module | what it decides |
//! |---|---|
//! | `args` | what can be written on the command line |
//! | `exit_code` | what the exit status means |
//! | `answer`, `failure` | the one object or text that a command prints, and how failures look (CLI-1, CLI-6) |
//! | `progress`, `signals` | what goes to stderr while a run works, what signals do (CLI-7, CLI-8) |
//! | `project` | loading a configuration and what belongs to it |
//! | `commands` | one module per command |
//! | `tool_engine` | the kernel as a subject of the tool suite |

mod answer;
mod args;
mod commands;
mod exit_code;
mod failure;
mod progress;
mod project;
mod signals;
mod tool_engine;

use std::process::ExitCode as ProcessExit;

use clap::Parser as _;

use crate::args::{Arguments, Format};
use crate::exit_code::ExitCode;
use crate::failure::Failure;

fn main() -> ProcessExit {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let format = arguments.format;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(Box::pin(commands::perform(arguments)));
            // A tool that does not end must not keep a finished command from ending.
            runtime.shutdown_timeout(std::time::Duration::from_millis(200));
            outcome
        }
        Err(error) => Err(Failure::usage(
            "the async runtime does not start",
            error.to_string(),
        )),
    };
    match outcome {
        Ok(answer) => answer.print(format).into(),
        Err(failure) => failure.print(format).into(),
    }
}

/// What the parser refused; help and version are no failures.
fn refuse(error: &clap::Error) -> ProcessExit {
    if !error.use_stderr() {
        answer::write_out(&error.render().to_string());
        return ExitCode::Done.into();
    }
    Failure::of_arguments(error)
        .print(asked_format(std::env::args_os()))
        .into()
}

/// The format that a command line asks for although it could not be parsed (CLI-1).
fn asked_format(arguments: impl Iterator<Item = std::ffi::OsString>) -> Format {
    let mut previous = false;
    for argument in arguments {
        let argument = argument.to_string_lossy().into_owned();
        let word = match argument.strip_prefix("--format=") {
            Some(word) => word,
            None if previous => argument.as_str(),
            None => {
                previous = argument == "--format";
                continue;
            }
        };
        return match word {
            "json" => Format::Json,
            "jsonl" => Format::Jsonl,
            _ => Format::Text,
        };
    }
    Format::Text
}
