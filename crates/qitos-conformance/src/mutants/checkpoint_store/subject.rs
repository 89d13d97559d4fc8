//! A subject whose stores have a flaw, with the hooks of a right one.

use std::process::Command;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use qitos_contracts::checkpoint::{Capability, CheckpointStore, StoreCapabilities, StoreError};
use qitos_contracts::clock::ManualClock;

use super::flaw::Flaw;
use super::store::{Memory, MutantStore};
use crate::checkpoint_store::{Damage, Effort, StoreSubject};

/// A subject whose stores all have one flaw.
pub struct MutantSubject {
    inner: Arc<dyn StoreSubject>,
    flaw: Flaw,
    name: String,
    memory: Arc<Mutex<Memory>>,
}

impl std::fmt::Debug for MutantSubject {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MutantSubject")
            .field("flaw", &self.flaw)
            .finish_non_exhaustive()
    }
}

impl MutantSubject {
    /// A right subject, made wrong.
    #[must_use]
    pub fn new(inner: Arc<dyn StoreSubject>, flaw: Flaw) -> Self {
        MutantSubject {
            name: format!("{} that {flaw:?}", inner.name()),
            inner,
            flaw,
            memory: Arc::default(),
        }
    }
}

#[async_trait]
impl StoreSubject for MutantSubject {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> StoreCapabilities {
        let capabilities = self.inner.capabilities();
        if self.flaw == Flaw::ClaimsTooMuch {
            capabilities.with(Capability::Lease)
        } else {
            capabilities
        }
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let inner = self.inner.open(place).await?;
        Ok(Arc::new(MutantStore::new(
            inner,
            self.flaw,
            Arc::clone(&self.memory),
        )))
    }

    fn effort(&self) -> Effort {
        self.inner.effort()
    }

    fn child_process(&self) -> Option<Command> {
        self.inner.child_process()
    }

    fn damage(&self) -> Option<&dyn Damage> {
        self.inner.damage()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        self.inner.clock()
    }
}
