//! The exchange log: items, batches, completion order (section 7 of tools-and-engine).
//!
//! An [`Item`] is a value; a [`SealedItem`] is an item that was written and hashed once and is shared from then
//! on. The log itself, with its append rules, is [`ExchangeLog`].

mod exchange_log;
mod item;
mod sealed;
mod write_item;

pub use exchange_log::{ExchangeLog, LogError, OpenBatch, QueuedSteering};
pub use item::{
    AssistantItem, AssistantPart, ContentBlock, ContinuationAttachment, Item, ItemBody,
    ParseStatus, ReasoningBlock, ReasoningReference, SteeringItem, ToolCallPart, ToolResultItem,
    UserItem,
};
pub use sealed::{
    Categories, EncodeItem, FragmentKey, Fragments, ItemList, ItemRef, SealedItem, Segment,
};

/// Schema id of the log.
pub const LOG_SCHEMA: &str = "qitos.exchange_log/v3";

pub use write_item::InvalidItem;
