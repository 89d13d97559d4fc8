//! One module per command.

mod completions;
mod conformance;
mod demo;
mod doctor;
mod new;
mod run;
mod schema;
mod session;

use crate::answer::Outcome;
use crate::args::{Arguments, Command};

/// Does what the command line asks for.
pub(crate) async fn perform(arguments: Arguments) -> Outcome {
    let format = arguments.format;
    match arguments.command {
        Command::New(new) => new::perform(&new),
        Command::Run(run) => Box::pin(run::perform(run, format)).await,
        Command::Demo(demo) => Box::pin(demo::perform(&demo, format)).await,
        Command::Session(session) => Box::pin(session::perform(session, format)).await,
        Command::Conformance(conformance) => conformance::perform(&conformance).await,
        Command::Doctor(doctor) => doctor::perform(&doctor),
        Command::Schema(schema) => schema::perform(&schema),
        Command::Completions { shell } => Ok(completions::perform(shell)),
        Command::ConformanceWriter { folder } => conformance::serve(&folder),
    }
}
