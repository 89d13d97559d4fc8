//! A model whose provider can only be called by blocking a thread (PRV-97 to PRV-99).
//!
//! Cancellation cannot end a thread. So the thread belongs to an owned set from its start until it has ended,
//! whatever became of the request: a dropped request is cancelled for its consumer at once, its worker stays in
//! the set, its answer is thrown away and what it used is told to whoever counts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, FailureCategory, FailureStage, Model, ProviderCapabilities, ProviderCodec,
    ProviderError, ProviderFailure, RawResponse, RequestSent, Target, TokenUsage, WirePayload,
};
use tokio::sync::oneshot;

/// A provider that answers by blocking the thread that asks.
///
/// # Contract
/// One call is one request, never repeated (PRV-86). Its capabilities claim neither streaming nor cancellation.
pub trait BlockingProvider: fmt::Debug + Send + Sync + 'static {
    /// As [`Model::target`].
    fn target(&self) -> &Arc<Target>;

    /// As [`Model::capabilities`].
    fn capabilities(&self) -> &ProviderCapabilities;

    /// As [`Model::codec`].
    fn codec(&self) -> &dyn ProviderCodec;

    /// Sends one request and waits for its answer on the calling thread.
    ///
    /// # Errors
    /// The failure of the attempt by the table of section 4.
    fn send_blocking(&self, payload: WirePayload) -> Result<BlockingAnswer, Box<ProviderFailure>>;
}

/// A verified answer and what the adapter must know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockingAnswer {
    /// The answer.
    pub response: RawResponse,
    /// Its whole text, the one chunk of a request with a callback (PRV-100).
    pub text: String,
    /// What it used, if the provider said so (PRV-70).
    pub usage: Option<TokenUsage>,
}

/// A worker that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedWorker {
    /// Its number, in order of the requests of this model.
    pub request: u64,
    /// Nobody waits for its answer any more.
    pub abandoned: bool,
}

/// What is left of an answer that nobody waited for (PRV-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbandonedAnswer {
    /// The number of its worker.
    pub request: u64,
    /// What it used; `None` is unknown, not nothing.
    pub usage: Option<TokenUsage>,
}

/// Told of every abandoned answer once: on its worker's thread before that counts as ended, or where its request
/// is dropped if it had come by then. It must not call back into the model.
pub type OnAbandoned = Arc<dyn Fn(AbandonedAnswer) + Send + Sync>;

/// What a worker hands over: the provider's result, or the payload of its panic.
type Outcome = std::thread::Result<Result<BlockingAnswer, Box<ProviderFailure>>>;

/// Serves [`Model`] with one owned thread per request.
///
/// # Contract
/// No thread is detached: its handle stays in the set until the thread has ended and is joined then. At most
/// `max_workers` exist at once, abandoned ones included, so that a provider which never answers cannot exhaust
/// the process; a request beyond that fails with `provider_request_admission_failed`, unsent.
pub struct BlockingModel<P> {
    provider: Arc<P>,
    max_workers: usize,
    on_abandoned: OnAbandoned,
    workers: Arc<Workers>,
}

impl<P: BlockingProvider> fmt::Debug for BlockingModel<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BlockingModel")
            .field("provider", &self.provider)
            .field("unfinished", &self.unfinished().len())
            .finish_non_exhaustive()
    }
}

impl<P: BlockingProvider> BlockingModel<P> {
    /// A model over `provider`; no thread starts before the first request.
    #[must_use]
    pub fn new(provider: Arc<P>, max_workers: usize, on_abandoned: OnAbandoned) -> Self {
        BlockingModel {
            provider,
            max_workers,
            on_abandoned,
            workers: Arc::default(),
        }
    }

    /// The workers that have not ended, in order of their requests.
    #[must_use]
    pub fn unfinished(&self) -> Vec<UnfinishedWorker> {
        let mut set = self.workers.lock();
        set.join_ended();
        set.unfinished()
    }

    /// Waits until no worker is left or `until` has come; names those that are left (PRV-99). Blocks its thread.
    #[must_use]
    pub fn wait_until(&self, until: Instant) -> Vec<UnfinishedWorker> {
        let mut set = self.workers.lock();
        loop {
            set.join_ended();
            let left = until.checked_duration_since(Instant::now());
            let Some(left) = left.filter(|_| !set.running.is_empty()) else {
                return set.unfinished();
            };
            set = self
                .workers
                .changed
                .wait_timeout(set, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Starts the worker of one request.
    fn start(
        &self,
        payload: WirePayload,
    ) -> Result<(u64, oneshot::Receiver<Outcome>), ProviderError> {
        let mut set = self.workers.lock();
        set.join_ended();
        if set.running.len() >= self.max_workers {
            return Err(self.refused("all workers of the provider are taken"));
        }
        let request = set.next;
        let (answer, answered) = oneshot::channel();
        let job = Job {
            request,
            provider: Arc::clone(&self.provider),
            workers: Arc::clone(&self.workers),
            on_abandoned: Arc::clone(&self.on_abandoned),
        };
        // The set is locked until the handle is in it, so that no worker ends outside the set.
        let handle = std::thread::Builder::new()
            .name("qitos-provider".to_owned())
            .spawn(move || job.run(payload, answer))
            .map_err(|_| self.refused("no thread can be had for the provider"))?;
        set.next += 1;
        let worker = Worker {
            handle,
            abandoned: false,
            ended: false,
        };
        set.running.insert(request, worker);
        Ok((request, answered))
    }

    fn refused(&self, message: &str) -> ProviderError {
        ProviderFailure::new(
            self.provider.target(),
            FailureCategory::Admission,
            "provider_request_admission_failed",
            FailureStage::Admission,
            RequestSent::No,
            message,
        )
        .with_remediation("wait for abandoned requests to end, or allow more workers")
        .into()
    }
}

#[async_trait]
impl<P: BlockingProvider> Model for BlockingModel<P> {
    fn target(&self) -> &Arc<Target> {
        self.provider.target()
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        self.provider.capabilities()
    }

    fn codec(&self) -> &dyn ProviderCodec {
        self.provider.codec()
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let (request, answered) = self.start(payload)?;
        let mut waiting = Waiting {
            request,
            answered,
            over: false,
            workers: &self.workers,
            on_abandoned: &self.on_abandoned,
        };
        let outcome = (&mut waiting.answered).await;
        waiting.over = true;
        let answer = match outcome {
            Ok(Ok(answer)) => answer?,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // A worker ends only after it has handed over its outcome.
            Err(_) => return Err(self.refused("the worker of the provider was lost")),
        };
        if let Some(sink) = on_delta {
            sink.delta(&answer.text).map_err(ProviderError::Consumer)?;
        }
        Ok(answer.response)
    }
}

/// Somebody waits for a worker; dropped before its answer was taken, the answer is abandoned.
struct Waiting<'model> {
    request: u64,
    answered: oneshot::Receiver<Outcome>,
    over: bool,
    workers: &'model Workers,
    on_abandoned: &'model OnAbandoned,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // From here on the worker is told that nobody takes its answer, unless it was handed over just before.
        self.answered.close();
        if let Ok(outcome) = self.answered.try_recv() {
            tell(self.on_abandoned, self.request, &outcome);
        } else if let Some(worker) = self.workers.lock().running.get_mut(&self.request) {
            worker.abandoned = true;
        }
    }
}

/// Tells what an abandoned answer used.
fn tell(on_abandoned: &OnAbandoned, request: u64, outcome: &Outcome) {
    let usage = match outcome {
        Ok(Ok(answer)) => answer.usage,
        Ok(Err(failure)) => failure.redacted_details.usage,
        Err(_) => None,
    };
    let abandoned = AbandonedAnswer { request, usage };
    // A broken observer must neither keep a worker in the set for ever nor end the thread of a consumer.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| on_abandoned(abandoned)));
}

#[derive(Default)]
struct Workers {
    set: Mutex<Set>,
    changed: Condvar,
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Set {
    next: u64,
    running: BTreeMap<u64, Worker>,
}

struct Worker {
    handle: JoinHandle<()>,
    abandoned: bool,
    /// Its last statement has run; joining it waits for nothing that the provider does.
    ended: bool,
}

impl Set {
    fn join_ended(&mut self) {
        let ended: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, worker)| worker.ended)
            .map(|(request, _)| *request)
            .collect();
        for worker in ended
            .iter()
            .filter_map(|request| self.running.remove(request))
        {
            // The worker catches every panic of the provider and of the observer.
            let _ = worker.handle.join();
        }
    }

    fn unfinished(&self) -> Vec<UnfinishedWorker> {
        self.running
            .iter()
            .map(|(request, worker)| UnfinishedWorker {
                request: *request,
                abandoned: worker.abandoned,
            })
            .collect()
    }
}

/// What the thread of one request does.
struct Job<P> {
    request: u64,
    provider: Arc<P>,
    workers: Arc<Workers>,
    on_abandoned: OnAbandoned,
}

impl<P: BlockingProvider> Job<P> {
    fn run(self, payload: WirePayload, answer: oneshot::Sender<Outcome>) {
        let provider = &self.provider;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            provider.send_blocking(payload)
        }));
        if let Err(unwanted) = answer.send(outcome) {
            tell(&self.on_abandoned, self.request, &unwanted);
        }
        let Job {
            request,
            provider,
            workers,
            on_abandoned,
        } = self;
        // Gone before the worker counts as ended: they may be the last references.
        drop((provider, on_abandoned));
        if let Some(worker) = workers.lock().running.get_mut(&request) {
            worker.ended = true;
        }
        workers.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
