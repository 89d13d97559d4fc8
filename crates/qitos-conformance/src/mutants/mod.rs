//! Deliberately wrong implementations: each breaks one rule of a correct one, and the check named for that rule
//! must reject it.
//!
//! Wrong stores wrap any correct one, so whoever writes one can find out what a check is worth; wrong engines
//! are a small right one with a flaw.

pub mod checkpoint_store;
pub mod tool_engine;
