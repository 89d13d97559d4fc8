//! The one error of the sandbox contract.

use super::receipt::SandboxReceipt;
use crate::error::{ContractError, Performed, Retry};

/// The error of the backend half; the same enum.
pub type SandboxError = EnvError;

/// A machine reason, such as `bwrap_missing` or `limit_unavailable:pids` (SBX-14).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The stable token.
    pub code: String,
    /// What a person can do about it; a fixed text.
    pub remediation: String,
}

/// Why one operation did not do its work; the Env itself still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationCode {
    /// The path leaves the workspace or is no path (SBX-38).
    PathOutsideWorkspace,
    /// A component of the path is protected (SBX-38).
    ProtectedPath,
    /// No such file.
    FileNotFound,
    /// Not a regular text file (SBX-40, SBX-42).
    FileNotText,
    /// Larger than allowed.
    FileTooLarge,
    /// Not the version that the caller expected (SBX-43).
    StaleFile,
    /// The write did not happen.
    FileWriteFailed,
    /// The process did not start.
    ProcessStartFailed,
    /// No such process of this sandbox (SBX-10).
    ProcessNotFound,
    /// Whether the process ended is not known.
    ProcessTerminationUnknown,
    /// Whether the command completed is not known (SBX-28).
    ProcessOutcomeUnknown,
    /// A handle of an older generation (SBX-10).
    StaleGeneration,
    /// The caller's owner generation was superseded (SBX-10).
    StaleSandboxOwner,
    /// A captured workspace is needed and a started process lives (SBX-56).
    WorkerStillRunning,
    /// The workspace could not be captured (ART-9).
    SnapshotFailed,
}

impl OperationCode {
    /// The code as the specification spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            OperationCode::PathOutsideWorkspace => "path_outside_workspace",
            OperationCode::ProtectedPath => "protected_path",
            OperationCode::FileNotFound => "file_not_found",
            OperationCode::FileNotText => "file_not_text",
            OperationCode::FileTooLarge => "file_too_large",
            OperationCode::StaleFile => "stale_file",
            OperationCode::FileWriteFailed => "file_write_failed",
            OperationCode::ProcessStartFailed => "process_start_failed",
            OperationCode::ProcessNotFound => "process_not_found",
            OperationCode::ProcessTerminationUnknown => "process_termination_unknown",
            OperationCode::ProcessOutcomeUnknown => "process_outcome_unknown",
            OperationCode::StaleGeneration => "stale_generation",
            OperationCode::StaleSandboxOwner => "stale_sandbox_owner",
            OperationCode::WorkerStillRunning => "sandbox_worker_still_running",
            OperationCode::SnapshotFailed => "sandbox_snapshot_failed",
        }
    }
}

/// What went wrong in an Env; never echoes command text, file content, environment values or host paths
/// outside the workspace (SBX-3).
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// `sandbox_invalid`: the request or the policy makes no sense.
    #[error("the sandbox request is not valid: {detail}")]
    Invalid {
        /// A fixed text.
        detail: &'static str,
    },
    /// `env_closed`: before `setup` or after `close` (SBX-5).
    #[error("the environment is not open")]
    Closed,
    /// `env_required`: a tool needs operations and the run has no Env (SBX-4).
    #[error("a tool needs an environment and the run has none")]
    Required,
    /// `env_capability_mismatch`: found when the run starts (SBX-4).
    #[error("the environment lacks the operation groups {missing:?}")]
    CapabilityMismatch {
        /// Names of the missing groups.
        missing: Vec<&'static str>,
    },
    /// `capability_unavailable`: a call reached a missing group and did nothing (SBX-4).
    #[error("the environment has no operation group {group}")]
    CapabilityUnavailable {
        /// Name of the group.
        group: &'static str,
    },
    /// `unsupported_capability`: a missing method of a present group (SBX-4).
    #[error("the environment does not support {capability}")]
    Unsupported {
        /// Name of the method.
        capability: &'static str,
    },
    /// `sandbox_unavailable`: a component is missing, will not start, or died (SBX-11, SBX-14).
    #[error("the sandbox is not available")]
    Unavailable {
        /// All failing reasons, not only the first; `sandbox_lost` when it died.
        reasons: Vec<Reason>,
        /// What is known of it.
        receipt: Option<Box<SandboxReceipt>>,
    },
    /// `sandbox_capability_mismatch`: it started, but a required fact was not observed (SBX-14).
    #[error("the sandbox does not show the required facts")]
    NotAttested {
        /// All failing reasons.
        reasons: Vec<Reason>,
        /// What was observed.
        receipt: Option<Box<SandboxReceipt>>,
    },
    /// `sandbox_cleanup_failed`: absence could not be proved (SBX-15, SBX-65).
    #[error("the sandbox could not be proved to be gone")]
    CleanupFailed {
        /// What is known of it.
        receipt: Option<Box<SandboxReceipt>>,
        /// The failure that made the cleanup necessary.
        #[source]
        original: Option<Box<EnvError>>,
    },
    /// One operation did not do its work; the code says why.
    #[error("the operation failed: {}", code.as_str())]
    Operation {
        /// The stable code.
        code: OperationCode,
    },
}

impl EnvError {
    /// The sandbox died: every later operation says so (SBX-11).
    #[must_use]
    pub fn lost() -> Self {
        EnvError::Unavailable {
            reasons: vec![Reason {
                code: "sandbox_lost".into(),
                remediation: "restore the session to get a new sandbox".into(),
            }],
            receipt: None,
        }
    }

    /// The machine reasons, where there are any.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        match self {
            EnvError::Unavailable { reasons, .. } | EnvError::NotAttested { reasons, .. } => {
                reasons
            }
            _ => &[],
        }
    }
}

impl From<OperationCode> for EnvError {
    fn from(code: OperationCode) -> Self {
        EnvError::Operation { code }
    }
}

impl ContractError for EnvError {
    fn code(&self) -> &str {
        match self {
            EnvError::Invalid { .. } => "sandbox_invalid",
            EnvError::Closed => "env_closed",
            EnvError::Required => "env_required",
            EnvError::CapabilityMismatch { .. } => "env_capability_mismatch",
            EnvError::CapabilityUnavailable { .. } => "capability_unavailable",
            EnvError::Unsupported { .. } => "unsupported_capability",
            EnvError::Unavailable { .. } => "sandbox_unavailable",
            EnvError::NotAttested { .. } => "sandbox_capability_mismatch",
            EnvError::CleanupFailed { .. } => "sandbox_cleanup_failed",
            EnvError::Operation { code } => code.as_str(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            EnvError::CleanupFailed { .. } => Retry::AfterDelay,
            EnvError::Operation {
                code:
                    OperationCode::ProcessOutcomeUnknown | OperationCode::ProcessTerminationUnknown,
            } => Retry::Unknown,
            _ => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        match self {
            // The guest may have acted before its sandbox died.
            EnvError::Unavailable { .. } | EnvError::CleanupFailed { .. } => Performed::Unknown,
            EnvError::Operation {
                code:
                    OperationCode::ProcessOutcomeUnknown | OperationCode::ProcessTerminationUnknown,
            } => Performed::Unknown,
            _ => Performed::No,
        }
    }
}
