//! The CheckpointStore contract.
