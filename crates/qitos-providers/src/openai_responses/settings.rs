//! Everything a Responses model is built from.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};

use super::capabilities::responses_capabilities;
use super::client::ResponsesModel;
use super::codec::ResponsesCodec;
use super::options::ResponsesOptions;
use crate::connection::Connection;
use crate::endpoint::Authentication;
use crate::failure;
use crate::http::HttpTransport;

/// Settings of one Responses model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct ResponsesSettings {
    /// Declared target (PRV-8).
    pub target: Target,
    /// Where requests go; the path `/responses` is added.
    pub connection: Connection,
    /// Request options.
    pub options: ResponsesOptions,
    /// Declared input capacity.
    pub context_window: Option<u64>,
}

impl ResponsesSettings {
    /// Settings with defaults for everything but target and address.
    #[must_use]
    pub fn new(target: Target, base_url: impl Into<String>) -> Self {
        ResponsesSettings {
            target,
            connection: Connection::new(base_url, Authentication::Bearer),
            options: ResponsesOptions::default(),
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
    ) -> Result<ResponsesModel, Box<ProviderFailure>> {
        let codec = ResponsesCodec::new(self.options)
            .map_err(|_| Box::new(failure::options(&self.target)))?;
        Ok(ResponsesModel {
            capabilities: responses_capabilities(self.target.clone(), self.context_window),
            wire: self.connection.wire(self.target, "/responses")?,
            codec,
            transport,
        })
    }

    /// A model over the network.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<ResponsesModel, Box<ProviderFailure>> {
        let transport = self.connection.network(&self.target)?;
        self.with_transport(transport)
    }
}
