//! A Responses model: what it sends, and over which transport.

use std::sync::Arc;

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, RawResponse, Target,
    WirePayload,
};

use super::codec::ResponsesCodec;
use super::stream::ResponsesStream;
use crate::attempt::Wire;
use crate::http::HttpTransport;

/// A Responses model behind any transport.
///
/// # Contract
/// One `send` is one wire request to `/responses`, never repeated on another dialect (PRV-9). With a sink it
/// streams and judges the stream by the rules of section 5.2; without one it asks for a whole answer and judges
/// that alike. Everything an attempt opened is closed when its future ends or is dropped.
#[derive(Debug)]
pub struct ResponsesModel {
    pub(super) wire: Wire,
    pub(super) capabilities: ProviderCapabilities,
    pub(super) codec: ResponsesCodec,
    pub(super) transport: Arc<dyn HttpTransport>,
}

#[async_trait]
impl Model for ResponsesModel {
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
        if on_delta.is_some() {
            payload.head_mut().insert("stream".to_owned(), true.into());
        }
        let body = self.wire.body_of(&payload)?;
        drop(payload);
        match on_delta {
            None => self.wire.whole(&*self.transport, body).await,
            Some(sink) => {
                let stream = ResponsesStream::default();
                self.wire
                    .streamed(&*self.transport, body, stream, sink)
                    .await
            }
        }
    }
}
