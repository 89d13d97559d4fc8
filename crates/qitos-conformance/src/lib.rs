//! Executable contracts of QitOS: named checks over any implementation.
//!
//! One dev-dependency, one call, one list of `pass`, `fail` and `not_claimed`. The crate depends on the contracts
//! alone and on no executor.
//!
//! | module | checks |
//! |---|---|
//! | [`check`], [`run`], [`report`], [`runtime`] | what a check is, how checks run, what they say |
#![warn(missing_docs)]

pub mod check;
pub mod report;
pub mod run;
pub mod runtime;
