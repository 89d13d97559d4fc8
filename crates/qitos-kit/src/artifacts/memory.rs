//! An artifact store that lives and dies with its process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use qitos_contracts::artifact::{ArtifactError, ArtifactRef, ArtifactStore};
use qitos_contracts::digest::Digest;

use super::{DEFAULT_LIMIT_BYTES, DEFAULT_RESOLVER_KEY, check_body, check_put, check_reference};

/// Keeps bodies in memory; for tests and for sessions that are ephemeral.
#[derive(Debug)]
pub struct MemoryArtifactStore {
    resolver_key: String,
    limit_bytes: u64,
    bodies: Mutex<BTreeMap<Digest, Arc<[u8]>>>,
}

impl Default for MemoryArtifactStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryArtifactStore {
    /// An empty store with the default key and limit.
    #[must_use]
    pub fn new() -> Self {
        MemoryArtifactStore {
            resolver_key: DEFAULT_RESOLVER_KEY.to_owned(),
            limit_bytes: DEFAULT_LIMIT_BYTES,
            bodies: Mutex::default(),
        }
    }

    /// Takes bodies of at most `limit_bytes`.
    #[must_use]
    pub const fn with_limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    fn bodies(&self) -> MutexGuard<'_, BTreeMap<Digest, Arc<[u8]>>> {
        // Each change is one insertion: a panic elsewhere leaves the map whole.
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ArtifactStore for MemoryArtifactStore {
    fn resolver_key(&self) -> &str {
        &self.resolver_key
    }

    async fn put(&self, reference: &ArtifactRef, body: &[u8]) -> Result<(), ArtifactError> {
        check_put(reference, body, &self.resolver_key, self.limit_bytes)?;
        self.bodies()
            .entry(reference.sha256)
            .or_insert_with(|| body.into());
        Ok(())
    }

    async fn resolve(&self, reference: &ArtifactRef) -> Result<Vec<u8>, ArtifactError> {
        check_reference(reference, &self.resolver_key)?;
        let body = self.bodies().get(&reference.sha256).cloned();
        let body = body.ok_or(ArtifactError::Missing)?;
        check_body(reference, &body)?;
        Ok(body.to_vec())
    }

    async fn probe(&self, reference: &ArtifactRef) -> Result<bool, ArtifactError> {
        check_reference(reference, &self.resolver_key)?;
        Ok(self.bodies().contains_key(&reference.sha256))
    }
}
