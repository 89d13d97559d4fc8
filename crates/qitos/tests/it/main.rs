//! Integration tests of the facade.

mod call_port;
mod tool_macro;
