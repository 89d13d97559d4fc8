//! What a store offers and how durable its receipts are (sections 12 and 13).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::StoreError;

/// What survives what, in rising order; a store reports what it proved at open, never more (section 13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DurabilityClass {
    /// Nothing survives the process.
    Volatile,
    /// Every receipted commit survives kill -9; a power cut may take the newest ones.
    ProcessCrash,
    /// Every receipted commit survives a power cut.
    PowerLoss,
}

impl DurabilityClass {
    /// The word that receipts, the store's rows and `inspect` use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DurabilityClass::Volatile => "volatile",
            DurabilityClass::ProcessCrash => "process_crash",
            DurabilityClass::PowerLoss => "power_loss",
        }
    }

    /// The class with this word, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [
            DurabilityClass::Volatile,
            DurabilityClass::ProcessCrash,
            DurabilityClass::PowerLoss,
        ]
        .into_iter()
        .find(|class| class.as_str() == word)
    }

    /// Whether a receipt of this class may say `durable: true` (STO-8).
    #[must_use]
    pub const fn is_durable(self) -> bool {
        !matches!(self, DurabilityClass::Volatile)
    }
}

/// One capability of a store, by the name that errors and configurations use (section 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// `commit` and `resolve`.
    AtomicCommit,
    /// `head`.
    ReadHead,
    /// `snapshot`.
    ReadSnapshot,
    /// `lineage`.
    ListLineage,
    /// Group [`Fork`](super::Fork).
    AtomicFork,
    /// Group [`ChunkAccess`](super::ChunkAccess).
    Incremental,
    /// Group [`Leases`](super::Leases).
    Lease,
    /// Group [`Inbox`](super::Inbox).
    Inbox,
    /// `prune` and `collect` of group [`Retention`](super::Retention).
    Retention,
    /// `delete_session` of group [`Retention`](super::Retention).
    Delete,
}

impl Capability {
    /// All capabilities, the four required ones first.
    pub const ALL: [Capability; 10] = [
        Capability::AtomicCommit,
        Capability::ReadHead,
        Capability::ReadSnapshot,
        Capability::ListLineage,
        Capability::AtomicFork,
        Capability::Incremental,
        Capability::Lease,
        Capability::Inbox,
        Capability::Retention,
        Capability::Delete,
    ];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Capability::AtomicCommit => "checkpoint.session.atomic_commit/v1",
            Capability::ReadHead => "checkpoint.session.read_head/v1",
            Capability::ReadSnapshot => "checkpoint.session.read_snapshot/v1",
            Capability::ListLineage => "checkpoint.session.list_lineage/v1",
            Capability::AtomicFork => "checkpoint.session.atomic_fork/v1",
            Capability::Incremental => "checkpoint.session.incremental/v1",
            Capability::Lease => "checkpoint.session.lease/v1",
            Capability::Inbox => "checkpoint.session.inbox/v1",
            Capability::Retention => "checkpoint.session.retention/v1",
            Capability::Delete => "checkpoint.session.delete/v1",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What one opened store instance is: its kind, its class, what it claims (STO-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCapabilities {
    store_kind: String,
    durability_class: DurabilityClass,
    claimed: BTreeSet<Capability>,
}

impl StoreCapabilities {
    /// A store with the four required capabilities.
    #[must_use]
    pub fn new(store_kind: impl Into<String>, durability_class: DurabilityClass) -> Self {
        StoreCapabilities {
            store_kind: store_kind.into(),
            durability_class,
            claimed: Capability::ALL.into_iter().take(4).collect(),
        }
    }

    /// Adds a capability whose group the store returns.
    #[must_use]
    pub fn with(mut self, capability: Capability) -> Self {
        self.claimed.insert(capability);
        self
    }

    /// The word for this kind of store in receipts, such as `sqlite` or `memory`.
    #[must_use]
    pub fn store_kind(&self) -> &str {
        &self.store_kind
    }

    /// The class every receipt of this instance carries at least.
    #[must_use]
    pub const fn durability_class(&self) -> DurabilityClass {
        self.durability_class
    }

    /// Whether the capability is claimed.
    #[must_use]
    pub fn claims(&self, capability: Capability) -> bool {
        self.claimed.contains(&capability)
    }

    /// The claimed capabilities in a fixed order.
    pub fn claimed(&self) -> impl Iterator<Item = Capability> + '_ {
        self.claimed.iter().copied()
    }

    /// Refuses what is not claimed.
    ///
    /// # Errors
    /// `unsupported_capability`, naming it.
    pub fn require(&self, capability: Capability) -> Result<(), StoreError> {
        if self.claims(capability) {
            Ok(())
        } else {
            Err(StoreError::UnsupportedCapability {
                capability: capability.name(),
            })
        }
    }

    /// Refuses a store that is less durable than its caller demands (STO-8).
    ///
    /// # Errors
    /// `unsupported_capability`, naming the demanded class.
    pub fn require_class(&self, demanded: DurabilityClass) -> Result<(), StoreError> {
        if self.durability_class >= demanded {
            Ok(())
        } else {
            Err(StoreError::UnsupportedCapability {
                capability: demanded.as_str(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_better_class_than_offered_is_refused_and_memory_demands_none() {
        // STO-8
        let memory = StoreCapabilities::new("memory", DurabilityClass::Volatile);
        assert!(memory.require_class(DurabilityClass::Volatile).is_ok());
        assert_eq!(
            memory.require_class(DurabilityClass::PowerLoss),
            Err(StoreError::UnsupportedCapability {
                capability: "power_loss"
            })
        );
        assert!(!DurabilityClass::Volatile.is_durable());
        assert!(DurabilityClass::ProcessCrash.is_durable());
    }

    #[test]
    fn a_missing_capability_is_named() {
        // STO-13
        let store = StoreCapabilities::new("x", DurabilityClass::ProcessCrash);
        assert!(store.require(Capability::AtomicCommit).is_ok());
        assert_eq!(
            store.require(Capability::Inbox),
            Err(StoreError::UnsupportedCapability {
                capability: "checkpoint.session.inbox/v1"
            })
        );
    }
}
