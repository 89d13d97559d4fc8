//! The OpenAI family: one provider, two dialects, chosen by `model.api_mode` (PRV-8, PRV-9).

use std::sync::Arc;

use qitos_contracts::model::Model;

use crate::registry::{ModelContext, ModelFactory};

const CHAT: &str = "chat_completions";
const RESPONSES: &str = "responses";

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// OpenAI itself.
    OpenAi,
    /// A server that speaks like it.
    Compatible,
    /// Azure, at `…/openai/v1`; models are named by their deployment.
    Azure,
}

/// A factory for `service`; it needs a credential.
pub(crate) fn factory(service: Service) -> Arc<dyn ModelFactory> {
    Arc::new(OpenAiFactory { service })
}

struct OpenAiFactory {
    service: Service,
}

impl ModelFactory for OpenAiFactory {
    fn needs_credential(&self) -> bool {
        true
    }

    fn is_available(&self) -> bool {
        cfg!(any(feature = "openai-chat", feature = "openai-responses"))
    }

    fn is_available_as(&self, api_mode: Option<&str>) -> bool {
        match api_mode.unwrap_or(CHAT) {
            CHAT => cfg!(feature = "openai-chat"),
            RESPONSES => cfg!(feature = "openai-responses"),
            // Refused with the list of modes when it is built.
            _ => self.is_available(),
        }
    }

    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        match context.section.api_mode().unwrap_or(CHAT) {
            CHAT => chat(self.service, context),
            RESPONSES => responses(self.service, context),
            other => Err(format!(
                "api_mode `{other}` is not one of: {CHAT}, {RESPONSES}"
            )),
        }
    }
}

#[cfg(feature = "openai-chat")]
use client::chat;
#[cfg(feature = "openai-responses")]
use client::responses;
#[cfg(not(feature = "openai-chat"))]
use not_compiled_in as chat;
#[cfg(not(feature = "openai-responses"))]
use not_compiled_in as responses;

#[cfg(not(all(feature = "openai-chat", feature = "openai-responses")))]
fn not_compiled_in(_: Service, _: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
    Err("the client of this api_mode is not compiled in".into())
}

#[cfg(any(feature = "openai-chat", feature = "openai-responses"))]
mod client {
    use std::sync::Arc;

    use qitos_config::section::Model as ModelSection;
    use qitos_contracts::model::{Model, Target};
    use qitos_contracts::secret::SecretValue;
    use qitos_providers::{Authentication, Connection};

    use super::Service;
    use crate::registry::ModelContext;

    #[cfg(feature = "openai-chat")]
    pub(super) fn chat(
        service: Service,
        context: ModelContext<'_>,
    ) -> Result<Arc<dyn Model>, String> {
        use qitos_providers::openai_chat::ChatSettings;

        let section = context.section;
        let mut settings = ChatSettings::new(target(service, section, super::CHAT)?, "");
        settings.connection = connection(service, section, context.credential)?;
        settings.options = crate::models::factory::options_of(section);
        settings.context_window = section.context_window();
        let model = settings
            .over_network()
            .map_err(|failure| failure.message.clone())?;
        Ok(Arc::new(model))
    }

    #[cfg(feature = "openai-responses")]
    pub(super) fn responses(
        service: Service,
        context: ModelContext<'_>,
    ) -> Result<Arc<dyn Model>, String> {
        use qitos_providers::openai_responses::{ResponsesOptions, ResponsesSettings};

        let section = context.section;
        let request = section.request();
        let mut settings = ResponsesSettings::new(target(service, section, super::RESPONSES)?, "");
        settings.connection = connection(service, section, context.credential)?;
        settings.options = ResponsesOptions {
            max_tokens: Some(request.max_tokens()),
            temperature: request.temperature(),
            top_p: request.top_p(),
            extra_body: request.extra_body().clone(),
            ..ResponsesOptions::default()
        };
        settings.context_window = section.context_window();
        let model = settings
            .over_network()
            .map_err(|failure| failure.message.clone())?;
        Ok(Arc::new(model))
    }

    fn target(service: Service, section: &ModelSection, mode: &str) -> Result<Target, String> {
        let provider = match service {
            Service::OpenAi => "openai",
            Service::Compatible => "openai-compatible",
            Service::Azure => "azure-openai",
        };
        Target::new(provider, section.model(), "openai", mode).map_err(|error| error.to_string())
    }

    fn connection(
        service: Service,
        section: &ModelSection,
        credential: Option<SecretValue>,
    ) -> Result<Connection, String> {
        let base_url = match (section.base_url(), service) {
            ("", Service::OpenAi) => "https://api.openai.com/v1",
            ("", Service::Compatible) => {
                return Err("`model.base_url` is required for an OpenAI-compatible server".into());
            }
            ("", Service::Azure) => {
                return Err(
                    "`model.base_url` is required for Azure: https://RESOURCE.openai.azure.com/openai/v1"
                        .into(),
                );
            }
            (url, _) => url,
        };
        let authentication = match service {
            Service::Azure => Authentication::ApiKey,
            Service::OpenAi | Service::Compatible => Authentication::Bearer,
        };
        let mut connection = Connection::new(base_url, authentication);
        connection.credential = credential;
        connection.time_limits = crate::models::factory::time_limits(section);
        Ok(connection)
    }
}
