//! Chunks: the immutable pieces of a snapshot and the digest that names each (section 18).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::SnapshotError;
use super::limits::MAXIMUM_CHUNK_BYTES;
use super::{log_tree, map};
use crate::digest::Digest;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChunkKind {
    /// A JSON array of 1 to 256 log items that one commit appended.
    Leaf,
    /// Four entries of the level below.
    Node,
    /// The frontier of a log.
    Log,
    /// A component whose parts stand in chunks of their own.
    Map,
    /// A JSON value that is replaced as a whole.
    Blob,
}

impl ChunkKind {
    /// Every kind.
    pub const ALL: [ChunkKind; 5] = [
        ChunkKind::Leaf,
        ChunkKind::Node,
        ChunkKind::Log,
        ChunkKind::Map,
        ChunkKind::Blob,
    ];

    /// The word that is hashed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ChunkKind::Leaf => "leaf",
            ChunkKind::Node => "node",
            ChunkKind::Log => "log",
            ChunkKind::Map => "map",
            ChunkKind::Blob => "blob",
        }
    }

    /// SHA-256(`qitos.chunk/v1` ‖ 0 ‖ kind ‖ 0 ‖ `bytes`).
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Digest {
        Digest::of_parts(&[b"qitos.chunk/v1\0", self.as_str().as_bytes(), b"\0", bytes])
    }
}

impl fmt::Display for ChunkKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The text is no chunk kind; code `corrupt_snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a chunk kind")]
pub struct InvalidChunkKind;

impl FromStr for ChunkKind {
    type Err = InvalidChunkKind;

    fn from_str(text: &str) -> Result<Self, InvalidChunkKind> {
        ChunkKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(InvalidChunkKind)
    }
}

/// An immutable piece of a snapshot.
///
/// The digest always belongs to the kind and the bytes: both constructors hash them, so whoever holds a
/// `Chunk` need not hash it again.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    kind: ChunkKind,
    bytes: Arc<[u8]>,
    digest: Digest,
}

impl Chunk {
    /// Hashes `bytes`.
    #[must_use]
    pub fn new(kind: ChunkKind, bytes: Arc<[u8]>) -> Self {
        let digest = kind.digest(&bytes);
        Chunk {
            kind,
            bytes,
            digest,
        }
    }

    /// Takes bytes that were stored under `digest` (STO-51).
    ///
    /// # Errors
    /// `corrupt_snapshot` if they do not have it.
    pub fn verified(
        kind: ChunkKind,
        bytes: Arc<[u8]>,
        digest: &Digest,
    ) -> Result<Self, SnapshotError> {
        let chunk = Chunk::new(kind, bytes);
        if chunk.digest == *digest {
            Ok(chunk)
        } else {
            Err(SnapshotError::chunk("its bytes do not have its digest").at(*digest))
        }
    }

    /// What it holds.
    #[must_use]
    pub const fn kind(&self) -> ChunkKind {
        self.kind
    }

    /// Its canonical bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Its digest.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Checks the bounds and the canonical form of its bytes, as a store does before a commit.
    ///
    /// Sums that need other chunks are checked by [`check_closure`](super::check_closure) and by a deep
    /// verification.
    ///
    /// # Errors
    /// `size_limit_exceeded`; `corrupt_snapshot` for bytes that are not this kind's canonical form.
    pub fn check(&self) -> Result<(), SnapshotError> {
        SnapshotError::bound("bytes of a chunk", self.bytes.len(), MAXIMUM_CHUNK_BYTES)?;
        let result = match self.kind {
            ChunkKind::Leaf => log_tree::leaf_count(&self.bytes).map(|_| ()),
            ChunkKind::Node => log_tree::Node::parse(&self.bytes).map(|_| ()),
            ChunkKind::Log => log_tree::LogFrontier::parse(&self.bytes).map(|_| ()),
            ChunkKind::Map => map::MapChunk::parse(&self.bytes).map(|_| ()),
            ChunkKind::Blob => Cursor::check_document(&self.bytes)
                .map_err(|malformed| SnapshotError::chunk(malformed.0)),
        };
        result.map_err(|error| error.at(self.digest))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Chunk")
            .field("kind", &self.kind)
            .field("bytes", &self.bytes.len())
            .field("digest", &self.digest)
            .finish()
    }
}

/// A chunk named by another.
pub type ChunkReference = (ChunkKind, Digest);

/// What the chunk names directly; the edges that a collection and the closure rule follow.
///
/// # Errors
/// `corrupt_snapshot` if `bytes` are not the canonical form of a chunk of this kind.
pub fn references(kind: ChunkKind, bytes: &[u8]) -> Result<Vec<ChunkReference>, SnapshotError> {
    match kind {
        ChunkKind::Leaf | ChunkKind::Blob => Ok(Vec::new()),
        ChunkKind::Node => Ok(log_tree::Node::parse(bytes)?.references().collect()),
        ChunkKind::Log => Ok(log_tree::LogFrontier::parse(bytes)?.references().collect()),
        ChunkKind::Map => Ok(map::MapChunk::parse(bytes)?.references().collect()),
    }
}
