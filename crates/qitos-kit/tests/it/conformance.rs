//! The kit's implementations against their contracts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos_conformance::checkpoint_store::{StoreSubject, conformance};
use qitos_conformance::run::RunOptions;
use qitos_contracts::checkpoint::{CheckpointStore, StoreCapabilities, StoreError};
use qitos_kit::in_memory::MemoryCheckpointStore;

/// Places are kept for the life of the subject, as files would be.
#[derive(Default)]
pub(crate) struct MemorySubject {
    places: Mutex<HashMap<String, Arc<MemoryCheckpointStore>>>,
}

#[async_trait]
impl StoreSubject for MemorySubject {
    fn name(&self) -> &str {
        "memory"
    }

    fn capabilities(&self) -> StoreCapabilities {
        MemoryCheckpointStore::new().capabilities().clone()
    }

    async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let store = places.entry(place.into()).or_default();
        Ok(Arc::clone(store) as Arc<dyn CheckpointStore>)
    }
}

#[test]
fn the_memory_store_keeps_the_checkpoint_store_contract() {
    let report = conformance(Arc::new(MemorySubject::default()), &RunOptions::default())
        .conforms()
        .unwrap();
    println!("{report}");
}
