//! The size bounds of a snapshot (session specification, section 17).

/// Bytes of a root record: 64 KiB.
pub const MAXIMUM_ROOT_BYTES: usize = 64 << 10;
/// Bytes of one chunk: 8 MiB.
pub const MAXIMUM_CHUNK_BYTES: usize = 8 << 20;
/// Bytes of one whole commit, its root and chunks together: 64 MiB.
pub const MAXIMUM_COMMIT_BYTES: usize = 64 << 20;
/// Components of one snapshot: 64.
pub const MAXIMUM_COMPONENTS: usize = 64;
/// Canonical bytes of one log item: 8 MiB less the two brackets of the leaf that holds it alone.
pub const MAXIMUM_ITEM_BYTES: usize = MAXIMUM_CHUNK_BYTES - 2;
/// Containers inside each other, counted in the flat form of the snapshot: 128.
///
/// Counting there makes the bound the same for both envelope schemas: an item of a log stands below the
/// envelope, the component array, the component, the objects of its pointer and the array.
pub const MAXIMUM_DEPTH: usize = crate::canonical_json::MAXIMUM_DEPTH;
/// Containers of the flat form around a component's payload: envelope, component array, component.
pub(crate) const ENVELOPE_DEPTH: usize = 3;
/// Canonical bytes of a payload that stands in the root record itself: 4 KiB.
pub const MAXIMUM_INLINE_BYTES: usize = 4 << 10;
/// Canonical bytes of what is left of a mapped component without its parts: 16 KiB.
pub const MAXIMUM_REST_BYTES: usize = 16 << 10;
/// Items of one leaf: 256.
pub const MAXIMUM_LEAF_ITEMS: usize = 256;
/// Bytes at which a leaf is split, unless it holds a single item: 256 KiB.
pub const MAXIMUM_LEAF_BYTES: usize = 256 << 10;
/// Resolver references of one snapshot: 64.
pub const MAXIMUM_RESOLVER_REFERENCES: usize = 64;
/// Artifact references that stand in the root record itself: 16; more become a log.
pub const MAXIMUM_INLINE_ARTIFACT_REFS: usize = 16;
/// Bytes of artifact references that stand in the root record itself: 16 KiB; more become a log.
pub const MAXIMUM_INLINE_ARTIFACT_REF_BYTES: usize = 16 << 10;
/// Digests that one `missing_chunk` error names: 1,000.
pub const MAXIMUM_MISSING_DIGESTS: usize = 1_000;
