//! What an evaluator is given, and nothing beside it (EVA-6).

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::EvaluationError;
use super::view::EvaluationView;
use crate::artifact::ArtifactRef;

/// What the judged run was asked to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationTask {
    /// Identity of the task.
    pub id: String,
    /// What was asked.
    pub objective: String,
    /// What a right answer is, where there is one.
    pub target: Option<Value>,
    /// Free facts.
    pub metadata: Map<String, Value>,
}

/// Facts from outside the trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationExtras {
    /// The environment's reward; missing is not zero.
    pub reward: Option<f64>,
    /// Predictions to be compared.
    pub predictions: Vec<Value>,
    /// References to compare with.
    pub references: Vec<Value>,
    /// Anything else.
    pub more: Map<String, Value>,
}

/// Bodies of artifacts that viewed records refer to.
pub trait ArtifactBodies: fmt::Debug + Send + Sync {
    /// The whole body, verified against its digest.
    ///
    /// # Errors
    /// `artifact_unavailable` when it is missing, not of that digest, or not shown by the view.
    fn body(&self, reference: &ArtifactRef) -> Result<Vec<u8>, EvaluationError>;
}

/// What a grader answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraderAnswer {
    /// The text.
    pub text: String,
    /// The run in the evaluation journal that recorded the call (EVA-30).
    pub grader_run_id: String,
}

/// A model that may be asked for a verdict; every call is recorded by whoever implements it (EVA-30).
pub trait Grader: fmt::Debug + Send + Sync {
    /// Asks once, blocking.
    ///
    /// # Errors
    /// `grader_failed` with the provider's code, or `grader_recording_missing` in replay mode (EVA-34).
    fn ask(&self, prompt: &str) -> Result<GraderAnswer, EvaluationError>;
}

/// Everything an evaluator may look at. No clock, network, file or environment access is offered.
#[derive(Debug)]
pub struct EvaluationContext<'a> {
    /// The task.
    pub task: &'a EvaluationTask,
    /// The trajectory.
    pub view: &'a EvaluationView,
    /// Facts from outside the trajectory.
    pub extras: &'a EvaluationExtras,
    /// Bodies of artifacts, where a resolver was given.
    pub artifacts: Option<&'a dyn ArtifactBodies>,
    /// How long it may take; a hint, the caller enforces it.
    pub deadline: Option<Duration>,
    /// For evaluators that sample; equal seeds give equal results.
    pub seed: u64,
    /// For declared model-graded evaluators only.
    pub grader: Option<&'a dyn Grader>,
}

impl<'a> EvaluationContext<'a> {
    /// A context of nothing but task, trajectory and extras; seed 0.
    #[must_use]
    pub fn new(
        task: &'a EvaluationTask,
        view: &'a EvaluationView,
        extras: &'a EvaluationExtras,
    ) -> Self {
        EvaluationContext {
            task,
            view,
            extras,
            artifacts: None,
            deadline: None,
            seed: 0,
            grader: None,
        }
    }
}
