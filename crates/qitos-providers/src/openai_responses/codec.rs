//! The Responses codec: view to body, answer to normal form.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};

use super::options::ResponsesOptions;
use super::response::{Answer, normal_form};
use super::{continuation, request};
use crate::failure;
use crate::verdict::FailedAnswer;

/// `qitos.openai.responses` version 1.
#[derive(Clone, Debug)]
pub struct ResponsesCodec {
    options: Arc<ResponsesOptions>,
}

impl ResponsesCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(options: ResponsesOptions) -> Result<Self, CodecError> {
        options.check()?;
        Ok(ResponsesCodec {
            options: Arc::new(options),
        })
    }
}

impl ProviderCodec for ResponsesCodec {
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
        if self.options.server_stores() {
            continuation::start_after(payload, resolved, report)
        } else {
            continuation::put_back(payload, resolved, report)
        }
    }

    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        let request_id = response.provider_request_id.clone();
        let fail = |answer: &FailedAnswer| {
            let id = request_id.as_deref();
            Box::new(failure::of_answer(&view.target, answer, id))
        };
        let answer = Answer::from_value(response.body).map_err(|defect| fail(&defect.into()))?;
        if let Err(defect) = answer.validate(response.streamed) {
            return Err(fail(&FailedAnswer {
                defect,
                counts: answer.partial_counts(),
                usage: answer.usage,
            }));
        }
        let stored = self.options.server_stores();
        let state =
            continuation::state_of(&answer, view, stored).map_err(|defect| fail(&defect.into()))?;
        let held = stored && state.is_some();
        let mut decoded = normal_form(answer, view, held, response.provider_request_id)
            .map_err(|defect| fail(&defect.into()))?;
        decoded.continuation = state;
        Ok(decoded)
    }
}
