//! The one small transport below every dialect.
//!
//! A dialect hands over one request and pulls the answer's body chunk by chunk; it never sees
//! sockets, pools or TLS. Tests and the scripted model replace the transport and keep everything
//! above it (PRV-108). The implementation over the network is `ReqwestTransport` (feature `http`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

#[cfg(feature = "http")]
mod reqwest_transport;
#[cfg(feature = "http")]
pub use reqwest_transport::ReqwestTransport;

/// Sends one request. Exactly one wire request per call, never a retry or redirect (PRV-84, PRV-86).
#[async_trait]
pub trait HttpTransport: fmt::Debug + Send + Sync + 'static {
    /// Sends `request` and returns once the status line and headers have arrived.
    ///
    /// # Errors
    /// [`TransportError`]; before headers nothing is known about what the peer received (PRV-39).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the peer may have received the request.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError>;
}

/// The body of an answer.
#[async_trait]
pub trait HttpBody: fmt::Debug + Send {
    /// The next bytes, or `None` at a clean end: length reached, last chunk, end of stream (PRV-59).
    ///
    /// # Errors
    /// [`TransportError`] for a reset or broken framing.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; dropping the body closes the connection (PRV-92).
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError>;
}

/// One POST request.
///
/// Debug shows no URL, header value or body (PRV-44).
pub struct HttpRequest {
    /// Absolute URL.
    pub url: String,
    /// Header names in lower case and their values; values may be secrets.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Limit for reaching the peer.
    pub connect_timeout: Duration,
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("HttpRequest")
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Status line, headers and a body still to be read.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Header names in lower case and their values, as far as they are text.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Box<dyn HttpBody>,
}

impl HttpResponse {
    /// The first header of that lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(candidate, _)| candidate == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Why the transport failed: a closed list, and nothing of the client's own error, which would print
/// its URL (PRV-44).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The client itself could not be built.
    #[error("the HTTP client could not be built")]
    Construction,
    /// The host name did not resolve.
    #[error("the host name did not resolve")]
    Dns,
    /// No connection.
    #[error("no connection to the provider")]
    Connect,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Tls,
    /// Connecting took longer than its limit.
    #[error("connecting took longer than its limit")]
    ConnectTimeout,
    /// The peer ended the connection.
    #[error("the connection was reset")]
    Reset,
    /// The answer's framing is broken or ends early.
    #[error("the framing of the answer is broken")]
    Framing,
    /// Anything else between the client and the peer.
    #[error("the request could not be exchanged")]
    Exchange,
}

impl TransportError {
    /// The closed word for failure details (PRV-43).
    #[must_use]
    pub const fn cause_kind(self) -> &'static str {
        match self {
            TransportError::Construction => "construction",
            TransportError::Dns => "dns",
            TransportError::Connect => "connect",
            TransportError::Tls => "tls",
            TransportError::ConnectTimeout => "connect_timeout",
            TransportError::Reset => "reset",
            TransportError::Framing => "framing",
            TransportError::Exchange => "exchange",
        }
    }
}
