//! Oracles for inputs that nobody wrote: what must hold of every byte sequence (PRV-50, PRV-51, PRV-60).
//!
//! The targets below `fuzz_targets/` only hand their input over. An oracle panics when a rule is broken.

mod dialect;
mod memory;
mod naive_events;
mod sse;
mod stream;

pub use dialect::{CHAT, Dialect};
pub use memory::PEAK;
pub use sse::check_sse;
pub use stream::check_stream;
