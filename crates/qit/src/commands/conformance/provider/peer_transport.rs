//! The suite's peer behind the transport of the built-in clients.

use async_trait::async_trait;
use qitos::models::http::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};
use qitos_conformance::provider::{PeerBody, ScriptedPeer};

#[derive(Debug)]
pub(super) struct PeerTransport(pub(super) ScriptedPeer);

#[async_trait]
impl HttpTransport for PeerTransport {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let answer = self
            .0
            .request(&request.body)
            .await
            .map_err(|_| TransportError::Reset)?;
        Ok(HttpResponse {
            status: answer.status,
            headers: answer.headers,
            body: Box::new(Body {
                body: answer.body,
                piece: Vec::new(),
            }),
        })
    }
}

#[derive(Debug)]
struct Body {
    body: PeerBody,
    piece: Vec<u8>,
}

#[async_trait]
impl HttpBody for Body {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        let piece = self
            .body
            .next_piece()
            .await
            .map_err(|_| TransportError::Reset)?;
        Ok(piece.map(|piece| {
            self.piece = piece;
            self.piece.as_slice()
        }))
    }
}
