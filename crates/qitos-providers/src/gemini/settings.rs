//! Everything a Gemini model is built from.

use std::sync::Arc;

use qitos_contracts::model::{ProviderFailure, Target};

use super::capabilities::gemini_capabilities;
use super::codec::GeminiCodec;
use super::options::GeminiOptions;
use crate::connection::Connection;
use crate::endpoint::Authentication;
use crate::failure;
use crate::http::HttpTransport;
use crate::whole_answer::WholeAnswerModel;

/// Settings of one Gemini model; building it sends nothing (PRV-38).
#[derive(Debug)]
pub struct GeminiSettings {
    /// Declared target (PRV-8); its model is part of the path.
    pub target: Target,
    /// Where requests go; `/models/<model>:generateContent` is added. The key travels in `x-goog-api-key`,
    /// never in the URL (PRV-44).
    pub connection: Connection,
    /// Request options.
    pub options: GeminiOptions,
    /// Declared input capacity.
    pub context_window: Option<u64>,
}

impl GeminiSettings {
    /// The public address of the service.
    pub const BASE_URL: &'static str = "https://generativelanguage.googleapis.com/v1beta";

    /// Settings with defaults for everything but target and address.
    #[must_use]
    pub fn new(target: Target, base_url: impl Into<String>) -> Self {
        GeminiSettings {
            target,
            connection: Connection::new(base_url, Authentication::XGoogApiKey),
            options: GeminiOptions::default(),
            context_window: None,
        }
    }

    /// A model over a transport of the caller's own.
    ///
    /// # Errors
    /// `codec_transport_options_invalid` or `provider_client_construction_failed`, also for a model's name that
    /// cannot stand in a path; nothing was sent.
    pub fn with_transport(
        self,
        transport: Arc<dyn HttpTransport>,
    ) -> Result<WholeAnswerModel, Box<ProviderFailure>> {
        let codec =
            GeminiCodec::new(self.options).map_err(|_| Box::new(failure::options(&self.target)))?;
        let path = path_of(self.target.model())
            .ok_or_else(|| Box::new(failure::construction(&self.target)))?;
        let capabilities = gemini_capabilities(self.target.clone(), self.context_window);
        let wire = self.connection.wire(self.target, &path)?;
        Ok(WholeAnswerModel::from_parts(
            wire,
            capabilities,
            Box::new(codec),
            transport,
        ))
    }

    /// A model over the network.
    ///
    /// # Errors
    /// Those of [`GeminiSettings::with_transport`].
    #[cfg(feature = "http")]
    pub fn over_network(self) -> Result<WholeAnswerModel, Box<ProviderFailure>> {
        let transport = self.connection.network(&self.target)?;
        self.with_transport(transport)
    }
}

/// The path of a model, whose name may carry its collection already.
fn path_of(model: &str) -> Option<String> {
    let (collection, name) = model.split_once('/').unwrap_or(("models", model));
    let plain = !name.is_empty()
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (plain && matches!(collection, "models" | "tunedModels"))
        .then(|| format!("/{collection}/{name}:generateContent"))
}
