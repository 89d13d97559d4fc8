//! Integration tests of the facade.

mod tool_macro;
