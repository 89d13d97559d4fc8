//! What became of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;

use qitos_contracts::ids::SlotId;
use qitos_contracts::log::{ItemBody, ItemRef, ToolCallPart, ToolResultItem};
use qitos_contracts::tool::result::ToolResult;

/// What became of a late return (EXE-11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateRecord {
    /// The slot.
    pub slot: SlotId,
    /// `committed`, `duplicate_ignored`, `late_terminal_rejected` or `stale_owner_rejected`.
    pub disposition: String,
}

/// What became of a scenario once its run ended and its workers had time to return.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The log, in log order.
    pub items: Vec<ItemRef>,
    /// `completed`, `stopped`, `failed`, `paused`, `waiting` or `cancelled`.
    pub outcome: String,
    /// The stop reason.
    pub stop_reason: String,
    /// The code of the failure, if the run failed.
    pub error_code: Option<String>,
    /// Slots whose workers ran on when the run ended (EXE-9).
    pub unresolved: Vec<SlotId>,
    /// Late returns, in order of arrival.
    pub late: Vec<LateRecord>,
    /// Bodies of artifacts by artifact id.
    pub artifacts: BTreeMap<String, Vec<u8>>,
    /// The fault of the scenario happened.
    pub fault_fired: bool,
}

/// A batch of the log: its calls, and their results in completion order.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) calls: Vec<ToolCallPart>,
    /// Declaration indexes in log order.
    pub(super) completion: Vec<usize>,
    pub(super) results: Vec<Vec<ToolResultItem>>,
}

impl Batch {
    /// The only result of the slot.
    pub(super) fn result(&self, index: usize) -> Option<&Arc<ToolResult>> {
        match self.results.get(index).map(Vec::as_slice) {
            Some([only]) => Some(&only.result),
            _ => None,
        }
    }
}

impl Observation {
    /// The batches of the log in order.
    pub(super) fn batches(&self) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for item in &self.items {
            match &item.item().body {
                ItemBody::Assistant(assistant) => {
                    let calls: Vec<ToolCallPart> = assistant.calls().cloned().collect();
                    if !calls.is_empty() {
                        batches.push(Batch {
                            results: vec![Vec::new(); calls.len()],
                            calls,
                            completion: Vec::new(),
                        });
                    }
                }
                ItemBody::ToolResult(result) => {
                    for batch in &mut batches {
                        let index = batch
                            .calls
                            .iter()
                            .position(|call| call.call_id == result.call_id);
                        if let Some(index) = index {
                            batch.completion.push(index);
                            if let Some(results) = batch.results.get_mut(index) {
                                results.push(result.clone());
                            }
                        }
                    }
                }
                ItemBody::User(_) | ItemBody::Steering(_) => {}
            }
        }
        batches
    }
}
