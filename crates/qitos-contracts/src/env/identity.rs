//! Whose sandbox it is: identity and lease.

use serde::{Deserialize, Serialize};

use super::record_form::{SandboxToken, present};
use crate::ids::{RunId, SessionId, WorkAttemptId, WorkItemId};

/// The logical identity of one sandbox; plain values, not the `{kind, value}` form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxIdentity {
    /// This sandbox alone; a fork gets a new one (SBX-58).
    pub sandbox_id: SandboxToken,
    /// The session it serves.
    pub session_id: SessionId,
    /// The run that owns it.
    pub run_id: RunId,
    /// The work item, if the run has one.
    #[serde(deserialize_with = "present")]
    pub work_item_id: Option<WorkItemId>,
    /// The try of that work item (decision 3: not a tool attempt).
    #[serde(deserialize_with = "present")]
    pub attempt_id: Option<WorkAttemptId>,
    /// Grows with each restore, recover and transfer of ownership (SES-46).
    pub owner_generation: u64,
}

/// State of a [`SandboxLease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    /// Operations are admitted.
    Active,
    /// No new operations; running ones end.
    Quiescing,
    /// Over; nothing is admitted.
    Closed,
    /// A newer owner took over.
    Stale,
}

/// The right of one owner generation to act in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxLease {
    /// Identifier of the lease.
    pub lease_id: SandboxToken,
    /// The generation that holds it.
    pub owner_generation: u64,
    /// Whether it still admits operations.
    pub state: LeaseState,
}
