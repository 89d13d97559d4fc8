//! Models whose providers answer in one piece (section 9): one bounded request, one verdict, no claim to stream.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, RawResponse, Target,
    WirePayload,
};
use serde_json::Value;

use crate::attempt::Wire;
use crate::failure;
use crate::http::HttpTransport;
use crate::verdict::FailedAnswer;

/// A codec of a dialect that does not stream.
pub(crate) trait WholeCodec: ProviderCodec {
    /// The complete text of an answer that passes the verdict (PRV-102).
    fn judge(&self, answer: Value) -> Result<String, Box<FailedAnswer>>;
}

/// A model that answers in one piece: Gemini, Ollama, and servers that are used without streaming.
///
/// # Contract
/// One `send` is one wire request without retries (PRV-104). With a sink the sink gets exactly one delta, the
/// complete text, after the answer passed its verdict (PRV-100); nothing is split to imitate tokens. An engine
/// refuses to stream over such a model, because its capabilities do not claim it (PRV-101).
#[derive(Debug)]
pub struct WholeAnswerModel {
    wire: Wire,
    capabilities: ProviderCapabilities,
    codec: Box<dyn WholeCodec>,
    transport: Arc<dyn HttpTransport>,
}

impl WholeAnswerModel {
    pub(crate) fn from_parts(
        wire: Wire,
        capabilities: ProviderCapabilities,
        codec: Box<dyn WholeCodec>,
        transport: Arc<dyn HttpTransport>,
    ) -> Self {
        WholeAnswerModel {
            wire,
            capabilities,
            codec,
            transport,
        }
    }
}

#[async_trait]
impl Model for WholeAnswerModel {
    fn target(&self) -> &Arc<Target> {
        &self.wire.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &*self.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let body = self.wire.body_of(&payload)?;
        drop(payload);
        let raw = self.wire.whole(&*self.transport, body).await?;
        if let Some(sink) = on_delta {
            // Judged here as well as by `decode`, because nothing is shown before the verdict. The engine never
            // comes this way (PRV-101), so the copy is paid by whoever asks for a delta.
            let text = self.codec.judge(raw.body.clone()).map_err(|answer| {
                let id = raw.provider_request_id.as_deref();
                failure::of_answer(&self.wire.target, &answer, id)
            })?;
            sink.delta(&text).map_err(ProviderError::Consumer)?;
        }
        Ok(raw)
    }
}
