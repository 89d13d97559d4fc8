//! Integration tests of the suites that need no implementation from elsewhere.

#[expect(unreachable_pub, reason = "a guide shows it, where it is public")]
mod plain_provider;
mod provider;
mod small_engine;
mod static_tools;
