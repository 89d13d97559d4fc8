//! The transport over the network: reqwest with rustls, no pool, no redirects, no retries.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rustls_platform_verifier::Verifier;

use super::{HttpBody, HttpRequest, HttpResponse, HttpTransport, TransportError};

/// HTTP/1.1 over TCP and TLS.
///
/// # Contract
/// Building it opens no connection (PRV-38). A connection serves one request and is closed with its
/// answer (PRV-92): "gone within one second" needs pooling off. Proxies are used only if configured,
/// redirects are never followed (PRV-84). Certificates are checked against the platform's store.
#[derive(Clone, Debug)]
pub struct ReqwestTransport {
    client: reqwest::Client,
}

impl ReqwestTransport {
    /// A client for `base_url`; TLS is prepared only if the URL needs it.
    ///
    /// # Errors
    /// [`TransportError::Construction`] if TLS cannot be prepared or the proxy is no URL.
    pub fn new(
        base_url: &str,
        connect_timeout: Duration,
        proxy_url: Option<&str>,
    ) -> Result<Self, TransportError> {
        let encrypted = !base_url
            .get(..7)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_configuration(encrypted)?)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .pool_max_idle_per_host(0)
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(connect_timeout);
        if let Some(proxy_url) = proxy_url {
            let proxy = reqwest::Proxy::all(proxy_url).map_err(|_| TransportError::Construction)?;
            builder = builder.proxy(proxy);
        }
        let client = builder.build().map_err(|_| TransportError::Construction)?;
        Ok(ReqwestTransport { client })
    }
}

/// Our own configuration, because the client's default needs a process-wide crypto provider and
/// reads the certificate store even where no TLS is spoken.
fn tls_configuration(encrypted: bool) -> Result<rustls::ClientConfig, TransportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|_| TransportError::Construction)?;
    if !encrypted {
        return Ok(builder
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth());
    }
    let verifier = Verifier::new(provider).map_err(|_| TransportError::Construction)?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

#[async_trait]
impl HttpTransport for ReqwestTransport {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, TransportError> {
        let mut headers = HeaderMap::with_capacity(request.headers.len());
        for (name, value) in &request.headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| TransportError::Construction)?;
            let mut value =
                HeaderValue::from_str(value).map_err(|_| TransportError::Construction)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let response = self
            .client
            .post(&request.url)
            .headers(headers)
            .body(request.body)
            .send()
            .await
            .map_err(|error| map_error(&error))?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .filter_map(|(name, value)| {
                let value = value.to_str().ok()?;
                Some((name.as_str().to_owned(), value.to_owned()))
            })
            .collect();
        Ok(HttpResponse {
            status,
            headers,
            body: Box::new(ReqwestBody {
                response,
                chunk: bytes::Bytes::new(),
            }),
        })
    }
}

/// Lends the chunk that the client handed over; nothing is copied.
#[derive(Debug)]
struct ReqwestBody {
    response: reqwest::Response,
    chunk: bytes::Bytes,
}

#[async_trait]
impl HttpBody for ReqwestBody {
    async fn next_chunk(&mut self) -> Result<Option<&[u8]>, TransportError> {
        match self.response.chunk().await {
            Ok(Some(chunk)) => {
                self.chunk = chunk;
                Ok(Some(&self.chunk))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(map_error(&error)),
        }
    }
}

/// Classifies by typed cause; the error itself is dropped because it prints its URL (PRV-40, PRV-44).
fn map_error(error: &reqwest::Error) -> TransportError {
    if error.is_builder() {
        return TransportError::Construction;
    }
    if error.is_connect() {
        return if error.is_timeout() {
            TransportError::ConnectTimeout
        } else if error.is_dns() {
            TransportError::Dns
        } else if has_cause::<rustls::Error>(error) {
            TransportError::Tls
        } else {
            TransportError::Connect
        };
    }
    if error.is_body() || error.is_decode() {
        return if was_reset(error) {
            TransportError::Reset
        } else {
            TransportError::Framing
        };
    }
    if was_reset(error) {
        return TransportError::Reset;
    }
    TransportError::Exchange
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        let error = *error;
        // An I/O error hides the error it carries from `source`.
        error
            .downcast_ref::<std::io::Error>()
            .and_then(|io| io.get_ref())
            .map(|inner| inner as &(dyn Error + 'static))
            .or_else(|| error.source())
    })
    .take(16)
}

fn has_cause<E: Error + 'static>(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.is::<E>())
}

fn was_reset(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| {
            matches!(
                io.kind(),
                std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::ConnectionAborted
                    | std::io::ErrorKind::BrokenPipe
            )
        })
    })
}
