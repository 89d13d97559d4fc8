//! The Gemini codec: view to body, answer to normal form.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};
use serde_json::Value;

use super::options::GeminiOptions;
use super::response::Answer;
use super::{continuation, request};
use crate::failure;
use crate::verdict::FailedAnswer;
use crate::whole_answer::WholeCodec;

/// `qitos.google.generate_content` version 1.
#[derive(Clone, Debug)]
pub struct GeminiCodec {
    options: Arc<GeminiOptions>,
}

impl GeminiCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(options: GeminiOptions) -> Result<Self, CodecError> {
        options.check()?;
        Ok(GeminiCodec {
            options: Arc::new(options),
        })
    }
}

/// An answer that passed its verdict.
fn judged(body: Value) -> Result<Answer, Box<FailedAnswer>> {
    let answer = Answer::from_value(body)?;
    answer.validate()?;
    Ok(answer)
}

impl ProviderCodec for GeminiCodec {
    fn id(&self) -> (&str, u32) {
        (request::CODEC_ID, request::CODEC_VERSION)
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        request::encode(view, capabilities, allow_loss, &self.options)
    }

    fn apply_continuation(
        &self,
        payload: &mut WirePayload,
        resolved: &ResolvedContinuation,
        report: &mut CodecReport,
    ) -> Result<(), CodecError> {
        continuation::put_back(payload, resolved, report)
    }

    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        let request_id = response.provider_request_id;
        match judged(response.body) {
            Ok(answer) => Ok(answer.normal_form(view, request_id)),
            Err(answer) => Err(Box::new(failure::of_answer(
                &view.target,
                &answer,
                request_id.as_deref(),
            ))),
        }
    }
}

impl WholeCodec for GeminiCodec {
    fn judge(&self, answer: Value) -> Result<String, Box<FailedAnswer>> {
        judged(answer).map(|answer| answer.text())
    }
}
