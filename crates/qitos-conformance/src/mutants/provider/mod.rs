//! Wrong providers around a right one.

mod codec;
mod flaw;
mod model;
mod subject;

pub use flaw::{Flaw, shows_on};
pub use subject::MutantProvider;
