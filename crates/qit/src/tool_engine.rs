//! The kernel as a subject of the tool suite: scripted models, refused commits, deaths.
//!
//! Each process of a scenario is a runtime of its own. A death is a commit that never returns: the runtime is thrown
//! away with everything in it, and a new engine recovers the session from the store.

mod fault_store;
mod scripted;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qitos::checkpoint::{CheckpointStore, MemoryCheckpointStore};
use qitos::contracts::artifact::{ArtifactError, ArtifactRef, ArtifactStore};
use qitos::contracts::decision::Decision;
use qitos::contracts::digest::Digest;
use qitos::contracts::error::ContractError;
use qitos::contracts::ids::{AttemptId, SessionId, SlotId};
use qitos::contracts::log::{Item, SealedItem};
use qitos::contracts::snapshot::Lifecycle;
use qitos::kernel::machine::Fact;
use qitos::kit::artifacts::MemoryArtifactStore;
use qitos::tool::permission::{PermissionPolicy, RuleEffect};
use qitos::tool::{Tool, ToolRegistry};
use qitos::{
    AgentError, AgentModule, Budget, CancelMode, Engine, EnginePolicy, ExecutorMode, FailFast,
    Hook, Observation as Seen, Reduced, RestoreOptions, RunOptions, Session, Takeover, Task,
};
use qitos_conformance::tool::{
    FailFast as WantedFailFast, Feature, LateRecord, Mode, Observation, RunControl, Scenario,
    ToolEngine,
};
use serde_json::Value;
use tokio::sync::Notify;

use fault_store::FaultStore;
use scripted::SuiteModel;

/// The kernel, for `qit conformance tool --builtin kit`.
pub(crate) fn subject() -> Arc<dyn ToolEngine> {
    Arc::new(KernelSubject)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct KernelSubject;

/// An agent without a will of its own: the model decides.
#[derive(Debug)]
struct Bystander;

#[async_trait]
impl AgentModule for Bystander {
    type State = u64;

    fn name(&self) -> &str {
        "bystander"
    }

    fn init_state(&self, _task: &Task) -> Result<u64, AgentError> {
        Ok(0)
    }

    fn reduce(
        &self,
        state: &u64,
        _seen: &Seen,
        _decision: &Decision,
    ) -> Result<Reduced<u64>, AgentError> {
        Ok(Reduced::Continue(state + 1))
    }
}

/// What the engine told of a scenario, over all its processes.
#[derive(Default)]
struct Told {
    intents: BTreeSet<SlotId>,
    attempts: BTreeMap<AttemptId, SlotId>,
    late: Vec<LateRecord>,
    bodies: BTreeMap<String, Vec<u8>>,
}

/// A scenario on its way; outlives its processes.
struct World {
    scenario: Scenario,
    id: SessionId,
    inner: Arc<dyn CheckpointStore>,
    faults: Arc<fault_store::Faults>,
    told: Mutex<Told>,
    artifacts: MemoryArtifactStore,
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("World")
            .field("scenario", &self.scenario.name)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Ears(Arc<World>);

impl Hook for Ears {
    fn on_fact(&self, fact: &Fact) {
        match fact {
            Fact::SlotStarted {
                slot_id,
                attempt_id,
                ..
            } => {
                let mut told = locked(&self.0.told);
                told.intents.insert(slot_id.clone());
                told.attempts.insert(attempt_id.clone(), slot_id.clone());
            }
            Fact::SlotTerminal { slot_id, .. } => self.0.scenario.script.terminal_durable(slot_id),
            Fact::LateResult {
                slot_id,
                disposition,
                ..
            } => locked(&self.0.told).late.push(LateRecord {
                slot: slot_id.clone(),
                disposition: (*disposition).to_owned(),
            }),
            _ => {}
        }
    }
}

/// Keeps a copy of every body, by its id.
#[derive(Debug)]
struct Shelf(Arc<World>);

#[async_trait]
impl ArtifactStore for Shelf {
    fn resolver_key(&self) -> &str {
        self.0.artifacts.resolver_key()
    }

    async fn put(&self, reference: &ArtifactRef, body: &[u8]) -> Result<(), ArtifactError> {
        self.0.artifacts.put(reference, body).await?;
        locked(&self.0.told)
            .bodies
            .insert(reference.artifact_id.as_str().to_owned(), body.to_vec());
        Ok(())
    }

    async fn resolve(&self, reference: &ArtifactRef) -> Result<Vec<u8>, ArtifactError> {
        self.0.artifacts.resolve(reference).await
    }

    async fn probe(&self, reference: &ArtifactRef) -> Result<bool, ArtifactError> {
        self.0.artifacts.probe(reference).await
    }
}

/// The suite's hand on one process.
struct Hand {
    world: Arc<World>,
    session: Session,
    runtime: tokio::runtime::Handle,
    dropped: Notify,
}

impl fmt::Debug for Hand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Hand")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

impl Hand {
    /// Starts a request of the handle now and lets it finish elsewhere: its message is in the mailbox on return.
    fn post<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) {
        let mut request = Box::pin(request);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if request.as_mut().poll(&mut context).is_pending() {
            self.runtime.spawn(request);
        }
    }
}

impl RunControl for Hand {
    fn cancel(&self) {
        let session = self.session.clone();
        self.post(async move { session.cancel(CancelMode::Immediate).await });
    }

    fn steer(&self, text: &str) {
        let (session, text) = (self.session.clone(), text.to_owned());
        self.post(async move { session.steer(text).await });
    }

    fn drop_run(&self) {
        self.dropped.notify_one();
    }

    fn register(&self, _tool: Arc<dyn Tool>) -> Result<(), String> {
        // Not offered: an engine takes its registry away when it is built.
        Err("registry_frozen".into())
    }

    fn intent_is_durable(&self, slot: &SlotId) -> bool {
        locked(&self.world.told).intents.contains(slot)
    }
}

/// How a run ended, in the words of the observation.
struct Ended {
    outcome: String,
    stop_reason: String,
    error_code: Option<String>,
    unresolved: Vec<SlotId>,
}

#[async_trait]
impl ToolEngine for KernelSubject {
    fn name(&self) -> &str {
        "kit"
    }

    fn offers(&self, feature: Feature) -> bool {
        !matches!(feature, Feature::Rewrite | Feature::RegisterDuringRun)
    }

    async fn run(&self, scenario: Scenario) -> Result<Observation, String> {
        let inner: Arc<dyn CheckpointStore> = Arc::new(MemoryCheckpointStore::new());
        let faults = fault_store::Faults::new(scenario.fault, Arc::clone(&scenario.script));
        let world = Arc::new(World {
            id: SessionId::derived(&Digest::of(scenario.name.as_bytes())),
            scenario,
            inner,
            faults: Arc::new(faults),
            told: Mutex::default(),
            artifacts: MemoryArtifactStore::new(),
        });
        loop {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?;
            let lived = Arc::clone(&world);
            let life = runtime.spawn(async move {
                let store = FaultStore::new(Arc::clone(&lived.inner), Arc::clone(&lived.faults));
                let death = store.death();
                tokio::select! {
                    ended = live(&lived, Arc::new(store)) => Some(ended),
                    () = death.notified() => None,
                }
            });
            let ended = life.await.map_err(|error| error.to_string());
            runtime.shutdown_background();
            if let Some(ended) = ended? {
                return observe(&world, ended?);
            }
        }
    }
}

fn engine_of(
    world: &Arc<World>,
    store: Arc<dyn CheckpointStore>,
) -> Result<Engine, Box<dyn std::error::Error + Send + Sync>> {
    let settings = &world.scenario.settings;
    let mut tools = ToolRegistry::new();
    for tool in &world.scenario.tools {
        tools.register_shared(Arc::clone(tool))?;
    }
    let workers = Arc::new(OnceLock::new());
    let model = SuiteModel::new(Arc::clone(&world.scenario.script), Arc::clone(&workers))?;
    let policy = EnginePolicy {
        mode: match settings.mode {
            Mode::Serial => ExecutorMode::Serial,
            Mode::Parallel => ExecutorMode::Parallel,
        },
        max_concurrency: settings.max_concurrency,
        fail_fast: match settings.fail_fast {
            WantedFailFast::Off => FailFast::Off,
            WantedFailFast::Execution => FailFast::Execution,
            WantedFailFast::Any => FailFast::Any,
        },
        cancel_grace: settings.cancel_grace,
        ..EnginePolicy::default()
    };
    let engine = Engine::builder(Bystander, Arc::new(model))
        .tools(tools)
        .permissions(PermissionPolicy::new(Vec::new(), Some(RuleEffect::Allow))?)
        .policy(policy)
        .budget(Budget {
            max_steps: settings.max_steps,
            ..Budget::default()
        })
        .hook(Arc::new(Ears(Arc::clone(world))))
        .artifacts(Arc::new(Shelf(Arc::clone(world))))
        .store(store)
        .build()?;
    let _ = workers.set(engine.clone());
    Ok(engine)
}

/// One process: makes, recovers or restores the session and drives it to its end.
async fn live(world: &Arc<World>, store: Arc<dyn CheckpointStore>) -> Result<Ended, String> {
    let engine = engine_of(world, Arc::clone(&store)).map_err(|error| error.to_string())?;
    let code = |error: qitos::checkpoint::SessionError| error.code().to_owned();
    let options = RestoreOptions::default();
    let head = store
        .head(&world.id)
        .await
        .map_err(|error| error.to_string())?;
    let session = match head.map(|head| head.lifecycle) {
        None => engine
            .session_with_id("begin", Some(world.id.clone()))
            .await
            .map_err(code)?,
        Some(lifecycle) if lifecycle.is_terminal() => return ended_before(&*store, world).await,
        Some(Lifecycle::Paused | Lifecycle::WaitingInput) => {
            engine.restore(&world.id, options).await.map_err(code)?
        }
        Some(_) => engine
            .recover(&world.id, Takeover::Force, options)
            .await
            .map_err(code)?,
    };
    let hand = Arc::new(Hand {
        world: Arc::clone(world),
        session: session.clone(),
        runtime: tokio::runtime::Handle::current(),
        dropped: Notify::new(),
    });
    world.scenario.script.attach(Arc::clone(&hand) as _);
    let result = tokio::select! {
        result = session.run(RunOptions::default()) => Some(result),
        () = hand.dropped.notified() => None,
    };
    let mut ended = match result {
        Some(Ok(result)) => Ended {
            outcome: word(&result.outcome),
            stop_reason: result.stop_reason.as_str().to_owned(),
            error_code: result.failure.map(|failure| failure.error_code),
            unresolved: Vec::new(),
        },
        Some(Err(error)) => return Err(error.to_string()),
        None => {
            let patience = Duration::from_secs(20);
            session.pause_barrier(patience).await.map_err(code)?;
            ended_before(&*store, world).await?
        }
    };
    let patience = world.scenario.settings.cancel_grace * 5 + Duration::from_millis(100);
    let left = engine.shutdown(patience).await;
    let told = locked(&world.told);
    ended.unresolved = left
        .iter()
        .filter_map(|worker| told.attempts.get(&worker.attempt_id).cloned())
        .collect();
    Ok(ended)
}

fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// How the last run ended, as the store tells.
async fn ended_before(store: &dyn CheckpointStore, world: &World) -> Result<Ended, String> {
    let found = qitos::session::inspect(store, &world.id)
        .await
        .map_err(|error| error.to_string())?;
    let text = |pointer: &str| {
        let found = found.pointer(pointer).and_then(Value::as_str);
        found.map(ToOwned::to_owned)
    };
    Ok(Ended {
        outcome: text("/last_stop/outcome").unwrap_or_default(),
        stop_reason: text("/last_stop/stop_reason").unwrap_or_default(),
        error_code: text("/last_stop/failure/error_code"),
        unresolved: Vec::new(),
    })
}

fn observe(world: &World, ended: Ended) -> Result<Observation, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    let (inner, id) = (Arc::clone(&world.inner), world.id.clone());
    // On a thread of its own: the suite may be driven by a runtime already.
    let stored = std::thread::spawn(move || {
        runtime.block_on(async { qitos::session::log_tail(&*inner, &id, 100_000).await })
    })
    .join()
    .map_err(|_| "reading the log panicked".to_owned())?
    .map_err(|error| error.to_string())?;
    let mut items = Vec::with_capacity(stored.len());
    for value in stored {
        let item = Item::from_value(value).map_err(|error| error.to_string())?;
        items.push(SealedItem::seal(item, &mut Vec::new()).map_err(|error| error.to_string())?);
    }
    let told = locked(&world.told);
    Ok(Observation {
        items,
        outcome: ended.outcome,
        stop_reason: ended.stop_reason,
        error_code: ended.error_code,
        unresolved: ended.unresolved,
        late: told.late.clone(),
        artifacts: told.bodies.clone(),
        fault_fired: world.faults.fired(),
    })
}

#[cfg(test)]
mod tests {
    use qitos_conformance::run::RunOptions as SuiteOptions;
    use qitos_conformance::tool::engine_conformance;

    use super::*;

    #[test]
    fn the_kernel_keeps_the_tool_contract() {
        let mut options = SuiteOptions::default();
        options.time_factor = 3;
        let report = engine_conformance(subject(), &options);
        let not_claimed: Vec<&str> = report
            .checks()
            .iter()
            .filter(|check| check.status().as_str() == "not_claimed")
            .map(|check| check.id())
            .collect();
        let expected = ["TCK-4.frozen", "TCK-7.rewrite_revalidated"];
        assert!(
            not_claimed.iter().all(|id| expected.contains(id)),
            "{not_claimed:?}"
        );
        if let Err(report) = report.conforms() {
            panic!("{report}");
        }
    }
}
