//! A right codec with a flaw.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qitos_contracts::log::{ContentBlock, ParseStatus};
use qitos_contracts::model::{
    CodecError, CodecReport, ContextBudget, DecodedResponse, FailureCategory, FailureStage, Finish,
    FinishReason, Model, ProviderCapabilities, ProviderCodec, ProviderFailure, RawResponse,
    RequestSent, RequestView, ResolvedContinuation, ResponsePart, SelectionReport, TokenUsage,
    ToolSchemas, ToolUsePolicy, WirePayload,
};
use serde_json::{Map, Value, json};

use super::flaw::Flaw;

/// Text that became an answer without a terminal.
pub(super) const INVENTED_TEXT: &str = "mutant_text";
/// The name of a call that was completed.
pub(super) const INVENTED_CALL: &str = "mutant_call";

#[derive(Debug)]
pub(super) struct MutantCodec {
    pub(super) inner: Arc<dyn Model>,
    pub(super) flaw: Flaw,
    pub(super) payloads: AtomicUsize,
}

impl MutantCodec {
    fn spoil(
        &self,
        (mut payload, mut report): (WirePayload, CodecReport),
    ) -> (WirePayload, CodecReport) {
        match self.flaw {
            Flaw::CountsItsPayloads => {
                let count = self.payloads.fetch_add(1, Ordering::Relaxed);
                payload.head_mut().insert("x_count".into(), json!(count));
            }
            Flaw::PutsTheKeyIntoThePayload => {
                payload.head_mut().insert("api_key".into(), json!("key"));
            }
            Flaw::MiscallsLosses => report.lossless = !report.lossless,
            Flaw::HidesLosses => {
                report.lossy_fields.clear();
                report.lossless = true;
            }
            Flaw::ForgetsState => payload = payload.with_waiting(Vec::new()),
            _ => {}
        }
        (payload, report)
    }
}

/// The same view without anything that a target might not support.
fn stripped(view: &RequestView, capabilities: &ProviderCapabilities) -> RequestView {
    let mut view = view.clone();
    view.target = Arc::new(capabilities.target.clone());
    view.capability_requirements.clear();
    view.tool_schemas = Arc::new(ToolSchemas::default());
    view.tool_use_policy = ToolUsePolicy::Auto;
    view.reasoning_policy.mode = Default::default();
    view.continuation = None;
    view.selection = SelectionReport::default();
    view.context_budget = ContextBudget {
        reserved_output_units: 0,
        ..ContextBudget::default()
    };
    view
}

impl ProviderCodec for MutantCodec {
    fn id(&self) -> (&str, u32) {
        self.inner.codec().id()
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        let codec = self.inner.codec();
        let allow_loss = allow_loss || self.flaw == Flaw::HidesLosses;
        let encoded = match codec.encode(view, capabilities, allow_loss) {
            Err(CodecError::CapabilityMismatch { .. })
                if self.flaw == Flaw::SendsTheUnsupported && allow_loss =>
            {
                codec.encode(&stripped(view, capabilities), capabilities, allow_loss)?
            }
            encoded => encoded?,
        };
        Ok(self.spoil(encoded))
    }

    fn apply_continuation(
        &self,
        payload: &mut WirePayload,
        resolved: &ResolvedContinuation,
        report: &mut CodecReport,
    ) -> Result<(), CodecError> {
        self.inner
            .codec()
            .apply_continuation(payload, resolved, report)
    }

    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        if self.flaw == Flaw::RefusesEverything {
            return Err(Box::new(ProviderFailure::new(
                &view.target,
                FailureCategory::Decode,
                "provider_response_decode_failed",
                FailureStage::Decode,
                RequestSent::Yes,
                "the response could not be decoded",
            )));
        }
        if let Some(text) = response.body.get(INVENTED_TEXT).and_then(Value::as_str) {
            let block = ContentBlock::text(text);
            return Ok(invented(ResponsePart::Content(block), FinishReason::Stop));
        }
        if response.body.get(INVENTED_CALL).is_some() {
            return Ok(invented(call_without_arguments(), FinishReason::ToolCalls));
        }
        let mut decoded = self.inner.codec().decode(response, view)?;
        match self.flaw {
            Flaw::ReversesParts => decoded.parts.reverse(),
            Flaw::InventsUsage => {
                decoded.usage.get_or_insert(TokenUsage {
                    prompt_tokens: Some(0),
                    completion_tokens: Some(0),
                    ..TokenUsage::default()
                });
            }
            Flaw::CompletesHalfCalls => {
                for part in &mut decoded.parts {
                    let ResponsePart::ToolCall { parse_status, .. } = part else {
                        continue;
                    };
                    if *parse_status != ParseStatus::Parsed {
                        *part = call_without_arguments();
                    }
                }
            }
            _ => {}
        }
        Ok(decoded)
    }
}

fn call_without_arguments() -> ResponsePart {
    ResponsePart::ToolCall {
        call_id: "one".into(),
        name: "add".into(),
        raw_arguments: "{}".into(),
        parsed_arguments: Some(Arc::new(json!({}))),
        parse_status: ParseStatus::Parsed,
        parse_error: None,
        metadata: Map::new(),
    }
}

fn invented(part: ResponsePart, reason: FinishReason) -> DecodedResponse {
    DecodedResponse {
        parts: vec![part],
        usage: None,
        finish: Finish {
            reason,
            raw: "stop".into(),
        },
        model_name: None,
        provider_metadata: Map::new(),
        continuation: None,
    }
}
