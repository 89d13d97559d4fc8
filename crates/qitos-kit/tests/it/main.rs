//! Integration tests of the kit.

mod checkpoint_store_clocks;
mod checkpoint_store_mutants;
mod conformance;
