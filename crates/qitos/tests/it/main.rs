//! Integration tests of the facade.

#[cfg(test)]
mod call_port;
mod compose;
mod consumer;
mod engine;
mod tool_macro;
