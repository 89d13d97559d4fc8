//! What survives a death, and the store that keeps it.

use std::collections::HashMap;
use std::sync::Arc;

use qitos_contracts::ids::{BatchId, CallId};
use qitos_contracts::log::ExchangeLog;
use qitos_contracts::tool::result::ToolResult;

use crate::tool::{Fault, Script, ScriptedCall};

/// Where a declared call stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Not dispatched, after this many attempts that ended.
    Open { attempts: u32 },
    /// Dispatched: its intent is durable, its terminal is not.
    Started { attempts: u32 },
    /// Has its terminal.
    Closed,
}

/// The batch of the last assistant item, open or closed.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) batch_id: BatchId,
    pub(super) calls: Vec<(CallId, ScriptedCall)>,
    pub(super) slots: Vec<SlotState>,
}

/// Everything that a commit makes durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Durable {
    pub(super) log: ExchangeLog,
    pub(super) turn: Option<Turn>,
    pub(super) generation: u64,
    pub(super) steered: u64,
    /// Results of committed effects by logical key.
    pub(super) effects: HashMap<String, Arc<ToolResult>>,
}

/// Why the engine stopped in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The process died.
    Killed,
    /// The store refused a commit.
    Refused,
}

/// One slot for the newest durable state, and the fault that waits.
#[derive(Debug)]
pub(super) struct Store {
    saved: Option<Durable>,
    commits: u64,
    fault: Option<Fault>,
    pub(super) fired: bool,
    script: Arc<Script>,
}

impl Store {
    pub(super) fn new(fault: Option<Fault>, script: Arc<Script>) -> Self {
        Store {
            saved: None,
            commits: 0,
            fault,
            fired: false,
            script,
        }
    }

    pub(super) fn saved(&self) -> Option<Durable> {
        self.saved.clone()
    }

    pub(super) fn commit(&mut self, state: &Durable) -> Result<(), Stop> {
        let number = self.commits;
        self.commits += 1;
        match self.fault {
            Some(Fault::KillBeforeCommit(at)) if at == number => {
                self.fired = true;
                return Err(Stop::Killed);
            }
            Some(Fault::RefuseCommit(from)) if number >= from => {
                self.fired = true;
                self.script.commit_refused();
                return Err(Stop::Refused);
            }
            _ => {}
        }
        self.saved = Some(state.clone());
        if self.fault == Some(Fault::KillAfterCommit(number)) {
            self.fired = true;
            return Err(Stop::Killed);
        }
        Ok(())
    }
}
