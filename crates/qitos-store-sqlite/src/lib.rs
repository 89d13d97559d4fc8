//! The SQLite checkpoint store of QitOS: the reference implementation of `CheckpointStore`.
//!
//! One file holds any number of sessions and is shared by any number of processes. The rules (what is accepted, replayed
//! or refused) are the pure functions of [`qitos_contracts::checkpoint`]; this crate reads the facts they ask for and
//! writes what they decide, inside one transaction.
//!
//! | file | holds |
//! |---|---|
//! | `checkpoint_store` | [`SqliteStore`], the contract's methods |
//! | `options`, `connection`, `filesystem`, `migrations` | opening: identity, settings read back, schema |
//! | `writer`, `transaction`, `reference_cache` | the writer's thread, group commit, what one request writes |
//! | `closing` | an end that can be waited for |
//! | `readers`, `rows`, `keys`, `verify` | reading threads, rows to values, finding rows, verification |
//! | `pack`, `map_error`, `fault_point` | codec below the digests, error codes, where tests break things |

mod checkpoint_store;
mod closing;
mod connection;
mod filesystem;
mod keys;
mod map_error;
mod migrations;
mod options;
mod pack;
mod readers;
mod reference_cache;
mod rows;
mod transaction;
mod verify;
mod writer;

#[doc(hidden)]
pub mod fault_point;

pub use checkpoint_store::{ListedSession, SessionCursor, SessionPage, SqliteStore};
pub use closing::CloseReceipt;
pub use options::OpenOptions;
