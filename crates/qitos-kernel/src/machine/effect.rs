//! Everything the machine wants done.

use qitos_contracts::ids::AttemptId;

use super::state::SteeringReceipt;

/// One thing to do. *Inside* effects are synchronous work in this process and are fed back at once; *outside*
/// effects wait or leave the process, so the driver commits and publishes before it performs them.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the agent for a decision; its answer may need a wait, which makes the effect an outside one.
    Decide,
    /// Build the view of the next request.
    View,
    /// Pass the open slots through the gates.
    Gate,
    /// Let the agent reduce, and ask whether it wants to stop.
    Reduce,
    /// Ask the critics.
    Judge,
    /// Send the request that was viewed (outside).
    Request {
        /// Its ordinal.
        ordinal: u64,
    },
    /// Enter a tool (outside).
    Dispatch {
        /// Slot index.
        slot: u32,
        /// The attempt whose intent is durable.
        attempt: AttemptId,
    },
    /// Ask the running request to stop (outside).
    StopRequest,
    /// Ask a running attempt to stop (outside).
    StopAttempt {
        /// Slot index.
        slot: u32,
    },
    /// Start an attempt again after a wait (outside).
    RetryLater {
        /// Slot index.
        slot: u32,
        /// The attempt that failed.
        attempt: AttemptId,
        /// The wait.
        delay_ms: u64,
    },
    /// Wait before the next step (outside).
    Sleep {
        /// The wait.
        delay_ms: u64,
    },
    /// Ask a tool what became of its lost effect (outside).
    Reconcile {
        /// Slot index.
        slot: u32,
    },
    /// Tell whoever steered (outside: a receipt is released only after its commit, SES-33).
    Reply {
        /// The receipt.
        receipt: Box<SteeringReceipt>,
    },
    /// Tell an attempt that its report is durable (outside, RES-15).
    Acknowledge {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Come back after the commit (outside): user code may not see yet what is not durable.
    Continue,
}

impl Effect {
    /// Whether the effect waits or leaves the process.
    #[must_use]
    pub const fn is_outside(&self) -> bool {
        !matches!(
            self,
            Effect::Decide | Effect::View | Effect::Gate | Effect::Reduce | Effect::Judge
        )
    }

    /// Whether performing it touches the world beyond this process: withheld when a required sink failed.
    #[must_use]
    pub const fn leaves_the_process(&self) -> bool {
        matches!(
            self,
            Effect::Request { .. } | Effect::Dispatch { .. } | Effect::Reconcile { .. }
        )
    }
}
