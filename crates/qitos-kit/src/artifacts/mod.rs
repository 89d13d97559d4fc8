//! Artifact stores: bodies under their digests, in memory and in files (ART-1 to ART-5).

mod file;
mod memory;

use qitos_contracts::artifact::{ArtifactError, ArtifactRef};
use qitos_contracts::digest::Digest;

pub use file::{FileArtifactStore, FileArtifactStoreError, Put};
pub use memory::MemoryArtifactStore;

/// The key that references into the default store carry (ART-1).
pub const DEFAULT_RESOLVER_KEY: &str = "tool-result-output";

/// The longest body that a store takes unless told otherwise, in bytes (ART-4).
pub const DEFAULT_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// Whether `reference` is well formed and belongs to the store with `resolver_key`.
fn check_reference(reference: &ArtifactRef, resolver_key: &str) -> Result<(), ArtifactError> {
    if reference.resolver_key != resolver_key {
        return Err(ArtifactError::ResolverMismatch);
    }
    let is_identity = reference
        .artifact_id
        .strip_prefix("sha256:")
        .and_then(|text| text.parse::<Digest>().ok())
        == Some(reference.sha256);
    if reference.schema_version == ArtifactRef::SCHEMA && is_identity {
        Ok(())
    } else {
        Err(ArtifactError::InvalidReference)
    }
}

/// Whether `body` is what `reference` says, length and digest (ART-3).
fn check_body(reference: &ArtifactRef, body: &[u8]) -> Result<(), ArtifactError> {
    let fits = u64::try_from(body.len()) == Ok(reference.byte_length)
        && Digest::of(body) == reference.sha256;
    if fits {
        Ok(())
    } else {
        Err(ArtifactError::DigestMismatch)
    }
}

/// What every store checks before it takes a body.
fn check_put(
    reference: &ArtifactRef,
    body: &[u8],
    resolver_key: &str,
    limit_bytes: u64,
) -> Result<(), ArtifactError> {
    check_reference(reference, resolver_key)?;
    if u64::try_from(body.len()).unwrap_or(u64::MAX) > limit_bytes {
        return Err(ArtifactError::Limit { limit_bytes });
    }
    check_body(reference, body)
}
