//! The built-in factory `gemini`.

use std::sync::Arc;

use qitos_contracts::model::Model;

use crate::registry::{ModelContext, ModelFactory};

/// `gemini`: the one dialect `generate_content` (PRV-8).
pub(crate) struct Gemini;

impl ModelFactory for Gemini {
    fn needs_credential(&self) -> bool {
        true
    }

    fn is_available(&self) -> bool {
        cfg!(feature = "gemini")
    }

    #[cfg(feature = "gemini")]
    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        use qitos_contracts::model::Target;
        use qitos_providers::gemini::{GeminiOptions, GeminiSettings};

        let section = context.section;
        let mode = section.api_mode().unwrap_or("generate_content");
        if mode != "generate_content" {
            return Err(format!("api_mode `{mode}` is not one of: generate_content"));
        }
        let base_url = match section.base_url() {
            "" => GeminiSettings::BASE_URL,
            url => url,
        };
        let target = Target::new("google", section.model(), "gemini", mode)
            .map_err(|error| error.to_string())?;
        let mut settings = GeminiSettings::new(target, base_url);
        let request = section.request();
        settings.connection.credential = context.credential;
        settings.connection.time_limits = super::factory::time_limits(section);
        settings.context_window = section.context_window();
        settings.options = GeminiOptions {
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

    #[cfg(not(feature = "gemini"))]
    fn build(&self, _context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        Err("the client of this provider is not compiled in".into())
    }
}
