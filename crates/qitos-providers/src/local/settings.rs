//! Everything a local model is built from.

use std::sync::Arc;

use qitos_contracts::model::{
    CodecError, ProviderCapabilities, ProviderFailure, Target, TargetError,
};
use serde_json::{Map, Value};

use super::ollama_codec::OllamaCodec;
use super::server::LocalServer;
use super::text_chat::TextChatCodec;
use crate::connection::Connection;
use crate::endpoint::Authentication;
use crate::failure;
use crate::http::HttpTransport;
use crate::request_options::{check_extra_body, check_sampling};
use crate::whole_answer::{WholeAnswerModel, WholeCodec};

/// What every request of one model carries besides the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalOptions {
    /// Output limit of one answer; reaches the wire unchanged (PRV-80).
    pub max_tokens: Option<u64>,
    /// Sampling temperature; not sent if absent.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Further keys for the top level of the body; one that the server does not take is a declared loss (PRV-104).
    pub extra_body: Map<String, Value>,
}

/// Keys that the clients set themselves, whichever the server is (PRV-82).
const OWN_KEYS: [&str; 15] = [
    "extra_body",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "num_retries",
    "prompt",
    "stream",
    "stream_options",
    "system",
    "tool_choice",
    "tools",
];

impl LocalOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` with the first option that is not valid; never its value.
    pub fn check(&self) -> Result<(), CodecError> {
        check_sampling(self.max_tokens, self.temperature, self.top_p)?;
        check_extra_body(&self.extra_body, &OWN_KEYS)
    }
}

/// The capabilities of a local target: text, whole answers, nothing else claimed (PRV-10, PRV-100).
#[must_use]
pub fn local_capabilities(
    target: Target,
    server: LocalServer,
    context_window: Option<u64>,
) -> ProviderCapabilities {
    ProviderCapabilities {
        supports_usage: true,
        supports_cancellation: true,
        max_input_units: context_window,
        ..ProviderCapabilities::text_only(target, server.api_style())
    }
}

/// Settings of one local model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct LocalSettings {
    server: LocalServer,
    target: Target,
    /// Where requests go; the server's own path is added.
    pub connection: Connection,
    /// Request options.
    pub options: LocalOptions,
    /// Declared input capacity.
    pub context_window: Option<u64>,
}

impl LocalSettings {
    /// Settings for a model of a server, where the server listens by default; server and name are the target (PRV-8).
    ///
    /// # Errors
    /// The model's name is empty.
    pub fn new(server: LocalServer, model: &str) -> Result<Self, TargetError> {
        let provider = server.provider();
        Ok(LocalSettings {
            server,
            target: Target::new(provider, model, provider, server.api_mode())?,
            connection: Connection::new(server.base_url(), Authentication::Bearer),
            options: LocalOptions::default(),
            context_window: None,
        })
    }

    /// A model over a transport of the caller's own.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`; nothing was sent.
    pub fn with_transport(
        self,
        transport: Arc<dyn HttpTransport>,
    ) -> Result<WholeAnswerModel, Box<ProviderFailure>> {
        let LocalSettings {
            server,
            target,
            connection,
            options,
            context_window,
        } = self;
        let codec: Result<Box<dyn WholeCodec>, CodecError> = match server {
            LocalServer::Ollama(mode) => boxed(OllamaCodec::new(mode, options)),
            server => boxed(TextChatCodec::new(server, options)),
        };
        let codec = codec.map_err(|_| Box::new(failure::options(&target)))?;
        let capabilities = local_capabilities(target.clone(), server, context_window);
        let wire = connection.wire(target, server.path())?;
        Ok(WholeAnswerModel::from_parts(
            wire,
            capabilities,
            codec,
            transport,
        ))
    }

    /// A model over the network.
    ///
    /// # Errors
    /// Those of [`LocalSettings::with_transport`].
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<WholeAnswerModel, Box<ProviderFailure>> {
        let transport = self.connection.network(&self.target)?;
        self.with_transport(transport)
    }
}

fn boxed<Codec: WholeCodec>(
    codec: Result<Codec, CodecError>,
) -> Result<Box<dyn WholeCodec>, CodecError> {
    codec.map(|codec| Box::new(codec) as Box<dyn WholeCodec>)
}
