//! Where a model's requests go and how: the part of its settings that every dialect shares.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};
use qitos_contracts::secret::SecretValue;

use crate::attempt::Wire;
use crate::endpoint::{Authentication, Endpoint};
use crate::failure;
#[cfg(feature = "http")]
use crate::http::HttpTransport;
use crate::time_limits::TimeLimits;

/// A server, the credential for it and how long to wait. Debug shows neither address nor credential.
#[derive(Debug)]
pub struct Connection {
    base_url: Address,
    /// The credential, if the server wants one.
    pub credential: Option<SecretValue>,
    /// How it travels.
    pub authentication: Authentication,
    /// Further headers; they cannot replace the client's own (PRV-84).
    pub default_headers: Vec<(String, String)>,
    /// Time limits.
    pub time_limits: TimeLimits,
    /// A proxy; none unless configured (PRV-84).
    pub proxy_url: Option<String>,
}

/// A URL that Debug does not show.
struct Address(String);

impl std::fmt::Debug for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("…")
    }
}

impl Connection {
    /// A connection to the absolute URL `base_url`, which ends before the dialect's own path.
    #[must_use]
    pub fn new(base_url: impl Into<String>, authentication: Authentication) -> Self {
        Connection {
            base_url: Address(base_url.into()),
            credential: None,
            authentication,
            default_headers: Vec::new(),
            time_limits: TimeLimits::default(),
            proxy_url: None,
        }
    }

    /// The same connection for a dialect whose own path begins with `suffix`, if `base_url` ends with that.
    pub(crate) fn without_suffix(mut self, suffix: &str) -> Self {
        let base_url = self.base_url.0.trim_end_matches('/');
        if let Some(rest) = base_url.strip_suffix(suffix) {
            self.base_url.0 = rest.to_owned();
        }
        self
    }

    /// What attempts of one model share; nothing is opened.
    pub(crate) fn wire(self, target: Target, path: &str) -> Result<Wire, Box<ProviderFailure>> {
        let endpoint = Endpoint::new(
            &self.base_url.0,
            path,
            self.authentication,
            self.credential.map(Arc::new),
            &self.default_headers,
        )
        .map_err(|_| Box::new(failure::construction(&target)))?;
        Ok(Wire {
            target: Arc::new(target),
            endpoint,
            time_limits: self.time_limits,
        })
    }

    /// A transport over the network.
    #[cfg(feature = "http")]
    pub(crate) fn network(
        &self,
        target: &Target,
    ) -> Result<Arc<dyn HttpTransport>, Box<ProviderFailure>> {
        let transport = crate::http::ReqwestTransport::new(
            &self.base_url.0,
            self.time_limits.connect,
            self.proxy_url.as_deref(),
        )
        .map_err(|_| Box::new(failure::construction(target)))?;
        Ok(Arc::new(transport))
    }
}
