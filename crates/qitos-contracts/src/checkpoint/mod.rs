//! The CheckpointStore contract: where a session's one authoritative head lives.
//!
//! A store keeps immutable snapshots and, per session, a single mutable head. Everything else follows from one
//! operation, [`CheckpointStore::commit`]: a compare-and-set that checks, writes and moves the head in one atomic
//! transaction (STO-1). What is accepted, replayed or refused, and in which order the checks run, is not left to
//! the store: [`decide_commit`](decide_commit::decide_commit) and [`decide_fork`](decide_fork::decide_fork) are pure functions that every store calls
//! with the facts it read inside its transaction.
//!
//! | file | defines |
//! |---|---|
//! | [`commit`] | what is asked: [`CommitRequest`], its checked form [`Commit`] |
//! | [`receipt`] | what is answered: [`Receipt`], [`Resolved`], [`Head`], [`StoredSnapshot`] |
//! | [`decide_commit`] | rule: rows 1 to 16 of section 7, in the order of STO-2 |
//! | [`lineage`], [`fork`], [`inbox`], [`groups`] | pages, forks, second writers, optional capabilities |
//! | [`error`], [`session_error`] | codes of section 21 and their mapping (STO-57) |
//!
//! Specification: `session.md`, sections 6 to 9, 12 to 18 and 21.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::{SessionId, SnapshotId};

pub mod capability;
pub mod commit;
pub mod decide_commit;
pub mod decide_fork;
pub mod error;
pub mod fork;
pub mod groups;
pub mod inbox;
pub mod lineage;
pub mod receipt;
pub mod session_error;
pub mod verify_snapshot;

pub use capability::{Capability, DurabilityClass, StoreCapabilities};
pub use commit::{Commit, CommitRequest, Expected};
pub use error::StoreError;
pub use fork::{Fork, ForkBoundary, ForkReceipt, ForkRequest};
pub use groups::{
    ChunkAccess, Deletion, Groups, LeaseTerms, Leases, Pruned, Retention, RetentionPolicy,
    Verification, VerifyDepth,
};
pub use inbox::{Inbox, InboxAppend, InboxEntry, InboxKind, InboxReceipt};
pub use lineage::{LineageEntry, LineagePage, Page};
pub use receipt::{Head, PersistenceReceiptStatus, Receipt, Resolved, StoredSnapshot};
pub use session_error::{SessionError, SessionErrorCode};

pub use crate::snapshot::Layer;

/// A replaceable store of session snapshots and heads.
///
/// # Contract
/// - `commit` checks and writes in one transaction; no reader ever sees a part of it (STO-1). The checks and their
///   order are those of [`decide_commit`](decide_commit::decide_commit) (STO-2).
/// - Retrying an identical request any number of times, from any process, after any failure, returns the first
///   outcome (STO-5). A failed or conflicting commit leaves the head as it was.
/// - Snapshots are immutable (STO-4); returned values are isolated copies (STO-9) whose bytes were verified
///   against their digests (SES-20).
/// - Order comes from `generation` alone, never from a clock (SES-6).
/// - Every method is required. What a store does not offer is an absent group, and a capability is claimed exactly
///   when its group is there (STO-59).
///
/// # Cancel safety
/// Dropping any future of this trait leaves a whole commit or none, and a store whose next call works (STO-7).
#[async_trait]
pub trait CheckpointStore: fmt::Debug + Send + Sync + 'static {
    /// What this opened instance offers and how durable its receipts are (STO-8, STO-13).
    fn capabilities(&self) -> &StoreCapabilities;

    /// Persists one snapshot and moves the head to it, or changes nothing.
    ///
    /// # Errors
    /// `generation_conflict`, `checkpoint_conflict`, `owner_conflict`, `session_deleted`,
    /// `invalid_lifecycle_operation`, `missing_chunk`, `corrupt_snapshot`: nothing was written, repeating cannot help.
    /// `store_busy`, `storage_full`, `persistence_failed`: nothing was written, the same request may be repeated.
    /// `commit_outcome_unknown`: call [`resolve`](CheckpointStore::resolve) before anything else.
    ///
    /// # Cancel safety
    /// The commit happens whole or not at all; which of the two, `resolve` tells.
    ///
    /// # Durability
    /// A receipt is given after the commit is as durable as `durability_class` says, never before.
    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError>;

    /// Settles an unknown outcome on a fresh connection: was this snapshot committed (STO-6)?
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`, `corrupt_snapshot`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError>;

    /// The head of a session; none when the session is unknown or deleted.
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`, `store_corrupt`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError>;

    /// A snapshot's root record, verified against its digest and its row; none when the id is unknown.
    ///
    /// # Errors
    /// `corrupt_snapshot` when bytes, digest and row do not agree (STO-3, STO-22); nothing is ever repaired or
    /// skipped.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError>;

    /// One page of a session's own snapshots, newest generation first (STO-10, STO-11).
    ///
    /// An unknown session gives an empty page; pruned generations are gaps.
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`, `store_corrupt`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError>;

    /// The optional capabilities of this instance.
    fn groups(&self) -> Groups<'_>;
}
