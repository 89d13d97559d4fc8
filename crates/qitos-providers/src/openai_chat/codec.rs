//! The Chat Completions codec: view to body, answer to normal form.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};

use super::options::ChatOptions;
use super::profile::ChatProfile;
use super::request;
use super::response::{Completion, normal_form};
use crate::failure;
use crate::verdict::FailedAnswer;

/// `qitos.openai.chat` version 1.
#[derive(Clone, Debug)]
pub struct ChatCodec {
    options: Arc<ChatOptions>,
    profile: Arc<ChatProfile>,
}

impl ChatCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(options: ChatOptions, profile: ChatProfile) -> Result<Self, CodecError> {
        options.check()?;
        Ok(ChatCodec {
            options: Arc::new(options),
            profile: Arc::new(profile),
        })
    }

    pub(crate) fn profile(&self) -> &Arc<ChatProfile> {
        &self.profile
    }
}

impl ProviderCodec for ChatCodec {
    fn id(&self) -> (&str, u32) {
        (request::CODEC_ID, request::CODEC_VERSION)
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        request::encode(view, capabilities, allow_loss, &self.options, &self.profile)
    }

    fn apply_continuation(
        &self,
        _: &mut WirePayload,
        _: &ResolvedContinuation,
        _: &mut CodecReport,
    ) -> Result<(), CodecError> {
        Err(CodecError::CapabilityMismatch {
            unsupported: vec!["continuation".to_owned()],
        })
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
        let completion =
            Completion::from_value(response.body).map_err(|defect| fail(&defect.into()))?;
        let facts = request::facts_of_view(view, &self.options);
        match completion.validate(&facts, &self.profile, response.streamed) {
            Ok(validated) => Ok(normal_form(
                completion,
                validated,
                view,
                response.provider_request_id,
            )),
            Err(defect) => Err(fail(&FailedAnswer {
                defect,
                counts: completion.partial_counts(),
                usage: completion.usage.neutral(),
            })),
        }
    }
}
