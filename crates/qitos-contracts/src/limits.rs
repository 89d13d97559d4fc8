//! Every size bound that more than one crate needs, in one file.
//!
//! Session specification section 17, PRV-60, ARG-1, ARG-4, PRJ-1, PRJ-2.

/// One log item, canonical bytes: a leaf of one item, brackets included, is a chunk.
pub const LOG_ITEM_BYTES: u64 = 8 * 1024 * 1024 - 2;
/// One root record.
pub const ROOT_BYTES: u64 = 64 * 1024;
/// One chunk.
pub const CHUNK_BYTES: u64 = 8 * 1024 * 1024;
/// One commit, root and chunks together.
pub const COMMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Components of one snapshot.
pub const COMPONENTS: usize = 64;
/// Nesting of stored JSON.
pub const JSON_DEPTH: usize = 128;
/// Characters of an operation or owner token.
pub const TOKEN_CHARS: usize = 256;
/// Bytes of one steering text.
pub const STEERING_BYTES: usize = 64 * 1024;
/// Entries of one lineage page.
pub const LINEAGE_PAGE: usize = 1_000;
/// Argument text of one call.
pub const ARGUMENTS_BYTES: usize = 1024 * 1024;
/// Calls of one answer (PRV-60).
pub const TOOL_SLOTS: usize = 128;
/// A tool output above this moves to the artifact store (PRJ-1).
pub const INLINE_OUTPUT_BYTES: usize = 256 * 1024;
/// Characters of one result in the model's view (PRJ-2).
pub const MODEL_VIEW_CHARS: usize = 50_000;
/// Characters of one batch in the model's view (PRJ-2).
pub const MODEL_VIEW_BATCH_CHARS: usize = 200_000;
/// Least characters of one result in the model's view (PRJ-2).
pub const MODEL_VIEW_LEAST_CHARS: usize = 512;
/// Nodes of one request view (CTX-5, PRV-12).
pub const VIEW_NODES: usize = 200_000;
/// Nesting of one request view (CTX-5).
pub const VIEW_DEPTH: usize = 64;
/// Calls in one decision; the number of tool slots that one response may declare (PRV-60).
pub const MAX_DECISION_ACTIONS: usize = 128;
/// Candidates in one `branch` decision.
pub const MAX_DECISION_CANDIDATES: usize = 64;
/// Bytes of model text that a decision parser reads; the accumulated text of one response (PRV-60).
pub const MAX_DECISION_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one inbox payload: steering text in its worst escaped form, and what stands around it.
pub const INBOX_PAYLOAD_BYTES: usize = 512 * 1024;
/// Entries of an inbox that no commit consumed.
pub const INBOX_WAITING: u64 = 4_096;
/// Chunks read by one call of a store.
pub const CHUNKS_PER_READ: usize = 1_024;
