//! The built-in factories `ollama`, `lm_studio`, `vllm` and `litellm`: text in one piece (PRV-100).

use std::sync::Arc;

use qitos_contracts::model::Model;

use crate::registry::{ModelContext, ModelFactory};

/// The names that are registered.
pub(crate) const NAMES: [&str; 4] = ["litellm", "lm_studio", "ollama", "vllm"];

/// One of the names; none needs a credential, each takes one.
pub(crate) struct Local(
    #[cfg_attr(
        not(feature = "local"),
        expect(dead_code, reason = "only the clients ask")
    )]
    pub(crate) &'static str,
);

impl ModelFactory for Local {
    fn needs_credential(&self) -> bool {
        false
    }

    fn is_available(&self) -> bool {
        cfg!(feature = "local")
    }

    #[cfg(feature = "local")]
    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        use qitos_providers::Connection;
        use qitos_providers::local::{LocalOptions, LocalServer, LocalSettings, OllamaMode};

        let section = context.section;
        let (servers, modes): (&[LocalServer], _) = match self.0 {
            "ollama" => (
                &[
                    LocalServer::Ollama(OllamaMode::Chat),
                    LocalServer::Ollama(OllamaMode::Generate),
                ],
                "chat, generate",
            ),
            "lm_studio" => (&[LocalServer::LmStudio], "chat_completions"),
            "vllm" => (&[LocalServer::Vllm], "chat_completions"),
            _ => (&[LocalServer::LiteLlm], "chat_completions"),
        };
        let server = match section.api_mode() {
            None => servers.first(),
            Some(mode) => servers.iter().find(|server| server.api_mode() == mode),
        };
        let Some(server) = server else {
            let mode = section.api_mode().unwrap_or_default();
            return Err(format!("api_mode `{mode}` is not one of: {modes}"));
        };
        let mut settings =
            LocalSettings::new(*server, section.model()).map_err(|error| error.to_string())?;
        if !section.base_url().is_empty() {
            let authentication = settings.connection.authentication;
            settings.connection = Connection::new(section.base_url(), authentication);
        }
        let request = section.request();
        settings.connection.credential = context.credential;
        settings.connection.time_limits = super::factory::time_limits(section);
        settings.context_window = section.context_window();
        settings.options = LocalOptions {
            max_tokens: Some(request.max_tokens()),
            temperature: request.temperature(),
            top_p: request.top_p(),
            extra_body: request.extra_body().clone(),
        };
        let model = settings
            .over_network()
            .map_err(|failure| failure.message.clone())?;
        Ok(Arc::new(model))
    }

    #[cfg(not(feature = "local"))]
    fn build(&self, _context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        Err("the client of this provider is not compiled in".into())
    }
}
