//! What a step decided, and the contract of text-protocol parsers.
//!
//! A [`Decision`] is made by an agent's own code or read out of a model's text by a [`DecisionParser`];
//! the engine acts on nothing else. A text that holds no usable decision becomes [`ParseDiagnostics`],
//! which go back to the model; a parser never guesses (TXT-2).

mod declared_types;
mod parser;
mod validate;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::ids::{ApprovalId, WorkItemId};

pub use declared_types::apply_declared_types;
pub use parser::{
    DecisionParser, ParseAttempt, ParseCode, ParseDiagnostics, Parsed, Severity, ToolListing,
};
pub use validate::{DecisionProblem, InvalidDecision};

/// What a step decided, with the reasons given for it (ENG-2).
///
/// # Contract
/// A value may hold anything; [`Decision::validate`] says whether the engine may follow it. The serialised
/// form is `{"choice": {"mode": …}, "rationale"?, "meta"?}`, strict, and is what a snapshot keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// What is to be done.
    pub choice: Choice,
    /// Why, in the words of whoever decided; never interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rationale: Option<String>,
    /// Facts for observers, such as the parser used; never interpreted by the engine.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub meta: Map<String, Value>,
}

/// The five things a step can decide (ENG-2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    /// Call tools, as one batch in this order.
    Act {
        /// At least one, at most [`MAX_DECISION_ACTIONS`](crate::limits::MAX_DECISION_ACTIONS).
        actions: Vec<Action>,
    },
    /// The run's answer.
    Final {
        /// Not blank.
        answer: String,
    },
    /// Commit the step and end the run `waiting` (ENG-3).
    Wait {
        /// What is waited for, in words; not blank.
        reason: String,
        /// What wakes the session; without one, only steering does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<WakeCondition>,
    },
    /// Let the selector pick exactly one of several decisions (ENG-4).
    Branch {
        /// At least one, at most [`MAX_DECISION_CANDIDATES`](crate::limits::MAX_DECISION_CANDIDATES); none branches itself.
        candidates: Vec<Decision>,
    },
    /// Give the work item to another agent.
    Handoff {
        /// The name of the destination, which its resolver must know; not blank.
        target: String,
    },
}

/// One tool call that a decision asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// The tool's name exactly as it was shown; nothing repairs it (REG-4).
    pub name: String,
    /// The arguments: a JSON object. Whether they fit the schema is the executor's question.
    pub args: Value,
    /// The call as the model wrote it; `None` for a decision made in code (LOG-3: never changed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

impl Action {
    /// A call decided in code.
    #[must_use]
    pub fn new(name: impl Into<String>, args: Value) -> Self {
        Action {
            name: name.into(),
            args,
            raw: None,
        }
    }

    /// Keeps the text the call was read from.
    #[must_use]
    pub fn with_raw(mut self, raw: impl Into<String>) -> Self {
        self.raw = Some(raw.into());
        self
    }
}

/// What wakes a session that waits (ENG-3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum WakeCondition {
    /// A steering message.
    Steering,
    /// Wall-clock time.
    Time {
        /// Not before this instant.
        at: Timestamp,
    },
    /// An answer to one approval request.
    Approval {
        /// The request.
        approval_id: ApprovalId,
    },
    /// The end of a child's work item.
    Child {
        /// The child.
        work_item_id: WorkItemId,
    },
}

impl Decision {
    /// A decision without rationale and meta.
    #[must_use]
    pub fn new(choice: Choice) -> Self {
        Decision {
            choice,
            rationale: None,
            meta: Map::new(),
        }
    }

    /// Call these tools.
    #[must_use]
    pub fn act(actions: Vec<Action>) -> Self {
        Decision::new(Choice::Act { actions })
    }

    /// Answer.
    #[must_use]
    pub fn final_answer(answer: impl Into<String>) -> Self {
        Decision::new(Choice::Final {
            answer: answer.into(),
        })
    }

    /// Wait for something outside.
    #[must_use]
    pub fn wait(reason: impl Into<String>, until: Option<WakeCondition>) -> Self {
        Decision::new(Choice::Wait {
            reason: reason.into(),
            until,
        })
    }

    /// Choose among candidates.
    #[must_use]
    pub fn branch(candidates: Vec<Decision>) -> Self {
        Decision::new(Choice::Branch { candidates })
    }

    /// Hand the work item over.
    #[must_use]
    pub fn handoff(target: impl Into<String>) -> Self {
        Decision::new(Choice::Handoff {
            target: target.into(),
        })
    }

    /// Adds the reasons.
    #[must_use]
    pub fn with_rationale(mut self, rationale: impl Into<String>) -> Self {
        self.rationale = Some(rationale.into());
        self
    }

    /// Adds one fact for observers.
    #[must_use]
    pub fn with_meta(mut self, key: impl Into<String>, value: Value) -> Self {
        self.meta.insert(key.into(), value);
        self
    }

    /// The word for the choice: `act`, `final`, `wait`, `branch` or `handoff`.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match &self.choice {
            Choice::Act { .. } => "act",
            Choice::Final { .. } => "final",
            Choice::Wait { .. } => "wait",
            Choice::Branch { .. } => "branch",
            Choice::Handoff { .. } => "handoff",
        }
    }

    /// The calls asked for; empty for every other choice.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        match &self.choice {
            Choice::Act { actions } => actions,
            _ => &[],
        }
    }
}
