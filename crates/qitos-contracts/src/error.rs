//! What every contract error tells: code, retry advice, whether the effect happened.

use serde::{Deserialize, Serialize};

/// May the same operation be tried again?
///
/// One advice per error, given by whoever created it; callers never derive it from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Retry {
    /// Repeating cannot succeed without changing something.
    Never,
    /// The identical request may be sent again at once.
    SameRequest,
    /// The identical request may be sent again, after a wait.
    AfterDelay,
    /// Nothing is known; the caller must find out first.
    Unknown,
}

/// Did the effect of the failed operation happen?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Performed {
    /// It certainly did not.
    No,
    /// It certainly did.
    Yes,
    /// It may have.
    Unknown,
}

/// What each contract's error enum answers.
pub trait ContractError: std::error::Error {
    /// The stable code, spelled as the specification spells it.
    fn code(&self) -> &str;
    /// Whether the same request may be repeated.
    fn retry(&self) -> Retry;
    /// Whether the effect may have happened.
    fn performed(&self) -> Performed;
}
