//! Views, sinks and transports that the tests share.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::RequestId;
use qitos_contracts::log::{ExchangeLog, Item, ItemBody, ItemList};
use qitos_contracts::model::*;
use qitos_providers::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};
use serde_json::{Value, json};

pub(crate) fn target() -> Target {
    Target::new("openai-compatible", "offline", "openai", "chat_completions").unwrap()
}

pub(crate) fn tool(name: &str) -> ToolSchema {
    ToolSchema {
        name: name.to_owned(),
        description: format!("tool {name}"),
        input_schema: json!({"type": "object"}),
        strict_schema: None,
    }
}

/// A view of `items` for `target`.
pub(crate) fn view_of(items: ItemList, tools: &[&str], target: Target) -> RequestView {
    RequestView {
        request_id: RequestId::of_view(&Digest::of(b"view")),
        target: Arc::new(target),
        source: ViewSource {
            exchange_log_id: "log".into(),
            exchange_log_digest: Digest::ZERO,
            first_item: 0,
        },
        items,
        instructions: Arc::new([]),
        tool_schemas: Arc::new(ToolSchemas::new(
            tools.iter().map(|name| tool(name)).collect(),
        )),
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

/// The log's items after appending these bodies.
pub(crate) fn items(bodies: Vec<ItemBody>) -> ItemList {
    let mut log = ExchangeLog::new();
    for (index, body) in bodies.into_iter().enumerate() {
        let item = Item {
            item_id: format!("item-{index}").parse().unwrap(),
            exchange_id: log.exchange_for(&body),
            body,
        };
        log.append(item, &mut Vec::new()).unwrap();
    }
    log.items().clone()
}

/// Remembers every delta.
#[derive(Debug, Default)]
pub(crate) struct Deltas(pub(crate) Vec<String>);

impl DeltaSink for Deltas {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.push(text.to_owned());
        Ok(())
    }
}

/// How a scripted body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    Reset,
}

/// Answers a request with the bytes that were put in last.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) chunks: Mutex<Vec<Vec<u8>>>,
    pub(crate) end: Mutex<End>,
    pub(crate) seen: Mutex<Vec<HttpRequest>>,
}

impl Scripted {
    pub(crate) fn stream(chunks: Vec<Vec<u8>>, end: End) -> Self {
        Scripted {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            chunks: Mutex::new(chunks),
            end: Mutex::new(end),
            seen: Mutex::default(),
        }
    }
}

#[async_trait]
impl HttpTransport for Scripted {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        self.seen.lock().unwrap().push(request);
        Ok(HttpResponse {
            status: self.status,
            headers: self.headers.clone(),
            body: Box::new(Body {
                chunks: std::mem::take(&mut *self.chunks.lock().unwrap()).into_iter(),
                current: Vec::new(),
                end: *self.end.lock().unwrap(),
            }),
        })
    }
}

#[derive(Debug)]
struct Body {
    chunks: std::vec::IntoIter<Vec<u8>>,
    current: Vec<u8>,
    end: End,
}

#[async_trait]
impl HttpBody for Body {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        match (self.chunks.next(), self.end) {
            (Some(chunk), _) => {
                self.current = chunk;
                Ok(Some(&self.current))
            }
            (None, End::Clean) => Ok(None),
            (None, End::Reset) => Err(TransportError::Reset),
        }
    }
}

thread_local! {
    static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
}

/// Runs `future` to its end under a paused clock, which jumps to the next timer when nothing is ready.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// The body of an encoded request.
pub(crate) fn body_of(payload: &WirePayload) -> Value {
    let mut bytes = Vec::new();
    payload.write_out(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}
