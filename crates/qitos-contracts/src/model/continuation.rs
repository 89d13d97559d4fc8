//! Provider-side state: references that are safe to persist, and the resolver that keeps the bytes (PRV-29 to PRV-33).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Target;
use crate::clock::Timestamp;
use crate::digest::Digest;

/// What is persisted of a continuation (PRV-29).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinuationReference {
    /// Identity at the resolver.
    pub reference_id: String,
    /// Which resolver; logical, never a host path.
    pub resolver_key: String,
    /// Whose state it is.
    pub provider: String,
    /// Whose state it is.
    pub model: String,
    /// Whose state it is.
    pub api_mode: String,
    /// The attachment it belongs to.
    pub attachment_id: Option<String>,
    /// Digest of the payload.
    pub payload_digest: Option<Digest>,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
}

impl ContinuationReference {
    /// Whether the reference belongs to `target`; otherwise `incompatible_continuation` when a view is built.
    #[must_use]
    pub fn fits(&self, target: &Target) -> bool {
        self.provider == target.provider()
            && self.model == target.model()
            && self.api_mode == target.api_mode()
    }
}

/// The state behind a reference. Debug prints no bytes.
#[derive(Clone, PartialEq)]
pub struct ResolvedContinuation {
    /// The reference.
    pub reference: ContinuationReference,
    /// Its payload, in the codec's own form.
    pub payload: Value,
}

impl fmt::Debug for ResolvedContinuation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ResolvedContinuation")
            .field("reference", &self.reference)
            .finish_non_exhaustive()
    }
}

/// Why a reference gave nothing (PRV-30).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnresolvedReason {
    /// `resolver_key_mismatch`.
    ResolverKeyMismatch,
    /// `continuation_not_found`.
    NotFound,
    /// `continuation_expired`.
    Expired,
    /// `continuation_digest_mismatch`.
    DigestMismatch,
}

impl UnresolvedReason {
    /// The error code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            UnresolvedReason::ResolverKeyMismatch => "resolver_key_mismatch",
            UnresolvedReason::NotFound => "continuation_not_found",
            UnresolvedReason::Expired => "continuation_expired",
            UnresolvedReason::DigestMismatch => "continuation_digest_mismatch",
        }
    }
}

/// The answer of a resolver.
#[derive(Clone, Debug, PartialEq)]
pub enum ContinuationResolution {
    /// The state.
    Resolved(Box<ResolvedContinuation>),
    /// None, and why.
    Unresolved(UnresolvedReason),
}

/// Keeps opaque provider state outside log and view (PRV-33).
#[async_trait]
pub trait ContinuationResolver: fmt::Debug + Send + Sync + 'static {
    /// Key that its references carry.
    fn resolver_key(&self) -> &str;

    /// Looks a reference up; checks key, presence, expiry and digest in that order.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    async fn resolve(&self, reference: &ContinuationReference) -> ContinuationResolution;

    /// Keeps `payload` and gives its reference.
    ///
    /// # Errors
    /// A short reason without content; surfaced as `continuation_capture_failed`.
    ///
    /// # Cancel safety
    /// Dropping it may leave the payload stored.
    async fn capture(
        &self,
        target: &Target,
        payload: Value,
    ) -> Result<ContinuationReference, String>;
}
