//! Snapshot envelope, components and the incremental layout (sections 4, 5 and 18 of session).
//!
//! A snapshot is a [`Root`] record of at most 64 KiB and the [`Chunk`]s below it. A commit writes the root and
//! what changed; every other chunk is the one that an earlier commit wrote. Everything here is pure: readers
//! say which chunks they need and are fed, whatever the store.
//!
//! | to | use |
//! |---|---|
//! | make the root and chunks of a commit | [`SnapshotWriter`] |
//! | read components, logs, or all of a snapshot | [`SnapshotReader`] |
//! | accept a commit in a store | [`Root::parse`], [`check_closure`], [`Chunk::check`] |
//! | follow references | [`Root::references`], [`references`] |
//! | write or read schema 2 | [`FlatSnapshot`] |
//! | verify a stored snapshot | [`DeepVerification`] |

mod artifact_refs;
mod chunk;
mod closure;
mod component;
mod cursor;
mod envelope;
mod error;
mod flat;
mod keyed_log;
mod lifecycle;
pub mod limits;
mod log_tree;
mod map;
mod reader;
mod resolver_reference;
mod root;
mod verify;
mod writer;

pub use artifact_refs::ArtifactRefs;
pub use chunk::{Chunk, ChunkKind, ChunkReference, InvalidChunkKind, references};
pub use closure::{Closure, KnownReferences, check_closure, check_closure_with};
pub use component::{ComponentRegistry, ComponentSpec, KeyedLogs, Presence};
pub use envelope::{EnvelopeHeader, NewArtifactRef, ParentRef, Timing};
pub use error::{Layer, SnapshotError};
pub use flat::{FlatComponent, FlatSnapshot};
pub use keyed_log::KeyedChange;
pub use lifecycle::{InvalidLifecycle, Lifecycle, Operation};
pub use log_tree::{LogCut, LogEntry, LogFrontier};
pub use map::PartReference;
pub use reader::{KeyedRecord, LogItem, Read, SnapshotReader};
pub use resolver_reference::{
    DEFAULT_STORE_REFERENCE, ResolverNamespace, ResolverReference, ResolverReferences, capability,
};
pub use root::{ComponentEntry, FLAT_SCHEMA, Layout, ROOT_SCHEMA, Root, schema_version};
pub use verify::{DeepVerification, VerifiedTotals};
pub use writer::{SealedSnapshot, SnapshotWriter, check_commit_bytes};

#[cfg(test)]
mod tests;
