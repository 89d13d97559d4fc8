//! What reaches a running session from outside its own loop.

use qitos_contracts::ids::{AttemptId, ItemId};
use qitos_contracts::log::ContentBlock;
use qitos_contracts::tool::result::ReportedEffect;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::machine::state::{CancelMode, SteeringReceipt};
use crate::workers::JobResult;

/// A message to the driver.
#[derive(Debug)]
pub(crate) enum Mail {
    /// Say something to the agent.
    Steer {
        item_id: Option<ItemId>,
        content: Vec<ContentBlock>,
        reply: oneshot::Sender<SteeringReceipt>,
    },
    /// Pause at the next safe boundary.
    Pause,
    /// The caller's future was dropped.
    Abandon,
    /// Cancel.
    Cancel(CancelMode),
    /// An attempt tells what became of its effect; answered once that is durable.
    Report {
        slot: u32,
        attempt: AttemptId,
        effect: ReportedEffect,
        reply: oneshot::Sender<()>,
    },
    /// An attempt tells how far it is.
    Progress {
        slot: u32,
        attempt: AttemptId,
        note: Value,
    },
    /// A worker returned after its call was closed.
    Late {
        slot: u32,
        attempt: AttemptId,
        result: JobResult,
    },
}
