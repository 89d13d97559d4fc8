//! Everything that can wake a session.

use std::sync::Arc;

use qitos_contracts::decision::{Decision, ParseDiagnostics, WakeCondition};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{AttemptId, ItemId, RequestId, SlotId};
use qitos_contracts::log::{ContentBlock, ContinuationAttachment, ParseStatus, ReasoningBlock};
use qitos_contracts::model::{RequestSent, TokenUsage};
use qitos_contracts::tool::Reconciled;
use qitos_contracts::tool::result::{End, Refusal, ReportedEffect};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effect::Effect;
use super::state::{Admitted, CancelMode};
use crate::outcome::Failure;

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// A run begins, at whatever phase the session is in.
    Start,
    /// The commit that [`Effect::Continue`] asked for is done.
    Continue,
    /// The agent decided, or leaves it to the model.
    Decided(Result<Option<Decision>, Failure>),
    /// The next request's view is built, or cannot be.
    Viewed(Result<ViewFacts, Failure>),
    /// The request ended.
    Responded {
        /// Its ordinal.
        ordinal: u64,
        /// How.
        outcome: Box<ResponseOutcome>,
    },
    /// The gates looked at every declared slot.
    Gated(Vec<(u32, GateVerdict)>),
    /// An attempt ended.
    Ended {
        /// Slot index.
        slot: u32,
        /// The attempt.
        attempt: AttemptId,
        /// How.
        end: Box<AttemptEnd>,
    },
    /// A running attempt told what became of its effect (RES-15).
    Reported {
        /// Slot index.
        slot: u32,
        /// The attempt.
        attempt: AttemptId,
        /// What it told.
        effect: ReportedEffect,
    },
    /// The wait of [`Effect::RetryLater`] is over.
    RetryDue {
        /// Slot index.
        slot: u32,
        /// The attempt that failed.
        attempt: AttemptId,
    },
    /// The wait of [`Effect::Sleep`] is over.
    Woke,
    /// A backend answered [`Effect::Reconcile`].
    Reconciled {
        /// Slot index.
        slot: u32,
        /// Its answer.
        answer: Reconciled,
    },
    /// The agent reduced.
    Reduced(Result<Reduction, Failure>),
    /// The critics judged.
    Judged(Result<Judgement, Failure>),
    /// Somebody says something while the agent works.
    Steer {
        /// The id that the sender chose, for exactly-once.
        item_id: Option<ItemId>,
        /// What is said.
        content: Vec<ContentBlock>,
    },
    /// Somebody says what became of an effect whose outcome is unknown (SES-53).
    Settle {
        /// The slot that had the effect.
        slot_id: SlotId,
        /// What is said.
        settlement: Settlement,
    },
    /// An inbox entry of a kind that means nothing to this session.
    Unheard(&'static str),
    /// A pause was asked for.
    Pause,
    /// A cancel was asked for.
    Cancel(CancelMode),
    /// A required sink failed: these effects were not performed.
    Withheld(Vec<Effect>),
}

/// What became of an effect whose outcome nobody knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It happened.
    Committed,
    /// It did not happen, and may be tried again (RES-19).
    Rejected,
}

impl Disposition {
    /// The word of the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Disposition::Committed => "committed",
            Disposition::Rejected => "rejected",
        }
    }
}

/// The answer of a person or another process to an unknown effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// What became of it.
    pub disposition: Disposition,
    /// How they know.
    pub evidence: String,
}

/// What the machine needs to know of a view (D1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewFacts {
    /// The view's id.
    pub request_id: RequestId,
    /// The view's identity.
    pub view_digest: Digest,
    /// Position in the log of the first item that it carries.
    pub first_item: u64,
    /// Estimated input tokens (CTX-17).
    pub input_tokens: u64,
    /// Output tokens asked for.
    pub output_tokens: u64,
}

/// How a request ended.
#[derive(Debug)]
pub enum ResponseOutcome {
    /// A verified answer.
    Answer(Box<Answer>),
    /// The attempt failed.
    Failed {
        /// What failed.
        failure: Failure,
        /// The same request may succeed later.
        retryable: bool,
        /// The stream broke its protocol (decision 72).
        violation: bool,
        /// Whether the request left the process.
        sent: RequestSent,
        /// Usage told before the failure.
        usage: Option<TokenUsage>,
        /// How long the provider asks to wait.
        retry_after_ms: Option<u64>,
        /// Text was shown to a person already (PRV-87).
        shown: bool,
    },
    /// It was stopped because the machine asked for it.
    Stopped {
        /// Whether the request left the process.
        sent: RequestSent,
    },
    /// The agent's own code failed on the answer.
    AgentFailed(Failure),
}

/// A verified answer, read by agent or parser.
#[derive(Debug)]
pub struct Answer {
    /// In the provider's order.
    pub parts: Vec<AnswerPart>,
    /// References to provider state.
    pub continuation_attachments: Vec<ContinuationAttachment>,
    /// What it means.
    pub plan: Plan,
    /// Usage.
    pub usage: Option<TokenUsage>,
    /// The provider's finish word.
    pub finish: String,
    /// Free facts for the log item.
    pub metadata: Map<String, Value>,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub enum AnswerPart {
    /// Text or other content.
    Content(ContentBlock),
    /// Reasoning.
    Reasoning(ReasoningBlock),
    /// A call.
    Call(CallDraft),
}

/// A call before it got its place in the log.
#[derive(Clone, Debug)]
pub struct CallDraft {
    /// `provider:api_mode`, `text` or `agent`.
    pub scope: Arc<str>,
    /// The provider's id; `None` is minted.
    pub call_id: Option<Arc<str>>,
    /// The name as the model wrote it.
    pub name: Arc<str>,
    /// The argument text.
    pub raw_arguments: Arc<str>,
    /// The object, if the text is one.
    pub parsed_arguments: Option<Arc<Value>>,
    /// How the text was read.
    pub parse_status: ParseStatus,
    /// Why it could not be read.
    pub parse_error: Option<Arc<str>>,
    /// Free facts.
    pub metadata: Map<String, Value>,
}

/// What an answer means.
#[derive(Debug)]
pub enum Plan {
    /// Its calls are to run.
    Act,
    /// It is the answer.
    Final(String),
    /// The agent waits.
    Wait {
        /// Why.
        reason: String,
        /// Until when.
        until: Option<WakeCondition>,
    },
    /// The text could not be read (TXT-7).
    Repair(Box<ParseDiagnostics>),
    /// Cut off: nothing of it may run (TXT-9).
    Incomplete,
    /// To be continued (TXT-9).
    Paused,
    /// Nothing in it.
    Empty,
    /// A decision that is not valid (ENG-2).
    Invalid(Failure),
}

/// What the gates say of a slot.
#[derive(Clone, Debug)]
pub enum GateVerdict {
    /// It may run with these arguments.
    Pass {
        /// Plain facts.
        admitted: Box<Admitted>,
        /// The arguments as validated.
        args: Arc<Value>,
    },
    /// It may not (RES-7).
    Refuse {
        /// Canonical name, or the model's where no tool has it.
        tool: Arc<str>,
        /// What the call would have changed.
        class: qitos_contracts::tool::EffectClass,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// The run ends here: the agent's own code failed.
    Fatal(Failure),
}

/// How an attempt ended.
#[derive(Debug)]
pub struct AttemptEnd {
    /// How.
    pub end: End,
    /// Milliseconds from dispatch.
    pub latency_ms: u64,
}

/// What the agent reduced to.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduction {
    /// The next state, canonical.
    pub state: Arc<[u8]>,
    /// An answer that ends the run.
    pub finish: Option<String>,
    /// The agent's own condition to stop holds.
    pub should_stop: bool,
}

/// What the critics say together (ENG-19).
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Go on.
    Continue,
    /// End the run.
    Stop {
        /// Why.
        reason: String,
    },
    /// Decide anew in the next step.
    Retry {
        /// What to tell the model, once.
        instruction: Option<String>,
        /// The patched state, canonical.
        state: Option<Arc<[u8]>>,
    },
}
