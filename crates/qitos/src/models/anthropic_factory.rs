//! The built-in factory `anthropic`.

use std::sync::Arc;

use qitos_contracts::model::Model;

use crate::registry::{ModelContext, ModelFactory};

/// `anthropic`: the one dialect `messages` (PRV-8).
pub(crate) struct Anthropic;

impl ModelFactory for Anthropic {
    fn needs_credential(&self) -> bool {
        true
    }

    fn is_available(&self) -> bool {
        cfg!(feature = "anthropic")
    }

    #[cfg(feature = "anthropic")]
    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        use qitos_contracts::model::Target;
        use qitos_providers::TimeLimits;
        use qitos_providers::anthropic::{AnthropicOptions, AnthropicSettings};

        let section = context.section;
        let mode = section.api_mode().unwrap_or("messages");
        if mode != "messages" {
            return Err(format!("api_mode `{mode}` is not one of: messages"));
        }
        let base_url = match section.base_url() {
            "" => "https://api.anthropic.com",
            url => url,
        };
        let target = Target::new("anthropic", section.model(), "messages", mode)
            .map_err(|error| error.to_string())?;
        let mut settings = AnthropicSettings::new(target, base_url);
        let request = section.request();
        settings.connection.credential = context.credential;
        settings.connection.time_limits = TimeLimits {
            total: std::time::Duration::from_secs_f64(request.timeout_seconds()),
            ..TimeLimits::default()
        };
        settings.context_window = section.context_window();
        settings.options = AnthropicOptions {
            max_tokens: request.max_tokens(),
            temperature: request.temperature(),
            top_p: request.top_p(),
            extra_body: request.extra_body().clone(),
            ..AnthropicOptions::default()
        };
        let model = settings
            .over_network()
            .map_err(|failure| failure.message.clone())?;
        Ok(Arc::new(model))
    }

    #[cfg(not(feature = "anthropic"))]
    fn build(&self, _context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        Err("the client of this provider is not compiled in".into())
    }
}

#[cfg(test)]
#[cfg(feature = "anthropic")]
mod tests {
    use std::path::Path;

    use qitos_config::{AgentConfig, Format};
    use qitos_contracts::secret::SecretValue;

    use super::*;
    use crate::registry::FactoryRegistry;

    fn built(model: &str) -> Result<Arc<dyn Model>, String> {
        let text = format!(
            "schema: qitos.agent\nagent: {{name: a}}\n\
             model: {{provider: anthropic, model: m, credential: {{ref: key}}{model}}}\n\
             tools: {{preset: none}}\n\
             runtime: {{environment: {{type: unsafe_host, workspace: .}}}}\n\
             budgets: {{max_steps: 1, max_requests: 1}}\n"
        );
        let config = AgentConfig::from_str(&text, Format::Yaml, Path::new("/")).unwrap();
        let registry = FactoryRegistry::builtin();
        registry.resolve(&config).unwrap();
        registry.models["anthropic"].build(ModelContext {
            section: config.model(),
            credential: Some(SecretValue::new("canary".into())),
        })
    }

    #[test]
    fn the_target_is_declared_and_other_modes_are_refused_with_the_list_prv_8() {
        for model in [
            "",
            ", api_mode: messages",
            ", base_url: 'https://a.invalid/v1'",
        ] {
            let model = built(model).unwrap();
            assert_eq!(
                format!("{:?}", model.target()),
                "anthropic/m/messages/messages"
            );
            assert_eq!(**model.target(), model.capabilities().target);
            model.capabilities().check().unwrap();
            assert!(!model.capabilities().supports_tool_choice);
            assert!(!format!("{model:?}").contains("canary"));
        }
        assert_eq!(
            built(", api_mode: responses").unwrap_err(),
            "api_mode `responses` is not one of: messages"
        );
        let thinking =
            |value: &str| built(&format!(", request: {{extra_body: {{thinking: {value}}}}}"));
        assert!(thinking("{type: enabled, budget_tokens: 1024}").is_ok());
        assert!(thinking("x").is_err());
    }
}
