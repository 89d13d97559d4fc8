//! A whole stream through the public `Model::send`, in three cuts, against the second reading.

use std::cell::OnceCell;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::RequestId;
use qitos_contracts::log::ItemList;
use qitos_contracts::model::*;
use qitos_providers::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::memory;
use crate::naive_events;

/// Names that the fixtures call; declared in every request of a target.
const TOOLS: [&str; 3] = ["add", "multiply", "now"];

/// Checks one input: two bytes for a cut, one for the set-up, then a body.
///
/// Bits of the set-up: 1 a tool is forced, 2 the tolerant profile, 4 no content type.
///
/// # Panics
/// If a rule is broken.
pub fn check_stream(dialect: &'static Dialect, input: &[u8]) {
    let [cut_high, cut_low, setup, body @ ..] = input else {
        return;
    };
    let cut = usize::from(u16::from_be_bytes([*cut_high, *cut_low])) % (body.len() + 1);
    BENCHES.with(|benches| {
        let number = usize::from(*setup & 7);
        let bench = benches[number].get_or_init(|| Bench::new(dialect, number));
        let whole = bench.verdict(&[body]);
        let (left, right) = body.split_at(cut);
        let split = bench.verdict(&[left, right]);
        assert_eq!(split, whole, "PRV-51: cut at {cut}");
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(bench.verdict(&bytes), whole, "PRV-51: byte by byte");
        if whole.success.is_some() {
            assert!(
                holds_terminals(body, dialect),
                "PRV-50: success without a terminal"
            );
        }
    });
}

/// Whether a naive reading finds each terminal.
fn holds_terminals(body: &[u8], dialect: &Dialect) -> bool {
    let reading = naive_events::read(body);
    let events: Vec<(&str, Value)> = reading
        .events
        .iter()
        .chain(&reading.open)
        .filter_map(|(kind, data)| Some((kind.as_str(), serde_json::from_str(data).ok()?)))
        .collect();
    dialect
        .terminals
        .iter()
        .all(|terminal| events.iter().any(|(kind, data)| terminal(kind, data)))
}

thread_local! {
    static BENCHES: [OnceCell<Bench>; 8] = const { [const { OnceCell::new() }; 8] };
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("a runtime: {error}"));
}

/// A model, a request and the transport that answers it.
struct Bench {
    model: Box<dyn Model>,
    transport: Arc<InMemory>,
    view: RequestView,
    payload: WirePayload,
}

/// Everything that a consumer can see of an attempt.
#[derive(Debug, PartialEq)]
struct Verdict {
    deltas: String,
    success: Option<(Value, Vec<String>)>,
    failure: Option<Value>,
}

impl Bench {
    fn new(dialect: &Dialect, setup: usize) -> Self {
        let mut headers = Vec::new();
        if setup & 4 == 0 {
            headers.push(("content-type".to_owned(), "text/event-stream".to_owned()));
        }
        let transport = Arc::new(InMemory {
            headers,
            chunks: Mutex::default(),
        });
        let shared = Arc::clone(&transport) as Arc<dyn HttpTransport>;
        let model = (dialect.model)(setup & 2 != 0, shared);
        let mut view = view_for((dialect.target)());
        if setup & 1 != 0 {
            view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
        }
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), true)
            .unwrap_or_else(|error| panic!("a constant request: {error}"));
        Bench {
            model,
            transport,
            view,
            payload,
        }
    }

    fn verdict(&self, chunks: &[&[u8]]) -> Verdict {
        let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        *self.transport.lock() = chunks.iter().map(|chunk| chunk.to_vec()).collect();
        let mut deltas = Deltas(String::new());
        let answer = memory::bounded(length, || {
            let sent = self.model.send(self.payload.clone(), Some(&mut deltas));
            RUNTIME.with(|runtime| runtime.block_on(sent))
        });
        let deltas = deltas.0;
        match answer {
            Ok(raw) => {
                let success = (raw.body.clone(), raw.warnings.clone());
                let decoded = self
                    .model
                    .codec()
                    .decode(raw, &self.view)
                    .unwrap_or_else(|error| panic!("PRV-50: a success that is none: {error:?}"));
                self.check_success(&decoded, &deltas);
                Verdict {
                    deltas,
                    success: Some(success),
                    failure: None,
                }
            }
            Err(ProviderError::Failure(failure)) => {
                let characters = failure.redacted_details.partial_text_characters;
                assert_eq!(characters, deltas.chars().count() as u64, "PRV-43");
                assert_eq!(failure.request_sent, RequestSent::Yes, "PRV-39");
                assert_eq!(failure.status_code, None, "PRV-41");
                Verdict {
                    deltas,
                    success: None,
                    failure: Some(json!(*failure)),
                }
            }
            Err(ProviderError::Consumer(error)) => panic!("nobody failed: {error}"),
        }
    }

    fn check_success(&self, decoded: &DecodedResponse, deltas: &str) {
        assert_eq!(decoded.text(), deltas, "PRV-19");
        let mut identities = Vec::new();
        for part in &decoded.parts {
            if let ResponsePart::ToolCall {
                call_id,
                parsed_arguments,
                ..
            } = part
            {
                let parsed = parsed_arguments
                    .as_ref()
                    .is_some_and(|value| value.is_object());
                assert!(parsed, "PRV-22: {part:?}");
                identities.push(call_id);
            }
        }
        let calls = identities.len();
        identities.sort();
        identities.dedup();
        assert_eq!(identities.len(), calls, "PRV-24");
        let finish = decoded.finish.reason;
        assert!(calls == 0 || finish == FinishReason::ToolCalls, "PRV-57");
        assert!(calls > 0 || finish != FinishReason::ToolCalls, "PRV-57");
    }
}

struct Deltas(String);

impl DeltaSink for Deltas {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.push_str(text);
        Ok(())
    }
}

/// Answers with the chunks that were put in last.
#[derive(Debug)]
struct InMemory {
    headers: Vec<(String, String)>,
    chunks: Mutex<Vec<Vec<u8>>>,
}

impl InMemory {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl HttpTransport for InMemory {
    async fn send(&self, _: HttpRequest) -> Result<HttpResponse, TransportError> {
        Ok(HttpResponse {
            status: 200,
            headers: self.headers.clone(),
            body: Box::new(Body {
                chunks: std::mem::take(&mut *self.lock()).into_iter(),
                current: Vec::new(),
            }),
        })
    }
}

#[derive(Debug)]
struct Body {
    chunks: std::vec::IntoIter<Vec<u8>>,
    current: Vec<u8>,
}

#[async_trait]
impl HttpBody for Body {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        let Some(chunk) = self.chunks.next() else {
            return Ok(None);
        };
        self.current = chunk;
        Ok(Some(&self.current))
    }
}

fn view_for(target: Target) -> RequestView {
    let tools = TOOLS
        .iter()
        .map(|name| ToolSchema {
            name: (*name).to_owned(),
            description: format!("tool {name}"),
            input_schema: json!({"type": "object"}),
            strict_schema: None,
        })
        .collect();
    RequestView {
        request_id: RequestId::of_view(&Digest::of(b"view")),
        target: Arc::new(target),
        source: ViewSource {
            exchange_log_id: "log".into(),
            exchange_log_digest: Digest::ZERO,
            first_item: 0,
        },
        items: ItemList::default(),
        instructions: Arc::new([]),
        tool_schemas: Arc::new(ToolSchemas::new(tools)),
        contributions: Vec::new(),
        capability_requirements: Vec::new(),
        reasoning_policy: ReasoningPolicy::default(),
        continuation: None,
        context_budget: ContextBudget::default(),
        selection: SelectionReport::default(),
        compaction_receipts: Vec::new(),
        steering_boundary: SteeringBoundary::default(),
        protocol_id: "native_tool_calls_v1".into(),
        tool_use_policy: ToolUsePolicy::Auto,
        tool_use_satisfied: false,
        max_output_tokens: None,
        prefix_digests: PrefixDigests {
            tools: Digest::ZERO,
            instructions: Digest::ZERO,
            contributions: Digest::ZERO,
            items: Digest::ZERO,
        },
        view_digest: Digest::ZERO,
    }
}
