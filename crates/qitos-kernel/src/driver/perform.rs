//! Effects that leave the process or wait; only called after the commit and the publication they depend on.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qitos_contracts::ids::AttemptId;
use qitos_contracts::tool::Reconciled;
use qitos_contracts::tool::call::CallIdentity;
use qitos_contracts::tool::model_view::result_limit;
use qitos_contracts::tool::result::{End, LostKind};
use qitos_contracts::tool::{CallCtx, CallPort};
use tokio::sync::watch;
use tokio::time::Instant;

use super::attempt::{Attempt, AttemptPort, CatchPanic};
use super::{Done, Driver, Running, STUCK_AFTER};
use crate::machine::state::{Phase, SlotState};
use crate::machine::{AttemptEnd, Effect, Input};
use crate::workers::WorkerTable;

/// Asks a running attempt to stop; from now on it has its grace period.
pub(super) fn signal(running: &mut Running, grace: Duration) {
    running.signal.send_replace(true);
    let stuck_at = Instant::now() + grace + STUCK_AFTER;
    running.stuck_at = Some(running.stuck_at.map_or(stuck_at, |at| at.min(stuck_at)));
}

/// Takes an attempt out of the worker table once its task is really over.
struct ReleaseWorker {
    workers: WorkerTable,
    adopted: Arc<OnceLock<u64>>,
}

impl Drop for ReleaseWorker {
    fn drop(&mut self) {
        if let Some(id) = self.adopted.get() {
            self.workers.release(*id);
        }
    }
}

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Request { ordinal } => self.send_request(ordinal),
            Effect::Dispatch { slot, attempt } => self.dispatch(slot, attempt),
            Effect::StopRequest => {
                if let Some(stop) = &self.stop_request {
                    stop.send_replace(true);
                }
            }
            Effect::StopAttempt { slot } => {
                let grace = self.machine.fixed.policy.cancel_grace;
                if let Some(running) = self.running.get_mut(&slot) {
                    running.cut_by_deadline = false;
                    signal(running, grace);
                }
            }
            Effect::RetryLater {
                slot,
                attempt,
                delay_ms,
            } => self.later(delay_ms, Input::RetryDue { slot, attempt }),
            Effect::Sleep { delay_ms } => self.later(delay_ms, Input::Woke),
            Effect::Reconcile { slot } => self.reconcile(slot),
            Effect::Reply { receipt } => {
                if let Some(Some(reply)) = self.replies.pop_front() {
                    let _ = reply.send(*receipt);
                }
            }
            Effect::Acknowledge { attempt } => {
                for reply in self.acknowledge.remove(&attempt).unwrap_or_default() {
                    let _ = reply.send(());
                }
            }
            Effect::Continue => self.ready.push_back(Input::Continue),
            Effect::Decide | Effect::View | Effect::Gate | Effect::Reduce | Effect::Judge => {}
        }
    }

    fn later(&mut self, delay_ms: u64, input: Input) {
        let delay = Duration::from_millis(delay_ms);
        self.tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            Done::Input(Box::new(input))
        });
    }

    /// Active time that the budget leaves, for time limits (CFG-31).
    pub(super) fn time_left(&self) -> Option<Duration> {
        let limit = self.machine.durable().budget.max_runtime_ms?;
        Some(Duration::from_millis(
            limit.saturating_sub(self.now().active_ms),
        ))
    }

    fn dispatch(&mut self, index: u32, attempt: AttemptId) {
        let time_left = self.time_left();
        let durable = self.machine.durable();
        let Phase::Acting(turn) = &durable.phase else {
            return;
        };
        let Some(batch) = &turn.batch else { return };
        let Some(slot) = batch.slots.get(index as usize) else {
            return;
        };
        let SlotState::Started(intent) = &slot.state else {
            return;
        };
        let Some(tool) = self.parts.registry.by_name(&intent.admitted.tool).cloned() else {
            let end = AttemptEnd {
                end: End::Lost(LostKind::Worker),
                latency_ms: 0,
            };
            self.ready.push_back(Input::Ended {
                slot: index,
                attempt,
                end: Box::new(end),
            });
            return;
        };
        let policy = &self.machine.fixed.policy;
        let own = tool.spec.timeout.or(policy.call_timeout);
        let timeout = match (own, time_left) {
            (Some(own), Some(left)) => Some(own.min(left)),
            (own, left) => own.or(left),
        };
        let (signal, cancel) = watch::channel(false);
        let signal = Arc::new(signal);
        let effect_ref = intent.admitted.class.effect_ref().cloned();
        let port: Arc<dyn CallPort> = Arc::new(AttemptPort {
            slot: index,
            attempt: attempt.clone(),
            tool: Arc::clone(&intent.admitted.tool),
            effect_ref: effect_ref.clone(),
            cancel,
            mail: self.post.clone(),
            env: self.parts.env.clone(),
            granted: tool.spec.required_ops.clone(),
            artifacts: self.parts.artifacts.clone(),
            workers: self.parts.workers.clone(),
        });
        let identity = CallIdentity {
            session_id: durable.session.clone(),
            run_id: durable.run.clone(),
            step_id: durable.step,
            batch_id: batch.id.clone(),
            slot_id: slot.id.clone(),
            attempt_id: attempt.clone(),
            generation: durable.owner_generation,
            effect_ref,
            idempotency_key: intent.admitted.key.clone(),
            deadline: timeout,
        };
        let grace = policy.cancel_grace;
        let shown_chars = result_limit(
            batch.slots.len(),
            index as usize,
            &[tool.spec.result_max_chars],
        );
        let run = Attempt {
            args: slot.args.clone().unwrap_or_default(),
            tool,
            context: CallCtx::new(identity, port),
            attempt: attempt.clone(),
            timeout,
            grace,
            signal: Arc::clone(&signal),
            workers: self.parts.workers.clone(),
            artifacts: self.parts.artifacts.clone(),
            shown_chars,
        };
        let named = attempt.clone();
        let adopted = Arc::new(OnceLock::new());
        let release = ReleaseWorker {
            workers: self.parts.workers.clone(),
            adopted: Arc::clone(&adopted),
        };
        let (tool_name, effect) = (
            Arc::clone(&intent.admitted.tool),
            intent.admitted.class.effect_ref().cloned(),
        );
        let abort = self.tasks.spawn(async move {
            let _release = release;
            let end = run.run().await;
            Done::Attempt {
                slot: index,
                attempt: named,
                end,
            }
        });
        let stuck_at = timeout.map(|timeout| Instant::now() + timeout + grace + STUCK_AFTER);
        let running = Running {
            attempt,
            signal,
            abort,
            stuck_at,
            cut_by_deadline: true,
            adopted,
            tool: tool_name,
            effect_ref: effect,
        };
        self.running.insert(index, running);
    }

    fn reconcile(&mut self, index: u32) {
        let durable = self.machine.durable();
        let found = match &durable.phase {
            Phase::Acting(turn) => turn
                .batch
                .as_ref()
                .and_then(|batch| batch.slots.get(index as usize)),
            _ => None,
        };
        let intent = match found.map(|slot| &slot.state) {
            Some(SlotState::Started(intent)) => intent.clone(),
            _ => return,
        };
        let tool = self
            .parts
            .registry
            .by_name(&intent.admitted.tool)
            .map(|tool| Arc::clone(&tool.tool));
        let effect = intent.admitted.class.effect_ref().cloned();
        let key = intent.admitted.key.unwrap_or_default();
        let patience = self.parts.reconcile_deadline;
        self.tasks.spawn(async move {
            let answer = match (tool, effect) {
                (Some(tool), Some(effect)) => {
                    let call = CatchPanic::new(async move { tool.reconcile(&effect, &key).await });
                    match tokio::time::timeout(patience, call).await {
                        Ok(Ok(answer)) => answer,
                        _ => Reconciled::Unknown,
                    }
                }
                _ => Reconciled::Unknown,
            };
            Done::Input(Box::new(Input::Reconciled {
                slot: index,
                answer,
            }))
        });
    }
}
