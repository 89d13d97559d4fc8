//! Everything a Messages model is built from.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};

use super::capabilities::anthropic_capabilities;
use super::client::AnthropicModel;
use super::codec::AnthropicCodec;
use super::options::AnthropicOptions;
use super::profile::AnthropicProfile;
use crate::connection::Connection;
use crate::endpoint::Authentication;
use crate::failure;
use crate::http::HttpTransport;

/// The version of the interface that this dialect was written after (PRV-84).
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Settings of one Messages model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct AnthropicSettings {
    /// Declared target (PRV-8).
    pub target: Target,
    /// Where requests go; `/v1/messages` is added, or what is missing of it.
    ///
    /// The header `anthropic-version` is 2023-06-01 unless `default_headers` has another (PRV-84).
    pub connection: Connection,
    /// Request options.
    pub options: AnthropicOptions,
    /// What is known about the server.
    pub profile: AnthropicProfile,
    /// Declared input capacity.
    pub context_window: Option<u64>,
}

impl AnthropicSettings {
    /// Settings with defaults for everything but target and address.
    #[must_use]
    pub fn new(target: Target, base_url: impl Into<String>) -> Self {
        AnthropicSettings {
            target,
            connection: Connection::new(base_url, Authentication::XApiKey),
            options: AnthropicOptions::default(),
            profile: AnthropicProfile::default(),
            context_window: None,
        }
    }

    /// A model over a transport of the caller's own.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    pub fn with_transport(
        self,
        transport: Arc<dyn HttpTransport>,
    ) -> Result<AnthropicModel, Box<ProviderFailure>> {
        let mut capabilities = anthropic_capabilities(self.target.clone(), self.context_window);
        capabilities.supports_tool_choice = self.profile.tool_choice;
        let codec = AnthropicCodec::new(self.options, self.profile)
            .map_err(|_| Box::new(failure::options(&self.target)))?;
        // Clients of this dialect are told addresses with and without the version.
        let connection = self.connection.without_suffix("/v1");
        let mut wire = connection.wire(self.target, "/v1/messages")?;
        wire.endpoint = wire.endpoint.with_header(VERSION.0, VERSION.1);
        Ok(AnthropicModel {
            wire,
            capabilities,
            codec,
            transport,
        })
    }

    /// A model over the network.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<AnthropicModel, Box<ProviderFailure>> {
        let transport = self.connection.network(&self.target)?;
        self.with_transport(transport)
    }
}
