//! Toolsets that a configuration can name (`tools.preset`).

pub mod demo_notes;

pub use demo_notes::DemoNotes;
