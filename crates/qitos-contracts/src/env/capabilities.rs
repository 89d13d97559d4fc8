//! Facts observed about a running sandbox.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::record_form::SandboxToken;

macro_rules! capabilities {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What a running sandbox was seen to be; every fact starts as false (SBX-1).
        ///
        /// # Contract
        /// A boolean comes from an observation (kernel files, daemon inspection, a probe), never from the
        /// policy. On the wire stands one more field, `safe_for_executable_tools`, which is derived; a record
        /// in which it contradicts the facts is refused.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct SandboxCapabilities {
            /// The backend that observed them.
            pub backend_id: SandboxToken,
            $($(#[$doc])* pub $name: bool,)+
        }

        impl SandboxCapabilities {
            /// Nothing observed yet: every fact is false.
            #[must_use]
            pub fn unobserved(backend_id: SandboxToken) -> Self {
                SandboxCapabilities { backend_id, $($name: false,)+ }
            }
        }

        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename = "SandboxCapabilities")]
        struct Wire {
            backend_id: SandboxToken,
            $($name: bool,)+
            safe_for_executable_tools: bool,
        }

        impl Serialize for SandboxCapabilities {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Wire {
                    backend_id: self.backend_id.clone(),
                    $($name: self.$name,)+
                    safe_for_executable_tools: self.safe_for_executable_tools(),
                }
                .serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for SandboxCapabilities {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let wire = Wire::deserialize(deserializer)?;
                let read = SandboxCapabilities { backend_id: wire.backend_id, $($name: wire.$name,)+ };
                if read.safe_for_executable_tools() == wire.safe_for_executable_tools {
                    Ok(read)
                } else {
                    Err(serde::de::Error::custom("safe_for_executable_tools contradicts the facts"))
                }
            }
        }
    };
}

capabilities!(
    /// The guest is separated from the host at all.
    isolated,
    /// The guest runs with a non-root identity, as the host sees it (SBX-18).
    non_root,
    /// The root file system is read-only.
    read_only_root,
    /// Nothing but the documented set is writable (SBX-24).
    writable_workspace_only,
    /// No network beyond its own loopback.
    network_disabled,
    /// No capability is left in any set.
    capabilities_dropped,
    /// The kernel refuses new privileges.
    no_new_privileges,
    /// Processor time is limited.
    cpu_bounded,
    /// Memory is limited by the kernel.
    memory_bounded,
    /// The number of processes is limited.
    processes_bounded,
    /// Credentials reached the guest; must be false.
    credentials_injected,
    /// Model requests are made by the host.
    provider_requests_host_side,
    /// Resources exist that somebody has to remove.
    cleanup_required,
    /// Disk use is limited.
    disk_bounded,
    /// Captured output is limited.
    output_bounded,
    /// Running time is limited.
    time_bounded,
    /// The workspace belongs to this sandbox alone.
    private_workspace,
    /// Secrets are handed out one by one by a broker.
    secret_broker,
    /// The sandbox can be paused.
    pause,
    /// The workspace can be captured.
    snapshot,
    /// The sandbox can be forked.
    fork,
);

impl SandboxCapabilities {
    /// Whether tools that execute things may be offered: all isolation facts seen, no credentials inside.
    #[must_use]
    pub fn safe_for_executable_tools(&self) -> bool {
        self.missing_for_executable_tools().is_empty()
    }

    /// The names of the facts that forbid executable tools, in the order of the record.
    #[must_use]
    pub fn missing_for_executable_tools(&self) -> Vec<&'static str> {
        [
            ("isolated", self.isolated),
            ("non_root", self.non_root),
            ("read_only_root", self.read_only_root),
            ("writable_workspace_only", self.writable_workspace_only),
            ("network_disabled", self.network_disabled),
            ("capabilities_dropped", self.capabilities_dropped),
            ("no_new_privileges", self.no_new_privileges),
            ("cpu_bounded", self.cpu_bounded),
            ("memory_bounded", self.memory_bounded),
            ("processes_bounded", self.processes_bounded),
            ("credentials_injected", !self.credentials_injected),
            (
                "provider_requests_host_side",
                self.provider_requests_host_side,
            ),
            ("cleanup_required", self.cleanup_required),
            ("disk_bounded", self.disk_bounded),
            ("output_bounded", self.output_bounded),
            ("time_bounded", self.time_bounded),
            ("private_workspace", self.private_workspace),
        ]
        .into_iter()
        .filter_map(|(name, holds)| (!holds).then_some(name))
        .collect()
    }
}
