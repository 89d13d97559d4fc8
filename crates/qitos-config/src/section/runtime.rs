//! `runtime`: environment, session, trajectory.

use super::agent::{Credential, CredentialEdit};
use crate::document::{Kind, Node};
use crate::field::{Field, Shape, Text, WhenAbsent};

choices! {
    /// Who holds a sandbox to its limits.
    ResourceEnforcement {
        Kernel = "kernel" "The kernel, without gaps.",
        Sampled = "sampled" "A watcher that samples; `local` only.",
    }
}

choices! {
    /// What holds the workspace of a sandbox.
    WorkspaceBacking {
        Tmpfs = "tmpfs" "Memory, of bounded size.",
        Dir = "dir" "A directory; `local` only.",
    }
}

section! {
    /// `runtime.environment.input`: what is staged into the sandbox.
    #[derive(Default)]
    EnvironmentInput, EnvironmentInputEdit {
        /// Globs left out besides the built-in ones.
        texts exclude = "exclude": Shape::Texts { item: Text::Glob, unique: true }, WhenAbsent::EmptyList;
        /// Exact paths taken in although a glob leaves them out.
        texts readmit = "readmit": Shape::Texts { item: Text::Glob, unique: true }, WhenAbsent::EmptyList;
        /// The most files and directories.
        integer max_entries = "max_entries": Shape::Integer { min: 1, max: Some(1_000_000), nullable: false }, WhenAbsent::Integer(10_000);
        /// Put a commit of the staged files into the sandbox.
        flag git_baseline = "git_baseline": Shape::Flag, WhenAbsent::Flag(false);
    }
}

/// What may stand in the block of an environment that isolates nothing.
pub(crate) const UNSAFE_HOST_KEYS: &[&str] = &["type", "workspace", "test_command"];

section! {
    /// `runtime.environment`: where tools act.
    ///
    /// With `type: unsafe_host` there is no sandbox: only `type`, `workspace` and `test_command` mean anything, the
    /// other getters return zero, false or nothing.
    #[derive(Default)]
    Environment, EnvironmentEdit {
        /// local, docker, unsafe_host or a registered environment.
        text kind = "type": Shape::Text(Text::Name), WhenAbsent::Required;
        /// The directory to work on; it must exist.
        text workspace = "workspace": Shape::Text(Text::Path), WhenAbsent::Required;
        /// The container image; docker only.
        opt_text image = "image": Shape::Text(Text::NonBlank { max_chars: usize::MAX }), WhenAbsent::Absent;
        /// Where the workspace stands inside the sandbox.
        text container_workspace = "container_workspace": Shape::Text(Text::GuestPath), WhenAbsent::Text("/workspace");
        /// Network access: none.
        text network = "network": Shape::Choice(&["none"]), WhenAbsent::Text("none");
        /// The root of the sandbox cannot be written; false is refused.
        flag read_only_root = "read_only_root": Shape::AlwaysTrue, WhenAbsent::Flag(true);
        /// All capabilities are dropped; false is refused.
        flag cap_drop = "cap_drop": Shape::AlwaysTrue, WhenAbsent::Flag(true);
        /// No privileges can be gained; false is refused.
        flag no_new_privileges = "no_new_privileges": Shape::AlwaysTrue, WhenAbsent::Flag(true);
        /// The sandbox must be proven gone at the end; false is refused.
        flag cleanup_required = "cleanup_required": Shape::AlwaysTrue, WhenAbsent::Flag(true);
        /// The most processes.
        integer pids_limit = "pids_limit": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Integer(256);
        /// Memory, in MiB.
        integer memory_mb = "memory_mb": Shape::Integer { min: 64, max: None, nullable: false }, WhenAbsent::Integer(2048);
        /// Processors, also in parts.
        number cpus = "cpus": Shape::Number { min: 0.01, max: None, nullable: false }, WhenAbsent::Number(2.0);
        /// Size of the workspace, in MiB.
        integer disk_mb = "disk_mb": Shape::Integer { min: 16, max: None, nullable: false }, WhenAbsent::Integer(2048);
        /// Size of the temporary directory, in MiB.
        integer tmpfs_mb = "tmpfs_mb": Shape::Integer { min: 16, max: None, nullable: false }, WhenAbsent::Integer(256);
        /// Time limit of one command, in seconds.
        integer command_seconds = "command_seconds": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Integer(180);
        /// Time limit of the sandbox, in seconds; at least that of a command.
        integer wall_seconds = "wall_seconds": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Integer(3600);
        /// The most output kept of one command, in bytes.
        integer output_bytes = "output_bytes": Shape::Integer { min: 4096, max: None, nullable: false }, WhenAbsent::Integer(2_097_152);
        /// The most open files of a process.
        integer file_descriptors = "file_descriptors": Shape::Integer { min: 64, max: None, nullable: false }, WhenAbsent::Integer(1024);
        /// Who holds the sandbox to its limits.
        choice<ResourceEnforcement> resource_enforcement = "resource_enforcement": Shape::Choice(ResourceEnforcement::WORDS), WhenAbsent::Text("kernel");
        /// What holds the workspace.
        choice<WorkspaceBacking> workspace_backing = "workspace_backing": Shape::Choice(WorkspaceBacking::WORDS), WhenAbsent::Text("tmpfs");
        /// Further host directories that can be read; local only.
        texts read_only_roots = "read_only_roots": Shape::Texts { item: Text::Path, unique: true }, WhenAbsent::EmptyList;
        /// What is staged into the sandbox.
        section<EnvironmentInput, EnvironmentInputEdit> input = "input": Shape::Section(EnvironmentInput::fields), WhenAbsent::Section;
        /// Program and arguments of the tool `run_test`.
        texts test_command = "test_command": Shape::Texts { item: Text::Any, unique: false }, WhenAbsent::EmptyList;
    }
}

choices! {
    /// Whether a session outlives its process.
    SessionMode {
        Durable = "durable" "It can be restored, recovered and forked.",
        Ephemeral = "ephemeral" "One session, gone with the process.",
    }
}

section! {
    /// `runtime.session`: where sessions live.
    #[derive(Default)]
    Session, SessionEdit {
        /// Whether a session outlives its process.
        choice<SessionMode> mode = "mode": Shape::Choice(SessionMode::WORDS), WhenAbsent::Text("durable");
        /// Old spelling of the mode: true is durable, false is ephemeral.
        opt_flag enabled = "enabled": Shape::Flag, WhenAbsent::Absent;
        /// sqlite, memory, postgres or a registered store.
        text store = "store": Shape::Text(Text::Name), WhenAbsent::Text("sqlite");
        /// The store's file, or for postgres its address without a password.
        opt_text path = "path": Shape::Text(Text::Path), WhenAbsent::Absent;
        /// Where the password of postgres comes from.
        opt_section<Credential, CredentialEdit> credential = "credential": Shape::Section(Credential::fields), WhenAbsent::Absent;
        /// The id of the session to create or restore; empty for a new one.
        text session_id = "session_id": Shape::Text(Text::Token { empty: true }), WhenAbsent::Text("");
        /// Restore the session instead of creating it.
        flag restore = "restore": Shape::Flag, WhenAbsent::Flag(false);
    }
}

choices! {
    /// What a sink may see.
    TrajectoryPrivacy {
        Private = "private" "Everything but secrets.",
        PublicRedacted = "public_redacted" "Only what may be published.",
    }
}

choices! {
    /// What a failing sink means.
    SinkFailurePolicy {
        Required = "required" "It stops the run.",
        Optional = "optional" "It is recorded.",
    }
}

section! {
    /// `runtime.trajectory`: what is recorded of a run.
    #[derive(Default)]
    Trajectory, TrajectoryEdit {
        /// Record at all.
        flag enabled = "enabled": Shape::Flag, WhenAbsent::Flag(true);
        /// journal or a registered sink.
        text sink = "sink": Shape::Text(Text::Name), WhenAbsent::Text("journal");
        /// The file of the journal.
        opt_text output = "output": Shape::Text(Text::Path), WhenAbsent::Absent;
        /// What the sink may see.
        choice<TrajectoryPrivacy> privacy = "privacy": Shape::Choice(TrajectoryPrivacy::WORDS), WhenAbsent::Text("private");
        /// What a failing sink means.
        choice<SinkFailurePolicy> failure_policy = "failure_policy": Shape::Choice(SinkFailurePolicy::WORDS), WhenAbsent::Text("required");
    }
}

section! {
    /// `runtime`: where the agent runs and what is kept of it.
    #[derive(Default)]
    Runtime, RuntimeEdit {
        /// Where tools act.
        section<Environment, EnvironmentEdit> environment = "environment": Shape::Section(Environment::fields), WhenAbsent::Required;
        /// Where sessions live.
        section<Session, SessionEdit> session = "session": Shape::Section(Session::fields), WhenAbsent::Section;
        /// What is recorded of a run.
        section<Trajectory, TrajectoryEdit> trajectory = "trajectory": Shape::Section(Trajectory::fields), WhenAbsent::Section;
        /// The directory of everything the runtime keeps.
        text data_root = "data_root": Shape::Text(Text::Path), WhenAbsent::Text(".qitos");
    }
}
