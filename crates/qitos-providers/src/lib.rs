//! Model clients of QitOS over HTTP with verified streams.

pub mod sse;
