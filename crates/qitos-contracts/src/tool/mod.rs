//! The Tool contract.

pub mod arguments;
pub mod call;
pub mod effect;
pub mod model_view;
pub mod permission;
pub mod registry;
pub mod result;
pub mod schema;
pub mod spec;
