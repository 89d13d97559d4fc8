//! What a session is, durably, and what is in flight beside it.
//!
//! [`Durable`] is everything that a commit stores and a restore reads. [`Flight`] is everything that dies with
//! the process. The next move of a session follows from the two alone (see `machine::rules::advance`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qitos_contracts::clock::Timestamp;
use qitos_contracts::decision::WakeCondition;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{
    AttemptId, BatchId, CallId, EffectRef, ItemId, RequestId, RunId, SessionId, SlotId,
};
use qitos_contracts::log::ExchangeLog;
use qitos_contracts::snapshot::Lifecycle;
use qitos_contracts::tool::EffectClass;
use qitos_contracts::tool::result::{ReportedEffect, ToolResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::{Budget, EnginePolicy};
use crate::outcome::{Failure, RunOutcome, StopReason};

/// Everything that is durable of a session.
#[derive(Debug)]
pub struct Durable {
    /// The session.
    pub session: SessionId,
    /// The run that owns it.
    pub run: RunId,
    /// Grows with each restore, recover and ownership transfer (SES-46).
    pub owner_generation: u64,
    /// Persisted lifecycle.
    pub lifecycle: Lifecycle,
    /// Where the step is.
    pub phase: Phase,
    /// The current step; a step is begun once its first decision is asked for.
    pub step: u64,
    /// Whether [`step`](Self::step) was begun.
    pub step_begun: bool,
    /// The agent's state as canonical bytes; opaque here.
    pub state: Arc<[u8]>,
    /// The conversation.
    pub log: ExchangeLog,
    /// What was spent.
    pub counters: Counters,
    /// What may be spent.
    pub budget: Budget,
    /// A cancel that was asked for.
    pub cancel: Option<CancelMode>,
    /// The newest terminals, for the loop guard (ENG-22).
    pub recent: VecDeque<RecentTerminal>,
    /// Effects with a logical key or an unsettled outcome (TOL-8).
    pub effects: BTreeMap<String, EffectEntry>,
    /// Instruction of a critic for the next decision, applied once (ENG-20).
    pub patch: Option<String>,
    /// How the last run of the session ended.
    pub last_stop: Option<LastStop>,
}

/// Where a session stands between two commits.
#[derive(Clone, Debug)]
pub enum Phase {
    /// Nothing is open; the next decision is due.
    Ready,
    /// A request may have left the process (D1 without D2).
    Asked(Asked),
    /// A decision is being carried out (D2 to D5).
    Acting(Turn),
}

impl Phase {
    /// The word of the snapshot.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Phase::Ready => "ready",
            Phase::Asked(_) => "asked",
            Phase::Acting(_) => "acting",
        }
    }
}

/// A request whose answer is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Never used twice in a session (DUR-2).
    pub ordinal: u64,
    /// The view it was built from.
    pub request_id: RequestId,
    /// Identity of that view.
    pub view_digest: Digest,
    /// Tokens reserved by admission (ENG-12).
    pub reserved_tokens: u64,
}

/// A decision on its way.
#[derive(Clone, Debug)]
pub struct Turn {
    /// What was decided.
    pub decision: TurnDecision,
    /// The batch of an `act`.
    pub batch: Option<Batch>,
    /// Position in the log of the assistant item, if one stands for this turn.
    pub assistant_at: Option<u64>,
    /// What happens once the batch is closed, other than reducing.
    pub then: AfterBatch,
}

/// What was decided, as far as it must be durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mode", deny_unknown_fields)]
pub enum TurnDecision {
    /// The calls of the batch.
    Act,
    /// The answer.
    Final {
        /// Non-empty.
        answer: String,
    },
    /// Wait (ENG-3).
    Wait {
        /// Why.
        reason: String,
        /// Until when.
        until: Option<WakeCondition>,
    },
}

/// What follows a closed batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AfterBatch {
    /// The agent reduces.
    #[default]
    Reduce,
    /// The turn was cut off (TXT-9): ask again without reducing.
    AskAgain,
    /// The run stops with this reason; nothing more of the batch runs.
    Stop(StopReason),
}

/// The calls of one assistant item.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Unique in the log.
    pub id: BatchId,
    /// In declaration order.
    pub slots: Vec<Slot>,
    /// Declaration indexes in completion order (EXE-4).
    pub completion: Vec<u32>,
    /// Fail-fast fired: nothing else starts (EXE-6).
    pub fired: bool,
}

impl Batch {
    /// Whether every slot has its terminal.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.completion.len() == self.slots.len()
    }

    /// Results in declaration order: a derived view (LOG-4).
    #[must_use]
    pub fn results(&self) -> Vec<Arc<ToolResult>> {
        self.slots
            .iter()
            .filter_map(|slot| match &slot.state {
                SlotState::Closed(result) => Some(Arc::clone(result)),
                _ => None,
            })
            .collect()
    }
}

/// A call's place in its batch.
#[derive(Clone, Debug)]
pub struct Slot {
    /// `<batch_id>:<index>`.
    pub id: SlotId,
    /// Scope of the call id.
    pub scope: Arc<str>,
    /// The call.
    pub call_id: CallId,
    /// The name as the model wrote it.
    pub name: Arc<str>,
    /// The argument text as the model wrote it.
    pub raw_arguments: Arc<str>,
    /// The arguments, once they were read.
    pub args: Option<Arc<Value>>,
    /// Where the call stands.
    pub state: SlotState,
    /// Attempts dispatched so far.
    pub attempts: u32,
    /// What the tool said of its effect before it ended (RES-15).
    pub reported: Option<ReportedEffect>,
}

/// Where a call stands.
#[derive(Clone, Debug)]
pub enum SlotState {
    /// Declared; the gates have not passed it.
    Declared,
    /// The gates passed it; not started.
    Ready(Admitted),
    /// An intent is durable, the tool may have been entered (D3).
    Started(Intent),
    /// The terminal is there (D4).
    Closed(Arc<ToolResult>),
}

/// What the gates found out about a call; plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// Canonical tool name.
    pub tool: Arc<str>,
    /// Digest of the arguments (PRM-12).
    pub args_digest: Digest,
    /// What the call may change.
    pub class: EffectClass,
    /// Key under which a backend recognises repeats.
    pub key: Option<String>,
    /// Repeating it changes nothing more (RES-16, DUR-5).
    pub repeatable: bool,
    /// It may overlap with others (EXE-2).
    pub concurrent: bool,
    /// Attempts that an orderly error admits.
    pub max_attempts: u32,
    /// Codes that may be repeated.
    pub retryable_codes: Arc<[String]>,
    /// First wait between attempts, in milliseconds; doubles.
    pub backoff_ms: u64,
    /// Bound of one wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// It may be dispatched again with its key after a crash (DUR-6).
    pub resume_with_key: bool,
}

/// The durable record of a dispatch (EXE-16).
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// What was admitted.
    pub admitted: Admitted,
    /// The attempt.
    pub attempt_id: AttemptId,
    /// Owner generation of the dispatch.
    pub generation: u64,
}

/// What a session has spent; survives restart, restore and fork (ENG-14, SES-65).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Steps begun; a recovery counts as one (ENG-15).
    pub steps_begun: u64,
    /// Requests that may have left the process.
    pub requests: u64,
    /// Requests admitted and not settled.
    pub requests_reserved: u64,
    /// Ordinal of the next request.
    pub next_ordinal: u64,
    /// Known tokens.
    pub tokens: u64,
    /// Attempts whose usage nobody told.
    pub usage_unknown: u64,
    /// Calls dispatched.
    pub tool_calls: u64,
    /// Active time in milliseconds, paused time excluded (CFG-31).
    pub active_ms: u64,
    /// Items made so far; names the next one.
    pub items: u64,
    /// Steering receipts so far (SES-60).
    pub steering: u64,
    /// Recoveries of this run (ENG-15).
    pub recoveries: u64,
    /// Empty responses of this run (ENG-15).
    pub empty_responses: u64,
    /// Text repairs in a row (TXT-8).
    pub repairs: u64,
    /// Critic retries in a row (ENG-20).
    pub critic_retries: u64,
    /// `paused` answers in a row (TXT-9).
    pub paused_answers: u64,
    /// Steps in a row that left the state as it was (ENG-9).
    pub stagnant_steps: u64,
    /// Whether any tool ran in this session.
    pub tool_used: bool,
}

/// How a cancel treats what is open (EXE-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// No further dispatch; running calls are asked to stop.
    Immediate,
    /// The step completes and commits first.
    AfterStep,
}

/// A terminal, as the loop guard remembers it (ENG-22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecentTerminal {
    /// Canonical tool name.
    pub tool: String,
    /// Digest of the arguments.
    pub args: Digest,
    /// Digest of what came out.
    pub result: Digest,
}

/// What is known of an effect (TOL-8).
#[derive(Clone, Debug, PartialEq)]
pub struct EffectEntry {
    /// The effect.
    pub effect_ref: EffectRef,
    /// Its key.
    pub key: String,
    /// The slot that had it.
    pub slot_id: SlotId,
    /// `started`, `committed`, `rejected`, `unknown` or `reconciliation_required`.
    pub state: Arc<str>,
    /// The result, once there is one.
    pub result: Option<Arc<ToolResult>>,
    /// How a person or the backend settled it later: `committed` or `rejected` (RES-19, SES-53).
    pub resolution: Option<String>,
    /// How they knew.
    pub evidence: Option<String>,
}

impl EffectEntry {
    /// Whether nobody knows what became of it.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        self.resolution.is_none()
            && matches!(
                &*self.state,
                "started" | "unknown" | "reconciliation_required"
            )
    }
}

/// How the last run of a session ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastStop {
    /// Outcome.
    pub outcome: RunOutcome,
    /// Stop reason.
    pub stop_reason: StopReason,
    /// The answer, if there is one.
    pub final_result: Option<String>,
    /// The failure, if there was one.
    pub failure: Option<Failure>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Outcome.
    pub outcome: RunOutcome,
    /// Stop reason.
    pub stop_reason: StopReason,
    /// The answer.
    pub final_result: Option<String>,
    /// The failure.
    pub failure: Option<Failure>,
}

/// What is in flight and dies with the process.
#[derive(Debug, Default)]
pub struct Flight {
    /// What user code was asked for and has not answered.
    pub awaiting: Awaiting,
    /// Running attempts by slot index.
    pub running: BTreeMap<u32, AttemptId>,
    /// Failed attempts whose slots wait before they start again, by slot index.
    pub waiting_retry: BTreeMap<u32, AttemptId>,
    /// Terminals of attempts whose workers run on, until they return (EXE-9, EXE-11).
    pub orphans: BTreeMap<AttemptId, (SlotId, Arc<ToolResult>)>,
    /// A pause was asked for (SES-56: accepted is never persisted).
    pub pause: bool,
    /// Terminals since the last commit that cannot be had again.
    pub unrepeatable_terminal: bool,
    /// The commit that [`super::Effect::Continue`] waits for was asked for.
    pub continuing: bool,
    /// What runs was asked to stop.
    pub stopping: bool,
    /// How the run ended; the driver halts once it is committed.
    pub ended: Option<End>,
    /// The agent's answer of this step, until the step is judged.
    pub answer: Option<String>,
    /// The agent's own condition to stop holds.
    pub should_stop: bool,
}

/// What the machine waits for from user code or the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Awaiting {
    /// Nothing.
    #[default]
    Nothing,
    /// The agent's decision.
    Decision,
    /// The request view.
    View,
    /// The response.
    Response,
    /// The gates.
    Gates,
    /// The next state.
    Reduction,
    /// The critics.
    Judgement,
    /// A wait before the next try.
    Timer,
    /// A backend's word on a lost effect.
    Reconciliation,
}

/// The steering that a run accepted, as its receipt says (SES-60).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringReceipt {
    /// `steering-<sequence>`.
    pub receipt_id: String,
    /// From 0.
    pub sequence: u64,
    /// The item that carries the text.
    pub item_id: ItemId,
    /// Where it stands.
    pub disposition: SteeringDisposition,
    /// The boundary at which it was applied.
    pub boundary_id: Option<String>,
    /// Why it was rejected.
    pub reason_code: Option<String>,
    /// `true` exactly when applied.
    pub applied_once: bool,
}

/// Where steering stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SteeringDisposition {
    /// Received.
    Accepted,
    /// Waits for a request or batch to end.
    Queued,
    /// In the log.
    Applied,
    /// Not taken.
    Rejected,
}

/// The machine's clock readings, handed in with every input.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Wall clock; evidence only.
    pub wall: Timestamp,
    /// Active milliseconds of the session so far.
    pub active_ms: u64,
}

/// What the machine never changes.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// Executor and loop policies.
    pub policy: EnginePolicy,
    /// Critics are registered.
    pub judges: bool,
}
