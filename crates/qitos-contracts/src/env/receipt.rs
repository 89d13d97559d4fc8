//! Receipts: what was prepared, executed and removed.

use serde::{Deserialize, Serialize};

use super::capabilities::SandboxCapabilities;
use super::identity::{SandboxIdentity, SandboxLease};
use super::record_form::{SandboxToken, constant_text, present};
use crate::digest::Digest;

constant_text!(ReceiptSchema, "qitos.sandbox.receipt/1");

/// State of the sandbox that a receipt speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptStatus {
    /// It works and was attested.
    Prepared,
    /// It was refused.
    Rejected,
    /// It isolates nothing, by explicit choice (SBX-16).
    Unsafe,
    /// It is gone, proved.
    Cleaned,
    /// Its absence could not be proved.
    CleanupFailed,
    /// Nothing but cleaning up is possible.
    CleanupOnly,
}

/// How safe execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SafetyClass {
    /// Isolated, all facts observed.
    Sandboxed,
    /// Isolated, some required fact missing.
    CapabilityLoss,
    /// On the host, as the caller (SBX-16).
    UnisolatedHostExecution,
    /// Not observed.
    Unknown,
}

/// Cleanup as a receipt reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupState {
    /// Not done yet.
    Pending,
    /// Done and proved.
    Passed,
    /// Tried, not proved.
    Failed,
    /// Nothing to clean.
    NotApplicable,
}

/// What is known about one prepared sandbox (`qitos.sandbox.receipt/1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxReceipt {
    #[serde(rename = "schema_version")]
    schema: ReceiptSchema,
    /// The backend that made it.
    pub backend_id: SandboxToken,
    /// Digest of the configuration it was made from.
    pub config_digest: Digest,
    /// State of the sandbox.
    pub status: ReceiptStatus,
    /// How safe execution is.
    pub safety: SafetyClass,
    /// The observed facts.
    pub capabilities: SandboxCapabilities,
    /// Digest of the evidence for those facts.
    #[serde(deserialize_with = "present")]
    pub attestation_digest: Option<Digest>,
    /// Cleanup of this sandbox.
    pub cleanup: CleanupState,
    /// Stable warning tokens, such as `limits_sampled`.
    pub warnings: Vec<SandboxToken>,
    /// Digest of the policy record.
    pub policy_digest: Digest,
    /// Digest of the image, or for `local` of helper version, roots and generated files (SBX-68).
    #[serde(deserialize_with = "present")]
    pub image_digest: Option<Digest>,
    /// Whose sandbox it is.
    #[serde(deserialize_with = "present")]
    pub logical_identity: Option<SandboxIdentity>,
    /// Digest of the workspace manifest last captured.
    #[serde(deserialize_with = "present")]
    pub workspace_digest: Option<Digest>,
    /// Digest of the staged input manifest (SBX-59).
    #[serde(deserialize_with = "present")]
    pub input_digest: Option<Digest>,
    /// The owner's lease.
    #[serde(deserialize_with = "present")]
    pub lease: Option<SandboxLease>,
    /// One per executed operation, in order.
    pub execution_receipts: Vec<SandboxExecutionReceipt>,
    /// Present once cleaned up.
    #[serde(deserialize_with = "present")]
    pub cleanup_receipt: Option<SandboxCleanupReceipt>,
}

impl SandboxReceipt {
    /// A receipt about nothing but who made it from what; the caller fills in what it observed.
    #[must_use]
    pub fn new(
        capabilities: SandboxCapabilities,
        config_digest: Digest,
        policy_digest: Digest,
        status: ReceiptStatus,
        safety: SafetyClass,
    ) -> Self {
        SandboxReceipt {
            schema: ReceiptSchema,
            backend_id: capabilities.backend_id.clone(),
            config_digest,
            status,
            safety,
            capabilities,
            attestation_digest: None,
            cleanup: CleanupState::Pending,
            warnings: Vec::new(),
            policy_digest,
            image_digest: None,
            logical_identity: None,
            workspace_digest: None,
            input_digest: None,
            lease: None,
            execution_receipts: Vec::new(),
            cleanup_receipt: None,
        }
    }
}

/// How an executed operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    /// Completed with exit status 0.
    Success,
    /// Completed with another exit status.
    Partial,
    /// Not completed.
    Error,
}

/// The limit that ended an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitHit {
    /// The kernel killed for memory.
    Memory,
    /// No further process could start.
    Pids,
    /// The disk bound was reached.
    Disk,
    /// 64 times the output cap was written (SBX-52).
    Output,
    /// The deadline passed (SBX-50).
    Time,
}

/// What is known about one executed operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxExecutionReceipt {
    /// Identifier of the operation.
    pub operation_id: SandboxToken,
    /// The owner that asked for it.
    pub owner_generation: u64,
    /// How it ended.
    pub status: ExecutionStatus,
    /// The exit status; null when it ended by a signal or its end is not known (SBX-54).
    #[serde(deserialize_with = "present")]
    pub returncode: Option<i32>,
    /// The deadline ended it.
    pub timed_out: bool,
    /// Something of it may still run.
    pub worker_still_running: bool,
    /// Whether it completed is not known (SBX-28).
    pub outcome_unknown: bool,
    /// Bytes written to standard output, cut ones included.
    pub stdout_bytes: u64,
    /// Bytes written to standard error, cut ones included.
    pub stderr_bytes: u64,
    /// The signal that ended it.
    #[serde(deserialize_with = "present")]
    pub signal: Option<i32>,
    /// The limit that ended it.
    #[serde(deserialize_with = "present")]
    pub limit_hit: Option<LimitHit>,
}

/// Outcome of a cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupStatus {
    /// Everything is gone, proved.
    Cleaned,
    /// Something may be left.
    Failed,
}

/// Proof that nothing of a sandbox is left (SBX-65).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxCleanupReceipt {
    /// The sandbox concerned.
    pub sandbox_id: SandboxToken,
    /// Whether absence was proved.
    pub status: CleanupStatus,
    /// No container of that exact identity exists.
    pub container_absent: bool,
    /// No staging directory exists.
    pub staging_absent: bool,
    /// The work had been done before; this is the same receipt again (SBX-7).
    pub repeated: bool,
    /// No process of the sandbox exists.
    pub processes_absent: bool,
    /// No control group of the sandbox exists.
    pub cgroup_absent: bool,
    /// Names the evidence.
    #[serde(deserialize_with = "present")]
    pub absence_proof: Option<SandboxToken>,
}

impl SandboxCleanupReceipt {
    /// The same receipt for a later caller of `close` (SBX-7).
    #[must_use]
    pub fn again(&self) -> Self {
        SandboxCleanupReceipt {
            repeated: true,
            ..self.clone()
        }
    }
}
