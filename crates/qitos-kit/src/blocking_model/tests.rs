use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use qitos_contracts::model::{CodecError, CodecReport, DecodedResponse, RequestView};
use qitos_contracts::model::{ResolvedContinuation, TimeoutKind};
use serde_json::json;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

/// Says when a request is inside and answers when it is told how.
#[derive(Debug)]
struct Gated {
    target: Arc<Target>,
    capabilities: ProviderCapabilities,
    inside: Sender<()>,
    answers: Mutex<Receiver<Answer>>,
}

type Task = tokio::task::JoinHandle<Result<RawResponse, ProviderError>>;
type Answer = fn() -> Result<BlockingAnswer, Box<ProviderFailure>>;

/// A test's hands on a model.
struct Bench {
    model: Arc<BlockingModel<Gated>>,
    inside: Receiver<()>,
    answers: Sender<Answer>,
    abandoned: Arc<Mutex<Vec<AbandonedAnswer>>>,
}

fn target() -> Target {
    Target::new("fake", "slow", "local", "generate").unwrap()
}

fn usage() -> TokenUsage {
    TokenUsage {
        prompt_tokens: Some(7),
        ..TokenUsage::default()
    }
}

fn answer() -> Result<BlockingAnswer, Box<ProviderFailure>> {
    Ok(BlockingAnswer {
        response: RawResponse::whole(json!({"text": "Hi"})),
        text: "Hi".into(),
        usage: Some(usage()),
    })
}

fn failure() -> Result<BlockingAnswer, Box<ProviderFailure>> {
    let mut failure = ProviderFailure::new(
        &target(),
        FailureCategory::Timeout,
        "provider_timeout",
        FailureStage::Timeout,
        RequestSent::Yes,
        "too late",
    );
    failure.redacted_details.timeout_kind = Some(TimeoutKind::Total);
    failure.redacted_details.usage = Some(usage());
    Err(Box::new(failure))
}

fn broken() -> Result<BlockingAnswer, Box<ProviderFailure>> {
    panic!("inside the provider")
}

impl Bench {
    fn new(max_workers: usize) -> Self {
        let (entered, inside) = channel();
        let (answers, told) = channel();
        let provider = Gated {
            target: Arc::new(target()),
            capabilities: ProviderCapabilities::text_only(target(), "generate"),
            inside: entered,
            answers: Mutex::new(told),
        };
        let abandoned = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&abandoned);
        let observer: OnAbandoned = Arc::new(move |answer| seen.lock().unwrap().push(answer));
        Bench {
            model: Arc::new(BlockingModel::new(
                Arc::new(provider),
                max_workers,
                observer,
            )),
            inside,
            answers,
            abandoned,
        }
    }

    /// A request whose worker is inside the provider.
    fn begin(&self) -> (Task, Arc<Mutex<Vec<String>>>) {
        let model = Arc::clone(&self.model);
        let deltas = Arc::new(Mutex::new(Vec::new()));
        let mut sink = Deltas(Arc::clone(&deltas));
        let task = tokio::spawn(async move { model.send(payload(), Some(&mut sink)).await });
        (task, deltas)
    }

    fn wait_inside(&self) {
        self.inside.recv_timeout(LIMIT).unwrap();
    }

    fn wait_until_none(&self) {
        assert_eq!(self.model.wait_until(Instant::now() + LIMIT), []);
    }

    fn abandoned(&self) -> Vec<AbandonedAnswer> {
        self.abandoned.lock().unwrap().clone()
    }
}

fn payload() -> WirePayload {
    WirePayload::of_head(serde_json::Map::new())
}

struct Deltas(Arc<Mutex<Vec<String>>>);

impl DeltaSink for Deltas {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().unwrap().push(text.to_owned());
        Ok(())
    }
}

impl BlockingProvider for Gated {
    fn target(&self) -> &Arc<Target> {
        &self.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        self
    }

    fn send_blocking(&self, _: WirePayload) -> Result<BlockingAnswer, Box<ProviderFailure>> {
        self.inside.send(()).unwrap();
        let answer = self.answers.lock().unwrap().recv_timeout(LIMIT).unwrap();
        answer()
    }
}

impl ProviderCodec for Gated {
    fn id(&self) -> (&str, u32) {
        ("qitos.test.blocking", 1)
    }

    fn encode(
        &self,
        _: &RequestView,
        _: &ProviderCapabilities,
        _: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        Err(CodecError::EncodeFailed {
            reason: "not asked for here",
        })
    }

    fn apply_continuation(
        &self,
        _: &mut WirePayload,
        _: &ResolvedContinuation,
        _: &mut CodecReport,
    ) -> Result<(), CodecError> {
        Ok(())
    }

    fn decode(
        &self,
        _: RawResponse,
        _: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        Err(failure().unwrap_err())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_stays_owned_after_its_consumer_was_cancelled_prv_97_prv_98() {
    let bench = Bench::new(4);
    let (task, deltas) = bench.begin();
    bench.wait_inside();
    task.abort();
    assert!(
        task.await.unwrap_err().is_cancelled(),
        "the consumer is cancelled at once"
    );
    let worker = UnfinishedWorker {
        request: 0,
        abandoned: true,
    };
    assert_eq!(bench.model.unfinished(), std::slice::from_ref(&worker));
    // PRV-99: waiting has a limit, and what is outstanding is named.
    let short = Instant::now() + Duration::from_millis(20);
    assert_eq!(bench.model.wait_until(short), [worker]);
    assert_eq!(bench.abandoned(), []);

    bench.answers.send(answer).unwrap();
    bench.wait_until_none();
    assert_eq!(bench.model.unfinished(), []);
    let left = AbandonedAnswer {
        request: 0,
        usage: Some(usage()),
    };
    assert_eq!(bench.abandoned(), [left], "only its usage is left");
    assert!(deltas.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_abandoned_failure_or_panic_ends_its_worker_and_keeps_its_usage_prv_98() {
    let bench = Bench::new(4);
    for (ending, used) in [(failure as Answer, Some(usage())), (broken, None)] {
        let (task, _) = bench.begin();
        bench.wait_inside();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        bench.answers.send(ending).unwrap();
        bench.wait_until_none();
        assert_eq!(bench.abandoned().last().unwrap().usage, used);
    }
    assert_eq!(bench.abandoned().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_in_time_is_one_chunk_and_is_not_abandoned_prv_100() {
    let bench = Bench::new(1);
    for request in 0..3 {
        let (task, deltas) = bench.begin();
        bench.wait_inside();
        let worker = UnfinishedWorker {
            request,
            abandoned: false,
        };
        assert_eq!(bench.model.unfinished(), [worker]);
        bench.answers.send(answer).unwrap();
        assert_eq!(task.await.unwrap().unwrap().body, json!({"text": "Hi"}));
        assert_eq!(*deltas.lock().unwrap(), ["Hi"]);
        bench.wait_until_none();
    }
    assert_eq!(bench.abandoned(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_failure_and_a_panic_reach_a_consumer_that_waits_prv_97() {
    let bench = Bench::new(1);
    let (task, _) = bench.begin();
    bench.wait_inside();
    bench.answers.send(failure).unwrap();
    let Err(ProviderError::Failure(failed)) = task.await.unwrap() else {
        panic!("a failure")
    };
    assert_eq!(failed.error_code, "provider_timeout");
    bench.wait_until_none();
    let (task, _) = bench.begin();
    bench.wait_inside();
    bench.answers.send(broken).unwrap();
    assert!(task.await.unwrap_err().is_panic());
    bench.wait_until_none();
    assert_eq!(bench.abandoned(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn abandoned_workers_count_against_the_bound_and_a_request_beyond_it_is_unsent_prv_38() {
    let bench = Bench::new(2);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        tasks.push(bench.begin().0);
        bench.wait_inside();
    }
    for task in tasks {
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    let (task, _) = bench.begin();
    let Err(ProviderError::Failure(refused)) = task.await.unwrap() else {
        panic!("a refusal")
    };
    assert_eq!(refused.error_code, "provider_request_admission_failed");
    assert_eq!(refused.request_sent, RequestSent::No);
    assert!(bench.inside.try_recv().is_err(), "the provider saw nothing");
    bench.answers.send(answer).unwrap();
    bench.answers.send(answer).unwrap();
    bench.wait_until_none();
    let (task, _) = bench.begin();
    bench.wait_inside();
    bench.answers.send(answer).unwrap();
    task.await.unwrap().unwrap();
    bench.wait_until_none();
}

#[tokio::test]
async fn an_answer_handed_over_just_before_the_drop_is_told_once_prv_98() {
    let bench = Bench::new(1);
    let mut sent = bench.model.send(payload(), None);
    // Polled once: the worker is started. Never polled again: its answer waits in the channel.
    assert!(poll_once(&mut sent).await.is_none());
    bench.wait_inside();
    bench.answers.send(answer).unwrap();
    bench.wait_until_none();
    assert_eq!(bench.abandoned(), []);
    drop(sent);
    assert_eq!(bench.abandoned().len(), 1);
}

/// The output if one poll gives it.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
