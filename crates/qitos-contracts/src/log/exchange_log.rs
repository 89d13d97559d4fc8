//! The append rules of the log (LOG-1 to LOG-9).
//!
//! One rule carries most others: an assistant item that declares calls opens a batch, and while a batch is open
//! only its results may be appended. Order in the log is the order of completion; declaration order is derived.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::item::{Item, ItemBody, SteeringItem};
use super::sealed::{ItemList, ItemRef, SealedItem};
use super::write_item::InvalidItem;
use crate::canonical_json::CanonicalError;
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};
use crate::ids::{BatchId, CallId, ExchangeId, ItemId};

/// Why an append was refused; log and queue are as they were (LOG-9).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// `duplicate_item_id`.
    #[error("item id `{0}` is already in the log")]
    DuplicateItemId(ItemId),
    /// `duplicate_call_id`.
    #[error("call id `{0}` is already in the log")]
    DuplicateCallId(CallId),
    /// `unknown_call_id`.
    #[error("call id `{0}` is not declared by the open batch")]
    UnknownCallId(CallId),
    /// `duplicate_tool_result`.
    #[error("call `{0}` already has its result")]
    DuplicateToolResult(CallId),
    /// `tool_batch_mismatch`.
    #[error("the item belongs to another batch or exchange")]
    BatchMismatch,
    /// `incomplete_tool_batch`.
    #[error("batch `{0}` is still open")]
    IncompleteBatch(BatchId),
    /// `invalid_exchange_item`.
    #[error("the item is not valid")]
    InvalidItem(#[source] InvalidItem),
    /// `invalid_exchange_item`: numbers or text that canonical JSON refuses.
    #[error("the item cannot be written")]
    NotCanonical(#[source] CanonicalError),
    /// `size_limit_exceeded` (section 17 of the session specification).
    #[error("the item has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// Its canonical length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

impl ContractError for LogError {
    fn code(&self) -> &str {
        match self {
            LogError::DuplicateItemId(_) => "duplicate_item_id",
            LogError::DuplicateCallId(_) => "duplicate_call_id",
            LogError::UnknownCallId(_) => "unknown_call_id",
            LogError::DuplicateToolResult(_) => "duplicate_tool_result",
            LogError::BatchMismatch => "tool_batch_mismatch",
            LogError::IncompleteBatch(_) => "incomplete_tool_batch",
            LogError::InvalidItem(_) | LogError::NotCanonical(_) => "invalid_exchange_item",
            LogError::TooLarge { .. } => "size_limit_exceeded",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// A batch whose results are not all there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBatch {
    /// The batch.
    pub batch_id: BatchId,
    /// The exchange of its assistant item.
    pub exchange_id: ExchangeId,
    /// Position of its assistant item in the log.
    pub declared_at: usize,
    /// Calls in declaration order.
    pub declared: Vec<(Arc<str>, CallId)>,
    /// Declaration indexes in completion order.
    pub completed: Vec<u32>,
}

/// Steering that waits for a request or batch to end (LOG-7).
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedSteering {
    /// Its id, kept when it is applied.
    pub item_id: ItemId,
    /// What it says.
    pub steering: SteeringItem,
}

/// The only truth about a conversation.
#[derive(Clone, Debug, Default)]
pub struct ExchangeLog {
    items: ItemList,
    chain: Option<Digest>,
    ids: HashSet<Fingerprint>,
    exchanges: u64,
    current: Option<ExchangeId>,
    current_answered: bool,
    open: Option<OpenBatch>,
    queue: VecDeque<QueuedSteering>,
}

/// A 64-bit fingerprint of an id with its kind; a clash would refuse an append, never accept a wrong one.
type Fingerprint = u64;

fn fingerprint(kind: u8, scope: &str, id: &str) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    (kind, scope, id).hash(&mut hasher);
    hasher.finish()
}

impl ExchangeLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        ExchangeLog::default()
    }

    /// The items in log order.
    #[must_use]
    pub fn items(&self) -> &ItemList {
        &self.items
    }

    /// The running digest of all items (CTX-23).
    #[must_use]
    pub fn chain(&self) -> Digest {
        self.chain.unwrap_or(Digest::ZERO)
    }

    /// The open batch, if there is one; at most one can be (LOG-6).
    #[must_use]
    pub fn open_batch(&self) -> Option<&OpenBatch> {
        self.open.as_ref()
    }

    /// Steering that waits, in arrival order.
    #[must_use]
    pub fn queue(&self) -> &VecDeque<QueuedSteering> {
        &self.queue
    }

    /// The exchange that the next assistant item joins, if it has no answer yet.
    #[must_use]
    pub fn current_exchange(&self) -> Option<&ExchangeId> {
        self.current.as_ref()
    }

    /// How many exchanges were opened.
    #[must_use]
    pub fn exchange_count(&self) -> u64 {
        self.exchanges
    }

    /// Whether a call of this scope and id was declared before (PRV-24).
    #[must_use]
    pub fn has_call(&self, scope: &str, call_id: &str) -> bool {
        self.ids.contains(&fingerprint(b'c', scope, call_id))
    }

    /// The exchange that an item of this body joins or opens (LOG-1).
    ///
    /// An assistant item joins the newest exchange that has none, else opens one. A user or steering item joins
    /// the newest exchange while that waits for an answer, else opens the next. A result stays in its own.
    #[must_use]
    pub fn exchange_for(&self, body: &ItemBody) -> ExchangeId {
        if let (ItemBody::ToolResult(_), Some(open)) = (body, &self.open) {
            return open.exchange_id.clone();
        }
        match &self.current {
            Some(current) if !self.current_answered => current.clone(),
            _ => exchange_id(self.exchanges),
        }
    }

    /// Seals and appends an item; the canonical bytes are appended to `canonical`.
    ///
    /// # Errors
    /// The codes of [`LogError`]; log and queue are unchanged then (LOG-9), `canonical` may have grown.
    pub fn append(&mut self, item: Item, canonical: &mut Vec<u8>) -> Result<ItemRef, LogError> {
        self.check(&item)?;
        let start = canonical.len();
        let sealed = SealedItem::seal(item, canonical).map_err(LogError::NotCanonical)?;
        let bytes = (canonical.len() - start) as u64;
        if bytes > crate::limits::LOG_ITEM_BYTES {
            return Err(LogError::TooLarge {
                bytes,
                limit: crate::limits::LOG_ITEM_BYTES,
            });
        }
        self.admit(Arc::clone(&sealed));
        Ok(sealed)
    }

    /// Puts steering into the queue (LOG-7).
    ///
    /// # Errors
    /// `duplicate_item_id`.
    pub fn enqueue(&mut self, steering: QueuedSteering) -> Result<(), LogError> {
        let id = fingerprint(b'i', "", steering.item_id.as_str());
        if !self.ids.insert(id) {
            return Err(LogError::DuplicateItemId(steering.item_id));
        }
        self.queue.push_back(steering);
        Ok(())
    }

    /// Takes the next queued steering; to be appended at once by [`append_queued`](Self::append_queued).
    pub fn append_queued(&mut self, canonical: &mut Vec<u8>) -> Option<Result<ItemRef, LogError>> {
        if let Some(open) = &self.open {
            return Some(Err(LogError::IncompleteBatch(open.batch_id.clone())));
        }
        let queued = self.queue.pop_front()?;
        let id = fingerprint(b'i', "", queued.item_id.as_str());
        self.ids.remove(&id);
        let body = ItemBody::Steering(queued.steering);
        let item = Item {
            item_id: queued.item_id,
            exchange_id: self.exchange_for(&body),
            body,
        };
        Some(self.append(item, canonical))
    }

    /// Rebuilds a log from stored items and the stored queue.
    ///
    /// # Errors
    /// As [`append`](Self::append): stored history obeys the same rules.
    pub fn restore(
        items: impl IntoIterator<Item = Item>,
        queue: Vec<QueuedSteering>,
    ) -> Result<Self, LogError> {
        let mut log = ExchangeLog::new();
        let mut scratch = Vec::new();
        for item in items {
            scratch.clear();
            log.append(item, &mut scratch)?;
        }
        for queued in queue {
            log.enqueue(queued)?;
        }
        Ok(log)
    }

    fn check(&self, item: &Item) -> Result<(), LogError> {
        if self
            .ids
            .contains(&fingerprint(b'i', "", item.item_id.as_str()))
        {
            return Err(LogError::DuplicateItemId(item.item_id.clone()));
        }
        match (&item.body, &self.open) {
            (ItemBody::ToolResult(result), open) => {
                let Some(open) = open else {
                    return Err(LogError::UnknownCallId(result.call_id.clone()));
                };
                if result.batch_id != open.batch_id || item.exchange_id != open.exchange_id {
                    return Err(LogError::BatchMismatch);
                }
                let key = (Arc::clone(&result.provider_scope), result.call_id.clone());
                let Some(index) = open.declared.iter().position(|declared| *declared == key) else {
                    return Err(LogError::UnknownCallId(result.call_id.clone()));
                };
                if open.completed.iter().any(|done| *done as usize == index) {
                    return Err(LogError::DuplicateToolResult(result.call_id.clone()));
                }
                let matches = result.result.action_id() == Some(result.call_id.as_str());
                if !matches || (result.synthetic && result.closure_reason.is_none()) {
                    return Err(LogError::InvalidItem(InvalidItem { field: "result" }));
                }
                Ok(())
            }
            (_, Some(open)) => Err(LogError::IncompleteBatch(open.batch_id.clone())),
            (ItemBody::Assistant(assistant), None) => {
                let mut own = HashSet::new();
                let mut batch: Option<&BatchId> = None;
                for call in assistant.calls() {
                    if *batch.get_or_insert(&call.batch_id) != &call.batch_id {
                        return Err(LogError::BatchMismatch);
                    }
                    let id = fingerprint(b'c', &call.provider_scope, call.call_id.as_str());
                    if !own.insert(id) || self.ids.contains(&id) {
                        return Err(LogError::DuplicateCallId(call.call_id.clone()));
                    }
                }
                match batch {
                    Some(batch) if self.ids.contains(&fingerprint(b'b', "", batch.as_str())) => {
                        Err(LogError::BatchMismatch)
                    }
                    _ if item.exchange_id != self.exchange_for(&item.body) => {
                        Err(LogError::BatchMismatch)
                    }
                    _ => Ok(()),
                }
            }
            _ if item.exchange_id != self.exchange_for(&item.body) => Err(LogError::BatchMismatch),
            _ => Ok(()),
        }
    }

    fn admit(&mut self, sealed: ItemRef) {
        let item = sealed.item();
        self.ids
            .insert(fingerprint(b'i', "", item.item_id.as_str()));
        match &item.body {
            ItemBody::ToolResult(result) => {
                let closed = self.open.as_mut().is_some_and(|open| {
                    let key = (Arc::clone(&result.provider_scope), result.call_id.clone());
                    if let Some(index) = open.declared.iter().position(|declared| *declared == key)
                    {
                        open.completed
                            .push(u32::try_from(index).unwrap_or(u32::MAX));
                    }
                    open.completed.len() == open.declared.len()
                });
                if closed {
                    self.open = None;
                }
            }
            body => {
                if self.current.as_ref() != Some(&item.exchange_id) {
                    self.exchanges += 1;
                    self.current = Some(item.exchange_id.clone());
                    self.current_answered = false;
                }
                if let ItemBody::Assistant(assistant) = body {
                    self.current_answered = true;
                    let declared: Vec<_> = assistant
                        .calls()
                        .map(|call| (Arc::clone(&call.provider_scope), call.call_id.clone()))
                        .collect();
                    for (scope, call) in &declared {
                        self.ids.insert(fingerprint(b'c', scope, call.as_str()));
                    }
                    if let Some(batch_id) =
                        assistant.calls().next().map(|call| call.batch_id.clone())
                    {
                        self.ids.insert(fingerprint(b'b', "", batch_id.as_str()));
                        self.open = Some(OpenBatch {
                            batch_id,
                            exchange_id: item.exchange_id.clone(),
                            declared_at: self.items.len(),
                            declared,
                            completed: Vec::new(),
                        });
                    }
                }
            }
        }
        self.chain = Some(self.chain().chained(sealed.digest()));
        self.items.push(sealed);
    }
}

/// The id of the `index`-th exchange.
fn exchange_id(index: u64) -> ExchangeId {
    let text = format!("exchange-{index}");
    match text.parse() {
        Ok(id) => id,
        Err(_) => unreachable_exchange(),
    }
}

#[expect(
    clippy::panic,
    reason = "`exchange-<number>` is always a record token of under 256 bytes"
)]
fn unreachable_exchange() -> ExchangeId {
    panic!("exchange ids are record tokens")
}
