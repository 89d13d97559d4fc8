//! Implementations for QitOS without network, database or unsafe code.

#[cfg(feature = "loopback")]
pub mod loopback;

pub mod artifacts;
pub mod blocking_model;
pub mod continuations;
pub mod in_memory;
pub mod parsers;
pub mod scripted_session;
