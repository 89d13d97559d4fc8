//! Why the journal refused or could not do something.

use std::io;

use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::record::RecordError;

/// Where in a journal something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the segment file.
    pub segment: String,
    /// Bytes before the place.
    pub offset: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} at byte {}", self.segment, self.offset)
    }
}

/// Why the journal refused or could not do something.
///
/// Messages name segments and offsets, never a directory, a record's content or a system's text (TRJ-47).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// `journal_locked`: another writer has the journal (TRJ-44).
    #[error("the journal has a writer already{}", owner.map(|pid| format!(", process {pid}")).unwrap_or_default())]
    Locked {
        /// Its process id, if it could be read.
        owner: Option<u32>,
    },
    /// `journal_open_failed`: the system refused an operation on the journal's files.
    #[error("the journal could not be opened ({operation}: {kind})")]
    OpenFailed {
        /// What was tried.
        operation: &'static str,
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// `journal_read_failed`: the system could not read.
    #[error("the journal could not be read ({operation}: {kind})")]
    ReadFailed {
        /// What was tried.
        operation: &'static str,
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// `journal_closed`: the writer was closed before.
    #[error("the journal is closed")]
    Closed,
    /// `writer_forked`: another process than the one that opened the writer (SNK-18).
    #[error("the journal was opened by another process")]
    WriterForked,
    /// `store_append_failed`: nothing was written (TRJ-47).
    #[error("nothing could be appended ({kind})")]
    AppendFailed {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// `store_append_uncertain`: a part was written; the next append removes it (TRJ-47).
    #[error("the append stopped after {bytes_written} bytes ({kind})")]
    AppendUncertain {
        /// How much of the frame reached the file.
        bytes_written: u64,
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// `journal_no_space`: the disk or quota is full (TRJ-47).
    #[error("no space is left for the journal")]
    NoSpace,
    /// `journal_sync_failed`: whether unacknowledged records are durable is unknown (TRJ-46).
    #[error("the journal could not be synced ({kind})")]
    SyncFailed {
        /// The kind of the system's error.
        kind: io::ErrorKind,
    },
    /// `record_too_large` (TRJ-43).
    #[error("a record of {bytes} bytes is over the bound of {limit_bytes}")]
    RecordTooLarge {
        /// Canonical bytes of the record.
        bytes: u64,
        /// The bound.
        limit_bytes: u64,
    },
    /// `journal_frame_limit_exceeded` (TRJ-43).
    #[error("a batch of {bytes} bytes is over the bound of {limit_bytes}")]
    FrameTooLarge {
        /// Bytes of the frame.
        bytes: u64,
        /// The bound.
        limit_bytes: u64,
    },
    /// `record_id_already_exists`: stored with another content (TRJ-42).
    #[error("a record with this id and another content is stored already")]
    RecordIdExists,
    /// `partial_duplicate_batch`: some of the batch are stored already (TRJ-42).
    #[error("{stored} of the {count} records of the batch are stored already")]
    PartialDuplicate {
        /// How many.
        stored: usize,
        /// Of how many.
        count: usize,
    },
    /// `duplicate_record_id_in_batch` (TRJ-42).
    #[error("the batch holds the same record id twice")]
    DuplicateInBatch,
    /// `journal_sequence_mismatch`: not the next sequence, and no announced gap (TRJ-7, TRJ-50).
    #[error("the sequence {found} does not follow; {expected} is next")]
    SequenceMismatch {
        /// The next sequence.
        expected: u64,
        /// What came.
        found: u64,
        /// Where, when it was found in a file.
        place: Option<Place>,
    },
    /// `journal_corrupt`: bytes that no crash of ours leaves; nothing was changed (TRJ-49).
    #[error("the journal is damaged in {place}: {reason}")]
    Corrupt {
        /// Where.
        place: Place,
        /// A stable word.
        reason: &'static str,
    },
    /// `unsupported_journal_schema` (TRJ-50).
    #[error("{place} has a schema that this version does not read")]
    UnsupportedSchema {
        /// Where.
        place: Place,
    },
    /// `journal_chain_mismatch`: a frame does not name its predecessor (TRJ-50).
    #[error("{place} does not continue the frame before it")]
    ChainMismatch {
        /// Where.
        place: Place,
    },
    /// `journal_frame_digest_mismatch` (TRJ-50).
    #[error("the digest of {place} does not match its bytes")]
    FrameDigestMismatch {
        /// Where.
        place: Place,
    },
    /// `journal_record_sequence_mismatch`: a record says another sequence than its frame (TRJ-50).
    #[error("a record of {place} has another sequence than its frame says")]
    RecordSequenceMismatch {
        /// Where.
        place: Place,
    },
    /// `duplicate_record_id`: found while validating (TRJ-50).
    #[error("{place} holds a record id that was stored before")]
    DuplicateRecordId {
        /// Where.
        place: Place,
    },
    /// A record in a frame is not one; the code is that of the record (TRJ-55).
    #[error("a record of {place} is refused")]
    Record {
        /// Where.
        place: Place,
        /// Why.
        #[source]
        source: RecordError,
    },
    /// `page_limit_invalid`: not 1 to 10,000 (TRJ-61).
    #[error("a page takes 1 to 10000 records")]
    PageLimitInvalid,
    /// `query_limit_exceeded`: a whole query found more than the cap (TRJ-60).
    #[error("the query finds more than 10000 records and needs pages")]
    QueryLimitExceeded,
    /// `cursor_filter_mismatch`: the cursor belongs to another query or limit (TRJ-63).
    #[error("the cursor belongs to another query")]
    CursorFilterMismatch,
}

impl ContractError for JournalError {
    fn code(&self) -> &str {
        match self {
            JournalError::Locked { .. } => "journal_locked",
            JournalError::OpenFailed { .. } => "journal_open_failed",
            JournalError::ReadFailed { .. } => "journal_read_failed",
            JournalError::Closed => "journal_closed",
            JournalError::WriterForked => "writer_forked",
            JournalError::AppendFailed { .. } => "store_append_failed",
            JournalError::AppendUncertain { .. } => "store_append_uncertain",
            JournalError::NoSpace => "journal_no_space",
            JournalError::SyncFailed { .. } => "journal_sync_failed",
            JournalError::RecordTooLarge { .. } => "record_too_large",
            JournalError::FrameTooLarge { .. } => "journal_frame_limit_exceeded",
            JournalError::RecordIdExists => "record_id_already_exists",
            JournalError::PartialDuplicate { .. } => "partial_duplicate_batch",
            JournalError::DuplicateInBatch => "duplicate_record_id_in_batch",
            JournalError::SequenceMismatch { .. } => "journal_sequence_mismatch",
            JournalError::Corrupt { .. } => "journal_corrupt",
            JournalError::UnsupportedSchema { .. } => "unsupported_journal_schema",
            JournalError::ChainMismatch { .. } => "journal_chain_mismatch",
            JournalError::FrameDigestMismatch { .. } => "journal_frame_digest_mismatch",
            JournalError::RecordSequenceMismatch { .. } => "journal_record_sequence_mismatch",
            JournalError::DuplicateRecordId { .. } => "duplicate_record_id",
            JournalError::Record { source, .. } => source.code(),
            JournalError::PageLimitInvalid => "page_limit_invalid",
            JournalError::QueryLimitExceeded => "query_limit_exceeded",
            JournalError::CursorFilterMismatch => "cursor_filter_mismatch",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            JournalError::Locked { .. } | JournalError::NoSpace => Retry::AfterDelay,
            JournalError::AppendFailed { .. }
            | JournalError::AppendUncertain { .. }
            | JournalError::SyncFailed { .. }
            | JournalError::OpenFailed { .. }
            | JournalError::ReadFailed { .. } => Retry::SameRequest,
            _ => Retry::Never,
        }
    }

    fn performed(&self) -> Performed {
        match self {
            // The records are in the file; whether they survive a power cut is unknown.
            JournalError::SyncFailed { .. } => Performed::Unknown,
            _ => Performed::No,
        }
    }
}

impl JournalError {
    pub(crate) fn open(operation: &'static str) -> impl FnOnce(io::Error) -> JournalError {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => JournalError::NoSpace,
            kind => JournalError::OpenFailed { operation, kind },
        }
    }

    pub(crate) fn read(operation: &'static str) -> impl FnOnce(io::Error) -> JournalError {
        move |error| JournalError::ReadFailed {
            operation,
            kind: error.kind(),
        }
    }
}
