//! What a sandbox is asked for. Wishes that are never granted have no field (SBX-2).

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::record_form::{SandboxToken, constant_text, present};
use crate::digest::Digest;

constant_text!(PolicySchema, "qitos.sandbox.policy/v1");

/// The policy asks for something that no sandbox grants or that makes no sense; code `sandbox_invalid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox policy is not valid: {field} {problem}")]
pub struct InvalidPolicy {
    /// The field concerned.
    pub field: &'static str,
    /// What is wrong with it; a fixed text.
    pub problem: &'static str,
}

/// How the workspace begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceMode {
    /// A copy of the staged input, private to the sandbox.
    #[default]
    PrivateCopy,
    /// Empty, and gone afterwards.
    EphemeralEmpty,
    /// The staged input, not writable.
    ReadOnlySource,
}

/// Which network the guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Its own loopback alone.
    #[default]
    None,
    /// What the egress rules name.
    Allowlist,
}

/// How a sandbox is removed; there is one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CleanupPolicy {
    /// Destroy exactly what carries this identity, and prove it.
    #[default]
    DestroyExactIdentity,
}

/// A staged input shown read-only to the guest; the host's path is not part of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputMount {
    /// Name of the staged input.
    pub input_id: SandboxToken,
    /// Absolute path in the guest.
    pub destination: String,
}

/// A destination the guest may reach in mode `allowlist`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EgressRule {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Resource bounds of one sandbox, all above zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxLimits {
    /// Processors; 2.0.
    pub cpu_count: f64,
    /// Memory in bytes; 2 GiB.
    pub memory_bytes: u64,
    /// Processes; 256.
    pub pids: u64,
    /// Open files per process; 1024.
    pub file_descriptors: u64,
    /// Size of each temporary file system in bytes; 256 MiB.
    pub tmpfs_bytes: u64,
    /// Size of the workspace in bytes; 2 GiB.
    pub disk_bytes: u64,
    /// Captured output per stream in bytes; 2 MiB.
    pub output_bytes: u64,
    /// Longest command in seconds; 180.
    pub command_seconds: u64,
    /// Longest life of the sandbox in seconds; 3600 (SBX-57).
    pub wall_seconds: u64,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        SandboxLimits {
            cpu_count: 2.0,
            memory_bytes: 2 << 30,
            pids: 256,
            file_descriptors: 1024,
            tmpfs_bytes: 256 << 20,
            disk_bytes: 2 << 30,
            output_bytes: 2 << 20,
            command_seconds: 180,
            wall_seconds: 3600,
        }
    }
}

impl SandboxLimits {
    fn check(&self) -> Result<(), InvalidPolicy> {
        let integers = [
            ("limits.memory_bytes", self.memory_bytes),
            ("limits.pids", self.pids),
            ("limits.file_descriptors", self.file_descriptors),
            ("limits.tmpfs_bytes", self.tmpfs_bytes),
            ("limits.disk_bytes", self.disk_bytes),
            ("limits.output_bytes", self.output_bytes),
            ("limits.command_seconds", self.command_seconds),
            ("limits.wall_seconds", self.wall_seconds),
        ];
        if let Some((field, _)) = integers.into_iter().find(|(_, value)| *value == 0) {
            return Err(InvalidPolicy {
                field,
                problem: "must be above zero",
            });
        }
        if self.cpu_count.is_finite() && self.cpu_count > 0.0 {
            Ok(())
        } else {
            Err(InvalidPolicy {
                field: "limits.cpu_count",
                problem: "must be a finite number above zero",
            })
        }
    }
}

/// The choices of a policy; give them to [`SandboxPolicy::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyOptions {
    /// Digest that the image must have.
    pub image_digest: Option<Digest>,
    /// How the workspace begins.
    pub workspace_mode: WorkspaceMode,
    /// Absolute path of the workspace in the guest; `/workspace`.
    pub workspace_destination: String,
    /// Staged inputs beside the workspace.
    pub input_mounts: Vec<InputMount>,
    /// Absolute path of the results in the guest; `/results`.
    pub output_destination: String,
    /// The guest's user, never 0; 65532.
    pub run_as_uid: NonZeroU32,
    /// The guest's group, never 0; 65532.
    pub run_as_gid: NonZeroU32,
    /// Which network the guest sees.
    pub network_mode: NetworkMode,
    /// Needed by, and only by, [`NetworkMode::Allowlist`].
    pub egress_rules: Vec<EgressRule>,
    /// Refuse private address ranges even when a rule names them.
    pub deny_private_networks: bool,
    /// Resource bounds.
    pub limits: SandboxLimits,
}

/// The guest's default user and group.
const GUEST_IDENTITY: NonZeroU32 = match NonZeroU32::new(65_532) {
    Some(identity) => identity,
    None => NonZeroU32::MIN,
};

impl Default for PolicyOptions {
    fn default() -> Self {
        PolicyOptions {
            image_digest: None,
            workspace_mode: WorkspaceMode::default(),
            workspace_destination: "/workspace".into(),
            input_mounts: Vec::new(),
            output_destination: "/results".into(),
            run_as_uid: GUEST_IDENTITY,
            run_as_gid: GUEST_IDENTITY,
            network_mode: NetworkMode::default(),
            egress_rules: Vec::new(),
            deny_private_networks: true,
            limits: SandboxLimits::default(),
        }
    }
}

/// What a sandbox is asked for (`qitos.sandbox.policy/v1`); valid by construction.
///
/// Privileged mode, host namespaces, devices, root identities, a writable root, kept capabilities, secrets and
/// guest-side provider calls cannot be expressed. The record writes those constants, and its reader refuses any
/// other value (SBX-2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct SandboxPolicy {
    image: String,
    options: PolicyOptions,
}

impl SandboxPolicy {
    /// A policy for an image (for `local`: the name of the set of read-only roots).
    ///
    /// # Errors
    /// `sandbox_invalid`: an empty image, a limit of zero, a destination that is not a plain absolute path, an
    /// allow-list without rules or rules without one.
    pub fn new(image: impl Into<String>, options: PolicyOptions) -> Result<Self, InvalidPolicy> {
        let image = image.into();
        if image.is_empty() || image.len() > 512 || image.chars().any(char::is_control) {
            return Err(InvalidPolicy {
                field: "image",
                problem: "must be 1 to 512 printable characters",
            });
        }
        check_destination("workspace_destination", &options.workspace_destination)?;
        check_destination("output_destination", &options.output_destination)?;
        for mount in &options.input_mounts {
            check_destination("input_mounts.destination", &mount.destination)?;
        }
        if (options.network_mode == NetworkMode::Allowlist) == options.egress_rules.is_empty() {
            return Err(InvalidPolicy {
                field: "egress_rules",
                problem: "go with network_mode allowlist, and only with it",
            });
        }
        options.limits.check()?;
        Ok(SandboxPolicy { image, options })
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// The choices.
    #[must_use]
    pub fn options(&self) -> &PolicyOptions {
        &self.options
    }

    /// How it is removed.
    #[must_use]
    pub fn cleanup_policy(&self) -> CleanupPolicy {
        CleanupPolicy::DestroyExactIdentity
    }
}

fn check_destination(field: &'static str, path: &str) -> Result<(), InvalidPolicy> {
    let plain = path.len() <= 4096
        && path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/')
                .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
        });
    if plain {
        Ok(())
    } else {
        Err(InvalidPolicy {
            field,
            problem: "must be an absolute path without empty, `.` or `..` components",
        })
    }
}

/// The record: every key of section 1, the constants included.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    schema_version: PolicySchema,
    image: String,
    #[serde(deserialize_with = "present")]
    image_digest: Option<Digest>,
    workspace_mode: WorkspaceMode,
    workspace_destination: String,
    input_mounts: Vec<InputMount>,
    output_destination: String,
    run_as_uid: u32,
    run_as_gid: u32,
    read_only_root: bool,
    drop_capabilities: bool,
    no_new_privileges: bool,
    allow_devices: bool,
    privileged: bool,
    host_pid: bool,
    host_ipc: bool,
    network_mode: NetworkMode,
    egress_rules: Vec<EgressRule>,
    deny_private_networks: bool,
    secrets: Vec<String>,
    provider_requests_host_side: bool,
    supports_pause: bool,
    supports_snapshot: bool,
    supports_fork: bool,
    cleanup_policy: CleanupPolicy,
    limits: SandboxLimits,
}

impl From<SandboxPolicy> for Wire {
    fn from(policy: SandboxPolicy) -> Wire {
        let options = policy.options;
        Wire {
            schema_version: PolicySchema,
            image: policy.image,
            image_digest: options.image_digest,
            workspace_mode: options.workspace_mode,
            workspace_destination: options.workspace_destination,
            input_mounts: options.input_mounts,
            output_destination: options.output_destination,
            run_as_uid: options.run_as_uid.get(),
            run_as_gid: options.run_as_gid.get(),
            read_only_root: true,
            drop_capabilities: true,
            no_new_privileges: true,
            allow_devices: false,
            privileged: false,
            host_pid: false,
            host_ipc: false,
            network_mode: options.network_mode,
            egress_rules: options.egress_rules,
            deny_private_networks: options.deny_private_networks,
            secrets: Vec::new(),
            provider_requests_host_side: true,
            supports_pause: false,
            supports_snapshot: false,
            supports_fork: false,
            cleanup_policy: CleanupPolicy::DestroyExactIdentity,
            limits: options.limits,
        }
    }
}

impl TryFrom<Wire> for SandboxPolicy {
    type Error = InvalidPolicy;

    fn try_from(wire: Wire) -> Result<Self, InvalidPolicy> {
        let constants = [
            ("read_only_root", wire.read_only_root),
            ("drop_capabilities", wire.drop_capabilities),
            ("no_new_privileges", wire.no_new_privileges),
            ("allow_devices", !wire.allow_devices),
            ("privileged", !wire.privileged),
            ("host_pid", !wire.host_pid),
            ("host_ipc", !wire.host_ipc),
            ("secrets", wire.secrets.is_empty()),
            (
                "provider_requests_host_side",
                wire.provider_requests_host_side,
            ),
            ("supports_pause", !wire.supports_pause),
            ("supports_snapshot", !wire.supports_snapshot),
            ("supports_fork", !wire.supports_fork),
        ];
        if let Some((field, _)) = constants.into_iter().find(|(_, holds)| !holds) {
            return Err(InvalidPolicy {
                field,
                problem: "has one allowed value",
            });
        }
        let not_root = |field, value| {
            NonZeroU32::new(value).ok_or(InvalidPolicy {
                field,
                problem: "must not be 0",
            })
        };
        SandboxPolicy::new(
            wire.image,
            PolicyOptions {
                image_digest: wire.image_digest,
                workspace_mode: wire.workspace_mode,
                workspace_destination: wire.workspace_destination,
                input_mounts: wire.input_mounts,
                output_destination: wire.output_destination,
                run_as_uid: not_root("run_as_uid", wire.run_as_uid)?,
                run_as_gid: not_root("run_as_gid", wire.run_as_gid)?,
                network_mode: wire.network_mode,
                egress_rules: wire.egress_rules,
                deny_private_networks: wire.deny_private_networks,
                limits: wire.limits,
            },
        )
    }
}
