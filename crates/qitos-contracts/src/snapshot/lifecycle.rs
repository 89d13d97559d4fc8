//! Rule: which lifecycle may follow which, and what each allows (section 2, SES-7 to SES-12).

use std::fmt;
use std::str::FromStr;

/// The persisted lifecycle of a session.
///
/// `superseded` is a view of a handle that lost ownership and is never written (SES-10), so it is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lifecycle {
    /// Made, never run.
    Created,
    /// A run advances it.
    Running,
    /// Asked to pause, not yet reacting.
    PauseRequested,
    /// Finishing what is open before the pause.
    Pausing,
    /// At rest at a safe boundary.
    Paused,
    /// At rest until open requests are answered.
    WaitingInput,
    /// Claimed by a new owner that does not run yet.
    Restoring,
    /// Ended with an answer.
    Completed,
    /// Ended by what repeating cannot mend.
    Failed,
    /// Ended by request.
    Cancelled,
}

/// What can be asked of a session; the columns of the table in section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Let the owner run it.
    Run,
    /// Ask the running owner to pause.
    Pause,
    /// Claim it at rest.
    Restore,
    /// Claim it after its owner died (SES-9).
    Recover,
    /// Make a child from a snapshot in this state (SES-37).
    Fork,
    /// Queue or apply text for the model.
    Steer,
}

impl Lifecycle {
    /// Every value, in the order of section 2.
    pub const ALL: [Lifecycle; 10] = [
        Lifecycle::Created,
        Lifecycle::Running,
        Lifecycle::PauseRequested,
        Lifecycle::Pausing,
        Lifecycle::Paused,
        Lifecycle::WaitingInput,
        Lifecycle::Restoring,
        Lifecycle::Completed,
        Lifecycle::Failed,
        Lifecycle::Cancelled,
    ];

    /// The persisted word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Created => "created",
            Lifecycle::Running => "running",
            Lifecycle::PauseRequested => "pause_requested",
            Lifecycle::Pausing => "pausing",
            Lifecycle::Paused => "paused",
            Lifecycle::WaitingInput => "waiting_input",
            Lifecycle::Restoring => "restoring",
            Lifecycle::Completed => "completed",
            Lifecycle::Failed => "failed",
            Lifecycle::Cancelled => "cancelled",
        }
    }

    /// Whether nothing follows.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Lifecycle::Completed | Lifecycle::Failed | Lifecycle::Cancelled
        )
    }

    /// Whether a handle may pass from this state to `next` in one step (the table of section 2).
    #[must_use]
    pub const fn may_become(self, next: Lifecycle) -> bool {
        use Lifecycle::*;
        match self {
            Created => matches!(next, Running | Cancelled),
            Running => matches!(next, PauseRequested | Completed | Failed | Cancelled),
            PauseRequested => matches!(next, Pausing | Running | Failed | Cancelled),
            Pausing => matches!(next, Paused | WaitingInput | Failed | Cancelled),
            Paused | WaitingInput => matches!(next, Restoring | Cancelled),
            Restoring => matches!(next, Running | Failed),
            Completed | Failed | Cancelled => false,
        }
    }

    /// Whether the store accepts a head that passes from this state to `next` in one commit (SES-12).
    ///
    /// Beyond the table: staying; a path whose inner states `pause_requested`, `pausing` and `restoring`
    /// the handle passed in memory; and, with `running` or `pausing` passed there too, `created → failed`
    /// and `restoring → paused | waiting_input | cancelled` (decisions 37 and 67).
    #[must_use]
    pub fn may_become_in_store(self, next: Lifecycle) -> bool {
        use Lifecycle::*;
        self == next
            || self.may_become(next)
            || matches!(
                (self, next),
                (Created, Failed) | (Restoring, Paused | WaitingInput | Cancelled)
            )
            || self.passes_in_memory(next, 3)
    }

    /// A path to `next` over at most `inner` states that need not be stored.
    fn passes_in_memory(self, next: Lifecycle, inner: u8) -> bool {
        inner > 0
            && [
                Lifecycle::PauseRequested,
                Lifecycle::Pausing,
                Lifecycle::Restoring,
            ]
            .into_iter()
            .filter(|between| self.may_become(*between))
            .any(|between| between.may_become(next) || between.passes_in_memory(next, inner - 1))
    }

    /// Whether a *new owner* may pass from this state to `next`: also the claim of a recovery, which makes
    /// `restoring` of every state that strands a session (SES-9, step 9 of section 10).
    #[must_use]
    pub fn may_be_claimed_as(self, next: Lifecycle) -> bool {
        self.may_become_in_store(next)
            || (next == Lifecycle::Restoring && self.allows(Operation::Recover))
    }

    /// Whether `operation` is in the table for this state; otherwise `invalid_lifecycle_operation` (SES-7).
    ///
    /// A `running` snapshot forks only when its handle pinned it as a work boundary (SES-45), which this
    /// does not know.
    #[must_use]
    pub const fn allows(self, operation: Operation) -> bool {
        use Lifecycle::*;
        match operation {
            Operation::Run => matches!(self, Created | Paused | WaitingInput | Restoring),
            Operation::Pause => matches!(self, Running | PauseRequested | Pausing),
            Operation::Restore => matches!(self, Paused | WaitingInput),
            Operation::Recover => {
                matches!(
                    self,
                    Created | Running | PauseRequested | Pausing | Restoring
                )
            }
            Operation::Fork => {
                matches!(self, Paused | WaitingInput | Completed | Failed | Cancelled)
            }
            Operation::Steer => !self.is_terminal(),
        }
    }
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The text is no persisted lifecycle; `superseded` is none (SES-10). Code `corrupt_snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a persisted lifecycle")]
pub struct InvalidLifecycle;

impl FromStr for Lifecycle {
    type Err = InvalidLifecycle;

    fn from_str(text: &str) -> Result<Self, InvalidLifecycle> {
        Lifecycle::ALL
            .into_iter()
            .find(|lifecycle| lifecycle.as_str() == text)
            .ok_or(InvalidLifecycle)
    }
}

impl serde::Serialize for Lifecycle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> serde::Deserialize<'de> for Lifecycle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Lifecycle::*;
    use super::*;

    #[test]
    fn ses_10_superseded_is_no_persisted_lifecycle() {
        assert_eq!("superseded".parse::<Lifecycle>(), Err(InvalidLifecycle));
        for lifecycle in Lifecycle::ALL {
            assert_eq!(lifecycle.as_str().parse(), Ok(lifecycle));
        }
    }

    #[test]
    fn ses_12_the_store_accepts_these_steps_and_no_others() {
        let accepted: &[(Lifecycle, &[Lifecycle])] = &[
            (Created, &[Running, Failed, Cancelled]),
            (
                Running,
                &[
                    PauseRequested,
                    Pausing,
                    Paused,
                    WaitingInput,
                    Completed,
                    Failed,
                    Cancelled,
                ],
            ),
            (
                PauseRequested,
                &[Running, Pausing, Paused, WaitingInput, Failed, Cancelled],
            ),
            (Pausing, &[Paused, WaitingInput, Failed, Cancelled]),
            (Paused, &[Restoring, Running, Failed, Cancelled]),
            (WaitingInput, &[Restoring, Running, Failed, Cancelled]),
            (
                Restoring,
                &[Running, Paused, WaitingInput, Failed, Cancelled],
            ),
            (Completed, &[]),
            (Failed, &[]),
            (Cancelled, &[]),
        ];
        for (old, nexts) in accepted {
            for next in Lifecycle::ALL {
                let expected = *old == next || nexts.contains(&next);
                assert_eq!(old.may_become_in_store(next), expected, "{old} to {next}");
            }
        }
    }

    #[test]
    fn ses_52_a_new_owner_may_claim_every_state_that_strands_a_session() {
        for old in Lifecycle::ALL {
            let claimable = !old.is_terminal();
            assert_eq!(old.may_be_claimed_as(Restoring), claimable, "{old}");
            for next in Lifecycle::ALL.into_iter().filter(|next| *next != Restoring) {
                assert_eq!(old.may_be_claimed_as(next), old.may_become_in_store(next));
            }
        }
    }

    #[test]
    fn ses_9_every_state_that_does_not_end_has_a_way_on_for_a_new_process() {
        for lifecycle in Lifecycle::ALL {
            let way_on =
                lifecycle.allows(Operation::Restore) || lifecycle.allows(Operation::Recover);
            assert_eq!(way_on, !lifecycle.is_terminal(), "{lifecycle}");
            assert_eq!(lifecycle.allows(Operation::Steer), !lifecycle.is_terminal());
        }
    }
}
