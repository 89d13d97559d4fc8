//! The suite's script as a model.
//!
//! Requests are written by a real codec. Answers are given decoded, arguments as the model wrote them: a dialect may
//! refuse a whole answer for one malformed call, and the suite asks what the engine makes of a single one (TXT-10).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use qitos::Engine;
use qitos::contracts::log::{ContentBlock, ParseStatus};
use qitos::models::scripted::ScriptedModel;
use qitos::models::{
    CodecError, CodecReport, DecodedResponse, DeltaSink, Finish, FinishReason, Model,
    ProviderCapabilities, ProviderCodec, ProviderError, ProviderFailure, RawResponse, RequestView,
    ResolvedContinuation, ResponsePart, Target, WirePayload,
};
use qitos_conformance::tool::{Script, ScriptedCall, Turn};
use serde_json::{Map, Value};

use super::locked;

/// How long a request waits for workers of closed calls, so that a return that is late comes while the run goes on.
const WORKERS: Duration = Duration::from_millis(50);

/// A model that asks the script.
#[derive(Debug)]
pub(super) struct SuiteModel {
    inner: Arc<ScriptedModel>,
    codec: SuiteCodec,
    engine: Arc<OnceLock<Engine>>,
}

#[derive(Debug)]
struct SuiteCodec {
    inner: Arc<ScriptedModel>,
    script: Arc<Script>,
    answers: Mutex<VecDeque<Turn>>,
}

impl SuiteModel {
    pub(super) fn new(
        script: Arc<Script>,
        engine: Arc<OnceLock<Engine>>,
    ) -> Result<Self, Box<ProviderFailure>> {
        let inner = Arc::new(ScriptedModel::new("suite", Vec::new())?);
        Ok(SuiteModel {
            codec: SuiteCodec {
                inner: Arc::clone(&inner),
                script,
                answers: Mutex::default(),
            },
            inner,
            engine,
        })
    }
}

#[async_trait]
impl Model for SuiteModel {
    fn target(&self) -> &Arc<Target> {
        self.inner.target()
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        self.inner.capabilities()
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.codec
    }

    async fn send(
        &self,
        _payload: WirePayload,
        _on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        if let Some(engine) = self.engine.get() {
            engine.shutdown(WORKERS).await;
        }
        Ok(RawResponse::whole(Value::Null))
    }
}

fn part_of(call: ScriptedCall) -> ResponsePart {
    ResponsePart::ToolCall {
        call_id: call.call_id.into(),
        name: call.name.into(),
        raw_arguments: call.raw_arguments.into(),
        parsed_arguments: None,
        parse_status: ParseStatus::NotAttempted,
        parse_error: None,
        metadata: Map::new(),
    }
}

impl ProviderCodec for SuiteCodec {
    fn id(&self) -> (&str, u32) {
        self.inner.codec().id()
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        let written = self.inner.codec().encode(view, capabilities, allow_loss)?;
        let turn = self.script.answer(view);
        locked(&self.answers).push_back(turn);
        Ok(written)
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
        _response: RawResponse,
        _view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        let turn = locked(&self.answers).pop_front();
        let (reason, parts) = match turn {
            Some(Turn::Calls(calls)) => (
                FinishReason::ToolCalls,
                calls.into_iter().map(part_of).collect(),
            ),
            Some(Turn::Text(text)) => (
                FinishReason::Stop,
                vec![ResponsePart::Content(ContentBlock::text(text))],
            ),
            None => (FinishReason::Stop, Vec::new()),
        };
        Ok(DecodedResponse {
            parts,
            usage: None,
            finish: Finish {
                reason,
                raw: "scripted".into(),
            },
            model_name: None,
            provider_metadata: Map::new(),
            continuation: None,
        })
    }
}
