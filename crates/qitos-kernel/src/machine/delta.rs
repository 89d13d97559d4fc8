//! What changed since the last commit, and what is to be told about it.

use std::collections::BTreeSet;
use std::sync::Arc;

use qitos_contracts::ids::{AttemptId, BatchId, CallId, RequestId, SlotId};
use qitos_contracts::model::TokenUsage;
use qitos_contracts::snapshot::Lifecycle;
use qitos_contracts::tool::result::ToolResult;

use super::state::{Asked, SteeringReceipt};
use crate::outcome::Failure;

/// Changes of one commit; everything else is as the parent snapshot has it.
#[derive(Debug, Default)]
pub struct Delta {
    /// Anything changed at all.
    pub dirty: bool,
    /// Canonical bytes of the appended items, one after the other.
    pub canonical: Vec<u8>,
    /// Where each of them ends.
    pub item_ends: Vec<usize>,
    /// The agent's state changed.
    pub state: bool,
    /// The batch changed.
    pub batch: bool,
    /// The steering queue changed.
    pub queue: bool,
    /// Receipts that are new or changed.
    pub receipts: Vec<SteeringReceipt>,
    /// Effects that are new or changed, by key.
    pub effects: BTreeSet<String>,
    /// A view was asked with.
    pub view: Option<Asked>,
    /// Position of the first item that this view carries.
    pub view_first: u64,
    /// What is to be told, in order.
    pub facts: Vec<Fact>,
}

impl Delta {
    /// Notes that an item was written to the end of [`canonical`](Self::canonical).
    pub fn note_item(&mut self) {
        self.item_ends.push(self.canonical.len());
        self.dirty = true;
    }

    /// The appended items, canonical.
    pub fn items(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.item_ends.iter().copied());
        starts
            .zip(self.item_ends.iter().copied())
            .map(|(start, end)| self.canonical.get(start..end).unwrap_or_default())
    }

    /// Notes something to tell; telling needs a commit.
    pub fn tell(&mut self, fact: Fact) {
        self.dirty = true;
        self.facts.push(fact);
    }
}

/// Something that happened and is to be published after the commit (section 1 of the trajectory specification).
#[derive(Clone, Debug)]
pub enum Fact {
    /// A run began.
    RunStarted,
    /// A step began.
    StepBegun {
        /// The step.
        step: u64,
    },
    /// A step was committed.
    StepCommitted {
        /// The step.
        step: u64,
    },
    /// A request is about to leave.
    ModelRequest {
        /// What was asked.
        asked: Asked,
        /// Items of the log that the request carries.
        items: u64,
    },
    /// An answer was accepted.
    ModelResponse {
        /// The request.
        request_id: RequestId,
        /// Its ordinal.
        ordinal: u64,
        /// Usage.
        usage: Option<TokenUsage>,
        /// Finish word.
        finish: String,
        /// Position of the assistant item.
        assistant_at: u64,
    },
    /// A request failed or was lost.
    ModelFailed {
        /// The request.
        request_id: RequestId,
        /// Its ordinal.
        ordinal: u64,
        /// What failed.
        failure: Failure,
    },
    /// A batch was declared.
    BatchDeclared {
        /// The batch.
        batch_id: BatchId,
        /// Calls in declaration order.
        calls: Vec<(CallId, Arc<str>)>,
    },
    /// A tool is about to be entered.
    SlotStarted {
        /// The slot.
        slot_id: SlotId,
        /// The call.
        call_id: CallId,
        /// The attempt.
        attempt_id: AttemptId,
        /// Which attempt of the slot, from 1.
        attempt: u32,
        /// Canonical tool name.
        tool: Arc<str>,
    },
    /// A slot has its terminal.
    SlotTerminal {
        /// The slot.
        slot_id: SlotId,
        /// The call.
        call_id: CallId,
        /// Its place in completion order.
        completion_index: u32,
        /// The result.
        result: Arc<ToolResult>,
        /// Closed by the engine.
        synthetic: bool,
    },
    /// A result came after its slot was closed (EXE-11).
    LateResult {
        /// The slot.
        slot_id: SlotId,
        /// The attempt.
        attempt_id: AttemptId,
        /// `duplicate_ignored` or `late_terminal_rejected`.
        disposition: &'static str,
    },
    /// A tool told what became of its effect.
    EffectReported {
        /// The slot.
        slot_id: SlotId,
        /// The attempt.
        attempt_id: AttemptId,
        /// `committed` or `rejected`.
        state: &'static str,
    },
    /// Somebody said what became of an unknown effect (SES-53).
    EffectSettled {
        /// The slot.
        slot_id: SlotId,
        /// `committed` or `rejected`.
        disposition: &'static str,
        /// Whether an effect of the slot waited for it.
        accepted: bool,
    },
    /// An inbox entry of a kind that means nothing to this session was taken and left without effect (SES-63).
    Unheard {
        /// The kind.
        kind: &'static str,
    },
    /// A step was answered by trying again (ENG-15).
    Recovery {
        /// What failed.
        failure: Failure,
        /// What was decided.
        decision: &'static str,
    },
    /// Steering was taken.
    Steering {
        /// Its receipt.
        receipt: SteeringReceipt,
    },
    /// Effects were not performed because a required sink failed.
    Withheld {
        /// How many.
        effects: u64,
    },
    /// The lifecycle is this now.
    LifecycleChanged {
        /// The lifecycle.
        lifecycle: Lifecycle,
    },
    /// The run ended.
    Stopped {
        /// Outcome word.
        outcome: crate::outcome::RunOutcome,
        /// Stop reason.
        stop_reason: crate::outcome::StopReason,
        /// The answer.
        final_result: Option<String>,
        /// The failure.
        failure: Option<Failure>,
    },
}
