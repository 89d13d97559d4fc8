//! Everything a Chat model is built from.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};
use qitos_contracts::secret::SecretValue;

use super::capabilities::chat_capabilities;
use super::client::{ChatCore, ChatModel};
use super::codec::ChatCodec;
use super::options::ChatOptions;
use super::profile::ChatProfile;
use crate::attempt::Wire;
use crate::endpoint::{Authentication, Endpoint};
use crate::failure;
use crate::http::HttpTransport;
use crate::time_limits::TimeLimits;

/// Settings of one Chat model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct ChatSettings {
    /// Declared target (PRV-8).
    pub target: Target,
    /// Absolute URL up to and without `/chat/completions`.
    pub base_url: String,
    /// The credential, if the server wants one.
    pub credential: Option<SecretValue>,
    /// How it travels.
    pub authentication: Authentication,
    /// Further headers; they cannot replace the client's own (PRV-84).
    pub default_headers: Vec<(String, String)>,
    /// Request options.
    pub options: ChatOptions,
    /// What is known about the server.
    pub profile: ChatProfile,
    /// Time limits.
    pub time_limits: TimeLimits,
    /// Declared input capacity.
    pub context_window: Option<u64>,
    /// A proxy; none unless configured (PRV-84).
    pub proxy_url: Option<String>,
}

impl ChatSettings {
    /// Settings with defaults for everything but target and address.
    #[must_use]
    pub fn new(target: Target, base_url: impl Into<String>) -> Self {
        ChatSettings {
            target,
            base_url: base_url.into(),
            credential: None,
            authentication: Authentication::default(),
            default_headers: Vec::new(),
            options: ChatOptions::default(),
            profile: ChatProfile::default(),
            time_limits: TimeLimits::default(),
            context_window: None,
            proxy_url: None,
        }
    }

    /// A model over a transport of the caller's own.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    pub fn with_transport(
        self,
        transport: Arc<dyn HttpTransport>,
    ) -> Result<ChatModel, Box<ProviderFailure>> {
        Ok(ChatModel::from_parts(self.core()?, transport))
    }

    /// A model over the network.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<ChatModel, Box<ProviderFailure>> {
        let transport = crate::http::ReqwestTransport::new(
            &self.base_url,
            self.time_limits.connect,
            self.proxy_url.as_deref(),
        )
        .map_err(|_| Box::new(failure::construction(&self.target)))?;
        self.with_transport(Arc::new(transport))
    }

    pub(crate) fn core(self) -> Result<ChatCore, Box<ProviderFailure>> {
        let codec = ChatCodec::new(self.options, self.profile)
            .map_err(|_| Box::new(failure::options(&self.target)))?;
        let endpoint = Endpoint::new(
            &self.base_url,
            "/chat/completions",
            self.authentication,
            self.credential.map(Arc::new),
            &self.default_headers,
        )
        .map_err(|_| Box::new(failure::construction(&self.target)))?;
        Ok(ChatCore {
            capabilities: chat_capabilities(self.target.clone(), self.context_window),
            wire: Wire {
                target: Arc::new(self.target),
                endpoint,
                time_limits: self.time_limits,
            },
            codec,
        })
    }
}
