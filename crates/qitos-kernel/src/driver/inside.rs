//! Effects that stay inside: the view, the gates, the agent's own code. They are performed at once and fed back;
//! user code that must wait becomes a task, so that what is dirty is committed before the wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use qitos_contracts::context::{ContextContribution, ContextError, ContextRequest, Placement};
use qitos_contracts::decision::{Action, Choice, Decision};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::CallId;
use qitos_contracts::log::ItemBody;
use qitos_contracts::tool::result::ToolResult;
use serde_json::Value;

use super::attempt::CatchPanic;
use super::{Done, Driver};
use crate::agent::{
    AgentError, CriticInput, Observation, Prompt, Task, Verdict, guarded, merge_patch,
};
use crate::gates::Gates;
use crate::machine::state::{Phase, SlotState, TurnDecision};
use crate::machine::{Effect, Input, Judgement, Machine, Reduction};
use crate::outcome::{Failure, FailureCategory};
use crate::view::{self, Instructions, ViewInputs};

/// What the contributors gave, or why the request cannot be built.
pub(super) type Contributed = Result<Vec<Arc<ContextContribution>>, ContextError>;

/// Polls a future once without registering a waker; `Err` gives it back if it has to wait.
fn poll_once<F: Future>(mut future: Pin<Box<F>>) -> Result<F::Output, Pin<Box<F>>> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err(future),
    }
}

/// What the agent saw when the process before this one ended, between two steps: the results of the newest batch.
///
/// Without it the first request after a crash would differ from the one that was lost (ENG-7, DUR-3).
pub(super) fn last_observation(machine: &Machine, task: &Arc<Task>) -> Option<Observation> {
    let durable = machine.durable();
    if matches!(durable.phase, Phase::Acting(_)) {
        return None;
    }
    let mut results: Vec<(CallId, Arc<ToolResult>)> = Vec::new();
    let assistant = durable
        .log
        .items()
        .iter()
        .rev()
        .find_map(|item| match &item.item().body {
            ItemBody::ToolResult(result) => {
                results.push((result.call_id.clone(), Arc::clone(&result.result)));
                None
            }
            ItemBody::Assistant(assistant) if assistant.calls().next().is_some() => Some(assistant),
            _ => None,
        })?;
    let mut action_results = Vec::with_capacity(results.len());
    let mut places = vec![0u32; results.len()];
    for (call, index) in assistant.calls().zip(0u32..) {
        let at = results.iter().position(|(id, _)| *id == call.call_id)?;
        action_results.push(Arc::clone(&results.get(at)?.1));
        // Results were met newest first.
        *places.get_mut(results.len() - 1 - at)? = index;
    }
    Some(Observation {
        task: Arc::clone(task),
        step_id: durable.step,
        action_results,
        completion_order: places,
    })
}

impl Driver {
    /// Performs an inside effect; `None` if its answer comes later.
    pub(super) fn inside(&mut self, effect: &Effect) -> Option<Input> {
        match effect {
            Effect::Decide => self.decide(),
            Effect::View => self.view(),
            Effect::Gate => Some(self.gate()),
            Effect::Reduce => Some(self.reduce()),
            Effect::Judge => Some(self.judge()),
            _ => None,
        }
    }

    pub(super) fn agent_failure(&self, error: &AgentError, phase: &str) -> Failure {
        Failure::of(
            error,
            FailureCategory::StateError,
            phase,
            self.machine.durable().step,
        )
    }

    /// What the agent sees at this step; the results are those of the batch that was reduced last.
    pub(super) fn observation(&mut self) -> Arc<Observation> {
        let step_id = self.machine.durable().step;
        match &self.observation {
            Some(observation) if observation.step_id == step_id => Arc::clone(observation),
            previous => {
                let (action_results, completion_order) = match previous {
                    Some(previous) => (
                        previous.action_results.clone(),
                        previous.completion_order.clone(),
                    ),
                    None => (Vec::new(), Vec::new()),
                };
                let observation = Arc::new(Observation {
                    task: Arc::clone(&self.callbacks.task),
                    step_id,
                    action_results,
                    completion_order,
                });
                self.observation = Some(Arc::clone(&observation));
                observation
            }
        }
    }

    fn decide(&mut self) -> Option<Input> {
        let observation = self.observation();
        let step = self.machine.durable().step;
        let future = CatchPanic::new(self.parts.agent.decide(self.state.clone(), observation));
        let answer = async move {
            let error = match future.await {
                Ok(Ok(decision)) => return Input::Decided(Ok(decision)),
                Ok(Err(error)) => error,
                Err(panic) => AgentError {
                    code: "agent_panicked".into(),
                    message: panic,
                },
            };
            Input::Decided(Err(Failure::of(
                &error,
                FailureCategory::StateError,
                "DECIDE",
                step,
            )))
        };
        match poll_once(Box::pin(answer)) {
            Ok(input) => Some(input),
            Err(waits) => {
                self.tasks
                    .spawn(async move { Done::Input(Box::new(waits.await)) });
                None
            }
        }
    }

    fn view(&mut self) -> Option<Input> {
        if self.parts.contributors.is_empty() {
            return self.build_view(Ok(Vec::new()));
        }
        let contributors = self.parts.contributors.clone();
        let durable = self.machine.durable();
        let request = ContextRequest {
            request_key: format!("{}:{}", durable.session, durable.counters.next_ordinal),
            target: Arc::clone(self.parts.view_policy.target()),
            session_id: Some(durable.session.clone()),
            metadata: serde_json::Map::new(),
        };
        let deadline = self.parts.contributor_deadline;
        let gather = async move {
            let mut all = Vec::new();
            for contributor in contributors {
                let id = contributor.contributor_id().to_owned();
                let call = CatchPanic::new(contributor.contribute(&request));
                let given = match tokio::time::timeout(deadline, call).await {
                    Ok(Ok(Ok(given))) => given,
                    _ if contributor.required() => {
                        return Err(ContextError::RequiredMissing { contribution: id });
                    }
                    _ => continue,
                };
                for mut contribution in given {
                    let instructs = matches!(
                        contribution.requested_placement,
                        Placement::System | Placement::Developer
                    );
                    if instructs && !contributor.trusted() {
                        // CTX-7: what was recalled or fetched must not become instructions.
                        contribution.requested_placement = Placement::User;
                    }
                    all.push(Arc::new(contribution));
                }
            }
            Ok(all)
        };
        match poll_once(Box::pin(gather)) {
            Ok(contributed) => self.build_view(contributed),
            Err(waits) => {
                self.tasks
                    .spawn(async move { Done::Contributions(waits.await) });
                None
            }
        }
    }

    /// Builds the view once its contributions are there.
    pub(super) fn build_view(&mut self, contributed: Contributed) -> Option<Input> {
        let observation = self.observation();
        let prompt = match self.parts.agent.prepare(&self.state, &observation) {
            Ok(prompt) => prompt,
            Err(error) => return Some(Input::Viewed(Err(self.agent_failure(&error, "DECIDE")))),
        };
        let built = contributed.and_then(|contributions| self.view_of(prompt, contributions));
        Some(match built {
            Ok(facts) => Input::Viewed(Ok(facts)),
            Err(error) => {
                let step = self.machine.durable().step;
                Input::Viewed(Err(Failure::of(
                    &error,
                    FailureCategory::SystemError,
                    "DECIDE",
                    step,
                )))
            }
        })
    }

    fn view_of(
        &mut self,
        prompt: Prompt,
        contributions: Vec<Arc<ContextContribution>>,
    ) -> Result<crate::machine::ViewFacts, ContextError> {
        let mut list = prompt.instructions;
        list.extend(self.parts.protocol_instruction.clone());
        if let Some(patch) = &self.machine.durable().patch {
            list.push(qitos_contracts::model::Instruction {
                role: qitos_contracts::model::InstructionRole::Developer,
                text: patch.clone(),
            });
        }
        let kept = self.instructions.take().filter(|kept| *kept.list == *list);
        let instructions = kept.unwrap_or_else(|| Instructions::new(list));
        let durable = self.machine.durable();
        let inputs = ViewInputs {
            log: &durable.log,
            instructions: &instructions,
            contributions,
            tool_used: durable.counters.tool_used,
            max_output_tokens: prompt.max_output_tokens,
        };
        let built = view::build(&self.parts.view_policy, inputs);
        self.instructions = Some(instructions);
        let (view, facts) = built?;
        self.view = Some(Arc::new(view));
        Ok(facts)
    }

    fn gate(&self) -> Input {
        let durable = self.machine.durable();
        let Phase::Acting(turn) = &durable.phase else {
            return Input::Gated(Vec::new());
        };
        let Some(batch) = &turn.batch else {
            return Input::Gated(Vec::new());
        };
        let gates = Gates {
            registry: &self.parts.registry,
            permissions: &self.parts.permissions,
            policy: &self.machine.fixed.policy,
            agent: &*self.parts.agent,
            state: &self.state,
            workers: &self.parts.workers,
            session: &durable.session,
            run: &durable.run,
            step: durable.step,
            tool_calls_left: durable
                .budget
                .max_tool_calls
                .map(|limit| limit.saturating_sub(durable.counters.tool_calls)),
        };
        let verdicts = batch
            .slots
            .iter()
            .zip(0u32..)
            .filter(|(slot, _)| matches!(slot.state, SlotState::Declared))
            .map(|(slot, index)| (index, gates.pass(slot)))
            .collect();
        Input::Gated(verdicts)
    }

    /// The decision as the agent knows it.
    fn decision(&self) -> Decision {
        let Phase::Acting(turn) = &self.machine.durable().phase else {
            return Decision::wait("nothing was decided", None);
        };
        match &turn.decision {
            TurnDecision::Final { answer } => Decision::final_answer(answer.clone()),
            TurnDecision::Wait { reason, until } => Decision::wait(reason.clone(), until.clone()),
            TurnDecision::Act => {
                let slots = turn.batch.iter().flat_map(|batch| &batch.slots);
                let actions = slots
                    .map(|slot| {
                        let args = slot.args.as_deref().cloned().unwrap_or(Value::Null);
                        Action::new(&*slot.name, args).with_raw(&*slot.raw_arguments)
                    })
                    .collect();
                Decision::new(Choice::Act { actions })
            }
        }
    }

    fn reduce(&mut self) -> Input {
        let durable = self.machine.durable();
        let (action_results, completion_order) = match &durable.phase {
            Phase::Acting(turn) => match &turn.batch {
                Some(batch) => (batch.results(), batch.completion.clone()),
                None => (Vec::new(), Vec::new()),
            },
            _ => (Vec::new(), Vec::new()),
        };
        let observation = Arc::new(Observation {
            task: Arc::clone(&self.callbacks.task),
            step_id: durable.step,
            action_results,
            completion_order,
        });
        let decision = self.decision();
        self.observation = Some(Arc::clone(&observation));
        match self
            .parts
            .agent
            .reduce(&self.state, &observation, &decision)
        {
            Ok(reduced) => {
                self.state = reduced.state;
                Input::Reduced(Ok(Reduction {
                    state: reduced.bytes,
                    finish: reduced.finish,
                    should_stop: reduced.should_stop,
                }))
            }
            Err(error) => Input::Reduced(Err(self.agent_failure(&error, "REDUCE"))),
        }
    }

    /// Stop beats retry beats continue, whatever the order of the critics (ENG-19).
    fn judge(&mut self) -> Input {
        let state: Value =
            qitos_contracts::canonical_json::read_canonical(&self.machine.durable().state)
                .unwrap_or(Value::Null);
        let observation = self.observation();
        let decision = self.decision();
        let input = CriticInput {
            step_id: observation.step_id,
            decision: &decision,
            answer: self.machine.flight.answer.as_deref(),
            results: &observation.action_results,
            state: &state,
        };
        let mut retry: Option<(Option<String>, Option<Value>)> = None;
        let mut stop: Option<String> = None;
        for critic in &self.parts.critics {
            match guarded("a critic", || critic.judge(&input)) {
                Ok(Verdict::Continue) => {}
                Ok(Verdict::Stop { reason }) => {
                    stop.get_or_insert(reason);
                }
                Ok(Verdict::Retry {
                    instruction,
                    state_patch,
                }) => {
                    retry.get_or_insert((instruction, state_patch));
                }
                Err(error) => return Input::Judged(Err(self.agent_failure(&error, "CRITIC"))),
            }
        }
        if let Some(reason) = stop {
            return Input::Judged(Ok(Judgement::Stop { reason }));
        }
        let Some((instruction, patch)) = retry else {
            return Input::Judged(Ok(Judgement::Continue));
        };
        let Some(patch) = patch else {
            return Input::Judged(Ok(Judgement::Retry {
                instruction,
                state: None,
            }));
        };
        let mut patched = state;
        merge_patch(&mut patched, patch);
        let bytes = qitos_contracts::canonical_json::to_bytes(&patched).unwrap_or_default();
        match self.parts.agent.load_bytes(&bytes) {
            Ok(state) => {
                self.state = state;
                Input::Judged(Ok(Judgement::Retry {
                    instruction,
                    state: Some(bytes.into()),
                }))
            }
            Err(error) => {
                let step = self.machine.durable().step;
                let mut failure = Failure::of(&error, FailureCategory::StateError, "CRITIC", step);
                failure.error_code = "invalid_state_patch".into();
                let _ = error.code();
                Input::Judged(Err(failure))
            }
        }
    }
}
