use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::model::*;
use serde_json::Value;

/// The place of an HTTP client: gives status and body, or nothing if the connection was lost.
#[async_trait]
pub trait Post: std::fmt::Debug + Send + Sync + 'static {
    async fn post(&self, body: Vec<u8>) -> Option<(u16, Vec<u8>)>;
}

/// A server that takes `{"model", "messages"}` and answers `{"text": "…", "done": true}`.
#[derive(Debug)]
pub struct PlainModel {
    target: Arc<Target>,
    capabilities: ProviderCapabilities,
    server: Box<dyn Post>,
}

impl PlainModel {
    pub fn new(model: &str, server: Box<dyn Post>) -> Result<Self, TargetError> {
        let target = Target::new("plain", model, "post", "plain")?;
        let mut capabilities = ProviderCapabilities::text_only(target.clone(), "compatibility");
        capabilities.supports_cancellation = true;
        let target = Arc::new(target);
        Ok(PlainModel {
            target,
            capabilities,
            server,
        })
    }

    fn failed(&self, code: &str, sent: RequestSent) -> ProviderError {
        let (category, stage) = (FailureCategory::Transport, FailureStage::Transport);
        let text = "the plain server gave no answer";
        ProviderFailure::new(&self.target, category, code, stage, sent, text).into()
    }
}

#[async_trait]
impl Model for PlainModel {
    fn target(&self) -> &Arc<Target> {
        &self.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &MessagesCodec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let mut request = Vec::new();
        if payload.write_out(&mut request).is_err() {
            return Err(self.failed("codec_payload_invalid", RequestSent::No));
        }
        let Some((status, body)) = self.server.post(request).await else {
            return Err(self.failed("provider_connection_failed", RequestSent::Maybe));
        };
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let done = body.get("done").and_then(Value::as_bool);
        match (status, body.get("text").and_then(Value::as_str), done) {
            (200, Some(text), Some(true)) => {
                if let Some(sink) = on_delta {
                    sink.delta(text).map_err(ProviderError::Consumer)?;
                }
                Ok(MessagesCodec::response(text, "stop", None))
            }
            _ => Err(self.failed("provider_response_malformed", RequestSent::Yes)),
        }
    }
}
