//! Artifact references and the artifact store contract (ART-1 to ART-8, section 11 of the sandbox specification).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};

/// How far a body may travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sensitivity {
    /// Anybody may see it.
    Public,
    /// The default.
    #[default]
    Internal,
    /// Absent from public and redacted exports.
    Confidential,
    /// Absent from public and redacted exports.
    Restricted,
}

/// A pointer to a stored body; never the body, never a host path (ART-7).
///
/// Written with exactly these 11 keys; `schema_version` is `qitos.artifact_ref/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRef {
    /// `qitos.artifact_ref/v1`.
    pub schema_version: String,
    /// `sha256:<digest>` for stored bodies.
    pub artifact_id: String,
    /// Which store resolves it.
    pub resolver_key: String,
    /// Digest of the body.
    pub sha256: Digest,
    /// Media type of the body.
    pub media_type: String,
    /// Length of the body.
    pub byte_length: u64,
    /// `binary`.
    pub encoding: String,
    /// How far the body may travel.
    pub sensitivity: Sensitivity,
    /// Digest of how the body came to be.
    pub provenance_digest: Option<Digest>,
    /// At most 1024 characters for the model.
    pub model_summary: Option<String>,
    /// Missing it fails what needs it.
    pub required: bool,
}

impl ArtifactRef {
    /// The schema id of every reference.
    pub const SCHEMA: &'static str = "qitos.artifact_ref/v1";

    /// The reference of a body in the store named `resolver_key`.
    #[must_use]
    pub fn of_body(resolver_key: &str, media_type: &str, body: &[u8]) -> Self {
        let sha256 = Digest::of(body);
        ArtifactRef {
            schema_version: Self::SCHEMA.into(),
            artifact_id: format!("sha256:{sha256}"),
            resolver_key: resolver_key.into(),
            sha256,
            media_type: media_type.into(),
            byte_length: body.len() as u64,
            encoding: "binary".into(),
            sensitivity: Sensitivity::Internal,
            provenance_digest: None,
            model_summary: None,
            required: true,
        }
    }
}

/// Why an artifact could not be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// `artifact_store_limit`: the body is over the store's limit.
    #[error("the body is over the store's limit of {limit_bytes} bytes")]
    Limit {
        /// The limit.
        limit_bytes: u64,
    },
    /// `artifact_write_failed`.
    #[error("the body could not be written ({operation})")]
    WriteFailed {
        /// What failed.
        operation: &'static str,
    },
    /// `artifact_resolver_mismatch`: the reference belongs to another store.
    #[error("the reference belongs to another store")]
    ResolverMismatch,
    /// `artifact_special_file`: not a regular file.
    #[error("the stored body is not a regular file")]
    SpecialFile,
    /// `missing_required_artifact`.
    #[error("the body is missing")]
    Missing,
    /// `artifact_digest_mismatch`: the bytes are not those of the reference.
    #[error("the stored bytes do not match the reference")]
    DigestMismatch,
    /// `invalid_artifact_reference`.
    #[error("the reference is not well formed")]
    InvalidReference,
}

impl ContractError for ArtifactError {
    fn code(&self) -> &str {
        match self {
            ArtifactError::Limit { .. } => "artifact_store_limit",
            ArtifactError::WriteFailed { .. } => "artifact_write_failed",
            ArtifactError::ResolverMismatch => "artifact_resolver_mismatch",
            ArtifactError::SpecialFile => "artifact_special_file",
            ArtifactError::Missing => "missing_required_artifact",
            ArtifactError::DigestMismatch => "artifact_digest_mismatch",
            ArtifactError::InvalidReference => "invalid_artifact_reference",
        }
    }

    fn retry(&self) -> Retry {
        if matches!(self, ArtifactError::WriteFailed { .. }) {
            Retry::SameRequest
        } else {
            Retry::Never
        }
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// Where bodies live (ART-1).
#[async_trait]
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// The key that its references carry.
    fn resolver_key(&self) -> &str;

    /// Stores `body` under `reference`; the same body twice is success and writes nothing new (ART-2, ART-3).
    ///
    /// # Errors
    /// `artifact_store_limit`, `artifact_write_failed`, `artifact_digest_mismatch`, `artifact_resolver_mismatch`.
    ///
    /// # Cancel safety
    /// Dropping it may leave the body stored, never half of it.
    async fn put(&self, reference: &ArtifactRef, body: &[u8]) -> Result<(), ArtifactError>;

    /// Reads and verifies a body (ART-3, ART-4).
    ///
    /// # Errors
    /// `missing_required_artifact`, `artifact_digest_mismatch`, `artifact_special_file`,
    /// `artifact_resolver_mismatch`, `artifact_store_limit`.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    async fn resolve(&self, reference: &ArtifactRef) -> Result<Vec<u8>, ArtifactError>;

    /// Whether the body is there, without reading it.
    ///
    /// # Errors
    /// `artifact_resolver_mismatch`.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    async fn probe(&self, reference: &ArtifactRef) -> Result<bool, ArtifactError>;
}
