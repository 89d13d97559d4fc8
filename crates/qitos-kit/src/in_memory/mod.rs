//! Implementations that keep everything in memory and lose it with the process.

pub mod checkpoint_store;

pub use checkpoint_store::MemoryCheckpointStore;
