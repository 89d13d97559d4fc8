//! Asking a run to pause, and waiting until the session rests (section 11).

use std::time::Duration;

use qitos_contracts::checkpoint::SessionError;
use qitos_contracts::ids::{RunId, SessionId};
use qitos_contracts::snapshot::Lifecycle;

use super::{Known, Session, invalid};
use crate::driver::mail::Mail;

/// Answer to a pause request (SES-57).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseReceipt {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// Where the request stands.
    pub status: PauseStatus,
    /// Lifecycle as far as known.
    pub lifecycle: Lifecycle,
    /// Generation before.
    pub expected_generation: u64,
    /// Generation after.
    pub actual_generation: u64,
    /// Snapshot of a persisted pause.
    pub snapshot_id: Option<String>,
    /// Checkpoint of a persisted pause.
    pub checkpoint_id: Option<String>,
    /// Why it is not persisted.
    pub error_code: Option<String>,
}

/// Where a pause request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseStatus {
    /// Heard; never the same as persisted.
    Accepted,
    /// The session rests, durably.
    Persisted,
    /// The run ended otherwise before it could pause.
    FinishedFirst,
    /// The deadline passed; the request stays.
    Deadline,
}

impl Session {
    /// Asks the run to pause at its next safe boundary; accepted is never persisted (SES-56).
    ///
    /// # Errors
    /// `invalid_lifecycle_operation` if nothing runs.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request made.
    pub async fn pause(&self) -> Result<PauseReceipt, SessionError> {
        let known = self.0.known.borrow().clone();
        if !known.running {
            return Err(invalid("pause", known.lifecycle));
        }
        let _ = self.0.post.send(Mail::Pause).await;
        Ok(self.pause_receipt(&known, PauseStatus::Accepted))
    }

    /// Waits until the session rests, the run ended otherwise, or the deadline passed (SES-59).
    ///
    /// # Errors
    /// None today; the receipt says what came of it.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    pub async fn pause_barrier(&self, deadline: Duration) -> Result<PauseReceipt, SessionError> {
        let mut watch = self.0.known.subscribe();
        let ended = tokio::time::timeout(deadline, watch.wait_for(|known| !known.running)).await;
        let known = match ended {
            Ok(Ok(known)) => known.clone(),
            _ => {
                return Ok(
                    self.pause_receipt(&self.0.known.borrow().clone(), PauseStatus::Deadline)
                );
            }
        };
        let rests = matches!(known.lifecycle, Lifecycle::Paused | Lifecycle::WaitingInput);
        let status = if rests {
            PauseStatus::Persisted
        } else {
            PauseStatus::FinishedFirst
        };
        Ok(self.pause_receipt(&known, status))
    }

    fn pause_receipt(&self, known: &Known, status: PauseStatus) -> PauseReceipt {
        let receipt = known.receipt.as_ref();
        let generation = receipt.map_or(0, |receipt| receipt.generation);
        let persisted = status == PauseStatus::Persisted;
        PauseReceipt {
            session_id: self.0.id.clone(),
            run_id: self.0.run.clone(),
            status,
            lifecycle: if persisted {
                known.lifecycle
            } else {
                Lifecycle::PauseRequested
            },
            expected_generation: if persisted {
                generation.saturating_sub(1)
            } else {
                generation
            },
            actual_generation: generation,
            snapshot_id: persisted
                .then(|| receipt.map(|receipt| receipt.snapshot_id.to_string()))
                .flatten(),
            checkpoint_id: persisted
                .then(|| receipt.map(|receipt| receipt.checkpoint_id.to_string()))
                .flatten(),
            error_code: match status {
                PauseStatus::FinishedFirst => Some("unsafe_pause_boundary".into()),
                _ => None,
            },
        }
    }
}
