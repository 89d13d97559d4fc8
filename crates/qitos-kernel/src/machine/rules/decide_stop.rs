//! After the batch: reduce, critics, stop conditions, step commit (ENG-1, ENG-9, ENG-19, ENG-20).

use super::super::input::{Judgement, Reduction};
use super::super::limits::Criterion;
use super::super::state::{AfterBatch, Awaiting, Phase, TurnDecision};
use super::super::{Effect, Fact, Machine};
use super::{admit_request, end_run, finish_step, steer};
use crate::outcome::{Failure, FailureCategory, StopReason};

/// Whether a step may begin; budgets are looked at before anything of it is spent.
pub(super) fn budget_for_a_step(machine: &Machine) -> Option<StopReason> {
    let (counters, budget) = (&machine.durable.counters, &machine.durable.budget);
    if counters.steps_begun >= budget.max_steps {
        return Some(StopReason::BudgetSteps);
    }
    if budget
        .max_runtime_ms
        .is_some_and(|limit| machine.now.active_ms >= limit)
    {
        return Some(StopReason::BudgetTime);
    }
    None
}

/// Takes the next state; then the critics, or at once the stop conditions.
pub(super) fn accept_reduction(
    machine: &mut Machine,
    reduction: Result<Reduction, Failure>,
    effects: &mut Vec<Effect>,
) {
    let reduction = match reduction {
        Ok(reduction) => reduction,
        Err(failure) => return end_run::failed(machine, failure),
    };
    let same = *reduction.state == *machine.durable.state;
    let counters = &mut machine.durable.counters;
    counters.stagnant_steps = if same { counters.stagnant_steps + 1 } else { 0 };
    if !same {
        machine.durable.state = reduction.state;
        machine.delta.state = true;
    }
    machine.delta.dirty = true;
    let decided = match &machine.durable.phase {
        Phase::Acting(turn) => match &turn.decision {
            TurnDecision::Final { answer } => Some(answer.clone()),
            TurnDecision::Act | TurnDecision::Wait { .. } => None,
        },
        _ => None,
    };
    machine.flight.answer = decided.or(reduction.finish);
    machine.flight.should_stop = reduction.should_stop;
    if machine.fixed.judges {
        machine.flight.awaiting = Awaiting::Judgement;
        effects.push(Effect::Judge);
    } else {
        check_stop(machine);
    }
}

/// Takes the critics' word: stop beats retry beats continue (ENG-19).
pub(super) fn accept_judgement(machine: &mut Machine, judgement: Result<Judgement, Failure>) {
    match judgement {
        Err(failure) => retry_after_critic_error(machine, failure),
        Ok(Judgement::Continue) => {
            machine.durable.counters.critic_retries = 0;
            check_stop(machine);
        }
        Ok(Judgement::Stop { reason }) => {
            let failure = machine.failure("critic_stop", FailureCategory::StateError, &reason);
            end_run::critic_stop(machine, failure);
        }
        Ok(Judgement::Retry { instruction, state }) => {
            machine.flight.answer = None;
            if machine.durable.counters.critic_retries >= machine.fixed.policy.max_critic_retries {
                let failure = machine.failure(
                    "critic_stop",
                    FailureCategory::StateError,
                    "the critics asked for another try too often in a row",
                );
                return end_run::critic_stop(machine, failure);
            }
            machine.durable.counters.critic_retries += 1;
            machine.durable.patch = instruction;
            if let Some(state) = state {
                machine.durable.state = state;
                machine.delta.state = true;
            }
            finish_step(machine);
        }
    }
}

/// A critic error is a recovery case, not a pass (ENG-20).
fn retry_after_critic_error(machine: &mut Machine, failure: Failure) {
    machine.flight.answer = None;
    if machine.durable.counters.recoveries >= machine.fixed.policy.max_recoveries {
        return end_run::failed(machine, failure);
    }
    machine.durable.counters.recoveries += 1;
    machine.delta.tell(Fact::Recovery {
        failure,
        decision: "retry_step",
    });
    finish_step(machine);
}

/// First hit wins: final decision, the agent's condition, criteria (a critic's stop came before).
fn check_stop(machine: &mut Machine) {
    if let Some(answer) = machine.flight.answer.take() {
        // Decision 63: queued steering goes before the end, as long as the budget admits another request.
        if !machine.durable.log.queue().is_empty() && admit_request::admits_another(machine) {
            steer::apply_queue(machine);
            return finish_step(machine);
        }
        finish_step(machine);
        return end_run::completed(machine, answer);
    }
    let then = match &machine.durable.phase {
        Phase::Acting(turn) => turn.then.clone(),
        _ => AfterBatch::Reduce,
    };
    finish_step(machine);
    if let AfterBatch::Stop(reason) = then {
        return end_run::after_batch(machine, reason);
    }
    if machine.flight.should_stop {
        return end_run::stopped(machine, StopReason::AgentCondition);
    }
    let hit = machine
        .fixed
        .policy
        .criteria
        .iter()
        .find(|criterion| met(machine, criterion))
        .cloned();
    if let Some(criterion) = hit {
        end_run::stopped(machine, criterion.stop_reason());
    }
}

fn met(machine: &Machine, criterion: &Criterion) -> bool {
    let counters = &machine.durable.counters;
    match criterion {
        Criterion::MaxSteps(limit) => counters.steps_begun >= *limit,
        Criterion::MaxRuntimeMs(limit) => machine.now.active_ms >= *limit,
        Criterion::MaxTokens(limit) => counters.tokens >= *limit,
        Criterion::Stagnation(limit) => *limit > 0 && counters.stagnant_steps >= *limit,
    }
}
