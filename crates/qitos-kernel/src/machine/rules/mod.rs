//! One rule, one file. [`accept`] files an input under its rule; [`advance`] says what happens next.

mod accept_response;
mod admit_request;
pub(super) mod advance;
mod cancel;
mod close_slot;
mod decide_stop;
mod dispatch;
pub(super) mod end_run;
mod loop_guard;
mod open_batch;
mod pass_gates;
mod record_outcome;
pub(super) mod recover;
mod settle_effect;
mod steer;
mod withhold;

use qitos_contracts::snapshot::Lifecycle;

use super::state::{Awaiting, CancelMode, Phase};
use super::{Effect, Fact, Input, Machine};

/// Files an input under the rule that handles it. Inputs that nobody waits for any more change nothing.
pub(super) fn accept(machine: &mut Machine, input: Input, effects: &mut Vec<Effect>) {
    // After the end nothing new begins, but what still runs keeps its outcome.
    let keeps = matches!(
        input,
        Input::Start | Input::Ended { .. } | Input::Reported { .. }
    );
    if machine.flight.ended.is_some() && !keeps {
        return;
    }
    match input {
        Input::Start => start(machine),
        Input::Continue => machine.flight.continuing = false,
        Input::Woke => settle(machine, Awaiting::Timer),
        Input::RetryDue { slot, attempt } => {
            if machine.flight.waiting_retry.get(&slot) == Some(&attempt) {
                machine.flight.waiting_retry.remove(&slot);
            }
        }
        Input::Decided(decision) => {
            if expects(machine, Awaiting::Decision) {
                accept_response::accept_decision(machine, decision, effects);
            }
        }
        Input::Viewed(view) => {
            if expects(machine, Awaiting::View) {
                admit_request::admit(machine, view, effects);
            }
        }
        Input::Responded { ordinal, outcome } => {
            accept_response::accept(machine, ordinal, *outcome, effects)
        }
        Input::Gated(verdicts) => {
            if expects(machine, Awaiting::Gates) {
                pass_gates::accept(machine, verdicts);
            }
        }
        Input::Ended { slot, attempt, end } => {
            record_outcome::accept(machine, slot, &attempt, *end, effects)
        }
        Input::Reported {
            slot,
            attempt,
            effect,
        } => {
            record_outcome::accept_report(machine, slot, &attempt, effect, effects);
        }
        Input::Reconciled { slot, answer } => {
            if expects(machine, Awaiting::Reconciliation) {
                recover::accept_reconciliation(machine, slot, answer);
            }
        }
        Input::Reduced(reduction) => {
            if expects(machine, Awaiting::Reduction) {
                decide_stop::accept_reduction(machine, reduction, effects);
            }
        }
        Input::Judged(judgement) => {
            if expects(machine, Awaiting::Judgement) {
                decide_stop::accept_judgement(machine, judgement);
            }
        }
        Input::Steer { item_id, content } => steer::accept(machine, item_id, content, effects),
        Input::Settle {
            slot_id,
            settlement,
        } => settle_effect::accept(machine, slot_id, settlement),
        Input::Unheard(kind) => machine.delta.tell(Fact::Unheard { kind }),
        Input::Pause => machine.flight.pause = true,
        Input::Cancel(mode) => cancel::accept(machine, mode),
        Input::Withheld(withheld) => withhold::accept(machine, &withheld),
    }
}

/// A cancel that comes before the run.
pub(super) fn cancel_first(machine: &mut Machine, mode: CancelMode) {
    cancel::accept(machine, mode);
}

fn start(machine: &mut Machine) {
    machine.flight.ended = None;
    machine.flight.pause = false;
    machine.flight.awaiting = Awaiting::Nothing;
    machine.flight.stopping = false;
    machine.flight.continuing = false;
    machine.flight.waiting_retry.clear();
    // Whatever the run before this one left behind in this process, its requests and timers are gone (section 10).
    recover::recover(machine);
    machine.durable.counters.recoveries = 0;
    machine.durable.counters.empty_responses = 0;
    machine.durable.lifecycle = Lifecycle::Running;
    machine.delta.tell(Fact::LifecycleChanged {
        lifecycle: Lifecycle::Running,
    });
    machine.delta.tell(Fact::RunStarted);
}

fn settle(machine: &mut Machine, awaited: Awaiting) {
    if machine.flight.awaiting == awaited {
        machine.flight.awaiting = Awaiting::Nothing;
    }
}

fn expects(machine: &mut Machine, awaited: Awaiting) -> bool {
    let expected = machine.flight.awaiting == awaited;
    settle(machine, awaited);
    expected
}

/// Ends the current step: the next decision belongs to the next one (D5).
fn finish_step(machine: &mut Machine) {
    let step = machine.durable.step;
    machine.durable.step += 1;
    machine.durable.step_begun = false;
    machine.durable.phase = Phase::Ready;
    machine.delta.batch = true;
    machine.delta.tell(Fact::StepCommitted { step });
}
