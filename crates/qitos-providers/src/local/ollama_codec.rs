//! The Ollama codec: view to body, answer to normal form.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};
use serde_json::Value;

use super::lost_options::{declare, take_lost};
use super::ollama_answer::Answer;
use super::ollama_request::{CODEC_VERSION, codec_id, encode};
use super::server::{LocalServer, OllamaMode};
use super::settings::LocalOptions;
use crate::failure;
use crate::request_options::invalid;
use crate::verdict::FailedAnswer;
use crate::whole_answer::WholeCodec;

/// Keys inside `options` that the client sets itself.
const OWN_OPTIONS: [&str; 3] = ["num_predict", "temperature", "top_p"];

/// `qitos.ollama.chat` or `qitos.ollama.generate`, version 1.
#[derive(Clone, Debug)]
pub struct OllamaCodec {
    mode: OllamaMode,
    options: Arc<LocalOptions>,
    lost: Vec<String>,
}

impl OllamaCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(mode: OllamaMode, mut options: LocalOptions) -> Result<Self, CodecError> {
        options.check()?;
        match options.extra_body.get("options") {
            None => {}
            Some(Value::Object(own)) => {
                if let Some(key) = OWN_OPTIONS.iter().find(|key| own.contains_key(**key)) {
                    return Err(invalid(&format!("extra_body.options.{key}")));
                }
            }
            Some(_) => return Err(invalid("extra_body.options")),
        }
        let carried = LocalServer::Ollama(mode).carried_options();
        let lost = take_lost(&mut options.extra_body, carried);
        Ok(OllamaCodec {
            mode,
            options: Arc::new(options),
            lost,
        })
    }

    /// An answer that passed its verdict.
    fn judged(&self, body: Value) -> Result<Answer, Box<FailedAnswer>> {
        let answer = Answer::from_value(body, self.mode)?;
        answer.validate()?;
        Ok(answer)
    }
}

impl ProviderCodec for OllamaCodec {
    fn id(&self) -> (&str, u32) {
        (codec_id(self.mode), CODEC_VERSION)
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        let encoded = encode(view, capabilities, allow_loss, self.mode, &self.options);
        declare(encoded, &self.lost, allow_loss)
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
        let request_id = response.provider_request_id;
        match self.judged(response.body) {
            Ok(answer) => Ok(answer.normal_form(request_id)),
            Err(answer) => Err(Box::new(failure::of_answer(
                &view.target,
                &answer,
                request_id.as_deref(),
            ))),
        }
    }
}

impl WholeCodec for OllamaCodec {
    fn judge(&self, answer: Value) -> Result<String, Box<FailedAnswer>> {
        self.judged(answer).map(|answer| answer.text)
    }
}
