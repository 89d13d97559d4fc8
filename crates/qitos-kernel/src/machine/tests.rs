//! The machine driven with plain values: no tokio, no user code, no store.

mod bench;
mod crashes;
mod rules;
