//! `qitos.compatibility.messages` version 1 (PRV-6): the codec of models that take messages and give text.

use serde_json::{Map, Value, json};

use super::request_rules::{Conversions, Losses, admit, contribution_text, report, stands_before};
use super::{
    CodecError, CodecReport, DecodedResponse, FailureCategory, FailureStage, Finish, FinishReason,
    InstructionRole, ProviderCapabilities, ProviderCodec, ProviderFailure, RawResponse,
    RequestSent, RequestView, ResolvedContinuation, ResponsePart, TokenUsage, WirePayload,
};
use crate::context::{ContextContribution, Placement};
use crate::limits::MODEL_VIEW_CHARS;
use crate::log::{ContentBlock, ItemBody, SealedItem};
use crate::tool::model_view::project;

/// Messages in, text out.
///
/// # Contract
/// The payload is `{"model", "max_tokens"?, "messages": [{"role", "content"}]}`; roles are `system`, `user` and
/// `assistant`, contents are text. Earlier reasoning, images and the order of text and calls are declared losses
/// (PRV-14). A response is one that [`MessagesCodec::response`] made; anything else is malformed.
///
/// A model that uses it claims no more than
/// [`text_only`](ProviderCapabilities::text_only) does, apart from streaming, usage and cancellation.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessagesCodec;

impl MessagesCodec {
    /// A verified answer: its text, and `length` if the output limit cut it, else `stop` (PRV-26).
    #[must_use]
    pub fn response(text: &str, finish: &str, usage: Option<TokenUsage>) -> RawResponse {
        RawResponse::whole(json!({"text": text, "finish": finish, "usage": usage}))
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn joined(blocks: &[ContentBlock]) -> String {
    blocks
        .iter()
        .filter_map(|block| block.text.as_deref())
        .collect()
}

fn item(item: &SealedItem) -> Value {
    match &item.item().body {
        ItemBody::User(user) => message("user", &joined(&user.content)),
        ItemBody::Steering(steering) => message("user", &joined(&steering.content)),
        ItemBody::Assistant(assistant) => message("assistant", &assistant.text()),
        ItemBody::ToolResult(result) => {
            let text = project(&result.result, MODEL_VIEW_CHARS).to_text();
            message("user", &format!("Observation: {text}"))
        }
    }
}

fn context(contribution: &ContextContribution) -> Value {
    let trusted = matches!(
        contribution.requested_placement,
        Placement::System | Placement::Developer
    );
    let role = if trusted && stands_before(contribution) {
        "system"
    } else {
        "user"
    };
    message(role, &contribution_text(contribution))
}

impl ProviderCodec for MessagesCodec {
    fn id(&self) -> (&str, u32) {
        ("qitos.compatibility.messages", 1)
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        let losses = Losses {
            reasoning: true,
            interleaving: true,
        };
        let lossy_fields = admit(view, capabilities, allow_loss, losses)?;
        let mut messages: Vec<Value> = view
            .instructions
            .iter()
            .map(|instruction| match instruction.role {
                InstructionRole::User => message("user", &instruction.text),
                InstructionRole::System | InstructionRole::Developer => {
                    message("system", &instruction.text)
                }
            })
            .collect();
        let contributions = |before: bool| {
            view.contributions
                .iter()
                .filter(move |contribution| stands_before(contribution) == before)
                .map(|contribution| context(contribution))
        };
        messages.extend(contributions(true));
        messages.extend(view.items.iter().map(|sealed| item(sealed)));
        messages.extend(contributions(false));
        let mut head = Map::new();
        if let Some(limit) = view.max_output_tokens {
            head.insert("max_tokens".into(), limit.into());
        }
        head.insert("messages".into(), messages.into());
        head.insert("model".into(), view.target.model().into());
        let conversions = Conversions {
            reasoning: "dropped",
            tool_schemas: "not_present",
        };
        let report = report(self.id(), view, lossy_fields, conversions);
        Ok((WirePayload::of_head(head), report))
    }

    fn apply_continuation(
        &self,
        _: &mut WirePayload,
        _: &ResolvedContinuation,
        _: &mut CodecReport,
    ) -> Result<(), CodecError> {
        Err(CodecError::CapabilityMismatch {
            unsupported: vec!["continuation".into()],
        })
    }

    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        let field = |name: &str| response.body.get(name).and_then(Value::as_str);
        let reason = match field("finish") {
            Some("stop") => Some(FinishReason::Stop),
            Some("length") => Some(FinishReason::Length),
            _ => None,
        };
        let (Some(text), Some(reason)) = (field("text"), reason) else {
            return Err(Box::new(ProviderFailure::new(
                &view.target,
                FailureCategory::MalformedStructuredResponse,
                "provider_response_malformed",
                FailureStage::MalformedStructuredResponse,
                RequestSent::Yes,
                "the response has no text or no terminal",
            )));
        };
        let usage = response.body.get("usage").cloned().unwrap_or_default();
        Ok(DecodedResponse {
            parts: vec![ResponsePart::Content(ContentBlock::text(text))],
            usage: serde_json::from_value(usage)
                .ok()
                .filter(TokenUsage::is_known),
            finish: Finish {
                reason,
                raw: field("finish").unwrap_or_default().into(),
            },
            model_name: None,
            provider_metadata: Map::new(),
            continuation: None,
        })
    }
}
