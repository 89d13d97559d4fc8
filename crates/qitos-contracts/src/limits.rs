//! Every size bound that more than one crate needs, in one file.

/// Calls in one decision; the number of tool slots that one response may declare (PRV-60).
pub const MAX_DECISION_ACTIONS: usize = 128;
/// Candidates in one `branch` decision.
pub const MAX_DECISION_CANDIDATES: usize = 64;
/// Bytes of model text that a decision parser reads; the accumulated text of one response (PRV-60).
pub const MAX_DECISION_TEXT_BYTES: usize = 4 * 1024 * 1024;
