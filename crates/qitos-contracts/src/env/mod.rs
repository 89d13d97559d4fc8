//! The Env contract: where tools touch files and processes (sandbox specification, sections 1 and 2).
//!
//! | file | what it defines |
//! |---|---|
//! | `policy` | [`SandboxPolicy`] and [`SandboxLimits`]: what is asked for; forbidden wishes have no field |
//! | `identity` | [`SandboxIdentity`], [`SandboxLease`]: whose sandbox it is |
//! | `capabilities` | [`SandboxCapabilities`]: what was observed |
//! | `receipt` | [`SandboxReceipt`], [`SandboxExecutionReceipt`], [`SandboxCleanupReceipt`]: what was proved |
//! | `snapshot_component` | [`SandboxSnapshotComponent`]: what a snapshot keeps |
//! | `observation` | requests, observations, step results, health |
//! | `ops` | the operation groups a tool may require |
//! | `error` | [`EnvError`] |
//!
//! All records serialise to canonical JSON, refuse unknown and missing fields, and hold no live handle, host
//! path, environment value or secret.

mod capabilities;
mod error;
mod identity;
mod observation;
mod ops;
mod policy;
mod receipt;
mod record_form;
mod snapshot_component;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

use async_trait::async_trait;

pub use capabilities::SandboxCapabilities;
pub use error::{EnvError, OperationCode, Reason, SandboxError};
pub use identity::{LeaseState, SandboxIdentity, SandboxLease};
pub use observation::{
    EnvAction, EnvObservation, EnvRequest, EnvSpec, EnvStepError, EnvStepResult, HealthReport,
};
pub use ops::{
    CancellationReceipt, CloseProcesses, ControlOps, DirectoryEntry, EntryKind, ExecRequest,
    ExecResult, ExpectedFile, FileContent, FileListing, FileOps, FileSnapshot, FileWrite, Ops,
    OpsGroup, ProcessHandle, ProcessOps, ProcessPoll, ProcessState, StartProcess, TerminateProcess,
};
pub use policy::{
    CleanupPolicy, EgressRule, InputMount, InvalidPolicy, NetworkMode, PolicyOptions,
    SandboxLimits, SandboxPolicy, WorkspaceMode,
};
pub use receipt::{
    CleanupState, CleanupStatus, ExecutionStatus, LimitHit, ReceiptStatus, SafetyClass,
    SandboxCleanupReceipt, SandboxExecutionReceipt, SandboxReceipt,
};
pub use record_form::{InvalidToken, SandboxToken};
pub use snapshot_component::{ComponentCleanup, Quiescence, SandboxSnapshotComponent};

/// An environment that tools act in: the sandbox contract.
///
/// # Contract
/// - `setup` is idempotent; other arguments in a second call are `sandbox_invalid` (SBX-5).
/// - Any operation before `setup` or after `close` is `env_closed` and touches nothing (SBX-5).
/// - `observe` has no side effect; two calls without a step between them return equal data (SBX-6).
/// - A failed action is an [`EnvStepResult`] with `error`; `Err` from `step` means that the Env itself is
///   unusable, and it ends the run (SBX-6).
/// - `ops(group)` is `Some` exactly when the group works (SBX-4).
/// - Dropping an Env without `close` kills its guest processes synchronously, without a runtime and without a
///   panic, and leaves the registry record for the reaper (SBX-8).
/// - A sandbox that died turns every later operation into `sandbox_unavailable`, reason `sandbox_lost`, and is
///   never returned to the model as command output (SBX-11).
#[async_trait]
pub trait Env: Debug + Send + Sync + 'static {
    /// The name of this environment in composition and receipts.
    fn name(&self) -> &str;

    /// Makes the environment usable for the given owner.
    ///
    /// # Errors
    /// `sandbox_invalid`, `sandbox_unavailable`, `sandbox_capability_mismatch`, `sandbox_cleanup_failed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most what the registry record names; `close` or the reaper removes it.
    async fn setup(&self, request: &EnvRequest) -> Result<(), EnvError>;

    /// What the agent sees of the environment, without changing it.
    ///
    /// # Errors
    /// `env_closed`, `sandbox_unavailable`.
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn observe(&self) -> Result<EnvObservation, EnvError>;

    /// Performs one action.
    ///
    /// # Errors
    /// Only when the Env itself is unusable: `env_closed`, `sandbox_unavailable`, `stale_sandbox_owner`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the action: the guest's process tree is dead within 2 s (SBX-9); what the
    /// action had changed by then stays changed.
    async fn step(&self, action: &EnvAction) -> Result<EnvStepResult, EnvError>;

    /// Whether the environment works; never an error, and never longer than 10 s (SBX-5).
    ///
    /// # Cancel safety
    /// Dropping the future means nothing happened.
    async fn health(&self) -> HealthReport;

    /// Ends the environment and proves that nothing of it is left.
    ///
    /// Idempotent and safe to call concurrently: the work runs once, later callers get the same receipt with
    /// `repeated: true`; a failed close stays failed and may be retried (SBX-7).
    ///
    /// # Errors
    /// `sandbox_cleanup_failed` when absence could not be proved (SBX-65).
    ///
    /// # Cancel safety
    /// Dropping the future stops waiting, not the work; call `close` again for its receipt.
    async fn close(&self) -> Result<SandboxCleanupReceipt, EnvError>;

    /// The operations of a group, `Some` exactly when the group works (SBX-4).
    fn ops(&self, group: OpsGroup) -> Option<Ops>;
}

/// The lower half of an isolating Env: prepare, execute, inspect, clean up.
///
/// A convenience for implementers; the kernel and the conformance suite know [`Env`] alone (decision 24).
#[async_trait]
pub trait SandboxBackend: Debug + Send + Sync + 'static {
    /// The stable name of the backend, as in receipts.
    fn backend_id(&self) -> &str;

    /// Creates and attests the sandbox.
    ///
    /// # Errors
    /// `sandbox_unavailable`, `sandbox_capability_mismatch`, `sandbox_cleanup_failed` (SBX-14, SBX-15).
    ///
    /// # Cancel safety
    /// Dropping the future leaves at most what the registry record names.
    async fn prepare(&self) -> Result<SandboxReceipt, SandboxError>;

    /// Runs one command in the sandbox.
    ///
    /// # Errors
    /// `sandbox_unavailable`, `stale_sandbox_owner`, `process_outcome_unknown`.
    ///
    /// # Cancel safety
    /// Dropping the future kills the command's process tree within 2 s (SBX-9).
    async fn execute(&self, request: ExecRequest) -> Result<ExecResult, SandboxError>;

    /// The facts observed so far; an unobserved fact is false (SBX-1).
    fn inspect_capabilities(&self) -> SandboxCapabilities;

    /// Asks what runs to stop; says whether it could be forced.
    ///
    /// # Cancel safety
    /// Dropping the future may lose the answer, not the request.
    async fn request_cancellation(&self) -> CancellationReceipt;

    /// Removes everything that `prepare` created and proves its absence.
    ///
    /// # Errors
    /// `sandbox_cleanup_failed`.
    ///
    /// # Cancel safety
    /// Must be run to its end; repeat it if the future was dropped.
    async fn cleanup(&self) -> Result<SandboxReceipt, SandboxError>;

    /// What a snapshot may say about this sandbox, as canonical data.
    fn durability_receipt(&self) -> serde_json::Value;
}
