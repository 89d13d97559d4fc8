//! The Chat Completions client, and how its servers write answers.

use std::sync::Arc;

use qitos::contracts::secret::SecretValue;
use qitos::models::openai_chat::{ChatProfile, ChatSettings, MappedFinish, chat_capabilities};
use qitos::models::{Model, ProviderCapabilities, ProviderFailure, Target, TargetError};
use qitos_conformance::provider::{Answer, Dialect, Form, ProviderSubject, Setup, WireForm};
use serde_json::{Value, json};

use super::peer_transport::PeerTransport;

pub(super) struct Subject;

fn target() -> Result<Target, TargetError> {
    Target::new("openai-compatible", "m", "openai", "chat_completions")
}

/// Four constant, non-empty words are a target.
pub(super) fn constant(target: Result<Target, TargetError>) -> Target {
    #[expect(clippy::expect_used, reason = "its four parts are constant words")]
    target.expect("a constant target")
}

fn settings(setup: &Setup, base_url: &str) -> ChatSettings {
    let mut settings = ChatSettings::new(constant(target()), base_url);
    settings.connection.credential = Some(SecretValue::new(setup.credential.clone()));
    if let Some(limit) = setup.progress_limit {
        settings.connection.time_limits.progress = limit;
    }
    settings.profile = profile(&setup.described);
    settings
}

/// The server that a fixture describes.
fn profile(described: &Value) -> ChatProfile {
    let carries = described.pointer("/profile/stop_may_carry_tool_calls");
    let mut profile = ChatProfile {
        stop_may_carry_tool_calls: carries == Some(&Value::Bool(true)),
        ..ChatProfile::default()
    };
    let finishes = described.pointer("/profile/finish_reasons");
    for (word, reason) in finishes.and_then(Value::as_object).into_iter().flatten() {
        if reason == "stop" {
            profile
                .finish_reasons
                .insert(word.clone(), MappedFinish::Stop);
        }
    }
    profile
}

fn build(setup: &Setup, base_url: &str) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
    let transport = Arc::new(PeerTransport(setup.peer.clone()));
    let model = settings(setup, base_url).with_transport(transport)?;
    Ok(Arc::new(model))
}

impl ProviderSubject for Subject {
    fn name(&self) -> &str {
        "openai-chat"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        chat_capabilities(constant(target()), None)
    }

    fn build(&self, setup: &Setup) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
        build(setup, &setup.base_url)
    }

    fn build_flawed(&self, setup: &Setup) -> Option<Result<Arc<dyn Model>, Box<ProviderFailure>>> {
        Some(build(setup, "no address"))
    }

    fn wire(&self, answer: &Answer, form: Form) -> Option<WireForm> {
        Some(wire(answer, form))
    }

    fn dialect(&self) -> Option<Dialect> {
        Some(Dialect::OpenAiChat)
    }
}

/// An object with one more member.
pub(super) fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(key.to_owned(), value);
    }
    object
}

/// An answer as a Chat Completions server writes it.
pub(super) fn wire(answer: &Answer, form: Form) -> WireForm {
    match form {
        Form::Whole => whole(answer),
        Form::Streamed => streamed(answer),
    }
}

fn finish(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
}

fn usage(answer: &Answer) -> Value {
    match answer.usage {
        None => Value::Null,
        Some((prompt, completion)) => json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }),
    }
}

fn whole(answer: &Answer) -> WireForm {
    let calls: Vec<Value> = answer
        .calls
        .iter()
        .map(|call| {
            json!({
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            })
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": answer.joined_text()});
    if !calls.is_empty() {
        message = with(message, "tool_calls", calls.into());
    }
    let body = json!({
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish(answer)}],
        "usage": usage(answer),
    });
    WireForm::whole("application/json", body.to_string())
}

fn streamed(answer: &Answer) -> WireForm {
    let delta = |delta: Value| {
        let chunk = json!({"object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]});
        format!("data: {chunk}\n\n")
    };
    let mut before = delta(json!({"role": "assistant", "content": ""}));
    for piece in &answer.text {
        before += &delta(json!({"content": piece}));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        before += &delta(json!({"tool_calls": [
            {"index": index, "id": call.id, "type": "function", "function": function},
        ]}));
        let middle = call.arguments.chars().count() / 2;
        let left: String = call.arguments.chars().take(middle).collect();
        let right: String = call.arguments.chars().skip(middle).collect();
        for piece in [left, right] {
            before +=
                &delta(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
        }
    }
    let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish(answer)}]});
    let mut after = "\n\n".to_owned();
    if answer.usage.is_some() {
        let chunk = json!({"choices": [], "usage": usage(answer)});
        after += &format!("data: {chunk}\n\n");
    }
    after += "data: [DONE]\n\n";
    WireForm {
        content_type: Some("text/event-stream".into()),
        before_terminal: before.into_bytes(),
        terminal: format!("data: {last}").into_bytes(),
        after_terminal: after.into_bytes(),
    }
}
