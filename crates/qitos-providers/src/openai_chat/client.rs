//! A Chat Completions model: what it sends, and over which transport.

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, RawResponse, Target,
    WirePayload,
};
use serde_json::json;

use super::codec::ChatCodec;
use super::request::facts_of_payload;
use super::stream::ChatStream;
use crate::attempt::Wire;
use crate::http::HttpTransport;

/// A Chat Completions model behind any transport.
///
/// # Contract
/// One `send` is one wire request. With a sink it streams and judges the stream by the rules of
/// section 5.1; without one it asks for a whole answer and judges that alike. Everything an attempt
/// opened is closed when its future ends or is dropped.
#[derive(Debug)]
pub struct ChatModel {
    core: ChatCore,
    transport: Arc<dyn HttpTransport>,
}

/// What all attempts of one model share; the transport apart.
#[derive(Debug)]
pub(crate) struct ChatCore {
    pub(crate) wire: Wire,
    pub(crate) capabilities: ProviderCapabilities,
    pub(crate) codec: ChatCodec,
}

impl ChatModel {
    pub(crate) fn from_parts(core: ChatCore, transport: Arc<dyn HttpTransport>) -> Self {
        ChatModel { core, transport }
    }
}

#[async_trait]
impl Model for ChatModel {
    fn target(&self) -> &Arc<Target> {
        &self.core.wire.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.core.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.core.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        self.core.attempt(&*self.transport, payload, on_delta).await
    }
}

impl ChatCore {
    /// One attempt over `transport`.
    pub(crate) async fn attempt(
        &self,
        transport: &dyn HttpTransport,
        mut payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let Some(sink) = on_delta else {
            return self
                .wire
                .whole(transport, self.wire.body_of(&payload)?)
                .await;
        };
        let head = payload.head_mut();
        head.insert("stream".to_owned(), true.into());
        if self.codec.profile().include_usage {
            let options = json!({"include_usage": true});
            head.insert("stream_options".to_owned(), options);
        }
        let stream = ChatStream::new(facts_of_payload(&payload), Arc::clone(self.codec.profile()));
        let body = self.wire.body_of(&payload)?;
        drop(payload);
        self.wire.streamed(transport, body, stream, sink).await
    }
}
