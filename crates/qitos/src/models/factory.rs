//! The built-in model factories: `fake` and the Chat Completions family.

use std::sync::Arc;

use qitos_config::section::Model as ModelSection;
use qitos_contracts::model::Model;
use qitos_providers::openai_chat::ChatOptions;
use qitos_providers::scripted::ScriptedModel;

use crate::registry::{ModelContext, ModelFactory};

/// `fake`: the scripted model, its script in `model.request.extra_body.script` (PRV-105, CLI-11).
pub(crate) fn fake(context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
    let section = context.section;
    let script = section
        .request()
        .extra_body()
        .get("script")
        .cloned()
        .unwrap_or(serde_json::Value::Null);
    let model = ScriptedModel::from_script(section.model(), &script, options_of(section))
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(model))
}

pub(crate) fn options_of(section: &ModelSection) -> ChatOptions {
    let request = section.request();
    let mut extra_body = request.extra_body().clone();
    let template = extra_body.remove("chat_template_kwargs");
    ChatOptions {
        max_tokens: Some(request.max_tokens()),
        temperature: request.temperature(),
        top_p: request.top_p(),
        chat_template_kwargs: template,
        extra_body,
        ..ChatOptions::default()
    }
}

/// The limits of one attempt: the configured total, and what bounds waiting for single steps (PRV-85).
#[cfg(any(feature = "openai-chat", feature = "gemini", feature = "local"))]
pub(crate) fn time_limits(section: &ModelSection) -> qitos_providers::TimeLimits {
    qitos_providers::TimeLimits {
        total: std::time::Duration::from_secs_f64(section.request().timeout_seconds()),
        ..qitos_providers::TimeLimits::default()
    }
}

/// An OpenAI-compatible server under one of its names.
pub(crate) fn chat(name: &'static str, needs_credential: bool) -> Arc<dyn ModelFactory> {
    Arc::new(ChatFactory {
        name,
        needs_credential,
    })
}

struct ChatFactory {
    #[cfg_attr(
        not(feature = "openai-chat"),
        expect(dead_code, reason = "only the client asks")
    )]
    name: &'static str,
    needs_credential: bool,
}

impl ModelFactory for ChatFactory {
    fn needs_credential(&self) -> bool {
        self.needs_credential
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
        let base_url = match (section.base_url(), self.name) {
            ("", "openai") => "https://api.openai.com/v1",
            ("", _) => {
                return Err("`model.base_url` is required for an OpenAI-compatible server".into());
            }
            (url, _) => url,
        };
        let provider = if self.name == "openai" {
            "openai"
        } else {
            "openai-compatible"
        };
        let target = Target::new(provider, section.model(), "openai", mode)
            .map_err(|error| error.to_string())?;
        let mut settings = ChatSettings::new(target, base_url);
        settings.connection.credential = context.credential;
        settings.options = options_of(section);
        settings.context_window = section.context_window();
        settings.connection.time_limits = time_limits(section);
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
