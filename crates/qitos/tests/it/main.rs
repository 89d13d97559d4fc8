//! Integration tests of the facade.

#[cfg(test)]
mod call_port;
mod tool_macro;
