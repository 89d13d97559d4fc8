//! Everything a Chat model is built from.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};

use super::capabilities::chat_capabilities;
use super::client::{ChatCore, ChatModel};
use super::codec::ChatCodec;
use super::options::ChatOptions;
use super::profile::ChatProfile;
use crate::connection::Connection;
use crate::endpoint::Authentication;
use crate::failure;
use crate::http::HttpTransport;

/// Settings of one Chat model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct ChatSettings {
    /// Declared target (PRV-8).
    pub target: Target,
    /// Where requests go; the path `/chat/completions` is added.
    pub connection: Connection,
    /// Request options.
    pub options: ChatOptions,
    /// What is known about the server.
    pub profile: ChatProfile,
    /// Declared input capacity.
    pub context_window: Option<u64>,
}

impl ChatSettings {
    /// Settings with defaults for everything but target and address.
    #[must_use]
    pub fn new(target: Target, base_url: impl Into<String>) -> Self {
        ChatSettings {
            target,
            connection: Connection::new(base_url, Authentication::Bearer),
            options: ChatOptions::default(),
            profile: ChatProfile::default(),
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
    ) -> Result<ChatModel, Box<ProviderFailure>> {
        Ok(ChatModel::from_parts(self.core()?, transport))
    }

    /// A model over the network.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<ChatModel, Box<ProviderFailure>> {
        let transport = self.connection.network(&self.target)?;
        self.with_transport(transport)
    }

    pub(crate) fn core(self) -> Result<ChatCore, Box<ProviderFailure>> {
        let codec = ChatCodec::new(self.options, self.profile)
            .map_err(|_| Box::new(failure::options(&self.target)))?;
        Ok(ChatCore {
            capabilities: chat_capabilities(self.target.clone(), self.context_window),
            wire: self.connection.wire(self.target, "/chat/completions")?,
            codec,
        })
    }
}
