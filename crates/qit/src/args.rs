//! What can be written on the command line.
//!
//! Flags are never abbreviated and no secret is ever a flag (CLI-10).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Version of the program and of what it reads and writes.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (agent schema qitos.agent, contracts 1)"
);

/// Run, inspect and check durable agents.
#[derive(Debug, Parser)]
#[command(name = "qit", version = VERSION, about, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// How the result is printed.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) format: Format,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// Exactly one object on stdout.
    Json,
    /// One event per line, the result last.
    Jsonl,
}

/// What is shown while a run works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Progress {
    /// Streamed text on stderr.
    Auto,
    /// The same, also where stderr is not a terminal.
    Plain,
    /// Nothing.
    None,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a project that runs at once.
    New(New),
    /// Run one session of a project.
    Run(Run),
    /// Show pause, end of the process and restore, in a folder of its own.
    Demo(Demo),
    /// Look at and steer stored sessions.
    #[command(subcommand)]
    Session(Session),
    /// Hold an implementation against its contract.
    Conformance(Conformance),
    /// Tell what this program can do here.
    Doctor(Doctor),
    /// Print the JSON Schema of `agent.yaml`.
    Schema(Schema),
    /// Print a completion script.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Serve the writing process of a conformance run.
    #[command(hide = true)]
    ConformanceWriter {
        /// The folder of stores.
        folder: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct New {
    /// Name of the project: a lower-case letter, then lower-case letters, digits and `_`.
    #[arg(required_unless_present = "agent_name")]
    pub(crate) name: Option<String>,
    /// The same as NAME.
    #[arg(long, conflicts_with = "name")]
    pub(crate) agent_name: Option<String>,
    /// Where the project's directory is made.
    #[arg(long, default_value = ".")]
    pub(crate) output_dir: PathBuf,
    /// What the project starts from.
    #[arg(long, value_enum, default_value = "notes")]
    pub(crate) template: Template,
    /// Never ask.
    #[arg(long)]
    pub(crate) no_input: bool,
    /// Depend on the library at this path instead of a published version.
    #[arg(long, hide = true)]
    pub(crate) qitos_path: Option<PathBuf>,
}

/// What a project starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Template {
    /// An agent that indexes two built-in notes, offline.
    Notes,
    /// An agent with file and command tools in a sandbox.
    Coding,
    /// The configuration alone, without tools.
    Empty,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// What to do; `-` reads it from stdin. Without it the first task of the data set.
    #[arg(long, conflicts_with_all = ["task_file", "restore"])]
    pub(crate) task: Option<String>,
    /// A file that says what to do.
    #[arg(long, value_name = "FILE", conflicts_with = "restore")]
    pub(crate) task_file: Option<PathBuf>,
    /// Make the new session under this id.
    #[arg(long, value_name = "ID", conflicts_with = "restore")]
    pub(crate) session_id: Option<String>,
    /// Go on with a stored session.
    #[arg(long, value_name = "ID")]
    pub(crate) restore: Option<String>,
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Check everything and print the sanitized identity; runs nothing, creates nothing.
    #[arg(long, conflicts_with_all = ["restore", "steer"])]
    pub(crate) dry_run: bool,
}

/// How a session is taken up and shown; shared by `run` and `session restore`.
#[derive(Args, Debug)]
pub(crate) struct Taking {
    /// Take a session over although its owner did not let go of it.
    #[arg(long)]
    pub(crate) force: bool,
    /// Words for the agent before its next decision.
    #[arg(long, value_name = "TEXT")]
    pub(crate) steer: Option<String>,
    /// Read credentials from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "credentials_from_env")]
    pub(crate) credentials: Option<PathBuf>,
    /// Read credentials `env:NAME` from environment variables.
    #[arg(long)]
    pub(crate) credentials_from_env: bool,
    /// Go on under a changed configuration.
    #[arg(long)]
    pub(crate) accept_config_change: bool,
    /// What is shown on stderr.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) progress: Progress,
    /// Never ask.
    #[arg(long)]
    pub(crate) no_input: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Which part of the demonstration this process is.
    #[arg(long, hide = true)]
    pub(crate) continue_stage: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// List sessions, newest first.
    List {
        /// The configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Only sessions in this lifecycle state.
        #[arg(long)]
        state: Option<String>,
        /// At most this many.
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show what is durable of a session; reads only.
    Inspect(OneSession),
    /// Go on with a stored session, as `run --restore`.
    Restore {
        #[command(flatten)]
        session: OneSession,
        #[command(flatten)]
        taking: Taking,
    },
    /// Make a child of a session; the parent stays as it is.
    Fork {
        #[command(flatten)]
        session: OneSession,
        /// Branch off from this snapshot instead of the head.
        #[arg(long, value_name = "ID")]
        snapshot: Option<String>,
        /// The same operation id gives the same child.
        #[arg(long, value_name = "ID")]
        operation_id: Option<String>,
    },
    /// Ask the owner of a session to pause it at its next safe boundary.
    Pause {
        #[command(flatten)]
        session: OneSession,
        /// Wait at most this many seconds until the session rests.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u64,
    },
}

#[derive(Args, Debug)]
pub(crate) struct OneSession {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// The session.
    #[arg(long, value_name = "ID")]
    pub(crate) session_id: String,
}

#[derive(Args, Debug)]
pub(crate) struct Conformance {
    /// The mechanism.
    #[arg(value_enum)]
    pub(crate) mechanism: Mechanism,
    /// The built-in implementation.
    #[arg(long, value_name = "NAME")]
    pub(crate) builtin: String,
    /// Only checks whose id contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
}

/// The six mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mechanism {
    /// Models.
    Provider,
    /// Tools.
    Tool,
    /// Where sessions are stored.
    CheckpointStore,
    /// Where records go.
    EventSink,
    /// Where tools act.
    Sandbox,
    /// What judges trajectories.
    Evaluator,
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Also check this configuration.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// Write it to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
