//! Model clients of QitOS over HTTP with verified streams.
