//! The executor's own pool for blocking tools, and the table of what runs on it (EXE-9, EXE-10).
//!
//! A started blocking job cannot be stopped. It belongs to this table until it ends, whatever became of the call
//! that started it; jobs whose call was closed without them are *orphans* and count against a bound.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use qitos_contracts::ids::{AttemptId, EffectRef};
use qitos_contracts::tool::call::{BlockingJob, PortError};
use qitos_contracts::tool::{Returned, ToolError};
use tokio::sync::oneshot;

use crate::agent::panic_text;

/// Result of a job: the tool's own, or the text of its panic.
pub(crate) type JobResult = Result<Result<Returned, ToolError>, String>;

/// Bounds of the pool.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLimits {
    /// Threads at most.
    pub max_threads: usize,
    /// Jobs that may wait for a thread.
    pub max_queued: usize,
    /// Jobs that may run on after their call was closed (EXE-10).
    pub max_orphans: usize,
    /// How long an idle thread stays.
    pub idle: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        WorkerLimits {
            max_threads: 64,
            max_queued: 10_000,
            max_orphans: 16,
            idle: Duration::from_secs(10),
        }
    }
}

/// A worker that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedWorker {
    /// Its attempt.
    pub attempt_id: AttemptId,
    /// Canonical tool name.
    pub tool: Arc<str>,
    /// Its declared effect.
    pub effect_ref: Option<EffectRef>,
    /// Its call was closed without it.
    pub orphaned: bool,
}

struct Queued {
    id: u64,
    job: BlockingJob,
    done: Box<dyn FnOnce(JobResult) + Send>,
}

#[derive(Default)]
struct Table {
    next: u64,
    workers: HashMap<u64, UnresolvedWorker>,
    queue: VecDeque<Queued>,
    idle: usize,
    threads: usize,
}

struct Shared {
    limits: WorkerLimits,
    table: Mutex<Table>,
    changed: Condvar,
}

/// The pool and its table; cheap to clone.
#[derive(Clone)]
pub struct WorkerTable(Arc<Shared>);

impl fmt::Debug for WorkerTable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WorkerTable")
            .field("unresolved", &self.unresolved().len())
            .finish()
    }
}

impl WorkerTable {
    /// An empty pool; threads start with the first job.
    #[must_use]
    pub fn new(limits: WorkerLimits) -> Self {
        WorkerTable(Arc::new(Shared {
            limits,
            table: Mutex::new(Table::default()),
            changed: Condvar::new(),
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Workers that have not ended.
    #[must_use]
    pub fn unresolved(&self) -> Vec<UnresolvedWorker> {
        self.table().workers.values().cloned().collect()
    }

    /// Whether another blocking call may start.
    #[must_use]
    pub fn has_capacity(&self) -> bool {
        self.table()
            .workers
            .values()
            .filter(|worker| worker.orphaned)
            .count()
            < self.0.limits.max_orphans
    }

    /// Whether an orphan of this tool and effect still runs (EXE-12).
    #[must_use]
    pub fn holds(&self, tool: &str, effect_ref: Option<&EffectRef>) -> bool {
        self.table().workers.values().any(|worker| {
            worker.orphaned && &*worker.tool == tool && worker.effect_ref.as_ref() == effect_ref
        })
    }

    /// Notes a worker that is no job of this pool: a future stuck inside `poll` (EXE-8).
    pub(crate) fn adopt(&self, worker: UnresolvedWorker) -> u64 {
        let mut table = self.table();
        table.next += 1;
        let id = table.next;
        table.workers.insert(id, worker);
        id
    }

    /// A worker ended.
    pub(crate) fn release(&self, id: u64) {
        self.table().workers.remove(&id);
        self.0.changed.notify_all();
    }

    /// The call of an attempt was closed; whether its worker still runs and is an orphan now.
    pub(crate) fn orphan(&self, attempt: &AttemptId) -> bool {
        let mut table = self.table();
        let mut found = false;
        for worker in table
            .workers
            .values_mut()
            .filter(|worker| worker.attempt_id == *attempt)
        {
            worker.orphaned = true;
            found = true;
        }
        found
    }

    /// Starts or queues a job; `late` gets its result if nobody waits for it any more.
    pub(crate) fn start(
        &self,
        worker: UnresolvedWorker,
        job: BlockingJob,
        late: impl FnOnce(JobResult) + Send + 'static,
    ) -> Result<oneshot::Receiver<JobResult>, PortError> {
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |result| {
            if let Err(result) = sender.send(result) {
                late(result);
            }
        });
        let mut table = self.table();
        if table.queue.len() >= self.0.limits.max_queued {
            return Err(PortError::WorkerCapacity);
        }
        table.next += 1;
        let id = table.next;
        table.workers.insert(id, worker);
        table.queue.push_back(Queued { id, job, done });
        if table.idle < table.queue.len() && table.threads < self.0.limits.max_threads {
            table.threads += 1;
            drop(table);
            let pool = self.clone();
            let spawned = std::thread::Builder::new()
                .name("qitos-tool".into())
                .spawn(move || pool.work());
            if spawned.is_err() {
                let mut table = self.table();
                table.threads -= 1;
                if table.threads == 0 {
                    table.workers.remove(&id);
                    table.queue.retain(|queued| queued.id != id);
                    return Err(PortError::WorkerCapacity);
                }
            }
        } else {
            drop(table);
            self.0.changed.notify_one();
        }
        Ok(receiver)
    }

    fn work(&self) {
        let mut table = self.table();
        loop {
            if let Some(Queued { id, job, done }) = table.queue.pop_front() {
                drop(table);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job))
                    .map_err(|payload| panic_text(payload.as_ref()));
                // A late return is told before its worker is off the table, so that whoever waits for workers finds it.
                done(result);
                self.release(id);
                table = self.table();
                continue;
            }
            table.idle += 1;
            let (guard, waited) = self
                .0
                .changed
                .wait_timeout(table, self.0.limits.idle)
                .unwrap_or_else(PoisonError::into_inner);
            table = guard;
            table.idle -= 1;
            if waited.timed_out() && table.queue.is_empty() {
                table.threads -= 1;
                return;
            }
        }
    }

    /// Waits until no worker is left or `until` has come; names those that are left (EXE-9). Blocks its thread.
    #[must_use]
    pub fn wait_until(&self, until: Instant) -> Vec<UnresolvedWorker> {
        let mut table = self.table();
        while !table.workers.is_empty() {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                break;
            };
            table = self
                .0
                .changed
                .wait_timeout(table, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        table.workers.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str) -> UnresolvedWorker {
        UnresolvedWorker {
            attempt_id: AttemptId::of_slot(&format!("batch:{name}").parse().unwrap(), 1, 0),
            tool: name.into(),
            effect_ref: None,
            orphaned: false,
        }
    }

    #[tokio::test]
    async fn an_orphan_stays_in_the_table_until_it_ends() {
        // EXE-9, EXE-10, EXE-12
        let pool = WorkerTable::new(WorkerLimits {
            max_orphans: 1,
            ..WorkerLimits::default()
        });
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let (late, came_late) = std::sync::mpsc::channel();
        let job: BlockingJob = Box::new(move || {
            let _ = gate.recv();
            Ok(Returned::Value(serde_json::json!(1)))
        });
        let receiver = pool
            .start(worker("slow"), job, move |result| {
                late.send(result.is_ok()).unwrap()
            })
            .unwrap();
        assert!(pool.has_capacity() && !pool.holds("slow", None));
        drop(receiver);
        assert!(pool.orphan(&worker("slow").attempt_id));
        assert!(!pool.has_capacity() && pool.holds("slow", None) && !pool.holds("other", None));
        assert_eq!(pool.wait_until(Instant::now()).len(), 1);
        open.send(()).unwrap();
        assert!(came_late.recv().unwrap());
        assert!(
            pool.wait_until(Instant::now() + Duration::from_secs(5))
                .is_empty()
        );
        assert!(pool.has_capacity());
    }

    #[tokio::test]
    async fn a_panic_in_a_job_is_named_and_the_pool_stays_usable() {
        // EXE-17
        let pool = WorkerTable::new(WorkerLimits {
            max_threads: 1,
            ..WorkerLimits::default()
        });
        let boom = pool
            .start(worker("boom"), Box::new(|| panic!("no")), |_| ())
            .unwrap();
        assert_eq!(boom.await.unwrap().unwrap_err(), "no");
        let fine = pool.start(
            worker("fine"),
            Box::new(|| Ok(Returned::Value(serde_json::Value::Null))),
            |_| (),
        );
        assert!(fine.unwrap().await.unwrap().unwrap().is_ok());
    }
}
