//! Integration tests of the suites that need no implementation from elsewhere.

mod small_engine;
mod static_tools;
