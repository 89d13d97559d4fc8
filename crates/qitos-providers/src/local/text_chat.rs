//! Chat Completions without streaming and without calls, for LM Studio, vLLM and a LiteLLM proxy.
//!
//! Body and verdict are those of [`ChatCodec`]; what is added here is only what these adapters do not claim.

use qitos_contracts::model::{
    CodecError, CodecReport, DecodedResponse, ProviderCapabilities, ProviderCodec, ProviderFailure,
    RawResponse, RequestView, ResolvedContinuation, WirePayload,
};
use serde_json::Value;

use super::lost_options::{declare, take_lost};
use super::server::LocalServer;
use super::settings::LocalOptions;
use crate::failure;
use crate::openai_chat::{
    ChatCodec, ChatOptions, ChatProfile, Completion, RequestFacts, Validated, normal_form,
};
use crate::verdict::{Defect, FailedAnswer, Violation};
use crate::whole_answer::WholeCodec;

/// `qitos.openai.chat_text` version 1.
#[derive(Clone, Debug)]
pub struct TextChatCodec {
    inner: ChatCodec,
    server: LocalServer,
    lost: Vec<String>,
}

impl TextChatCodec {
    /// A codec with checked options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid`.
    pub fn new(server: LocalServer, mut options: LocalOptions) -> Result<Self, CodecError> {
        options.check()?;
        let lost = take_lost(&mut options.extra_body, server.carried_options());
        let options = ChatOptions {
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            top_p: options.top_p,
            extra_body: options.extra_body,
            ..ChatOptions::default()
        };
        Ok(TextChatCodec {
            inner: ChatCodec::new(options, ChatProfile::default())?,
            server,
            lost,
        })
    }

    /// An answer that passed the verdict of its dialect, and calls nothing: no tool was offered.
    fn judged(&self, body: Value) -> Result<(Completion, Validated), Box<FailedAnswer>> {
        let completion = Completion::from_value(body).map_err(|defect| Box::new(defect.into()))?;
        let failed = |defect: Defect| {
            Box::new(FailedAnswer {
                defect,
                counts: completion.partial_counts(),
                usage: completion.usage.neutral(),
            })
        };
        let validated = completion
            .validate(&RequestFacts::default(), self.inner.profile(), false)
            .map_err(failed)?;
        if !completion.calls.is_empty() {
            return Err(failed(Violation::UnsupportedClientAction.into()));
        }
        Ok((completion, validated))
    }
}

impl ProviderCodec for TextChatCodec {
    fn id(&self) -> (&str, u32) {
        ("qitos.openai.chat_text", 1)
    }

    fn encode(
        &self,
        view: &RequestView,
        capabilities: &ProviderCapabilities,
        allow_loss: bool,
    ) -> Result<(WirePayload, CodecReport), CodecError> {
        let encoded = self.inner.encode(view, capabilities, allow_loss);
        let (mut payload, mut report) = declare(encoded, &self.lost, allow_loss)?;
        let (id, version) = self.id();
        id.clone_into(&mut report.codec_id);
        report.codec_version = version;
        if self.server == LocalServer::LiteLlm {
            // The proxy would send a failed request again by itself (PRV-86, PRV-104).
            payload
                .head_mut()
                .insert("num_retries".to_owned(), 0.into());
        }
        Ok((payload, report))
    }

    fn apply_continuation(
        &self,
        payload: &mut WirePayload,
        resolved: &ResolvedContinuation,
        report: &mut CodecReport,
    ) -> Result<(), CodecError> {
        self.inner.apply_continuation(payload, resolved, report)
    }

    fn decode(
        &self,
        response: RawResponse,
        view: &RequestView,
    ) -> Result<DecodedResponse, Box<ProviderFailure>> {
        let request_id = response.provider_request_id;
        match self.judged(response.body) {
            Ok((completion, validated)) => Ok(normal_form(completion, validated, view, request_id)),
            Err(answer) => Err(Box::new(failure::of_answer(
                &view.target,
                &answer,
                request_id.as_deref(),
            ))),
        }
    }
}

impl WholeCodec for TextChatCodec {
    fn judge(&self, answer: Value) -> Result<String, Box<FailedAnswer>> {
        self.judged(answer).map(|(completion, _)| completion.text)
    }
}
