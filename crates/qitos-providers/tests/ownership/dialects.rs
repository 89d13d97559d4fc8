//! The dialects: a model over the network, the events of a short answer and the same answer whole.

use qitos_contracts::model::{Model, Target};
use qitos_providers::TimeLimits;
use qitos_providers::gemini::GeminiSettings;
use qitos_providers::openai_chat::ChatSettings;

pub(crate) struct Dialect {
    pub(crate) name: &'static str,
    pub(crate) target: fn() -> Target,
    pub(crate) model: fn(&str, TimeLimits) -> Box<dyn Model>,
    /// Events before the text.
    pub(crate) opening: &'static [&'static str],
    /// One piece of text: `Hi`.
    pub(crate) text: &'static str,
    /// Events from the end of the text to the end marker.
    pub(crate) closing: &'static [&'static str],
    /// The same answer whole; all there is for a dialect without streaming.
    pub(crate) whole: &'static str,
}

impl Dialect {
    /// Whether the dialect streams.
    pub(crate) fn streams(&self) -> bool {
        !self.text.is_empty()
    }
}

fn chat() -> Target {
    Target::new("openai-compatible", "offline", "openai", "chat_completions").unwrap()
}

fn gemini() -> Target {
    Target::new("google", "offline", "gemini", "generate_content").unwrap()
}

/// Every streaming dialect and one that gives whole answers only.
pub(crate) const DIALECTS: &[Dialect] = &[
    Dialect {
        name: "chat",
        target: chat,
        model: |base_url, time_limits| {
            let mut settings = ChatSettings::new(chat(), format!("{base_url}/v1"));
            settings.connection.time_limits = time_limits;
            Box::new(settings.over_network().unwrap())
        },
        opening: &[],
        text: r#"{"choices":[{"delta":{"content":"Hi"}}]}"#,
        closing: &[
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            "[DONE]",
        ],
        whole: r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#,
    },
    Dialect {
        name: "gemini",
        target: gemini,
        model: |base_url, time_limits| {
            let mut settings = GeminiSettings::new(gemini(), base_url);
            settings.connection.time_limits = time_limits;
            Box::new(settings.over_network().unwrap())
        },
        opening: &[],
        text: "",
        closing: &[],
        whole: r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}"#,
    },
];
