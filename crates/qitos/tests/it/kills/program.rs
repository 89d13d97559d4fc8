//! The program that dies: this test binary, started again with a task in its environment.
//!
//! It runs one session whose model asks for three batches, the last two in parallel, over a tool of each effect
//! class. An effect is a line appended to a file and synced; a receipt of the store is a line of another.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use qitos::checkpoint::sqlite::fault_point::{FaultPlan, InjectedFault, Point};
use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::checkpoint::{
    CheckpointStore, Commit, Groups, Head, LineagePage, Page, Receipt, Resolved, StoreCapabilities,
    StoreError, StoredSnapshot,
};
use qitos::contracts::clock::Clock;
use qitos::contracts::decision::Decision;
use qitos::contracts::event::{
    DurabilityReceipt, EventSink, SinkCapabilities, SinkError, SinkRegistration,
};
use qitos::contracts::ids::{SessionId, SnapshotId};
use qitos::contracts::record::{PrivacyView, ProjectedRecord};
use qitos::contracts::snapshot::Lifecycle;
use qitos::kernel::machine::Fact;
use qitos::kernel::system::{SystemClock, SystemIds};
use qitos::models::scripted::ScriptedModel;
use qitos::tool::ToolRegistry;
use qitos::tool::permission::{PermissionPolicy, PermissionRule, RuleEffect};
use qitos::tracing::Dispatcher;
use qitos::tracing::journal::{JournalError, JournalOptions, JournalSink};
use qitos::{
    AgentError, AgentModule, Budget, CancelMode, Engine, EnginePolicy, ExecutorMode, Hook,
    Observation, Reduced, RestoreOptions, RunOptions, Takeover, Task,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;

use super::calls::{Effectful, Kind, answer, plan};

const TASK: &str = "QITOS_KILL_TEST_TASK";
const ENDED: &str = "ended ";

/// What happens when the n-th place of a kind is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum At {
    /// SIGKILL.
    #[default]
    Die,
    /// The thread stands still until its parent lets it go on.
    Stand,
}

/// What a program is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) directory: PathBuf,
    pub(super) session: String,
    /// Kind and number, from 1; each kind of place is counted by itself.
    pub(super) place: Option<(String, i64)>,
    pub(super) at: At,
    /// The batches of the plan that the model asks for.
    pub(super) batches: Vec<usize>,
    /// The session is cancelled once this call has its terminal.
    pub(super) cancel_after: Option<String>,
}

impl Job {
    pub(super) fn new(directory: &Path, session: &SessionId) -> Self {
        Job {
            directory: directory.to_owned(),
            session: session.to_string(),
            place: None,
            at: At::Die,
            batches: (0..plan().len()).collect(),
            cancel_after: None,
        }
    }

    pub(super) fn dying_at(mut self, kind: &str, number: i64) -> Self {
        self.place = Some((kind.to_owned(), number));
        self
    }

    pub(super) fn start(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([
                "kills::program::the_program_does_its_job",
                "--exact",
                "--nocapture",
            ])
            .env(TASK, serde_json::to_string(self).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

/// What the program says of its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) lifecycle: String,
    pub(super) answer: Option<String>,
    pub(super) store_failure: Option<String>,
    pub(super) state: Value,
    pub(super) requests: u64,
}

/// The end of a program: killed by SIGKILL, or its own word; none if there was nothing left to do.
#[derive(Debug)]
pub(super) enum End {
    Killed,
    Returned(Option<Ended>),
}

/// Waits for a program, which dies or ends in order.
#[track_caller]
pub(super) fn end_of(child: Child) -> End {
    let output = child.wait_with_output().unwrap();
    if output.status.signal() == Some(rustix::process::Signal::KILL.as_raw()) {
        return End::Killed;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    let ended = said.lines().find_map(|line| line.strip_prefix(ENDED));
    End::Returned(ended.map(|ended| serde_json::from_str(ended).unwrap()))
}

pub(super) fn store_file(directory: &Path) -> PathBuf {
    directory.join("store.db")
}

/// Where the n-th process that lives at the same time keeps its journal (CFG-29).
pub(super) fn journal(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("trajectory-{number}.journal"))
}

pub(super) fn effects(directory: &Path) -> PathBuf {
    directory.join("effects")
}

pub(super) fn receipts(directory: &Path) -> PathBuf {
    directory.join("receipts")
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) job: Job,
    left: AtomicI64,
    running: Mutex<BTreeSet<String>>,
    changed: Notify,
    cancel: Notify,
}

impl World {
    /// A place of a kind is reached.
    pub(super) fn pass(&self, kind: &str) {
        let Some((wanted, _)) = &self.job.place else {
            return;
        };
        if wanted != kind || self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        match self.job.at {
            At::Die => {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
            }
            At::Stand => {
                println!("\nstanding");
                std::io::stdout().flush().unwrap();
                std::io::stdin().lock().lines().next();
            }
        }
    }

    pub(super) fn append(&self, file: &Path, line: &str) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(file)
            .unwrap();
        // One write, so that a kill leaves no half line.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
    }

    pub(super) async fn ended(&self, call: &str) {
        loop {
            let changed = self.changed.notified();
            if !self.running.lock().unwrap().contains(call) {
                return;
            }
            changed.await;
        }
    }
}

/// Knows which calls run: it hears of starts and terminals once they are durable.
impl Hook for World {
    fn on_fact(&self, fact: &Fact) {
        match fact {
            Fact::SlotStarted { call_id, .. } => {
                self.running.lock().unwrap().insert(call_id.to_string());
            }
            Fact::SlotTerminal { call_id, .. } => {
                self.running.lock().unwrap().remove(call_id.as_str());
                if self.job.cancel_after.as_deref() == Some(call_id.as_str()) {
                    self.cancel.notify_one();
                }
            }
            _ => return,
        }
        self.changed.notify_waiters();
    }
}

impl FaultPlan for World {
    fn reached(&self, point: Point) -> Option<InjectedFault> {
        // The other points of a commit are the store's own and are walked through there.
        match point {
            Point::BeforeCommit | Point::AfterCommit => self.pass("commit"),
            // Outside of the transaction, which would keep every other process from the store.
            Point::BeforeBegin | Point::AfterReply => self.pass("outside"),
            _ => {}
        }
        None
    }
}

/// The store, and a synced line for every receipt that it gave.
#[derive(Debug)]
struct Receipted {
    store: SqliteStore,
    world: Arc<World>,
}

#[async_trait]
impl CheckpointStore for Receipted {
    fn capabilities(&self) -> &StoreCapabilities {
        self.store.capabilities()
    }

    async fn commit(&self, commit: Arc<Commit>) -> Result<Receipt, StoreError> {
        let receipt = self.store.commit(commit).await?;
        let line = format!("{} {}", receipt.generation, receipt.snapshot_id);
        self.world
            .append(&receipts(&self.world.job.directory), &line);
        Ok(receipt)
    }

    async fn resolve(&self, snapshot: &SnapshotId) -> Result<Resolved, StoreError> {
        self.store.resolve(snapshot).await
    }

    async fn head(&self, session: &SessionId) -> Result<Option<Head>, StoreError> {
        self.store.head(session).await
    }

    async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        self.store.snapshot(snapshot).await
    }

    async fn lineage(&self, session: &SessionId, page: Page) -> Result<LineagePage, StoreError> {
        self.store.lineage(session, page).await
    }

    fn groups(&self) -> Groups<'_> {
        self.store.groups()
    }
}

#[derive(Debug)]
struct Journalled {
    sink: JournalSink,
    world: Arc<World>,
}

impl EventSink for Journalled {
    fn capabilities(&self) -> SinkCapabilities {
        self.sink.capabilities()
    }

    fn receive(
        &mut self,
        records: &[ProjectedRecord],
    ) -> Result<Option<DurabilityReceipt>, SinkError> {
        let receipt = self.sink.receive(records);
        self.world.pass("journal");
        receipt
    }

    fn flush(&mut self, until: std::time::Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        self.sink.flush(until)
    }

    fn close(&mut self, until: std::time::Instant) -> Result<Option<DurabilityReceipt>, SinkError> {
        self.sink.close(until)
    }
}

/// Keeps each step's results in declaration order.
struct Keeper(Arc<World>);

impl fmt::Debug for Keeper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Keeper")
    }
}

#[async_trait]
impl AgentModule for Keeper {
    type State = Vec<String>;

    fn name(&self) -> &str {
        "keeper"
    }

    fn init_state(&self, _task: &Task) -> Result<Vec<String>, AgentError> {
        Ok(Vec::new())
    }

    fn reduce(
        &self,
        state: &Vec<String>,
        seen: &Observation,
        _decision: &Decision,
    ) -> Result<Reduced<Vec<String>>, AgentError> {
        self.0.pass("reduce");
        let mut next = state.clone();
        let new = seen.action_results.iter();
        next.extend(new.map(|result| result.action_id().unwrap_or("-").to_owned()));
        Ok(Reduced::Continue(next))
    }
}

/// How many answers of the model the session holds.
async fn answers(store: &dyn CheckpointStore, session: &SessionId) -> usize {
    let items = qitos::session::log_tail(store, session, 1_000)
        .await
        .unwrap_or_default();
    items
        .iter()
        .filter(|item| item["kind"] == "assistant")
        .count()
}

/// The first journal that no living process holds.
fn open_journal(directory: &Path, options: &JournalOptions) -> JournalSink {
    for number in 0.. {
        match JournalSink::open(&journal(directory, number), options.clone()) {
            Ok((sink, _)) => return sink,
            Err(JournalError::Locked { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

async fn run(world: &Arc<World>) {
    let directory = &world.job.directory;
    let options = OpenOptions::default().create();
    let plan: Arc<dyn FaultPlan> = world.clone();
    let store = SqliteStore::open_with_fault_plan(store_file(directory), options, plan).unwrap();
    let store = Arc::new(Receipted {
        store,
        world: world.clone(),
    });
    let id: SessionId = world.job.session.parse().unwrap();
    let head = store.head(&id).await.unwrap();
    if head
        .as_ref()
        .is_some_and(|head| head.lifecycle.is_terminal())
    {
        return;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = JournalOptions::new(clock.clone(), Arc::new(SystemIds));
    let sink = open_journal(directory, &options);
    let mut dispatcher = Dispatcher::new(clock, sink.next_sequence());
    let sink = Journalled {
        sink,
        world: world.clone(),
    };
    let registration = SinkRegistration::new(Box::new(sink)).with_view(PrivacyView::RawPrivate);
    dispatcher.register(registration).unwrap();
    let dispatcher = Arc::new(dispatcher);
    let mut tools = ToolRegistry::new();
    for kind in Kind::ALL {
        tools.register(Effectful::new(kind, world)).unwrap();
    }
    let first = answers(&*store, &id).await;
    let asked = world.clone();
    let model = ScriptedModel::from_fn("test", move |request| {
        asked.pass("model");
        answer(&asked.job.batches, first + request)
    });
    let rules = Kind::ALL.map(|kind| PermissionRule::for_tool(RuleEffect::Allow, kind.name()));
    let policy = EnginePolicy {
        mode: ExecutorMode::Parallel,
        max_concurrency: 3,
        resume_with_key: true,
        ..EnginePolicy::default()
    };
    let budget = Budget {
        max_steps: 100,
        ..Budget::default()
    };
    let hook: Arc<dyn Hook> = world.clone();
    let engine = Engine::builder(Keeper(world.clone()), Arc::new(model.unwrap()))
        .tools(tools)
        .permissions(PermissionPolicy::new(rules.to_vec(), None).unwrap())
        .policy(policy)
        .budget(budget)
        .hook(hook)
        .dispatcher(Arc::clone(&dispatcher))
        .store(store)
        .build()
        .unwrap();
    let session = match head.map(|head| head.lifecycle) {
        None => engine.session_with_id("append lines", Some(id)).await,
        Some(Lifecycle::Paused | Lifecycle::WaitingInput) => {
            engine.restore(&id, RestoreOptions::default()).await
        }
        Some(_) => {
            let options = RestoreOptions::default();
            engine.recover(&id, Takeover::Force, options).await
        }
    };
    let session = session.unwrap();
    let (canceller, cancelled) = (session.clone(), world.clone());
    let cancelling = tokio::spawn(async move {
        cancelled.cancel.notified().await;
        canceller.cancel(CancelMode::Immediate).await.unwrap();
    });
    let result = session.run(RunOptions::default()).await.unwrap();
    cancelling.abort();
    let ended = Ended {
        lifecycle: result.lifecycle.as_str().to_owned(),
        answer: result.final_result,
        store_failure: result.store_failure,
        state: result.state,
        requests: result.usage.requests,
    };
    // A line of its own, whatever the test harness wrote before.
    println!("\n{ENDED}{}", serde_json::to_string(&ended).unwrap());
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    assert!(dispatcher.close(until).await.is_successful());
}

#[test]
fn the_program_does_its_job() {
    let Some(task) = std::env::var_os(TASK) else {
        return;
    };
    let job: Job = serde_json::from_str(task.to_str().unwrap()).unwrap();
    let left = job.place.as_ref().map_or(0, |(_, number)| *number);
    let world = Arc::new(World {
        job,
        left: AtomicI64::new(left),
        running: Mutex::default(),
        changed: Notify::new(),
        cancel: Notify::new(),
    });
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(&world));
}
