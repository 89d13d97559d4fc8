//! The `sandbox` component of a session snapshot.

use serde::{Deserialize, Serialize};

use super::identity::{SandboxIdentity, SandboxLease};
use super::record_form::{SandboxToken, constant_text, present};
use crate::artifact::ArtifactRef;
use crate::digest::Digest;

constant_text!(ComponentSchema, "qitos.sandbox.snapshot_component/v1");

/// Whether anything of the guest was running when the workspace was captured (SBX-56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quiescence {
    /// Every process had ended.
    ProcessesTerminal,
    /// A started process was alive.
    WorkerStillRunning,
    /// The end of a process is not known; never recorded as terminal.
    OutcomeUnknown,
    /// Nobody looked.
    NotAttested,
}

/// Cleanup of the sandbox, as a snapshot reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentCleanup {
    /// Not done yet.
    Pending,
    /// Done and proved.
    Cleaned,
    /// Tried, not proved.
    Failed,
}

/// What a snapshot keeps of a sandbox (`qitos.sandbox.snapshot_component/v1`, slot `sandbox`, owner
/// `qitos.sandbox`): facts and a workspace artifact, never a live handle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSnapshotComponent {
    #[serde(rename = "schema_version")]
    schema: ComponentSchema,
    /// Whose sandbox it was.
    pub logical_identity: SandboxIdentity,
    /// The backend's kind.
    pub backend_type: SandboxToken,
    /// Digest of the policy record; must match on restore (SBX-68).
    pub policy_digest: Digest,
    /// Digest of the image; must match on restore (SBX-68).
    #[serde(deserialize_with = "present")]
    pub image_digest: Option<Digest>,
    /// Names of the facts that were observed, sorted.
    pub capability_set: Vec<SandboxToken>,
    /// The owner's lease.
    pub lease: SandboxLease,
    /// Digest of the captured workspace manifest.
    #[serde(deserialize_with = "present")]
    pub workspace_digest: Option<Digest>,
    /// Digest of the staged input manifest; must match on restore (SBX-68).
    #[serde(deserialize_with = "present")]
    pub input_digest: Option<Digest>,
    /// Whether the guest was quiet.
    pub quiescence: Quiescence,
    /// Cleanup of the sandbox.
    pub cleanup_state: ComponentCleanup,
    /// The captured workspace (ART-9).
    #[serde(deserialize_with = "present")]
    pub workspace_artifact: Option<ArtifactRef>,
}

impl SandboxSnapshotComponent {
    /// A component without captured workspace; nothing attested, nothing cleaned.
    #[must_use]
    pub fn new(
        logical_identity: SandboxIdentity,
        backend_type: SandboxToken,
        policy_digest: Digest,
        lease: SandboxLease,
    ) -> Self {
        SandboxSnapshotComponent {
            schema: ComponentSchema,
            logical_identity,
            backend_type,
            policy_digest,
            image_digest: None,
            capability_set: Vec::new(),
            lease,
            workspace_digest: None,
            input_digest: None,
            quiescence: Quiescence::NotAttested,
            cleanup_state: ComponentCleanup::Pending,
            workspace_artifact: None,
        }
    }
}
