//! The driver: it performs what the machine wants and feeds back what comes of it.
//!
//! It has one rule, from which every coalescing of durable points follows: **before it waits or lets anything out,
//! it commits what is dirty, then publishes, then performs.**
//!
//! The driver is a task of its own and owns every request and tool it starts; a run future is only a receiver, so
//! dropping it loses nothing (EXE-9).

mod attempt;
mod continuation;
mod inside;
pub(crate) mod mail;
mod perform;
mod publish;
mod request;
mod spill;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use qitos_contracts::checkpoint::{InboxKind, SessionError};
use qitos_contracts::ids::{AttemptId, EffectRef, SlotId};
use qitos_contracts::model::RequestView;
use qitos_contracts::tool::result::End;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::agent::{Observation, StateBox};
use crate::engine::{Parts, RunCallbacks};
use crate::machine::state::{CancelMode, Now, SteeringReceipt};
use crate::machine::{AttemptEnd, Effect, Input, Machine, Settlement};
use crate::view::Instructions;
use crate::workers::UnresolvedWorker;
use crate::writer::Writer;
use mail::Mail;

/// Inputs taken in one go before the driver commits and performs.
const BURST: usize = 256;
/// How often other processes' messages are looked for, at most.
const INBOX_EVERY: Duration = Duration::from_millis(100);
/// How long a cut attempt may take to notice, beyond its grace period, before it counts as stuck (EXE-8).
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// What a task of the driver's brings back.
#[derive(Debug)]
enum Done {
    Input(Box<Input>),
    Attempt {
        slot: u32,
        attempt: AttemptId,
        end: AttemptEnd,
    },
    Response {
        input: Box<Input>,
    },
    Contributions(inside::Contributed),
}

#[derive(Debug)]
struct Running {
    attempt: AttemptId,
    signal: Arc<watch::Sender<bool>>,
    abort: AbortHandle,
    /// When the attempt counts as stuck inside `poll`.
    stuck_at: Option<Instant>,
    /// The attempt's own time limit.
    cut_by_deadline: bool,
    /// Entry of the worker table, once the attempt counts as a worker that runs on.
    adopted: Arc<OnceLock<u64>>,
    tool: Arc<str>,
    effect_ref: Option<EffectRef>,
}

/// What a finished run leaves behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) machine: Machine,
    pub(crate) writer: Option<Writer>,
    pub(crate) state: StateBox,
    pub(crate) mail: mpsc::Receiver<Mail>,
    pub(crate) store_failure: Option<SessionError>,
    pub(crate) trajectory_complete: bool,
    pub(crate) consumer_error: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Drives one run of one session.
pub(crate) struct Driver {
    parts: Arc<Parts>,
    machine: Machine,
    writer: Option<Writer>,
    state: StateBox,
    observation: Option<Arc<Observation>>,
    instructions: Option<Instructions>,
    view: Option<Arc<RequestView>>,
    callbacks: RunCallbacks,
    mail: mpsc::Receiver<Mail>,
    post: mpsc::Sender<Mail>,
    ready: VecDeque<Input>,
    tasks: JoinSet<Done>,
    running: BTreeMap<u32, Running>,
    stop_request: Option<watch::Sender<bool>>,
    /// One entry per steering input, in their order; nobody waits for the receipt of some.
    replies: VecDeque<Option<oneshot::Sender<SteeringReceipt>>>,
    acknowledge: HashMap<AttemptId, Vec<oneshot::Sender<()>>>,
    consumer_error: Arc<std::sync::Mutex<Option<Box<dyn std::error::Error + Send + Sync>>>>,
    started: Instant,
    active_before_ms: u64,
    inbox_at: Option<Instant>,
    trajectory_complete: bool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Driver")
            .field("session", &self.machine.durable().session)
            .finish_non_exhaustive()
    }
}

impl Driver {
    pub(crate) fn new(
        parts: Arc<Parts>,
        machine: Machine,
        writer: Option<Writer>,
        state: StateBox,
        callbacks: RunCallbacks,
        post: mpsc::Sender<Mail>,
        mail: mpsc::Receiver<Mail>,
    ) -> Self {
        let active_before_ms = machine.durable().counters.active_ms;
        let observation = inside::last_observation(&machine, &callbacks.task).map(Arc::new);
        Driver {
            parts,
            machine,
            writer,
            state,
            observation,
            instructions: None,
            view: None,
            callbacks,
            mail,
            post,
            ready: VecDeque::from([Input::Start]),
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            stop_request: None,
            replies: VecDeque::new(),
            acknowledge: HashMap::new(),
            consumer_error: Arc::default(),
            started: Instant::now(),
            active_before_ms,
            inbox_at: None,
            trajectory_complete: true,
        }
    }

    /// Words that go before the first decision of this run.
    pub(crate) fn steer_first(&mut self, content: Vec<qitos_contracts::log::ContentBlock>) {
        self.replies.push_back(None);
        self.ready.push_back(Input::Steer {
            item_id: None,
            content,
        });
    }

    /// A cancel that was asked for before the run began: nothing of it begins (EXE-18, SES-66).
    pub(crate) fn cancel_first(&mut self, mode: CancelMode) {
        self.machine.cancel_first(mode);
    }

    /// Runs until the run's end is durable and nothing of it is left in flight.
    pub(crate) async fn run(mut self) -> Finished {
        loop {
            let mut outside = self.burst();
            let now = self.now();
            if let Some(delta) = self.machine.take_delta() {
                let receipt = match self.commit(&delta).await {
                    Ok(receipt) => receipt,
                    Err(error) => return self.stop_for_store(error).await,
                };
                if !self.publish(&delta.facts, receipt.as_ref(), now).await {
                    let withheld: Vec<Effect> = outside
                        .extract_if(.., |effect| effect.leaves_the_process())
                        .collect();
                    self.trajectory_complete = false;
                    self.ready.push_back(Input::Withheld(withheld));
                }
            }
            for effect in outside {
                self.perform(effect);
            }
            if self.machine.ended().is_some() {
                if self.running.is_empty() {
                    if self.ready.is_empty() {
                        return self.finish(None);
                    }
                } else {
                    self.signal_all();
                }
            }
            if self.ready.is_empty() {
                let input = self.next().await;
                self.ready.extend(input);
            }
        }
    }

    /// Takes inputs that are there, performs inside effects at once, and collects the outside ones.
    fn burst(&mut self) -> Vec<Effect> {
        let mut outside = Vec::new();
        for _ in 0..BURST {
            let Some(input) = self
                .ready
                .pop_front()
                .or_else(|| self.finished_now())
                .or_else(|| self.mail_now())
            else {
                break;
            };
            let now = self.now();
            for effect in self.machine.step(input, now) {
                if effect.is_outside() {
                    outside.push(effect);
                } else if let Some(input) = self.inside(&effect) {
                    self.ready.push_back(input);
                }
            }
        }
        outside
    }

    fn now(&self) -> Now {
        let active = self.started.elapsed().as_millis();
        Now {
            wall: self.parts.clock.now(),
            active_ms: self
                .active_before_ms
                .saturating_add(u64::try_from(active).unwrap_or(u64::MAX)),
        }
    }

    async fn commit(
        &mut self,
        delta: &crate::machine::Delta,
    ) -> Result<Option<qitos_contracts::checkpoint::Receipt>, SessionError> {
        match &mut self.writer {
            Some(writer) => writer.commit(&self.machine, delta).await.map(Some),
            None => Ok(None),
        }
    }

    fn finished_now(&mut self) -> Option<Input> {
        loop {
            match self.tasks.try_join_next()? {
                Ok(done) => {
                    if let Some(input) = self.accept_done(done) {
                        return Some(input);
                    }
                }
                Err(_aborted) => {}
            }
        }
    }

    fn mail_now(&mut self) -> Option<Input> {
        loop {
            let mail = self.mail.try_recv().ok()?;
            if let Some(input) = self.accept_mail(mail) {
                return Some(input);
            }
        }
    }

    fn accept_done(&mut self, done: Done) -> Option<Input> {
        match done {
            Done::Input(input) => Some(*input),
            Done::Response { input } => {
                self.stop_request = None;
                Some(*input)
            }
            Done::Contributions(contributed) => self.build_view(contributed),
            Done::Attempt { slot, attempt, end } => {
                if self
                    .running
                    .get(&slot)
                    .is_some_and(|running| running.attempt == attempt)
                {
                    self.running.remove(&slot);
                }
                // Whoever still waits for word on a report hears that its owner is gone.
                self.acknowledge.remove(&attempt);
                Some(Input::Ended {
                    slot,
                    attempt,
                    end: Box::new(end),
                })
            }
        }
    }

    fn accept_mail(&mut self, mail: Mail) -> Option<Input> {
        match mail {
            Mail::Steer {
                item_id,
                content,
                reply,
            } => {
                self.replies.push_back(Some(reply));
                Some(Input::Steer { item_id, content })
            }
            Mail::Pause => {
                if let Some(writer) = &mut self.writer {
                    writer.note_pause();
                }
                Some(Input::Pause)
            }
            Mail::Abandon => {
                // EXE-9: nobody waits for the run any more. What runs is asked to stop, the step completes.
                self.signal_all();
                if let Some(writer) = &mut self.writer {
                    writer.note_pause();
                }
                Some(Input::Pause)
            }
            Mail::Cancel(mode) => Some(Input::Cancel(mode)),
            Mail::Report {
                slot,
                attempt,
                effect,
                reply,
            } => {
                let runs = self.running.get(&slot)?.attempt == attempt;
                if !runs {
                    return None;
                }
                self.acknowledge
                    .entry(attempt.clone())
                    .or_default()
                    .push(reply);
                Some(Input::Reported {
                    slot,
                    attempt,
                    effect,
                })
            }
            Mail::Progress {
                slot,
                attempt,
                note,
            } => {
                if let Some(progress) = &self.callbacks.progress {
                    progress.tool_progress(slot, &attempt, &note);
                }
                None
            }
            Mail::Late {
                slot,
                attempt,
                result,
            } => {
                let end = match result {
                    Ok(Ok(returned)) => End::Returned(returned),
                    Ok(Err(error)) => End::Failed(error),
                    Err(panic) => End::Panicked(panic),
                };
                Some(Input::Ended {
                    slot,
                    attempt,
                    end: Box::new(AttemptEnd { end, latency_ms: 0 }),
                })
            }
        }
    }

    /// Waits for whatever comes next. Only called when nothing is dirty and nothing is ready.
    async fn next(&mut self) -> Vec<Input> {
        if let Some(inputs) = self.read_inbox().await {
            return inputs;
        }
        loop {
            let stuck_at = self
                .running
                .values()
                .filter_map(|running| running.stuck_at)
                .min();
            let inbox_at = self.inbox_due();
            let got = tokio::select! {
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => match done {
                    Ok(done) => self.accept_done(done),
                    Err(_aborted) => None,
                },
                Some(mail) = self.mail.recv() => self.accept_mail(mail),
                () = sleep_until(stuck_at) => self.cut_stuck(),
                () = sleep_until(inbox_at) => {
                    if let Some(inputs) = self.read_inbox().await {
                        return inputs;
                    }
                    None
                }
            };
            if let Some(input) = got {
                return vec![input];
            }
        }
    }

    fn inbox_due(&self) -> Option<Instant> {
        let has_inbox = self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.store().groups().inbox.is_some());
        has_inbox.then(|| self.inbox_at.unwrap_or_else(Instant::now) + INBOX_EVERY)
    }

    /// Takes what other processes left for the owner, in sequence (SES-63).
    async fn read_inbox(&mut self) -> Option<Vec<Input>> {
        if self
            .inbox_at
            .is_some_and(|last| last.elapsed() < INBOX_EVERY)
        {
            return None;
        }
        if self.machine.ended().is_some() {
            // Consumed and ignored would be lost: it stays for the next run.
            return None;
        }
        let writer = self.writer.as_mut()?;
        let store = Arc::clone(writer.store());
        let inbox = store.groups().inbox?;
        self.inbox_at = Some(Instant::now());
        let entries = inbox.take(&self.machine.durable().session, 64).await.ok()?;
        let mut inputs = Vec::new();
        for entry in entries {
            let input = match entry.kind {
                InboxKind::Pause => {
                    writer.note_pause();
                    Input::Pause
                }
                InboxKind::Cancel => Input::Cancel(CancelMode::AfterStep),
                InboxKind::Steering => {
                    let text = String::from_utf8_lossy(&entry.payload).into_owned();
                    let content = vec![qitos_contracts::log::ContentBlock::text(text)];
                    self.replies.push_back(None);
                    Input::Steer {
                        item_id: Some(entry.item_id.clone()),
                        content,
                    }
                }
                InboxKind::Reconcile => match read_settlement(&entry.payload) {
                    Some((slot_id, settlement)) => Input::Settle {
                        slot_id,
                        settlement,
                    },
                    None => Input::Unheard(entry.kind.as_str()),
                },
                // No approval is ever open, and whoever is woken here is awake.
                _ => Input::Unheard(entry.kind.as_str()),
            };
            writer.consume_inbox(entry.sequence);
            inputs.push(input);
        }
        (!inputs.is_empty()).then_some(inputs)
    }

    /// A future stuck inside `poll` cannot be dropped: it is treated as a worker that runs on (EXE-8).
    fn cut_stuck(&mut self) -> Option<Input> {
        let now = Instant::now();
        let slot = *self
            .running
            .iter()
            .find(|(_, running)| {
                running.stuck_at.is_some_and(|at| at <= now) && !running.abort.is_finished()
            })?
            .0;
        let running = self.running.remove(&slot)?;
        running.abort.abort();
        let worker = UnresolvedWorker {
            attempt_id: running.attempt.clone(),
            tool: Arc::clone(&running.tool),
            effect_ref: running.effect_ref.clone(),
            orphaned: true,
        };
        let _ = running.adopted.set(self.parts.workers.adopt(worker));
        let worker_running = true;
        let end = if running.cut_by_deadline {
            End::TimedOut { worker_running }
        } else {
            End::Cancelled { worker_running }
        };
        Some(Input::Ended {
            slot,
            attempt: running.attempt,
            end: Box::new(AttemptEnd { end, latency_ms: 0 }),
        })
    }

    fn signal_all(&mut self) {
        let grace = self.machine.fixed.policy.cancel_grace;
        for running in self.running.values_mut() {
            running.cut_by_deadline = false;
            perform::signal(running, grace);
        }
    }

    /// The store refused: nothing else is dispatched, the durable lifecycle stays (EXE-16, SES-11).
    async fn stop_for_store(mut self, error: SessionError) -> Finished {
        self.signal_all();
        if let Some(stop) = &self.stop_request {
            stop.send_replace(true);
        }
        let patience = self.machine.fixed.policy.cancel_grace + STUCK_AFTER;
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, drained).await.is_err() {
            self.tasks.abort_all();
        }
        self.finish(Some(error))
    }

    fn finish(self, store_failure: Option<SessionError>) -> Finished {
        let consumer_error = self
            .consumer_error
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        Finished {
            machine: self.machine,
            writer: self.writer,
            state: self.state,
            mail: self.mail,
            store_failure,
            trajectory_complete: self.trajectory_complete,
            consumer_error,
        }
    }
}

/// An answer as [`resolve_effect`](crate::session::resolve_effect) writes it.
fn read_settlement(payload: &[u8]) -> Option<(SlotId, Settlement)> {
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(payload).ok()?;
    let slot_id = serde_json::from_value(fields.remove("slot_id")?).ok()?;
    let settlement = serde_json::from_value(serde_json::Value::Object(fields)).ok()?;
    Some((slot_id, settlement))
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
