//! Deliberately wrong implementations: each breaks one rule of a correct one, and the check named for that rule
//! must reject it.
//!
//! They wrap any correct implementation, so whoever writes one can find out what a check is worth.

pub mod checkpoint_store;
