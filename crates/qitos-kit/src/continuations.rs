//! Provider state kept in an artifact store, under the digest of its bytes (PRV-30, PRV-33).

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::artifact::{ArtifactError, ArtifactRef, ArtifactStore, Sensitivity};
use qitos_contracts::canonical_json;
use qitos_contracts::clock::Clock;
use qitos_contracts::digest::Digest;
use qitos_contracts::model::{
    ContinuationReference, ContinuationResolution, ContinuationResolver, ResolvedContinuation,
    Target, UnresolvedReason,
};
use serde_json::Value;

/// The key that references into the default resolver carry.
pub const DEFAULT_RESOLVER_KEY: &str = "provider-continuation";

/// Keeps the state of providers in an artifact store.
///
/// # Contract
/// A reference names length and digest of the state's canonical JSON: the same state captured twice is one body and
/// one reference, and state that was damaged is never given back. It works as long as the store keeps the body; this
/// resolver sets no expiry of its own.
///
/// # Durability
/// That of the store: with [`FileArtifactStore`](crate::artifacts::FileArtifactStore) the state is on the medium when
/// `capture` returns, so before the answer that refers to it is committed.
#[derive(Debug)]
pub struct StoredContinuations {
    store: Arc<dyn ArtifactStore>,
    resolver_key: String,
    clock: Arc<dyn Clock>,
}

impl StoredContinuations {
    /// A resolver over `store`; `clock` judges expiries.
    #[must_use]
    pub fn new(store: Arc<dyn ArtifactStore>, clock: Arc<dyn Clock>) -> Self {
        StoredContinuations {
            store,
            resolver_key: DEFAULT_RESOLVER_KEY.to_owned(),
            clock,
        }
    }

    /// The reference of a body in the store.
    fn body_reference(&self, body_length: u64, digest: Digest) -> ArtifactRef {
        ArtifactRef {
            sha256: digest,
            artifact_id: format!("sha256:{digest}"),
            byte_length: body_length,
            sensitivity: Sensitivity::Restricted,
            ..ArtifactRef::of_body(self.store.resolver_key(), "application/json", &[])
        }
    }
}

/// `<length>-<digest>`.
fn read_id(reference_id: &str) -> Option<(u64, Digest)> {
    let (length, digest) = reference_id.split_once('-')?;
    Some((length.parse().ok()?, digest.parse().ok()?))
}

#[async_trait]
impl ContinuationResolver for StoredContinuations {
    fn resolver_key(&self) -> &str {
        &self.resolver_key
    }

    async fn resolve(&self, reference: &ContinuationReference) -> ContinuationResolution {
        let unresolved = ContinuationResolution::Unresolved;
        if reference.resolver_key != self.resolver_key {
            return unresolved(UnresolvedReason::ResolverKeyMismatch);
        }
        let Some((length, digest)) = read_id(&reference.reference_id) else {
            return unresolved(UnresolvedReason::NotFound);
        };
        let body = self
            .store
            .resolve(&self.body_reference(length, digest))
            .await;
        let body = match body {
            Err(ArtifactError::DigestMismatch) => Err(UnresolvedReason::DigestMismatch),
            Err(_) => return unresolved(UnresolvedReason::NotFound),
            Ok(body) => Ok(body),
        };
        if reference
            .expires_at
            .is_some_and(|expiry| expiry <= self.clock.now())
        {
            return unresolved(UnresolvedReason::Expired);
        }
        if reference.payload_digest.is_some_and(|told| told != digest) {
            return unresolved(UnresolvedReason::DigestMismatch);
        }
        // The bytes were verified; text that is no JSON was never captured here.
        match body.map(|body| serde_json::from_slice(&body)) {
            Ok(Ok(payload)) => ContinuationResolution::Resolved(Box::new(ResolvedContinuation {
                reference: reference.clone(),
                payload,
            })),
            Ok(Err(_)) | Err(_) => unresolved(UnresolvedReason::DigestMismatch),
        }
    }

    async fn capture(
        &self,
        target: &Target,
        payload: Value,
    ) -> Result<ContinuationReference, String> {
        let body = canonical_json::to_bytes(&payload)
            .map_err(|_| "the state is not canonical JSON".to_owned())?;
        let digest = Digest::of(&body);
        let length = body.len() as u64;
        self.store
            .put(&self.body_reference(length, digest), &body)
            .await
            .map_err(|error| error.to_string())?;
        Ok(ContinuationReference {
            reference_id: format!("{length}-{digest}"),
            resolver_key: self.resolver_key.clone(),
            provider: target.provider().to_owned(),
            model: target.model().to_owned(),
            api_mode: target.api_mode().to_owned(),
            attachment_id: None,
            payload_digest: Some(digest),
            expires_at: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use qitos_contracts::clock::ManualClock;
    use serde_json::json;

    use super::*;
    use crate::artifacts::{FileArtifactStore, MemoryArtifactStore};

    fn target() -> Target {
        Target::new("anthropic", "large", "messages", "messages").unwrap()
    }

    fn over(store: Arc<dyn ArtifactStore>) -> (StoredContinuations, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new("2026-12-01T00:00:00Z".parse().unwrap()));
        let shared: Arc<dyn Clock> = clock.clone();
        (StoredContinuations::new(store, shared), clock)
    }

    fn reason(resolution: ContinuationResolution) -> &'static str {
        match resolution {
            ContinuationResolution::Resolved(_) => "resolved",
            ContinuationResolution::Unresolved(reason) => reason.code(),
        }
    }

    #[tokio::test]
    async fn captured_state_comes_back_whole_and_is_kept_once() {
        // PRV-30, PRV-33
        let (resolver, _) = over(Arc::new(MemoryArtifactStore::new()));
        let state =
            json!({"blocks": [{"type": "thinking", "thinking": " a\n", "signature": "s+/="}]});
        let reference = resolver.capture(&target(), state.clone()).await.unwrap();
        assert!(reference.fits(&target()));
        let again = resolver.capture(&target(), state.clone()).await.unwrap();
        assert_eq!(reference, again);
        let ContinuationResolution::Resolved(resolved) = resolver.resolve(&reference).await else {
            panic!("not resolved")
        };
        assert_eq!(resolved.payload, state);
        assert!(!format!("{resolved:?}").contains("s+/="), "PRV-27");
    }

    #[tokio::test]
    async fn each_reason_is_told_in_the_order_of_prv_30() {
        let (resolver, clock) = over(Arc::new(MemoryArtifactStore::new()));
        let state = json!({"response_id": "resp_1"});
        let good = resolver.capture(&target(), state).await.unwrap();
        let now = clock.now();
        let expired = ContinuationReference {
            expires_at: Some(now),
            ..good.clone()
        };
        let other_digest = ContinuationReference {
            payload_digest: Some(Digest::ZERO),
            ..good.clone()
        };
        let unknown = |reference: &ContinuationReference| ContinuationReference {
            reference_id: format!("9-{}", Digest::ZERO),
            ..reference.clone()
        };
        let nonsense = ContinuationReference {
            reference_id: "../../etc/passwd".into(),
            ..good.clone()
        };
        let elsewhere = |reference: &ContinuationReference| ContinuationReference {
            resolver_key: "elsewhere".into(),
            ..reference.clone()
        };
        for (reference, expected) in [
            (good.clone(), "resolved"),
            (elsewhere(&unknown(&expired)), "resolver_key_mismatch"),
            (unknown(&expired), "continuation_not_found"),
            (nonsense, "continuation_not_found"),
            (
                ContinuationReference {
                    expires_at: Some(now),
                    ..other_digest.clone()
                },
                "continuation_expired",
            ),
            (expired, "continuation_expired"),
            (other_digest, "continuation_digest_mismatch"),
        ] {
            assert_eq!(reason(resolver.resolve(&reference).await), expected);
        }
    }

    #[tokio::test]
    async fn damaged_state_is_never_given_back() {
        // PRV-30: digest; ART-3
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("continuations");
        let (resolver, _) = over(Arc::new(FileArtifactStore::open(&path).unwrap()));
        let state = json!({"response_id": "resp_1"});
        let reference = resolver.capture(&target(), state).await.unwrap();
        let file = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_file())
            .unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            let resolution = resolver.resolve(&reference).await;
            assert_eq!(reason(resolution), "continuation_digest_mismatch");
            bytes[at] ^= 1;
        }
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(reason(resolver.resolve(&reference).await), "resolved");
    }
}
