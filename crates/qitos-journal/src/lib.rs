//! The append-only trajectory journal of QitOS.
//!
//! One directory, one writer, any number of readers beside it. A batch of records is one frame: all of it
//! or nothing, chained to the frame before, with a checksum, a digest and a digest per record. What a
//! crash can leave is recovered by the next writer; anything else is reported and left untouched.
//!
//! | module | what it is about |
//! |---|---|
//! | [`frame`], [`segment`] | the format, byte by byte; see `docs/journal-format.md` |
//! | [`JournalWriter`], [`JournalOptions`] | append, sync, rotate, go on after a failed sync |
//! | [`recover_torn_tail`] | the rule that tells a torn tail from damage |
//! | [`JournalReader`] | a fixed snapshot: pages, queries, validation |
//! | [`JournalSink`] | the writer as an event sink |
//! | [`storage`] | the file operations beneath, so that tests can fail each of them |
//!
//! Section 4 of the trajectory specification (TRJ-40 to TRJ-56). Not built: retention (TRJ-54), the
//! replaceable store trait (TRJ-56), reading of text journals, rotation by age.

mod error;
mod event_sink;
pub mod frame;
mod index;
mod lock;
mod manifest;
mod measure;
mod open;
mod options;
mod reader;
pub mod recover_torn_tail;
mod scan;
pub mod segment;
pub mod storage;
mod writer;

pub use error::{JournalError, Place};
pub use event_sink::{JOURNAL_SINK_ID, JournalSink};
pub use measure::{AppendFigures, measure_appends, sample_record};
pub use options::{JournalOptions, SEGMENT_BYTES_RANGE, SyncPolicy};
pub use reader::{
    Cursor, DEFAULT_PAGE_RECORDS, JournalReader, MAXIMUM_PAGE_RECORDS, Page, Query, StoredBytes,
    Validated,
};
pub use writer::{Appended, JournalWriter, RecoveryReport};

/// Name of the journal's directory below a run's output (section 4 of the specification).
pub const DIRECTORY_NAME: &str = "trajectory.journal";

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
