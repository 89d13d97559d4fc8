//! Wrong checkpoint stores around a right one.

mod flaw;
mod store;
mod subject;

pub use flaw::{Flaw, shows_without_hooks};
pub use store::MutantStore;
pub use subject::MutantSubject;
