//! Every bound of the reader (CFG-1).

/// The longest document, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;
/// The deepest nesting of mappings and sequences.
pub const MAX_DEPTH: usize = 32;
/// The most nodes: mappings, sequences, scalars and keys.
pub const MAX_NODES: usize = 20_000;
/// The longest scalar, in bytes after unescaping.
pub const MAX_SCALAR_BYTES: usize = 64 * 1024;
/// The longest `metadata`, in bytes of canonical JSON.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;
