//! Admission before spending (ENG-12, CFG-30): the last admissible request is sent, the next one never.

use super::super::input::ViewFacts;
use super::super::state::{Asked, Awaiting, CancelMode, Phase};
use super::super::{Effect, Fact, Machine};
use super::end_run;
use crate::outcome::{Failure, StopReason};

/// Accepts a view: refuses it by budget, or makes it the asked request (D1).
pub(super) fn admit(
    machine: &mut Machine,
    view: Result<ViewFacts, Failure>,
    effects: &mut Vec<Effect>,
) {
    if machine.durable.cancel == Some(CancelMode::Immediate) {
        // EXE-18: no request leaves any more.
        return;
    }
    let view = match view {
        Ok(view) => view,
        Err(failure) => return end_run::view_failed(machine, failure),
    };
    let reserved_tokens = view.input_tokens.saturating_add(view.output_tokens);
    if let Some(reason) = refusal(machine, reserved_tokens) {
        return end_run::budget(machine, reason);
    }
    let counters = &mut machine.durable.counters;
    let asked = Asked {
        ordinal: counters.next_ordinal,
        request_id: view.request_id,
        view_digest: view.view_digest,
        reserved_tokens,
    };
    counters.next_ordinal += 1;
    counters.requests_reserved += 1;
    let ordinal = asked.ordinal;
    let items = machine.durable.log.items().len() as u64;
    machine.delta.view = Some(asked.clone());
    machine.delta.view_first = view.first_item;
    machine.delta.tell(Fact::ModelRequest {
        asked: asked.clone(),
        items,
    });
    machine.durable.phase = Phase::Asked(asked);
    machine.flight.awaiting = Awaiting::Response;
    effects.push(Effect::Request { ordinal });
}

fn refusal(machine: &Machine, tokens: u64) -> Option<StopReason> {
    let (counters, budget) = (&machine.durable.counters, &machine.durable.budget);
    let requests = counters.requests + counters.requests_reserved;
    if budget.max_requests.is_some_and(|limit| requests >= limit) {
        return Some(StopReason::BudgetRequests);
    }
    if budget
        .max_runtime_ms
        .is_some_and(|limit| machine.now.active_ms >= limit)
    {
        return Some(StopReason::BudgetTime);
    }
    if budget
        .max_tokens
        .is_some_and(|limit| counters.tokens.saturating_add(tokens) > limit)
    {
        return Some(StopReason::BudgetTokens);
    }
    None
}

/// Whether the budget would admit one more request and step (decision 63).
pub(super) fn admits_another(machine: &Machine) -> bool {
    let (counters, budget) = (&machine.durable.counters, &machine.durable.budget);
    counters.steps_begun < budget.max_steps && refusal(machine, 0).is_none()
}
