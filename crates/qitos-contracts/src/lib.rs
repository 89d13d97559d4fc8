//! Contracts of the QitOS durable agent kernel: traits, value types, errors, event schema.
//!
//! The one crate an implementer needs. Nothing here performs I/O, knows a runtime, or reads the clock;
//! every module belongs to one mechanism:
//!
//! | module | what it defines |
//! |---|---|
//! | [`model`] | the Provider contract: `Model`, `ProviderCodec`, request view, verified response, typed failure |
//! | [`tool`] | the Tool contract: `Tool`, spec, arguments, result, registry, projection |
//! | [`checkpoint`], [`snapshot`] | the checkpoint store contract and the layout of what it stores |
//! | [`event`], [`record`] | the event sink contract and the records it receives |
//! | [`mod@env`] | the sandbox contract |
//! | [`evaluate`] | the evaluator contract |
//! | [`log`], [`decision`], [`context`], [`artifact`] | values the mechanisms exchange |
//! | [`ids`], [`clock`], [`digest`], [`canonical_json`], [`error`], [`limits`], [`secret`] | what all contracts share |
#![warn(missing_docs)]

pub mod artifact;
pub mod canonical_json;
pub mod checkpoint;
pub mod clock;
pub mod context;
pub mod decision;
pub mod digest;
pub mod env;
pub mod error;
pub mod evaluate;
pub mod event;
pub mod ids;
pub mod limits;
pub mod log;
pub mod model;
pub mod record;
pub mod secret;
pub mod snapshot;
pub mod tool;
