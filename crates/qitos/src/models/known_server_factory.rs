//! The built-in factories of servers that speak Chat Completions, one for each row of the table.

use std::sync::Arc;

use qitos_contracts::model::Model;
use qitos_providers::openai_chat::KnownServer;

use crate::registry::{ModelContext, ModelFactory};

/// A server by the name of its row (PRV-2: looked up as it is written, never guessed).
pub(crate) struct Known(pub(crate) &'static KnownServer);

impl ModelFactory for Known {
    fn needs_credential(&self) -> bool {
        self.0.needs_credential
    }

    fn is_available(&self) -> bool {
        cfg!(feature = "openai-chat")
    }

    #[cfg(feature = "openai-chat")]
    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        use qitos_contracts::model::Target;
        use qitos_providers::openai_chat::ChatSettings;

        let section = context.section;
        let mode = section.api_mode().unwrap_or("chat_completions");
        if mode != "chat_completions" {
            return Err(format!("api_mode `{mode}` is not one of: chat_completions"));
        }
        let base_url = match section.base_url() {
            "" => self.0.base_url,
            url => url,
        };
        let target = Target::new("openai-compatible", section.model(), "openai", mode)
            .map_err(|error| error.to_string())?;
        let mut settings = ChatSettings::new(target, base_url);
        settings.profile = self.0.profile();
        settings.connection.authentication = self.0.authentication;
        settings.connection.default_headers = self
            .0
            .headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        settings.connection.credential = context.credential;
        settings.connection.time_limits = super::factory::time_limits(section);
        settings.options = super::factory::options_of(section);
        settings.context_window = section.context_window();
        let model = settings
            .over_network()
            .map_err(|failure| failure.message.clone())?;
        Ok(Arc::new(model))
    }

    #[cfg(not(feature = "openai-chat"))]
    fn build(&self, _context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        Err("the client of this provider is not compiled in".into())
    }
}
