//! The handle of a session: create, run, pause, steer, cancel, inspect (section 3 of the session specification).

mod fork;
mod inspect;
mod pause;
mod restore;
mod result;
mod settle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qitos_contracts::checkpoint::{CheckpointStore, Receipt, SessionError, SessionErrorCode};
use qitos_contracts::ids::{RunId, SessionId, WorkAttemptId, WorkItemId};
use qitos_contracts::log::ContentBlock;
use qitos_contracts::model::DeltaSink;
use qitos_contracts::snapshot::{Lifecycle, ResolverReferences};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

pub use fork::ForkFrom;
pub use inspect::{inspect, log_tail};
pub use pause::{PauseReceipt, PauseStatus};
pub use restore::{RestoreOptions, Takeover};
pub use settle::{SettlementReceipt, resolve_effect};

use crate::agent::{StateBox, Task};
use crate::components::Capture;
use crate::driver::mail::Mail;
use crate::driver::{Driver, Finished};
use crate::engine::{Engine, Parts, ProgressSink, RunCallbacks, SharedSink};
use crate::machine::limits::Budget;
use crate::machine::state::{CancelMode, Now, SteeringReceipt};
use crate::machine::{Machine, NewSession};
use crate::outcome::EngineResult;
use crate::writer::{Writer, WriterParts};

/// Messages that may wait for a running session.
const MAILBOX: usize = 1_024;

/// Options of one run.
#[derive(Default)]
pub struct RunOptions {
    /// Words for the agent, applied before its next decision.
    pub steering: Option<String>,
    /// Receives streamed text.
    pub on_delta: Option<Box<dyn DeltaSink>>,
    /// The consumer can show a restarted answer again from its beginning (decision 72).
    pub restartable: bool,
    /// Hears how far tools are.
    pub progress: Option<Arc<dyn ProgressSink>>,
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunOptions")
            .field("steering", &self.steering)
            .finish_non_exhaustive()
    }
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The session refused, before anything ran.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The consumer of the stream failed; its own error, unchanged (PRV-94). The session rests and goes on.
    #[error("the consumer of the stream failed")]
    Consumer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

pub(crate) struct Idle {
    pub(crate) machine: Machine,
    pub(crate) writer: Option<Writer>,
    pub(crate) state: StateBox,
    pub(crate) mail: mpsc::Receiver<Mail>,
}

enum Stage {
    Idle(Box<Idle>),
    Running,
    /// Another run owns the session; this handle never writes again (SES-31).
    Superseded,
    /// The store refused a commit: what is in memory is ahead of it and may not be built upon.
    Behind,
}

/// What is known of a session without asking its run.
#[derive(Clone, Debug)]
struct Known {
    lifecycle: Lifecycle,
    receipt: Option<Receipt>,
    running: bool,
}

struct Inner {
    parts: Arc<Parts>,
    id: SessionId,
    run: RunId,
    task: Arc<Task>,
    post: mpsc::Sender<Mail>,
    stage: Mutex<Stage>,
    known: watch::Sender<Known>,
}

/// A durable session; cheap to clone, usable from any task.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Session")
            .field("id", &self.0.id)
            .field("run", &self.0.run)
            .finish_non_exhaustive()
    }
}

fn session_error(code: SessionErrorCode, message: &str) -> SessionError {
    SessionError::new(code, message)
}

fn invalid(operation: &str, lifecycle: Lifecycle) -> SessionError {
    session_error(
        SessionErrorCode::InvalidLifecycleOperation,
        "the session's lifecycle does not allow it",
    )
    .with("operation", operation)
    .with("lifecycle", lifecycle.as_str())
}

fn now(parts: &Parts) -> Now {
    Now {
        wall: parts.clock.now(),
        active_ms: 0,
    }
}

/// The part of a capture that every session of an engine shares.
fn capture_of(
    parts: &Parts,
    task: &Task,
    work_item_id: WorkItemId,
    attempt_id: WorkAttemptId,
) -> Capture {
    let mut composition = parts.composition.clone();
    if let (Some(digest), Value::Object(map)) = (&parts.config_digest, &mut composition) {
        map.insert("launch_metadata".into(), json!({"config_digest": digest}));
    }
    Capture {
        agent_id: parts.agent.name().to_owned(),
        state_schema: parts.agent.state_schema(),
        task: json!({"objective": task.objective, "metadata": task.metadata}),
        engine_config: json!({"agent": parts.agent.name(), "protocol": &*parts.view_policy.protocol_id}),
        execution_options: json!({}),
        runtime_composition: composition,
        manifest_digest: parts.registry.manifest_digest(),
        parent_run: None,
        work_item_id,
        attempt_id,
        fork_source: None,
    }
}

fn writer_parts(
    parts: &Parts,
    store: Arc<dyn CheckpointStore>,
    session: SessionId,
    fixed: Capture,
) -> WriterParts {
    WriterParts {
        store,
        clock: Arc::clone(&parts.clock),
        ids: Arc::clone(&parts.ids),
        fixed,
        session,
        created_at: parts.clock.now(),
        references: ResolverReferences::none(),
    }
}

impl Engine {
    /// Makes a session: lifecycle `created`, generation 0, every id made here (SES-13).
    ///
    /// # Errors
    /// `task_validation_failed` as `persistence_rejected` metadata if the agent refuses the task; the store's codes.
    /// Nothing is durable then.
    ///
    /// # Cancel safety
    /// Dropping it may leave a created session without a handle; it can be recovered.
    ///
    /// # Durability
    /// The session is durable when this returns, in the store's class.
    pub async fn session(&self, task: impl Into<Task>) -> Result<Session, SessionError> {
        self.session_with_id(task, None).await
    }

    /// As [`session`](Self::session), under an id that the caller chose.
    ///
    /// # Errors
    /// Also `generation_conflict` if the session exists.
    ///
    /// # Cancel safety
    /// As [`session`](Self::session).
    pub async fn session_with_id(
        &self,
        task: impl Into<Task>,
        id: Option<SessionId>,
    ) -> Result<Session, SessionError> {
        let parts = &self.0;
        let task = task.into();
        let (state, bytes) = parts.agent.init(&task).map_err(|error| {
            session_error(
                SessionErrorCode::PersistenceRejected,
                "the agent refused the task",
            )
            .with("reason", "task_validation_failed")
            .with("agent_code", error.code)
        })?;
        let id = id.unwrap_or_else(|| SessionId::generate(&*parts.ids));
        let run = RunId::generate(&*parts.ids);
        let new = NewSession {
            session: id.clone(),
            run: run.clone(),
            state: bytes,
            task: vec![ContentBlock::text(task.objective.as_str())],
            budget: parts.budget.clone(),
        };
        let mut machine = Machine::create(
            new,
            parts.policy.clone(),
            !parts.critics.is_empty(),
            now(parts),
        )
        .map_err(|error| {
            let code = qitos_contracts::error::ContractError::code(&error);
            let code =
                SessionErrorCode::from_code(code).unwrap_or(SessionErrorCode::CorruptSnapshot);
            session_error(code, "the task cannot be stored")
        })?;
        let mut writer = parts.store.clone().map(|store| {
            let work_item = WorkItemId::generate(&*parts.ids);
            let attempt = WorkAttemptId::generate(&*parts.ids);
            let fixed = capture_of(parts, &task, work_item, attempt);
            Writer::create(writer_parts(parts, store, id, fixed))
        });
        if let (Some(writer), Some(delta)) = (&mut writer, machine.take_delta()) {
            writer.commit(&machine, &delta).await?;
        }
        Ok(Session::around(
            Arc::clone(parts),
            task,
            machine,
            writer,
            state,
        ))
    }
}

impl Session {
    fn around(
        parts: Arc<Parts>,
        task: Task,
        machine: Machine,
        writer: Option<Writer>,
        state: StateBox,
    ) -> Session {
        let (post, mail) = mpsc::channel(MAILBOX);
        let known = Known {
            lifecycle: machine.durable().lifecycle,
            receipt: writer.as_ref().and_then(|writer| writer.receipt().cloned()),
            running: false,
        };
        Session(Arc::new(Inner {
            parts,
            id: machine.durable().session.clone(),
            run: machine.durable().run.clone(),
            task: Arc::new(task),
            post,
            stage: Mutex::new(Stage::Idle(Box::new(Idle {
                machine,
                writer,
                state,
                mail,
            }))),
            known: watch::channel(known).0,
        }))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    /// The run that this handle owns the session with.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.0.run
    }

    /// Lifecycle as of the last receipt.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.known.borrow().lifecycle
    }

    /// The last receipt, if the session is durable.
    #[must_use]
    pub fn receipt(&self) -> Option<Receipt> {
        self.0.known.borrow().receipt.clone()
    }

    /// Runs until the agent ends, waits, pauses or is stopped.
    ///
    /// # Errors
    /// `invalid_lifecycle_operation` if the session is over or runs already; `superseded_owner`. What goes wrong
    /// *during* the run is in the result.
    ///
    /// # Cancel safety
    /// Dropping the future asks running calls to stop and the run to pause; it detaches nothing: what runs stays
    /// owned, outcomes are stored (EXE-9).
    ///
    /// # Durability
    /// Every intent is durable before its effect, every outcome before anything depends on it.
    pub async fn run(&self, options: RunOptions) -> Result<EngineResult, RunError> {
        let mut guard = PauseOnDrop {
            session: self,
            armed: true,
        };
        let result = self.start(options)?;
        let answer = result.await;
        guard.armed = false;
        match answer {
            Ok(answer) => answer,
            Err(_) => Err(session_error(
                SessionErrorCode::PersistenceFailed,
                "the run's task ended early",
            )
            .into()),
        }
    }

    fn start(
        &self,
        options: RunOptions,
    ) -> Result<oneshot::Receiver<Result<EngineResult, RunError>>, SessionError> {
        let mut stage = self.stage();
        let idle = match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Idle(idle) => idle,
            Stage::Running => return Err(invalid("run", Lifecycle::Running)),
            Stage::Behind => {
                *stage = Stage::Behind;
                let text =
                    "the store refused an earlier commit: recover the session from the store";
                return Err(session_error(SessionErrorCode::PersistenceFailed, text));
            }
            Stage::Superseded => {
                *stage = Stage::Superseded;
                return Err(session_error(
                    SessionErrorCode::SupersededOwner,
                    "another run owns the session",
                ));
            }
        };
        let lifecycle = idle.machine.durable().lifecycle;
        if lifecycle.is_terminal() {
            *stage = Stage::Idle(idle);
            return Err(invalid("run", lifecycle));
        }
        drop(stage);
        self.0.known.send_modify(|known| known.running = true);
        let Idle {
            machine,
            writer,
            state,
            mut mail,
        } = *idle;
        let (cancel, late) = left_over(&mut mail);
        for letter in late {
            let _ = self.0.post.try_send(letter);
        }
        let callbacks = RunCallbacks {
            task: Arc::clone(&self.0.task),
            on_delta: options.on_delta.map(|sink| SharedSink {
                sink: Arc::new(tokio::sync::Mutex::new(sink)),
                restartable: options.restartable,
            }),
            progress: options.progress,
        };
        let mut driver = Driver::new(
            Arc::clone(&self.0.parts),
            machine,
            writer,
            state,
            callbacks,
            self.0.post.clone(),
            mail,
        );
        if let Some(mode) = cancel {
            driver.cancel_first(mode);
        }
        if let Some(text) = options.steering {
            driver.steer_first(vec![ContentBlock::text(text)]);
        }
        let (answer, result) = oneshot::channel();
        let session = self.clone();
        tokio::spawn(async move {
            let finished = Box::pin(driver.run()).await;
            let _ = answer.send(session.finished(finished));
        });
        Ok(result)
    }

    fn finished(&self, finished: Finished) -> Result<EngineResult, RunError> {
        let Finished {
            machine,
            writer,
            state,
            mail,
            store_failure,
            trajectory_complete,
            consumer_error,
        } = finished;
        let result = result::result_of(&machine, store_failure.as_ref(), trajectory_complete);
        let superseded = store_failure
            .as_ref()
            .is_some_and(|error| error.error_code == SessionErrorCode::SupersededOwner);
        let receipt = writer.as_ref().and_then(|writer| writer.receipt().cloned());
        let lifecycle = match (&store_failure, &receipt) {
            (Some(_), Some(receipt)) => receipt.lifecycle,
            _ => machine.durable().lifecycle,
        };
        *self.stage() = match (superseded, &store_failure) {
            (true, _) => Stage::Superseded,
            (false, Some(_)) => Stage::Behind,
            (false, None) => Stage::Idle(Box::new(Idle {
                machine,
                writer,
                state,
                mail,
            })),
        };
        self.0.known.send_replace(Known {
            lifecycle,
            receipt,
            running: false,
        });
        match consumer_error {
            Some(error) => Err(RunError::Consumer(error)),
            None => Ok(result),
        }
    }

    /// Says something to the agent while it works (LOG-7); the receipt comes after its commit.
    ///
    /// # Errors
    /// `size_limit_exceeded` above 64 KiB; `invalid_lifecycle_operation` when nothing runs (then give it to
    /// [`run`](Self::run)); `superseded_owner`.
    ///
    /// # Cancel safety
    /// Dropping it may leave the message taken; it is applied at most once.
    pub async fn steer(&self, text: impl Into<String>) -> Result<SteeringReceipt, SessionError> {
        let text = text.into();
        if text.len() > qitos_contracts::limits::STEERING_BYTES {
            return Err(session_error(
                SessionErrorCode::SizeLimitExceeded,
                "steering text is over its limit",
            ));
        }
        let known = self.0.known.borrow().clone();
        if !known.running {
            return Err(invalid("steer", known.lifecycle)
                .with("reason", format!("session_{}", known.lifecycle.as_str())));
        }
        let (reply, receipt) = oneshot::channel();
        let mail = Mail::Steer {
            item_id: None,
            content: vec![ContentBlock::text(text)],
            reply,
        };
        let gone = || {
            session_error(
                SessionErrorCode::InvalidLifecycleOperation,
                "the run ended before it heard",
            )
        };
        self.0.post.send(mail).await.map_err(|_| gone())?;
        // A message that the run no longer heard stays unanswered: then the end of the run is the answer.
        let mut ended = self.0.known.subscribe();
        tokio::select! {
            biased;
            receipt = receipt => receipt.map_err(|_| gone()),
            _ = ended.wait_for(|known| !known.running) => Err(gone()),
        }
    }

    /// Cancels the run (EXE-18, SES-66); a resting session is cancelled in one commit.
    ///
    /// # Errors
    /// `invalid_lifecycle_operation` if the session is over; the store's codes.
    ///
    /// # Cancel safety
    /// Dropping it may leave the request made.
    pub async fn cancel(&self, mode: CancelMode) -> Result<(), SessionError> {
        if self.0.known.borrow().running {
            let _ = self.0.post.send(Mail::Cancel(mode)).await;
            return Ok(());
        }
        let lifecycle = self.lifecycle();
        if lifecycle.is_terminal() {
            return Err(invalid("cancel", lifecycle));
        }
        let result = self.post_then_run(Mail::Cancel(mode)).await;
        match result {
            Ok(_) => Ok(()),
            Err(RunError::Session(error)) => Err(error),
            Err(RunError::Consumer(_)) => Ok(()),
        }
    }

    async fn post_then_run(&self, mail: Mail) -> Result<EngineResult, RunError> {
        let _ = self.0.post.send(mail).await;
        self.run(RunOptions::default()).await
    }

    /// Replaces what the session may spend, before its next run; counters stay (SES-65).
    ///
    /// # Errors
    /// `invalid_lifecycle_operation` while it runs.
    pub fn set_budget(&self, budget: Budget) -> Result<(), SessionError> {
        match &mut *self.stage() {
            Stage::Idle(idle) => {
                idle.machine.durable.budget = budget;
                Ok(())
            }
            _ => Err(invalid("set_budget", self.lifecycle())),
        }
    }

    /// What is durable of the session, read from its store (SES-64).
    ///
    /// # Errors
    /// `unsupported_capability` for an ephemeral session; the store's codes.
    ///
    /// # Cancel safety
    /// Dropping it means nothing happened.
    pub async fn inspect(&self) -> Result<Value, SessionError> {
        let store = self.0.parts.store.as_ref().ok_or_else(|| {
            session_error(
                SessionErrorCode::UnsupportedCapability,
                "an ephemeral session has no store",
            )
        })?;
        inspect(&**store, &self.0.id).await
    }
}

/// What arrived after the end of the run before: a cancel still counts, late returns are judged by the next run;
/// whoever steered or paused was told that the run ended first.
fn left_over(mail: &mut mpsc::Receiver<Mail>) -> (Option<CancelMode>, Vec<Mail>) {
    let (mut cancel, mut late) = (None, Vec::new());
    while let Ok(letter) = mail.try_recv() {
        match letter {
            Mail::Cancel(mode) if cancel != Some(CancelMode::Immediate) => cancel = Some(mode),
            Mail::Late { .. } => late.push(letter),
            _ => {}
        }
    }
    (cancel, late)
}

/// Asks a run to pause when its future is dropped.
struct PauseOnDrop<'a> {
    session: &'a Session,
    armed: bool,
}

impl Drop for PauseOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            let _ = self.session.0.post.try_send(Mail::Abandon);
        }
    }
}
