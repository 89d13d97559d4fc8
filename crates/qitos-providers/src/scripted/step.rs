//! What the scripted server does with one request (PRV-107).

use std::sync::Arc;

use qitos_contracts::model::ProviderFailure;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::http::TransportError;

/// A door that a test opens to decide the order of events.
#[derive(Clone, Debug)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            open: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Gate::default()
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until the gate is open.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub async fn wait(&self) {
        let mut receiver = self.open.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|open| *open).await;
    }
}

/// How scripted bytes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyEnd {
    /// The last chunk was sent.
    #[default]
    Clean,
    /// The connection is lost.
    Reset,
    /// Nothing more comes and the connection stays open.
    Hang,
}

/// An answer by its parts; it is written as the dialect writes it and read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<(u64, u64)>,
}

impl Answer {
    /// A final text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Answer {
            text: text.into(),
            ..Answer::default()
        }
    }

    /// One tool call: id, name, arguments as JSON text.
    #[must_use]
    pub fn call(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Answer::default().and_call(id, name, arguments)
    }

    /// A further tool call.
    #[must_use]
    pub fn and_call(
        mut self,
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        self.calls.push((id.into(), name.into(), arguments.into()));
        self
    }

    /// Text beside calls.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Reasoning, never part of the text (PRV-20).
    #[must_use]
    pub fn with_reasoning(mut self, reasoning: impl Into<String>) -> Self {
        self.reasoning = reasoning.into();
        self
    }

    /// A finish reason other than the fitting one.
    #[must_use]
    pub fn with_finish(mut self, finish: impl Into<String>) -> Self {
        self.finish = Some(finish.into());
        self
    }

    /// Usage; unknown unless given (PRV-70).
    #[must_use]
    pub fn with_usage(mut self, prompt_tokens: u64, completion_tokens: u64) -> Self {
        self.usage = Some((prompt_tokens, completion_tokens));
        self
    }

    fn finish_reason(&self) -> &str {
        match &self.finish {
            Some(finish) => finish,
            None if self.calls.is_empty() => "stop",
            None => "tool_calls",
        }
    }

    fn message(&self, streamed: bool) -> Map<String, Value> {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), self.text.as_str().into());
        if !self.reasoning.is_empty() {
            message.insert(
                "reasoning_content".to_owned(),
                self.reasoning.as_str().into(),
            );
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().enumerate().map(|(index, call)| {
                let (id, name, arguments) = call;
                let mut entry = Map::new();
                if streamed {
                    entry.insert("index".to_owned(), index.into());
                }
                entry.insert("id".to_owned(), id.as_str().into());
                entry.insert("type".to_owned(), "function".into());
                let function = json!({"name": name, "arguments": arguments});
                entry.insert("function".to_owned(), function);
                Value::Object(entry)
            });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        message
    }

    fn usage_value(&self) -> Value {
        match self.usage {
            None => Value::Null,
            Some((prompt, completion)) => json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt.saturating_add(completion),
            }),
        }
    }

    pub(crate) fn body(&self, model: &str) -> Vec<u8> {
        let body = json!({
            "object": "chat.completion",
            "model": model,
            "choices": [{
                "index": 0,
                "message": self.message(false),
                "finish_reason": self.finish_reason(),
            }],
            "usage": self.usage_value(),
        });
        body.to_string().into_bytes()
    }

    pub(crate) fn events(&self, model: &str) -> Vec<String> {
        let delta = self.message(true);
        let first = json!({"model": model, "choices": [{"index": 0, "delta": delta}]});
        let last = json!({"choices": [{
            "index": 0, "delta": {}, "finish_reason": self.finish_reason(),
        }]});
        let mut events = vec![first.to_string(), last.to_string()];
        if self.usage.is_some() {
            events.push(json!({"choices": [], "usage": self.usage_value()}).to_string());
        }
        events.push("[DONE]".to_owned());
        events
    }
}

/// What happens to one request.
#[derive(Clone, Debug)]
pub struct Step {
    pub(crate) gate: Option<Gate>,
    pub(crate) kind: StepKind,
}

#[derive(Clone, Debug)]
pub(crate) enum StepKind {
    Answer(Answer),
    Body {
        status: u16,
        headers: Vec<(String, String)>,
        chunks: Vec<Vec<u8>>,
        end: BodyEnd,
    },
    Failure(Box<ProviderFailure>),
    Transport(TransportError),
    HangBeforeHeaders,
}

impl Step {
    fn of(kind: StepKind) -> Self {
        Step { gate: None, kind }
    }

    /// An answer by its parts, streamed if the request streams.
    #[must_use]
    pub fn answer(answer: Answer) -> Self {
        Step::of(StepKind::Answer(answer))
    }

    /// The data of each event; nothing is added, not even `[DONE]`.
    #[must_use]
    pub fn events<Data: AsRef<str>>(events: impl IntoIterator<Item = Data>) -> Self {
        let chunks = events
            .into_iter()
            .map(|data| format!("data: {}\n\n", data.as_ref()).into_bytes())
            .collect();
        Step::bytes(chunks, BodyEnd::Clean)
    }

    /// An event stream as raw bytes, cut where the script says.
    #[must_use]
    pub fn bytes(chunks: Vec<Vec<u8>>, end: BodyEnd) -> Self {
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        Step::of(StepKind::Body {
            status: 200,
            headers,
            chunks,
            end,
        })
    }

    /// A status line with headers and a whole body.
    #[must_use]
    pub fn status(status: u16, headers: Vec<(String, String)>, body: impl Into<Vec<u8>>) -> Self {
        Step::of(StepKind::Body {
            status,
            headers,
            chunks: vec![body.into()],
            end: BodyEnd::Clean,
        })
    }

    /// A typed failure, returned as it is.
    #[must_use]
    pub fn failure(failure: ProviderFailure) -> Self {
        Step::of(StepKind::Failure(Box::new(failure)))
    }

    /// The transport fails before any status line.
    #[must_use]
    pub fn transport(error: TransportError) -> Self {
        Step::of(StepKind::Transport(error))
    }

    /// No status line ever comes.
    #[must_use]
    pub fn hang() -> Self {
        Step::of(StepKind::HangBeforeHeaders)
    }

    /// The same step, begun only once the gate is open.
    #[must_use]
    pub fn after(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}
