//! The pure session machine: `step(input) -> effects`; no clock, no randomness, no await, no user code.
//!
//! Everything that can wake a session is one [`Input`]; everything it wants done is one [`Effect`]. After each
//! input the machine asks one question, `rules::advance`: given what is durable and what is in flight, what
//! happens next? Resuming a session is [`Machine::recover`] followed by that same question.

pub mod delta;
pub mod effect;
pub mod input;
pub mod limits;
mod rules;
pub mod state;

use std::sync::Arc;

pub use delta::{Delta, Fact};
pub use effect::Effect;
pub use input::{
    Answer, AnswerPart, AttemptEnd, CallDraft, Disposition, GateVerdict, Input, Judgement, Plan,
    Reduction, ResponseOutcome, Settlement, ViewFacts,
};
pub use limits::{Budget, Criterion, EnginePolicy, ExecutorMode, FailFast, StreamFailurePolicy};
pub use state::{Durable, Now};

use qitos_contracts::ids::{ItemId, RunId, SessionId};
use qitos_contracts::log::{ContentBlock, ExchangeLog, Item, ItemBody, LogError, UserItem};
use qitos_contracts::snapshot::Lifecycle;

use state::{Counters, Fixed, Flight, Phase};

use crate::outcome::{Failure, FailureCategory};

/// A session between two moves.
#[derive(Debug)]
pub struct Machine {
    pub(crate) durable: Durable,
    pub(crate) flight: Flight,
    pub(crate) delta: Delta,
    pub(crate) fixed: Fixed,
    pub(crate) now: Now,
}

/// What a new session starts with.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The session.
    pub session: SessionId,
    /// Its first run.
    pub run: RunId,
    /// The agent's first state, canonical.
    pub state: Arc<[u8]>,
    /// The task, as the user's first words.
    pub task: Vec<ContentBlock>,
    /// What it may spend.
    pub budget: Budget,
}

impl Machine {
    /// A new session: lifecycle `created`, the task as its first item, nothing spent.
    ///
    /// # Errors
    /// `size_limit_exceeded` or `invalid_exchange_item` if the task cannot be an item.
    pub fn create(
        new: NewSession,
        policy: EnginePolicy,
        judges: bool,
        now: Now,
    ) -> Result<Self, LogError> {
        let durable = Durable {
            session: new.session,
            run: new.run,
            owner_generation: 0,
            lifecycle: Lifecycle::Created,
            phase: Phase::Ready,
            step: 0,
            step_begun: false,
            state: new.state,
            log: ExchangeLog::new(),
            counters: Counters::default(),
            budget: new.budget,
            cancel: None,
            recent: std::collections::VecDeque::new(),
            effects: std::collections::BTreeMap::new(),
            patch: None,
            last_stop: None,
        };
        let mut machine = Machine::from_durable(durable, policy, judges, now);
        machine.append(ItemBody::User(UserItem {
            content: new.task,
            ..UserItem::default()
        }))?;
        machine.delta.state = true;
        machine.delta.dirty = true;
        Ok(machine)
    }

    /// A machine around what a snapshot held; to be followed by [`recover`](Self::recover).
    #[must_use]
    pub fn from_durable(durable: Durable, policy: EnginePolicy, judges: bool, now: Now) -> Self {
        Machine {
            durable,
            flight: Flight::default(),
            delta: Delta::default(),
            fixed: Fixed { policy, judges },
            now,
        }
    }

    /// Turns what died with a process into durable facts (section 10); then [`Input::Start`] goes on.
    ///
    /// Idempotent, also when it is interrupted: what it decided is committed before anything depends on it.
    pub fn recover(&mut self, now: Now) {
        self.now = now;
        rules::recover::recover(self);
    }

    /// Takes a cancel before the run begins; the run then ends with its first input.
    pub fn cancel_first(&mut self, mode: state::CancelMode) {
        rules::cancel_first(self, mode);
    }

    /// Takes one input and says what is to be done, in order.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.now = now;
        let mut effects = Vec::new();
        rules::accept(self, input, &mut effects);
        rules::advance::advance(self, &mut effects);
        effects
    }

    /// What is durable.
    #[must_use]
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// The changes since the last call, if there are any to commit.
    pub fn take_delta(&mut self) -> Option<Delta> {
        if !self.delta.dirty {
            return None;
        }
        self.durable.counters.active_ms = self.now.active_ms;
        self.flight.unrepeatable_terminal = false;
        Some(std::mem::take(&mut self.delta))
    }

    /// Whether the run ended; a state, not an effect.
    #[must_use]
    pub fn ended(&self) -> Option<&state::End> {
        self.flight.ended.as_ref()
    }

    /// Whether nothing of this run is in flight.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.flight.running.is_empty()
    }

    pub(crate) fn next_item_id(&mut self) -> ItemId {
        let index = self.durable.counters.items;
        self.durable.counters.items += 1;
        item_id(index)
    }

    /// Appends an item of its own new id and notes it for the next commit.
    pub(crate) fn append(&mut self, body: ItemBody) -> Result<u64, LogError> {
        let at = self.durable.log.items().len() as u64;
        let exchange_id = self.durable.log.exchange_for(&body);
        let item_id = self.next_item_id();
        let start = self.delta.canonical.len();
        match self.durable.log.append(
            Item {
                item_id,
                exchange_id,
                body,
            },
            &mut self.delta.canonical,
        ) {
            Ok(_) => {
                self.delta.note_item();
                Ok(at)
            }
            Err(error) => {
                self.delta.canonical.truncate(start);
                Err(error)
            }
        }
    }

    pub(crate) fn failure(&self, code: &str, category: FailureCategory, message: &str) -> Failure {
        Failure::engine(
            code,
            category,
            self.phase_name(),
            self.durable.step,
            message,
        )
    }

    pub(crate) fn phase_name(&self) -> &'static str {
        match &self.durable.phase {
            Phase::Ready | Phase::Asked(_) => "DECIDE",
            Phase::Acting(turn) => match &turn.batch {
                Some(batch) if !batch.is_closed() => "ACT",
                _ => "REDUCE",
            },
        }
    }
}

/// Effects of the session whose outcome nobody knows (SES-39, SES-58).
#[must_use]
pub fn unresolved_effects(machine: &Machine) -> u64 {
    rules::end_run::unresolved_effects(machine)
}

/// Attempts that may run and have no durable outcome.
#[must_use]
pub fn open_attempts(machine: &Machine) -> Vec<qitos_contracts::ids::AttemptId> {
    rules::recover::open_attempts(machine)
}

fn item_id(index: u64) -> ItemId {
    match format!("item-{index}").parse() {
        Ok(id) => id,
        Err(_) => impossible("`item-<number>` is an item id"),
    }
}

#[expect(
    clippy::panic,
    reason = "only reached if a constant text stopped being an id"
)]
pub(crate) fn impossible(what: &str) -> ! {
    panic!("{what}")
}

#[cfg(test)]
mod tests;
