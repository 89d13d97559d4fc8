//! The dialects under test: how their model is built and what their terminal looks like.

use std::sync::Arc;

use qitos_contracts::model::{Model, Target};
use qitos_providers::http::HttpTransport;
use qitos_providers::openai_chat::{ChatProfile, ChatSettings, MappedFinish};
use serde_json::Value;

/// A base address that nothing ever resolves.
const BASE_URL: &str = "https://offline.invalid/v1";

/// One dialect.
pub struct Dialect {
    pub(crate) target: fn() -> Target,
    /// The model over a transport; `tolerant` asks for what a server profile may allow.
    pub(crate) model: fn(bool, Arc<dyn HttpTransport>) -> Box<dyn Model>,
    /// A success needs an event for each of these (PRV-52), by its kind and its data.
    pub(crate) terminals: &'static [fn(&str, &Value) -> bool],
}

fn target(provider: &str, transport: &str, api_mode: &str) -> Target {
    Target::new(provider, "offline", transport, api_mode)
        .unwrap_or_else(|error| panic!("a constant target: {error}"))
}

/// Chat Completions (section 5.1).
pub const CHAT: Dialect = Dialect {
    target: || target("openai-compatible", "openai", "chat_completions"),
    model: |tolerant, transport| {
        let target = (CHAT.target)();
        let mut settings = ChatSettings::new(target, BASE_URL);
        if tolerant {
            settings.profile = ChatProfile {
                stop_may_carry_tool_calls: true,
                ..ChatProfile::default()
            };
            settings
                .profile
                .finish_reasons
                .insert("strange".into(), MappedFinish::Stop);
        }
        let model: Box<dyn Model> = Box::new(
            settings
                .with_transport(transport)
                .unwrap_or_else(|error| panic!("constant settings: {error}")),
        );
        model
    },
    terminals: &[|_, data| {
        data["choices"][0]["finish_reason"]
            .as_str()
            .is_some_and(|finish| !finish.is_empty())
    }],
};
