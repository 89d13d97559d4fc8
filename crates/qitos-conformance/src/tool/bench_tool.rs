//! Tools whose behaviour a check decides, and the ledger of what was done to them.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use qitos_contracts::ids::{EffectRef, SlotId};
use qitos_contracts::tool::call::BoxFuture;
use qitos_contracts::tool::{
    CallCtx, DeclaredEffect, EffectClass, EffectKey, Facts, Reconciled, Returned, Tool, ToolError,
    ToolLifecycle, ToolSpec, default_effect,
};
use serde_json::{Value, json};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier that opens once; in place of sleeps.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<Barrier>, Condvar)>);

/// Whether it is open, and who waits.
type Barrier = (bool, Vec<Waker>);

impl Gate {
    pub(super) fn new() -> Self {
        Gate::default()
    }

    pub(super) fn open(&self) {
        let wakers = {
            let mut state = locked(&self.0.0);
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        self.0.1.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) async fn passed(&self) {
        poll_fn(|context| {
            let mut state = locked(&self.0.0);
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Blocks the thread; false if the gate did not open in time, so that a broken engine cannot hang the suite.
    pub(super) fn block_until_passed(&self) -> bool {
        let (state, _) = self
            .0
            .1
            .wait_timeout_while(locked(&self.0.0), Duration::from_secs(20), |state| !state.0)
            .unwrap_or_else(PoisonError::into_inner);
        state.0
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gate({})", locked(&self.0.0).0)
    }
}

/// One entry into a tool's code.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) tool: String,
    pub(super) slot: SlotId,
    pub(super) attempt: String,
    pub(super) key: Option<String>,
    pub(super) args: Value,
}

#[derive(Default)]
struct Book {
    entries: Vec<Entry>,
    running: BTreeSet<(String, String)>,
    peak: usize,
    overlaps: BTreeSet<(String, String)>,
    marks: Vec<String>,
}

/// What was done to the tools of a check.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

impl fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Ledger({} entries)",
            locked(&self.0).entries.len()
        )
    }
}

impl Ledger {
    pub(super) fn new() -> Self {
        Ledger::default()
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        locked(&self.0).entries.clone()
    }

    /// How often the code of this tool was entered.
    pub(super) fn entered(&self, tool: &str) -> usize {
        locked(&self.0)
            .entries
            .iter()
            .filter(|entry| entry.tool == tool)
            .count()
    }

    /// The most calls that ran at the same time.
    pub(super) fn peak(&self) -> usize {
        locked(&self.0).peak
    }

    /// Pairs of tools that ran at the same time, smaller name first.
    pub(super) fn overlaps(&self) -> BTreeSet<(String, String)> {
        locked(&self.0).overlaps.clone()
    }

    /// Notes that a point of some tool's code was reached.
    pub(super) fn mark(&self, what: impl Into<String>) {
        locked(&self.0).marks.push(what.into());
    }

    pub(super) fn marked(&self, what: &str) -> usize {
        locked(&self.0)
            .marks
            .iter()
            .filter(|mark| *mark == what)
            .count()
    }

    fn enter(&self, tool: &str, args: &Value, ctx: &CallCtx) -> Inside {
        let mut book = locked(&self.0);
        book.entries.push(Entry {
            tool: tool.into(),
            slot: ctx.call.slot_id.clone(),
            attempt: ctx.call.attempt_id.to_string(),
            key: ctx.call.idempotency_key.clone(),
            args: args.clone(),
        });
        let overlapping: Vec<(String, String)> = book
            .running
            .iter()
            .map(|(other, _)| {
                let (first, second) = if other.as_str() < tool {
                    (other.as_str(), tool)
                } else {
                    (tool, other.as_str())
                };
                (first.to_owned(), second.to_owned())
            })
            .collect();
        book.overlaps.extend(overlapping);
        let place = (tool.to_owned(), ctx.call.attempt_id.to_string());
        book.running.insert(place.clone());
        book.peak = book.peak.max(book.running.len());
        Inside {
            ledger: self.clone(),
            place,
        }
    }
}

/// A call that runs; it stops running when this is dropped, as a future or at the end of a worker.
struct Inside {
    ledger: Ledger,
    place: (String, String),
}

impl Drop for Inside {
    fn drop(&mut self) {
        locked(&self.ledger.0).running.remove(&self.place);
    }
}

type Work =
    dyn Fn(Arc<Value>, CallCtx) -> BoxFuture<'static, Result<Returned, ToolError>> + Send + Sync;
type Job = dyn Fn(&Value, &CallCtx) -> Result<Returned, ToolError> + Send + Sync;
type Validation = dyn Fn(&Value) -> Result<(), ToolError> + Send + Sync;

#[derive(Clone)]
enum Behaviour {
    Async(Arc<Work>),
    Blocking(Arc<Job>),
}

/// A tool made by a check.
#[derive(Clone)]
pub(super) struct BenchTool {
    spec: ToolSpec,
    ledger: Ledger,
    behaviour: Behaviour,
    validation: Option<Arc<Validation>>,
    effect: Option<DeclaredEffect>,
    reconciled: Reconciled,
}

impl fmt::Debug for BenchTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BenchTool({})", self.spec.name)
    }
}

/// A success with this output.
pub(super) fn value(output: Value) -> Result<Returned, ToolError> {
    Ok(Returned::Value(output))
}

/// Any object.
pub(super) fn open_schema() -> Value {
    json!({"type": "object"})
}

impl BenchTool {
    /// A read-only tool with an asynchronous body.
    pub(super) fn new<F>(
        name: &str,
        ledger: &Ledger,
        work: impl Fn(Arc<Value>, CallCtx) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Returned, ToolError>> + Send + 'static,
    {
        BenchTool {
            spec: ToolSpec::new(name, "a tool of the conformance suite", open_schema())
                .read_only()
                .with_concurrency_safe(true),
            ledger: ledger.clone(),
            behaviour: Behaviour::Async(Arc::new(move |args, ctx| Box::pin(work(args, ctx)))),
            validation: None,
            effect: None,
            reconciled: Reconciled::Unknown,
        }
    }

    /// A read-only tool that returns its name at once.
    pub(super) fn quick(name: &str, ledger: &Ledger) -> Self {
        let output = json!(name);
        BenchTool::new(name, ledger, move |_, _| {
            let output = output.clone();
            async move { value(output) }
        })
    }

    /// A read-only tool with a body that blocks its thread.
    pub(super) fn blocking(
        name: &str,
        ledger: &Ledger,
        job: impl Fn(&Value, &CallCtx) -> Result<Returned, ToolError> + Send + Sync + 'static,
    ) -> Self {
        let mut tool = BenchTool::quick(name, ledger);
        tool.spec = tool.spec.with_lifecycle(ToolLifecycle::SyncFunction);
        tool.behaviour = Behaviour::Blocking(Arc::new(job));
        tool
    }

    /// The same tool with another spec.
    pub(super) fn specified(mut self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        self.spec = change(self.spec);
        self
    }

    /// The same tool, which writes without a contract.
    pub(super) fn undeclared(mut self) -> Self {
        self.spec.read_only = false;
        self.spec.effect = qitos_contracts::tool::EffectDeclaration::Undeclared;
        self
    }

    /// The same tool with a declared effect.
    pub(super) fn declaring(mut self, effect_ref: &EffectRef, key: EffectKey) -> Self {
        self.spec.read_only = false;
        self.spec.effect = qitos_contracts::tool::EffectDeclaration::Declared {
            dedupe: false,
            reconcile: true,
        };
        self.effect = Some(DeclaredEffect {
            effect_ref: effect_ref.clone(),
            key,
            dedupe: false,
            reconcile: true,
        });
        self
    }

    /// The same tool with a validation of its own.
    pub(super) fn validating(
        mut self,
        validation: impl Fn(&Value) -> Result<(), ToolError> + Send + Sync + 'static,
    ) -> Self {
        self.validation = Some(Arc::new(validation));
        self
    }

    pub(super) fn shared(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

#[async_trait]
impl Tool for BenchTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn validate(&self, args: &Value) -> Result<(), ToolError> {
        match &self.validation {
            Some(validation) => validation(args),
            None => Ok(()),
        }
    }

    fn effect(&self, _args: &Value, slot: &SlotId) -> Result<EffectClass, ToolError> {
        Ok(match &self.effect {
            Some(declared) => EffectClass::Declared(declared.clone()),
            None => default_effect(&self.spec, slot),
        })
    }

    fn needs_approval(&self, _args: &Value, _facts: &Facts) -> Result<bool, ToolError> {
        Ok(false)
    }

    async fn execute(&self, args: Arc<Value>, ctx: CallCtx) -> Result<Returned, ToolError> {
        let inside = self.ledger.enter(&self.spec.name, &args, &ctx);
        match &self.behaviour {
            Behaviour::Async(work) => {
                let result = work(args, ctx).await;
                drop(inside);
                result
            }
            Behaviour::Blocking(job) => {
                let (job, inner) = (Arc::clone(job), ctx.clone());
                ctx.run_blocking(move || {
                    let result = job(&args, &inner);
                    drop(inside);
                    result
                })
                .await
            }
        }
    }

    async fn reconcile(&self, _effect: &EffectRef, _key: &str) -> Reconciled {
        self.reconciled
    }
}
