//! A Messages model: what it sends, and over which transport.

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, RawResponse, Target,
    WirePayload,
};

use super::codec::AnthropicCodec;
use super::stream::AnthropicStream;
use crate::attempt::Wire;
use crate::http::HttpTransport;

/// A Messages model behind any transport.
///
/// # Contract
/// One `send` is one wire request. With a sink it streams and judges the stream by the rules of
/// section 5.3; without one it asks for a whole answer and judges that alike. Everything an attempt
/// opened is closed when its future ends or is dropped.
#[derive(Debug)]
pub struct AnthropicModel {
    pub(super) wire: Wire,
    pub(super) capabilities: ProviderCapabilities,
    pub(super) codec: AnthropicCodec,
    pub(super) transport: Arc<dyn HttpTransport>,
}

#[async_trait]
impl Model for AnthropicModel {
    fn target(&self) -> &Arc<Target> {
        &self.wire.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.codec
    }

    async fn send(
        &self,
        mut payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let Some(sink) = on_delta else {
            let body = self.wire.body_of(&payload)?;
            return self.wire.whole(&*self.transport, body).await;
        };
        payload.head_mut().insert("stream".to_owned(), true.into());
        let body = self.wire.body_of(&payload)?;
        drop(payload);
        let stream = AnthropicStream::new(Arc::clone(self.codec.profile()));
        self.wire
            .streamed(&*self.transport, body, stream, sink)
            .await
    }
}
