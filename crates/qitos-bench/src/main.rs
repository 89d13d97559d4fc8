//! Workloads, floors and growth laws of QitOS (`docs/benchmarks.md`).
//!
//! Each workload runs beside its floor in one process and on one machine and prints one JSON object. Bounds are on
//! ratios and growth where the machine matters, so that a slower machine does not fail them.

mod agent;
mod durable;
mod floor;
mod journal;
mod kernel;
mod many;
mod memory;
mod report;
mod start;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use qitos::History;

/// What a workload gives: its report, or why it could not be measured.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs one workload and prints its figures.
#[derive(Debug, Parser)]
#[command(name = "qitos-bench", version)]
struct Arguments {
    #[command(subcommand)]
    workload: Workload,
    /// Prints one JSON object instead of lines.
    #[arg(long, global = true)]
    json: bool,
    /// Exits with 1 when a bound is not met.
    #[arg(long, global = true)]
    check: bool,
    /// Runs of which the median is reported.
    #[arg(long, global = true, default_value_t = 3)]
    runs: u32,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// W1: a scripted agent in memory.
    Kernel {
        /// Tool calls.
        #[arg(long, default_value_t = 1_000)]
        steps: u64,
        /// `full` or `window:24`.
        #[arg(long, default_value = "full", value_parser = history)]
        history: History,
    },
    /// W2: the same agent with every durable point in a synced SQLite file.
    Durable {
        /// Tool calls.
        #[arg(long, default_value_t = 1_000)]
        steps: u64,
        /// The tool claims nothing of its effect.
        #[arg(long)]
        effectful: bool,
        /// Where the files are made; the system's folder for temporary files unless given.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// W4: a whole process that runs one step.
    Start,
    /// W5: appending to a journal.
    Journal {
        /// Records appended.
        #[arg(long, default_value_t = 50_000)]
        records: u64,
        /// Where the files are made; the system's folder for temporary files unless given.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// W6: many agents at once.
    Many {
        /// Agents.
        #[arg(long, default_value_t = 1_000)]
        agents: u64,
        /// Where their sessions live.
        #[arg(long, value_enum, default_value_t = Store::None)]
        store: Store,
        /// Where the files are made; the system's folder for temporary files unless given.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// What `start` and `many` run as a child: prints its memory and nothing else.
    #[command(hide = true)]
    Child {
        /// One step, or this many agents at once.
        #[arg(long)]
        agents: Option<u64>,
    },
}

/// Where the sessions of `many` live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    /// Nowhere.
    None,
    /// In one SQLite file.
    Sqlite,
}

fn history(text: &str) -> Result<History, String> {
    match text.strip_prefix("window:") {
        None if text == "full" => Ok(History::Full),
        Some(count) => count
            .parse()
            .map(History::Window)
            .map_err(|_| "the window must be a number".to_owned()),
        None => Err("either `full` or `window:24`".to_owned()),
    }
}

fn run(arguments: &Arguments) -> Outcome<Option<report::Report>> {
    let runs = arguments.runs.max(1);
    Ok(Some(match &arguments.workload {
        Workload::Kernel { steps, history } => kernel::run(*steps, *history, runs)?,
        Workload::Durable {
            steps,
            effectful,
            directory,
        } => durable::run(*steps, *effectful, directory.as_deref(), runs)?,
        Workload::Start => start::run(runs)?,
        Workload::Journal { records, directory } => {
            journal::run(*records, directory.as_deref(), runs)?
        }
        Workload::Many {
            agents,
            store,
            directory,
        } => many::run(*agents, *store, directory.as_deref(), runs)?,
        Workload::Child { agents } => {
            match agents {
                None => start::child()?,
                Some(agents) => many::child(*agents)?,
            }
            return Ok(None);
        }
    }))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => {
            let text = if arguments.json {
                report.to_json()
            } else {
                report.to_lines()
            };
            if writeln!(std::io::stdout(), "{text}").is_err()
                || (arguments.check && !report.all_met())
            {
                return ExitCode::FAILURE;
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "qitos-bench: {error}");
            ExitCode::from(2)
        }
    }
}
