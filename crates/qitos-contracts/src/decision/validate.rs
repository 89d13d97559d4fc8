//! Rule: which decisions the engine may follow (ENG-2).

use crate::decision::{Action, Choice, Decision};
use crate::error::{ContractError, Performed, Retry};
use crate::limits::{MAX_DECISION_ACTIONS, MAX_DECISION_CANDIDATES};

/// A decision that the engine must not follow; code `invalid_decision` (ENG-2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at {path}")]
pub struct InvalidDecision {
    /// Where, as a JSON pointer into the serialised decision.
    pub path: String,
    /// What is wrong there.
    pub problem: DecisionProblem,
}

/// What can be wrong with a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionProblem {
    /// `act` without a call.
    #[error("no action")]
    NoAction,
    /// More calls than one batch may hold.
    #[error("more than {MAX_DECISION_ACTIONS} actions")]
    TooManyActions,
    /// A call without a tool name.
    #[error("blank tool name")]
    BlankToolName,
    /// Arguments that are not a JSON object.
    #[error("arguments that are not an object")]
    ArgumentsNotAnObject,
    /// `final` with a blank answer.
    #[error("blank answer")]
    BlankAnswer,
    /// `wait` with a blank reason.
    #[error("blank reason")]
    BlankReason,
    /// `branch` without a candidate.
    #[error("no candidate")]
    NoCandidate,
    /// More candidates than a branch may hold.
    #[error("more than {MAX_DECISION_CANDIDATES} candidates")]
    TooManyCandidates,
    /// A candidate that branches itself.
    #[error("a candidate that branches")]
    NestedBranch,
    /// `handoff` with a blank target.
    #[error("blank target")]
    BlankTarget,
}

impl ContractError for InvalidDecision {
    fn code(&self) -> &str {
        "invalid_decision"
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

fn blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn problem(path: impl Into<String>, problem: DecisionProblem) -> InvalidDecision {
    InvalidDecision {
        path: path.into(),
        problem,
    }
}

impl Decision {
    /// Says whether the engine may follow this decision.
    ///
    /// # Errors
    /// `invalid_decision` with the place of the first problem.
    pub fn validate(&self) -> Result<(), InvalidDecision> {
        validate_choice(&self.choice, "/choice", Nesting::Root)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Root,
    Candidate,
}

fn validate_choice(choice: &Choice, path: &str, nesting: Nesting) -> Result<(), InvalidDecision> {
    match choice {
        Choice::Act { actions } => validate_actions(actions, path),
        Choice::Final { answer } if blank(answer) => Err(problem(
            format!("{path}/answer"),
            DecisionProblem::BlankAnswer,
        )),
        Choice::Wait { reason, .. } if blank(reason) => Err(problem(
            format!("{path}/reason"),
            DecisionProblem::BlankReason,
        )),
        Choice::Handoff { target } if blank(target) => Err(problem(
            format!("{path}/target"),
            DecisionProblem::BlankTarget,
        )),
        // One level is enough for a selector, and bounds this recursion.
        Choice::Branch { .. } if nesting == Nesting::Candidate => {
            Err(problem(path, DecisionProblem::NestedBranch))
        }
        Choice::Branch { candidates } => validate_candidates(candidates, path),
        Choice::Final { .. } | Choice::Wait { .. } | Choice::Handoff { .. } => Ok(()),
    }
}

fn validate_actions(actions: &[Action], path: &str) -> Result<(), InvalidDecision> {
    let path = format!("{path}/actions");
    if actions.is_empty() {
        return Err(problem(path, DecisionProblem::NoAction));
    }
    if actions.len() > MAX_DECISION_ACTIONS {
        return Err(problem(path, DecisionProblem::TooManyActions));
    }
    for (index, action) in actions.iter().enumerate() {
        if blank(&action.name) {
            return Err(problem(
                format!("{path}/{index}/name"),
                DecisionProblem::BlankToolName,
            ));
        }
        if !action.args.is_object() {
            return Err(problem(
                format!("{path}/{index}/args"),
                DecisionProblem::ArgumentsNotAnObject,
            ));
        }
    }
    Ok(())
}

fn validate_candidates(candidates: &[Decision], path: &str) -> Result<(), InvalidDecision> {
    let path = format!("{path}/candidates");
    if candidates.is_empty() {
        return Err(problem(path, DecisionProblem::NoCandidate));
    }
    if candidates.len() > MAX_DECISION_CANDIDATES {
        return Err(problem(path, DecisionProblem::TooManyCandidates));
    }
    candidates
        .iter()
        .enumerate()
        .try_for_each(|(index, candidate)| {
            validate_choice(
                &candidate.choice,
                &format!("{path}/{index}/choice"),
                Nesting::Candidate,
            )
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::Timestamp;
    use crate::decision::WakeCondition;

    #[track_caller]
    fn refused(decision: Decision, path: &str, problem: DecisionProblem) {
        let error = decision.validate().unwrap_err();
        assert_eq!(error.code(), "invalid_decision");
        assert_eq!((error.path.as_str(), error.problem), (path, problem));
    }

    fn call() -> Action {
        Action::new("read", json!({}))
    }

    #[test]
    fn eng_2_each_choice_is_accepted_when_complete() {
        for decision in [
            Decision::act(vec![call()]),
            Decision::final_answer("42"),
            Decision::wait("a person", Some(WakeCondition::Steering)),
            Decision::branch(vec![
                Decision::final_answer("a"),
                Decision::act(vec![call()]),
            ]),
            Decision::handoff("reviewer"),
        ] {
            assert_eq!(decision.validate(), Ok(()), "{}", decision.mode());
        }
    }

    #[test]
    fn eng_2_incomplete_decisions_are_invalid_decision() {
        use DecisionProblem as P;
        refused(Decision::act(vec![]), "/choice/actions", P::NoAction);
        refused(
            Decision::act(vec![call(), Action::new(" ", json!({}))]),
            "/choice/actions/1/name",
            P::BlankToolName,
        );
        refused(
            Decision::act(vec![Action::new("read", json!([]))]),
            "/choice/actions/0/args",
            P::ArgumentsNotAnObject,
        );
        refused(
            Decision::final_answer(" \n"),
            "/choice/answer",
            P::BlankAnswer,
        );
        refused(Decision::wait("", None), "/choice/reason", P::BlankReason);
        refused(Decision::handoff(""), "/choice/target", P::BlankTarget);
        refused(
            Decision::branch(vec![]),
            "/choice/candidates",
            P::NoCandidate,
        );
        refused(
            Decision::branch(vec![Decision::branch(vec![Decision::final_answer("a")])]),
            "/choice/candidates/0/choice",
            P::NestedBranch,
        );
        refused(
            Decision::branch(vec![
                Decision::final_answer("a"),
                Decision::final_answer(""),
            ]),
            "/choice/candidates/1/choice/answer",
            P::BlankAnswer,
        );
    }

    #[test]
    fn counts_are_bounded_at_the_limit() {
        for count in [MAX_DECISION_ACTIONS - 1, MAX_DECISION_ACTIONS] {
            assert_eq!(Decision::act(vec![call(); count]).validate(), Ok(()));
        }
        refused(
            Decision::act(vec![call(); MAX_DECISION_ACTIONS + 1]),
            "/choice/actions",
            DecisionProblem::TooManyActions,
        );
        let candidates = |count| Decision::branch(vec![Decision::final_answer("a"); count]);
        for count in [MAX_DECISION_CANDIDATES - 1, MAX_DECISION_CANDIDATES] {
            assert_eq!(candidates(count).validate(), Ok(()));
        }
        refused(
            candidates(MAX_DECISION_CANDIDATES + 1),
            "/choice/candidates",
            DecisionProblem::TooManyCandidates,
        );
    }

    #[test]
    fn a_decision_survives_its_serialised_form() {
        let at = Timestamp::from_micros(1_767_225_600_000_000);
        for decision in [
            Decision::act(vec![call().with_raw("read()")]).with_rationale("because"),
            Decision::final_answer("42").with_meta("parser", json!("react_text")),
            Decision::wait("tomorrow", Some(WakeCondition::Time { at })),
            Decision::branch(vec![Decision::handoff("reviewer")]),
        ] {
            let value = serde_json::to_value(&decision).unwrap();
            assert_eq!(serde_json::from_value::<Decision>(value).unwrap(), decision);
        }
    }

    #[test]
    fn the_serialised_form_is_strict() {
        assert_eq!(
            serde_json::to_value(Decision::final_answer("42")).unwrap(),
            json!({"choice": {"mode": "final", "answer": "42"}})
        );
        for wrong in [
            json!({"choice": {"mode": "final", "answer": "42", "extra": 1}}),
            json!({"choice": {"mode": "final", "answer": "42"}, "extra": 1}),
            json!({"choice": {"mode": "finish", "answer": "42"}}),
            json!({"choice": {"mode": "final"}}),
        ] {
            assert!(
                serde_json::from_value::<Decision>(wrong.clone()).is_err(),
                "{wrong}"
            );
        }
    }
}
