//! The #[tool] and #[toolset] attributes of QitOS.
