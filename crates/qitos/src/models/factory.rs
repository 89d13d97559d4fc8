//! The built-in model factory `fake`, and request options in Chat form.

use std::sync::Arc;

use qitos_config::section::Model as ModelSection;
use qitos_contracts::model::Model;
use qitos_providers::openai_chat::ChatOptions;
use qitos_providers::scripted::ScriptedModel;

use crate::registry::ModelContext;

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
#[cfg(any(
    feature = "openai-chat",
    feature = "openai-responses",
    feature = "gemini",
    feature = "local"
))]
pub(crate) fn time_limits(section: &ModelSection) -> qitos_providers::TimeLimits {
    qitos_providers::TimeLimits {
        total: std::time::Duration::from_secs_f64(section.request().timeout_seconds()),
        ..qitos_providers::TimeLimits::default()
    }
}
