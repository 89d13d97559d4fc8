//! Groups of operations that tools require of an Env.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::error::EnvError;
use super::receipt::SandboxExecutionReceipt;
use super::record_form::SandboxToken;
use crate::digest::Digest;

/// Name of a group of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpsGroup {
    /// `read`, `list`, `exists`, `snapshot`, `atomic_write`.
    File,
    /// `run`.
    Process,
    /// `start`, `poll`, `terminate`, `close`.
    ProcessControl,
    /// Reserved.
    Terminal,
    /// Reserved.
    GuiObserver,
    /// Reserved.
    GuiController,
    /// Reserved.
    Ocr,
    /// Reserved.
    Grounding,
}

impl OpsGroup {
    /// Every group, reserved ones included.
    pub const ALL: [OpsGroup; 8] = [
        OpsGroup::File,
        OpsGroup::Process,
        OpsGroup::ProcessControl,
        OpsGroup::Terminal,
        OpsGroup::GuiObserver,
        OpsGroup::GuiController,
        OpsGroup::Ocr,
        OpsGroup::Grounding,
    ];

    /// The name as written in specs of tools.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OpsGroup::File => "file",
            OpsGroup::Process => "process",
            OpsGroup::ProcessControl => "process_control",
            OpsGroup::Terminal => "terminal",
            OpsGroup::GuiObserver => "gui_observer",
            OpsGroup::GuiController => "gui_controller",
            OpsGroup::Ocr => "ocr",
            OpsGroup::Grounding => "grounding",
        }
    }

    /// The group of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<OpsGroup> {
        OpsGroup::ALL
            .into_iter()
            .find(|group| group.as_str() == name)
    }
}

/// The working operations of one group.
#[derive(Clone, Debug)]
pub enum Ops {
    /// Group `file`.
    File(Arc<dyn FileOps>),
    /// Group `process`.
    Process(Arc<dyn ProcessOps>),
    /// Group `process_control`.
    Control(Arc<dyn ControlOps>),
}

impl Ops {
    /// The group these operations belong to.
    #[must_use]
    pub fn group(&self) -> OpsGroup {
        match self {
            Ops::File(_) => OpsGroup::File,
            Ops::Process(_) => OpsGroup::Process,
            Ops::Control(_) => OpsGroup::ProcessControl,
        }
    }
}

/// Content and version of one file, from one read (SBX-41).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSnapshot {
    /// Path relative to the workspace.
    pub path: String,
    /// Digest of the content.
    pub sha256: Digest,
    /// Length of the content in bytes.
    pub byte_length: u64,
    /// Changes whenever the content may have changed.
    pub version: String,
}

/// A file's bytes together with the snapshot of the same read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their version.
    pub snapshot: FileSnapshot,
}

/// Kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, not followed.
    Symlink,
    /// Anything else.
    Other,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryEntry {
    /// Path relative to the workspace.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Length in bytes; 0 for anything but a file.
    pub byte_length: u64,
}

/// Entries sorted by bytes of their paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileListing {
    /// The entries, no more than asked for.
    pub entries: Vec<DirectoryEntry>,
    /// Nothing was left out (SBX-45).
    pub complete: bool,
}

/// What the caller of a write believes about the current file (SBX-43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedFile {
    /// No belief: replace whatever is there.
    #[default]
    Any,
    /// No file of that name.
    Absent,
    /// A file with this content.
    Content(Digest),
}

/// A whole-file write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// Path relative to the workspace.
    pub path: String,
    /// The new content.
    pub content: Vec<u8>,
    /// Guard against a change since the caller looked.
    pub expected: ExpectedFile,
    /// The owner that acts; an older one is refused (SBX-10).
    pub owner_generation: u64,
}

/// Files of the workspace.
///
/// # Contract
/// Paths are relative UTF-8: others are `path_outside_workspace`, protected components `protected_path`
/// (SBX-38). Resolution never leaves the workspace and mutations follow no symlink (SBX-39). Only regular files
/// are read or written, without blocking on anything else (SBX-40).
#[async_trait]
pub trait FileOps: Debug + Send + Sync + 'static {
    /// Reads a whole file of at most `limit_bytes`.
    ///
    /// # Errors
    /// `file_not_found`, `file_not_text` for what is no regular file, `file_too_large`, the path codes,
    /// `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn read(&self, path: &str, limit_bytes: u64) -> Result<FileContent, EnvError>;

    /// Lists what is below a directory, depth 64, at most `limit` entries, no symlink followed.
    ///
    /// # Errors
    /// `file_not_found`, the path codes, `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn list(&self, path: &str, limit: usize) -> Result<FileListing, EnvError>;

    /// Whether something exists at that path.
    ///
    /// # Errors
    /// The path codes, `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn exists(&self, path: &str) -> Result<bool, EnvError>;

    /// Digest and length of a file without its content.
    ///
    /// # Errors
    /// As [`FileOps::read`].
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn snapshot(&self, path: &str) -> Result<FileSnapshot, EnvError>;

    /// Replaces or creates a file at once: temporary file in the same directory, sync, rename (SBX-43).
    ///
    /// # Errors
    /// `stale_file` when the guard does not hold, `file_write_failed`, `stale_sandbox_owner`, the path codes,
    /// `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the old file or the new one, never a mixture.
    async fn atomic_write(&self, write: FileWrite) -> Result<FileSnapshot, EnvError>;
}

/// A command to run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecRequest {
    /// Identifier of the operation, for its receipt.
    pub operation_id: SandboxToken,
    /// The text for `sh -c`; empty when `direct` is given.
    pub command: String,
    /// Arguments to execute without a shell, instead of `command` (SBX-47).
    pub direct: Option<Vec<String>>,
    /// Deadline in milliseconds, at most the policy's `command_seconds`.
    pub timeout_ms: u64,
    /// The owner that acts; an older one is refused (SBX-10).
    pub owner_generation: u64,
}

/// How a command ended and what it printed, each stream cut at the policy's `output_bytes` (SBX-52).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// The facts.
    pub receipt: SandboxExecutionReceipt,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

/// Commands that end with their call.
///
/// # Contract
/// The call returns by deadline + 3 s whatever the guest does (SBX-50), ends when the direct child ends
/// (SBX-51), and a started command always gives a result: a failing or timed-out one is `Ok`.
#[async_trait]
pub trait ProcessOps: Debug + Send + Sync + 'static {
    /// Runs one command.
    ///
    /// # Errors
    /// Only when nothing is known of a result: `stale_sandbox_owner`, `process_start_failed`,
    /// `process_outcome_unknown`, `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future kills the process tree within 2 s (SBX-9).
    async fn run(&self, request: ExecRequest) -> Result<ExecResult, EnvError>;
}

/// A long-lived process of one owner generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessHandle {
    /// Identifier within the sandbox.
    pub process_id: SandboxToken,
    /// The generation that started it; an older handle is `stale_generation`.
    pub owner_generation: u64,
}

/// A command that outlives its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartProcess {
    /// Identifier of the operation, for its receipt.
    pub operation_id: SandboxToken,
    /// The text for `sh -c`.
    pub command: String,
    /// The owner that acts.
    pub owner_generation: u64,
}

/// State of a started process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It ended.
    Ended,
    /// Nothing certain is known.
    Unknown,
}

/// What is known of a started process now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessPoll {
    /// Whether it runs.
    pub state: ProcessState,
    /// The facts once it ended.
    pub receipt: Option<SandboxExecutionReceipt>,
    /// The last bytes of standard output, at most 64,000.
    pub stdout_tail: Vec<u8>,
    /// The last bytes of standard error, at most 64,000.
    pub stderr_tail: Vec<u8>,
}

/// End a started process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminateProcess {
    /// Which one.
    pub handle: ProcessHandle,
    /// Milliseconds between the polite and the certain signal.
    pub grace_ms: u64,
}

/// What closing a group of processes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloseProcesses {
    /// Ended, proved.
    pub ended: Vec<SandboxToken>,
    /// Not proved to have ended.
    pub unknown: Vec<SandboxToken>,
}

/// Processes that outlive their call; at most 16 at a time.
#[async_trait]
pub trait ControlOps: Debug + Send + Sync + 'static {
    /// Starts a process.
    ///
    /// # Errors
    /// `process_start_failed`, `stale_sandbox_owner`, `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future may lose the handle of a process that runs; `close` ends it.
    async fn start(&self, request: StartProcess) -> Result<ProcessHandle, EnvError>;

    /// Looks at a process.
    ///
    /// # Errors
    /// `process_not_found`, `stale_generation`, `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn poll(&self, handle: &ProcessHandle) -> Result<ProcessPoll, EnvError>;

    /// Ends a process and its descendants.
    ///
    /// # Errors
    /// `process_not_found`, `stale_generation`, `process_termination_unknown`, `stale_sandbox_owner`,
    /// `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future may lose the receipt, not the termination.
    async fn terminate(&self, request: TerminateProcess) -> Result<ProcessPoll, EnvError>;

    /// Ends all processes of one owner generation.
    ///
    /// # Errors
    /// `stale_sandbox_owner`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Must be run to its end; repeat it if the future was dropped.
    async fn close(&self, owner_generation: u64) -> Result<CloseProcesses, EnvError>;
}

/// Answer to a request to stop what runs in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancellationReceipt {
    /// A stable token, such as `requested` or `nothing_running`.
    pub status: SandboxToken,
    /// What runs can be ended without its help.
    pub hard_cancellation: bool,
}
