//! Executable contracts of QitOS: named checks over any implementation.
//!
//! A replacement of a mechanism is not "a type that compiles": it keeps the mechanism's contract. This crate runs
//! the contract. One dev-dependency, one call, one list of `pass`, `fail` and `not_claimed`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use qitos_conformance::checkpoint_store::{self, StoreSubject};
//! use qitos_conformance::run::RunOptions;
//! use qitos_contracts::checkpoint::{
//!     CheckpointStore, DurabilityClass, StoreCapabilities, StoreError,
//! };
//!
//! struct MyStore;
//!
//! #[async_trait]
//! impl StoreSubject for MyStore {
//!     fn name(&self) -> &str {
//!         "my-store"
//!     }
//!
//!     fn capabilities(&self) -> StoreCapabilities {
//!         StoreCapabilities::new("my-store", DurabilityClass::Volatile)
//!     }
//!
//!     async fn open(&self, place: &str) -> Result<Arc<dyn CheckpointStore>, StoreError> {
//!         // The store kept at `place`: empty at first, the same data on each further call.
//! #       let _ = place;
//! #       Err(StoreError::StorageFull)
//!     }
//! }
//!
//! let report = checkpoint_store::conformance(Arc::new(MyStore), &RunOptions::default().only("K1."));
//! // In a test: report.conforms().unwrap();
//! # assert_eq!(report.check("K1.create_zero").unwrap().status().as_str(), "fail");
//! ```
//!
//! What the hooks of a subject add (a process to kill, bytes to damage, a clock to turn) stands at its trait. A check
//! whose capability is not claimed is `not_claimed`; a claimed durability class that cannot be proved for want of a
//! hook is a failure. A subject that needs an executor passes it in through [`runtime::Runtime`]; this crate depends
//! on the contracts alone.
//!
//! | module | what it holds |
//! |---|---|
//! | [`checkpoint_store`] | the checkpoint store contract: K1 to K68 |
//! | [`provider`] | the provider contract: the checks of PRV-17, and the stream tables row by row |
//! | [`tool`] | the tool contract: TCK-1 to TCK-31 for tools and for engines that run them |
//! | [`mutants`] | wrong implementations; each is rejected by the check named for its flaw |
//! | [`check`], [`run`], [`report`], [`runtime`] | what a check is, how checks run, what they say |
#![warn(missing_docs)]

pub mod check;
pub mod checkpoint_store;
pub mod mutants;
pub mod provider;
pub mod report;
pub mod run;
pub mod runtime;
pub mod tool;
