//! What the suite needs of a store: how to open it, and hooks that only tests have.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::checkpoint::{
    Capability, CheckpointStore, DurabilityClass, StoreCapabilities, StoreError,
};
use qitos_contracts::clock::ManualClock;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::SnapshotId;

use crate::check::Claims;

/// How often repeating checks repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// A tenth of the counts of the specification: for every test run.
    #[default]
    Quick,
    /// The counts of the specification.
    Full,
}

impl Effort {
    pub(crate) fn of(self, full: u64) -> u64 {
        match self {
            Effort::Quick => full.div_ceil(10),
            Effort::Full => full,
        }
    }
}

/// Where stored bytes are damaged by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageLayer {
    /// The root record of a snapshot.
    Root,
    /// The chunk with this digest.
    Chunk(Digest),
}

/// Changes stored bytes behind the store's back.
pub trait Damage: Send + Sync {
    /// Flips one bit of the stored bytes, `position` counted from their start, modulo their length.
    ///
    /// # Errors
    /// A text for the report when the bytes could not be reached.
    fn flip_bit(
        &self,
        place: &str,
        snapshot: &SnapshotId,
        layer: DamageLayer,
        position: u64,
    ) -> Result<(), String>;

    /// Removes the chunk with this digest.
    ///
    /// # Errors
    /// A text for the report when the chunk could not be reached.
    fn remove_chunk(&self, place: &str, digest: &Digest) -> Result<(), String>;
}

/// A checkpoint store under test.
///
/// Everything but `name`, `capabilities` and `open` is optional; without a hook its checks are `not_claimed`, or
/// failed where a claimed durability class cannot be proved otherwise.
#[async_trait]
pub trait StoreSubject: Send + Sync + 'static {
    /// The name in the report.
    fn name(&self) -> &str;

    /// What an opened instance claims.
    fn capabilities(&self) -> StoreCapabilities;

    /// The store kept at `place`: empty at first; further calls, also from other processes where the class is
    /// `process_crash` or better, give further instances on the same data.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError>;

    /// How often repeating checks repeat.
    fn effort(&self) -> Effort {
        Effort::Quick
    }

    /// A command that runs [`serve_writer`](super::serve_writer) with the same subject in a process of its own;
    /// the suite speaks to it through its standard input and output. Hook `child_process`.
    fn child_process(&self) -> Option<Command> {
        None
    }

    /// Names of points at which a child's store can be made to kill its process (`kill -9`) inside a commit. Hook
    /// `kill_points`.
    fn kill_points(&self) -> Vec<String> {
        Vec::new()
    }

    /// Opens the store so that it kills its own process the first time a commit passes `kill_point`.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cancel safety
    /// That of the store.
    async fn open_killing(
        &self,
        place: &str,
        kill_point: &str,
    ) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let _ = kill_point;
        self.open(place).await
    }

    /// Access to stored bytes. Hook `damage`.
    fn damage(&self) -> Option<&dyn Damage> {
        None
    }

    /// The clock that stores opened from now on read. Hook `clock`.
    fn clock(&self) -> Option<Arc<ManualClock>> {
        None
    }
}

impl Claims for dyn StoreSubject {
    fn claims(&self, name: &str) -> bool {
        let capabilities = self.capabilities();
        match DurabilityClass::from_word(name) {
            Some(class) => capabilities.durability_class() >= class,
            None => Capability::ALL
                .into_iter()
                .any(|capability| capability.name() == name && capabilities.claims(capability)),
        }
    }

    fn has_hook(&self, name: &str) -> bool {
        match name {
            "child_process" => self.child_process().is_some(),
            "kill_points" => self.child_process().is_some() && !self.kill_points().is_empty(),
            "damage" => self.damage().is_some(),
            "clock" => self.clock().is_some(),
            _ => false,
        }
    }
}

/// Needs that several groups share.
pub(super) mod needs {
    use crate::check::Need;

    pub(in crate::checkpoint_store) const FORK: &[Need] =
        &[Need::Claim("checkpoint.session.atomic_fork/v1")];
    pub(in crate::checkpoint_store) const INCREMENTAL: &[Need] =
        &[Need::Claim("checkpoint.session.incremental/v1")];
    pub(in crate::checkpoint_store) const INBOX: &[Need] =
        &[Need::Claim("checkpoint.session.inbox/v1")];
    pub(in crate::checkpoint_store) const CLOCK: &[Need] = &[Need::Hook("clock")];
    pub(in crate::checkpoint_store) const DAMAGE: &[Need] = &[Need::Hook("damage")];
    pub(in crate::checkpoint_store) const CRASH: &[Need] = &[
        Need::Claim("process_crash"),
        Need::OwedHook("child_process"),
    ];
    pub(in crate::checkpoint_store) const KILL_POINTS: &[Need] =
        &[Need::Claim("process_crash"), Need::Hook("kill_points")];
}
