//! QitOS: a durable agent kernel with six replaceable mechanisms.

pub use qitos_contracts::tool;
pub use qitos_macros::{tool, toolset};

pub mod credentials;
pub mod presets;

/// What the code that `#[tool]` generates refers to; no interface.
#[doc(hidden)]
pub mod __private {
    pub use {async_trait, schemars, serde, serde_json};
}
