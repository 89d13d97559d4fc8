//! What can be wrong with a snapshot (sections 14 and 21 of the session specification).

use std::fmt;

use super::cursor::Malformed;
use super::limits::MAXIMUM_MISSING_DIGESTS;
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};

/// Where damage was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// The root record, or the flat envelope.
    Root,
    /// A component's payload or its descriptor.
    Component,
    /// A chunk.
    Chunk,
}

impl Layer {
    /// The word of error metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Layer::Root => "root",
            Layer::Component => "component",
            Layer::Chunk => "chunk",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Why a snapshot cannot be read, or what was given cannot become one.
///
/// Never echoes payload text (SES-23). Nothing was written when one of these is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Stored bytes are not what the contract says, or a writer was given what cannot be stored.
    #[error("the {layer} is corrupt: {reason}")]
    Corrupt {
        /// Where.
        layer: Layer,
        /// What is wrong, in fixed words.
        reason: &'static str,
        /// The digest of the damaged part, when it is known.
        digest: Option<Digest>,
    },
    /// A component's payload does not have the digest that stands beside it (SES-15).
    #[error("the payload of component {slot} does not have its digest")]
    ComponentDigestMismatch {
        /// The component's owner.
        owner: String,
        /// The component's slot.
        slot: String,
    },
    /// No codec is registered for this owner (SES-16).
    #[error("no component owner {owner} is known")]
    UnknownComponentOwner {
        /// The owner named by the snapshot.
        owner: String,
    },
    /// The owner is known, this slot and schema of it or the `required` flag are not (SES-16).
    #[error("component {owner}/{slot} has an unsupported schema")]
    UnsupportedComponentSchema {
        /// The component's owner.
        owner: String,
        /// The component's slot.
        slot: String,
        /// The schema named by the snapshot.
        schema: String,
    },
    /// A component that every snapshot has is absent (SES-16).
    #[error("component {owner}/{slot} is missing")]
    MissingRequiredComponent {
        /// The component's owner.
        owner: &'static str,
        /// The component's slot.
        slot: &'static str,
    },
    /// The envelope has a schema that this reader does not know (SES-16, SES-51).
    #[error("envelope schema {schema_version} is not supported")]
    UnsupportedSnapshotSchema {
        /// The number that the envelope names.
        schema_version: u64,
    },
    /// An identity has the wrong kind, or is none (SES-1).
    #[error("field {field} holds no identity of its kind")]
    InvalidIdentity {
        /// The field of the envelope.
        field: &'static str,
    },
    /// A bound of section 17 is exceeded; the remedy is an artifact reference.
    #[error("{what} has {actual}, {limit} are allowed")]
    SizeLimitExceeded {
        /// What is too large, with its unit.
        what: &'static str,
        /// The bound.
        limit: u64,
        /// What was given; at least this much.
        actual: u64,
    },
    /// Referenced chunks were neither sent nor held (section 7 row 15, STO-50).
    #[error("{} referenced chunks are missing", digests.len())]
    MissingChunk {
        /// Their digests, at most 1,000 of them.
        digests: Vec<Digest>,
    },
}

impl SnapshotError {
    pub(crate) const fn root(reason: &'static str) -> Self {
        SnapshotError::Corrupt {
            layer: Layer::Root,
            reason,
            digest: None,
        }
    }

    pub(crate) const fn component(reason: &'static str) -> Self {
        SnapshotError::Corrupt {
            layer: Layer::Component,
            reason,
            digest: None,
        }
    }

    pub(crate) const fn chunk(reason: &'static str) -> Self {
        SnapshotError::Corrupt {
            layer: Layer::Chunk,
            reason,
            digest: None,
        }
    }

    /// Names the damaged part, unless it is named already.
    #[must_use]
    pub(crate) fn at(mut self, of: Digest) -> Self {
        if let SnapshotError::Corrupt { digest, .. } = &mut self {
            digest.get_or_insert(of);
        }
        self
    }

    pub(crate) fn missing(mut digests: Vec<Digest>) -> Self {
        digests.truncate(MAXIMUM_MISSING_DIGESTS);
        SnapshotError::MissingChunk { digests }
    }

    /// Refuses `actual` above `limit`.
    pub(crate) fn bound(
        what: &'static str,
        actual: usize,
        limit: usize,
    ) -> Result<(), SnapshotError> {
        if actual <= limit {
            return Ok(());
        }
        Err(SnapshotError::SizeLimitExceeded {
            what,
            limit: limit as u64,
            actual: actual as u64,
        })
    }
}

/// Of the envelope; whoever reads something else names its own layer.
impl From<Malformed> for SnapshotError {
    fn from(malformed: Malformed) -> Self {
        SnapshotError::root(malformed.0)
    }
}

impl ContractError for SnapshotError {
    fn code(&self) -> &str {
        match self {
            SnapshotError::Corrupt { .. } => "corrupt_snapshot",
            SnapshotError::ComponentDigestMismatch { .. } => "component_digest_mismatch",
            SnapshotError::UnknownComponentOwner { .. } => "unknown_component_owner",
            SnapshotError::UnsupportedComponentSchema { .. } => "unsupported_component_schema",
            SnapshotError::MissingRequiredComponent { .. } => "missing_required_component",
            SnapshotError::UnsupportedSnapshotSchema { .. } => "unsupported_snapshot_schema",
            SnapshotError::InvalidIdentity { .. } => "invalid_identity_relationship",
            SnapshotError::SizeLimitExceeded { .. } => "size_limit_exceeded",
            SnapshotError::MissingChunk { .. } => "missing_chunk",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}
