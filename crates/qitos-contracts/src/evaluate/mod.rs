//! The TrajectoryEvaluator contract: one judge of one recorded trajectory (evaluator specification, sections 1
//! and 2).
//!
//! An evaluator judges what was recorded. It never runs the agent, never touches a store, and cannot change what
//! it reads; it is offered no clock, network, file or environment access.
//!
//! | file | what it defines |
//! |---|---|
//! | `view` | [`EvaluationSelection`], [`EvaluationView`]: what is judged |
//! | `context` | [`EvaluationContext`], [`EvaluationTask`], [`Grader`]: what comes with it |
//! | `result` | [`EvaluationResult`] and its written form |
//! | `check_result` | rule: what a caller checks of every result (EVA-11 to EVA-14, EVA-16) |
//! | `error` | [`EvaluationError`] |

mod check_result;
mod context;
mod error;
mod result;
mod view;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

use crate::digest::Digest;

pub use check_result::check_result;
pub use context::{
    ArtifactBodies, EvaluationContext, EvaluationExtras, EvaluationTask, Grader, GraderAnswer,
};
pub use error::EvaluationError;
pub use result::{
    Absence, EvaluationOutcome, EvaluationProvenance, EvaluationResult, Evidence, RecordCitation,
    TAG_UNSCORED,
};
pub use view::{EvaluationSelection, EvaluationView, ViewProvenance};

/// Schema id of a view.
pub const VIEW_SCHEMA: &str = "qitos.evaluator-view/1";
/// Schema id of a result.
pub const RESULT_SCHEMA: &str = "qitos.evaluation/1";

/// Judges one recorded trajectory.
///
/// # Contract
/// - Equal context and configuration give equal results, except for a declared model-graded evaluator (EVA-6).
/// - An evaluator that could not judge says so: `Err`, or a result whose outcome is not
///   [`Scored`](EvaluationOutcome::Scored). It never turns that into a failed verdict (EVA-15).
/// - A verdict about something that happened cites at least one record; one about an absence says what was searched
///   (EVA-12).
/// - The loss of the view is in the result; an evaluator may add to it and never drops any (EVA-14).
/// - Whoever calls an evaluator, suites included, holds every result against [`check_result`] (EVA-11).
pub trait TrajectoryEvaluator: Debug + Send + Sync + 'static {
    /// `[a-z0-9][a-z0-9._-]{0,127}`; the name it is registered under and the name in its results.
    fn name(&self) -> &str;

    /// Digest of every setting that can change a result.
    fn config_digest(&self) -> Digest;

    /// The lowest and highest score, usually 0.0 and 1.0; none for scores without bounds.
    fn score_range(&self) -> Option<(f64, f64)>;

    /// Judges the trajectory.
    ///
    /// # Errors
    /// Why it could not judge; the caller records the result as unscored (EVA-15).
    fn evaluate(
        &self,
        context: &EvaluationContext<'_>,
    ) -> Result<EvaluationResult, EvaluationError>;
}

/// Whether the text is a name of an evaluator: `[a-z0-9][a-z0-9._-]{0,127}`.
#[must_use]
pub fn is_evaluator_name(name: &str) -> bool {
    let inner = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
    };
    (1..=128).contains(&name.len())
        && name
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && name.bytes().all(inner)
}
