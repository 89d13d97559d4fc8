//! The Messages codec: view to body, answer to normal form.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};

use super::options::AnthropicOptions;
use super::profile::AnthropicProfile;
use super::response::{Message, normal_form};
use super::{continuation, request};
use crate::failure;
use crate::verdict::FailedAnswer;

/// `qitos.anthropic.messages` version 1.
#[derive(Clone, Debug)]
pub struct AnthropicCodec {
    options: Arc<AnthropicOptions>,
    profile: Arc<AnthropicProfile>,
}

impl AnthropicCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(options: AnthropicOptions, profile: AnthropicProfile) -> Result<Self, CodecError> {
        options.check()?;
        Ok(AnthropicCodec {
            options: Arc::new(options),
            profile: Arc::new(profile),
        })
    }

    pub(crate) fn profile(&self) -> &Arc<AnthropicProfile> {
        &self.profile
    }
}

impl ProviderCodec for AnthropicCodec {
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
        let request_id = response.provider_request_id.clone();
        let fail = |answer: &FailedAnswer| {
            let id = request_id.as_deref();
            Box::new(failure::of_answer(&view.target, answer, id))
        };
        let message = Message::from_value(response.body).map_err(|defect| fail(&defect.into()))?;
        match message.validate(&self.profile, response.streamed) {
            Ok(finish) => Ok(normal_form(
                message,
                finish,
                view,
                response.provider_request_id,
            )),
            Err(defect) => Err(fail(&message.failed(defect))),
        }
    }
}
