//! Behaviour of snapshots as a whole.
