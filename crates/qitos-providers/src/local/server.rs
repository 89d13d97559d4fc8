//! What is known about each server, stated in code and never guessed.

/// The two ways Ollama is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OllamaMode {
    /// `/api/chat`: a list of messages.
    Chat,
    /// `/api/generate`: one prompt.
    Generate,
}

/// A server that is asked for text in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalServer {
    /// Ollama's own dialect. Documented at <https://docs.ollama.com/api>.
    Ollama(OllamaMode),
    /// LM Studio. Documented at <https://lmstudio.ai/docs/developer/openai-compat/chat-completions>.
    LmStudio,
    /// vLLM. Documented at <https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>.
    Vllm,
    /// A LiteLLM proxy. Documented at <https://docs.litellm.ai/docs/proxy/user_keys>.
    LiteLlm,
}

/// Keys that Ollama's chat takes besides those that the client sets.
const OLLAMA_CHAT: &[&str] = &["format", "keep_alive", "options", "think"];
const OLLAMA_GENERATE: &[&str] = &[
    "format",
    "keep_alive",
    "options",
    "raw",
    "suffix",
    "template",
    "think",
];
/// Keys that LM Studio lists besides those that the client sets.
const LM_STUDIO: &[&str] = &[
    "draft_model",
    "frequency_penalty",
    "logit_bias",
    "presence_penalty",
    "repeat_penalty",
    "response_format",
    "seed",
    "stop",
    "top_k",
    "ttl",
];

impl LocalServer {
    /// Provider and transport of the target (PRV-8).
    #[must_use]
    pub const fn provider(self) -> &'static str {
        match self {
            LocalServer::Ollama(_) => "ollama",
            LocalServer::LmStudio => "lm_studio",
            LocalServer::Vllm => "vllm",
            LocalServer::LiteLlm => "litellm",
        }
    }

    /// The mode of the target (PRV-8).
    #[must_use]
    pub const fn api_mode(self) -> &'static str {
        match self {
            LocalServer::Ollama(OllamaMode::Chat) => "chat",
            LocalServer::Ollama(OllamaMode::Generate) => "generate",
            LocalServer::LmStudio | LocalServer::Vllm | LocalServer::LiteLlm => "chat_completions",
        }
    }

    /// Where the server listens unless it was told otherwise.
    #[must_use]
    pub const fn base_url(self) -> &'static str {
        match self {
            LocalServer::Ollama(_) => "http://127.0.0.1:11434",
            LocalServer::LmStudio => "http://127.0.0.1:1234/v1",
            LocalServer::Vllm => "http://127.0.0.1:8000/v1",
            LocalServer::LiteLlm => "http://127.0.0.1:4000/v1",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            LocalServer::Ollama(OllamaMode::Chat) => "/api/chat",
            LocalServer::Ollama(OllamaMode::Generate) => "/api/generate",
            LocalServer::LmStudio | LocalServer::Vllm | LocalServer::LiteLlm => "/chat/completions",
        }
    }

    pub(super) const fn api_style(self) -> &'static str {
        match self {
            LocalServer::Ollama(OllamaMode::Generate) => "generate",
            _ => "chat_completions",
        }
    }

    /// The further keys that the server takes; all of them if it has no closed list.
    pub(super) const fn carried_options(self) -> Option<&'static [&'static str]> {
        match self {
            LocalServer::Ollama(OllamaMode::Chat) => Some(OLLAMA_CHAT),
            LocalServer::Ollama(OllamaMode::Generate) => Some(OLLAMA_GENERATE),
            LocalServer::LmStudio => Some(LM_STUDIO),
            // Both document that they take further keys: sampling and template options, or the model's own.
            LocalServer::Vllm | LocalServer::LiteLlm => None,
        }
    }
}
