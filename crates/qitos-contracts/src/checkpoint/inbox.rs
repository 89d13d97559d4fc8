//! The way in for a legitimate second writer (SES-63).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::decide_commit::SessionFact;
use crate::ids::{ItemId, SessionId};
use crate::limits::{INBOX_PAYLOAD_BYTES, INBOX_WAITING, STEERING_BYTES};

/// What an inbox entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InboxKind {
    /// Text for the model.
    Steering,
    /// Pause at the next safe boundary.
    Pause,
    /// Cancel at the next boundary.
    Cancel,
    /// The answer to an approval request.
    Approval,
    /// The settlement of an unknown effect.
    Reconcile,
    /// Look again: something outside changed.
    Wake,
}

impl InboxKind {
    /// All kinds.
    pub const ALL: [InboxKind; 6] = [
        InboxKind::Steering,
        InboxKind::Pause,
        InboxKind::Cancel,
        InboxKind::Approval,
        InboxKind::Reconcile,
        InboxKind::Wake,
    ];

    /// The word the store keeps.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            InboxKind::Steering => "steering",
            InboxKind::Pause => "pause",
            InboxKind::Cancel => "cancel",
            InboxKind::Approval => "approval",
            InboxKind::Reconcile => "reconcile",
            InboxKind::Wake => "wake",
        }
    }

    /// The kind with this word, if there is one.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        InboxKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// An entry to be appended.
///
/// The payload is the writer's canonical bytes; the store keeps them opaque (STO-24).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxAppend {
    item_id: ItemId,
    kind: InboxKind,
    payload: Vec<u8>,
}

impl InboxAppend {
    /// An entry; the same `item_id` appended again is the same entry.
    ///
    /// # Errors
    /// `size_limit_exceeded` for a payload above 512 KiB.
    pub fn new(item_id: ItemId, kind: InboxKind, payload: Vec<u8>) -> Result<Self, StoreError> {
        if payload.len() > INBOX_PAYLOAD_BYTES {
            return Err(StoreError::SizeLimitExceeded {
                what: "inbox payload",
                limit: INBOX_PAYLOAD_BYTES as u64,
                actual: payload.len() as u64,
            });
        }
        Ok(InboxAppend {
            item_id,
            kind,
            payload,
        })
    }

    /// The identity that makes the append idempotent within its session.
    #[must_use]
    pub fn item_id(&self) -> &ItemId {
        &self.item_id
    }

    /// What is asked for.
    #[must_use]
    pub fn kind(&self) -> InboxKind {
        self.kind
    }

    /// The writer's bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

const _: () = assert!(
    INBOX_PAYLOAD_BYTES >= STEERING_BYTES * 6,
    "steering text fits even when every byte is escaped"
);

/// An entry in the inbox of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEntry {
    /// Its place; sequences of a session start at 0 and have no gaps.
    pub sequence: u64,
    /// Its identity.
    pub item_id: ItemId,
    /// What is asked for.
    pub kind: InboxKind,
    /// The writer's bytes.
    pub payload: Vec<u8>,
}

/// Where an appended entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxReceipt {
    /// The sequence of the entry.
    pub sequence: u64,
    /// True when an entry with this item id was there before; it is unchanged.
    pub replayed: bool,
}

/// Capability `checkpoint.session.inbox/v1`: append without touching the head, consume with a commit (SES-63).
///
/// # Contract
/// Entries are taken in sequence by the owner, which marks them consumed through
/// [`CommitRequest::consumed_inbox`](super::CommitRequest::consumed_inbox) in the commit that applies them: an
/// owner that dies in between finds them again.
#[async_trait]
pub trait Inbox: fmt::Debug + Send + Sync {
    /// Appends an entry, or finds the one with the same item id.
    ///
    /// # Errors
    /// `session_not_found`, `session_deleted`; `invalid_lifecycle_operation` on a terminal session;
    /// `checkpoint_conflict` when the item id stands for another kind or payload;
    /// `size_limit_exceeded` when 4,096 entries wait.
    ///
    /// # Cancel safety
    /// The entry is appended or it is not; appending it again finds out.
    async fn append(
        &self,
        session: &SessionId,
        entry: InboxAppend,
    ) -> Result<InboxReceipt, StoreError>;

    /// The oldest entries that no commit consumed, in sequence, at most `limit` (clamped to 1,000).
    ///
    /// # Errors
    /// `store_busy`, `persistence_failed`.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn take(&self, session: &SessionId, limit: u32) -> Result<Vec<InboxEntry>, StoreError>;
}

/// Rule: is an entry appended, found again or refused? One answer for every store.
///
/// `earlier` is the sequence of the entry with the same item id and whether kind and payload are the same; `waiting`
/// counts the entries that no commit consumed, `length` all there ever were.
///
/// # Errors
/// Those of [`Inbox::append`].
pub fn decide_append(
    session: &SessionId,
    fact: &SessionFact,
    earlier: Option<(u64, bool)>,
    waiting: u64,
    length: u64,
) -> Result<InboxReceipt, StoreError> {
    let head = match fact {
        SessionFact::Unknown => {
            return Err(StoreError::SessionNotFound {
                session: session.clone(),
            });
        }
        SessionFact::Deleted => {
            return Err(StoreError::SessionDeleted {
                session: session.clone(),
            });
        }
        SessionFact::Known { head, .. } => head,
    };
    match earlier {
        Some((sequence, true)) => {
            return Ok(InboxReceipt {
                sequence,
                replayed: true,
            });
        }
        Some((_, false)) => {
            return Err(StoreError::CheckpointConflict {
                checkpoint: head.checkpoint_id.clone(),
            });
        }
        None => {}
    }
    if head.lifecycle.is_terminal() {
        return Err(StoreError::OperationNotAllowed {
            lifecycle: head.lifecycle,
            operation: "append to the inbox",
        });
    }
    if waiting >= INBOX_WAITING {
        return Err(StoreError::SizeLimitExceeded {
            what: "entries waiting in an inbox",
            limit: INBOX_WAITING,
            actual: waiting + 1,
        });
    }
    Ok(InboxReceipt {
        sequence: length,
        replayed: false,
    })
}
