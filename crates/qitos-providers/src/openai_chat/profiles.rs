//! Known servers of the Chat dialect: plain data, chosen by the name of a factory, never guessed from a model or URL.
//!
//! A row says only where its server deviates from the dialect. What a row does not say, the dialect's own rules
//! decide: `""` as finish reason, `abort`, error objects in a 200 stream, usage on every chunk (section 5.1).

use super::profile::{ChatProfile, LimitKey, MappedFinish};
use crate::endpoint::Authentication;

/// One server that speaks Chat Completions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct KnownServer {
    /// Name of its factory in configurations.
    pub name: &'static str,
    /// Its public address, or where it listens by default on this machine.
    pub base_url: &'static str,
    /// Whether it asks for a key.
    pub needs_credential: bool,
    /// How the key travels.
    pub authentication: Authentication,
    /// Headers that every request carries besides the client's own.
    pub headers: &'static [(&'static str, &'static str)],
    /// Which key carries the output limit (PRV-81).
    pub limit_key: LimitKey,
    /// Ask for usage on streams (PRV-76).
    pub include_usage: bool,
    /// Accept calls with finish `stop` even if no call was forced (PRV-C8).
    pub stop_may_carry_tool_calls: bool,
    /// Finish reasons that only this server sends (PRV-26).
    pub finish_words: &'static [(&'static str, MappedFinish)],
}

impl KnownServer {
    /// What every server is unless its row says otherwise.
    const PLAIN: KnownServer = KnownServer {
        name: "",
        base_url: "",
        needs_credential: true,
        authentication: Authentication::Bearer,
        headers: &[],
        limit_key: LimitKey::MaxTokens,
        include_usage: true,
        stop_may_carry_tool_calls: false,
        finish_words: &[],
    };

    /// The row of a name, exactly as written.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static KnownServer> {
        KNOWN_SERVERS.iter().find(|server| server.name == name)
    }

    /// The row as a profile of the dialect.
    #[must_use]
    pub fn profile(&self) -> ChatProfile {
        ChatProfile {
            limit_key: self.limit_key,
            include_usage: self.include_usage,
            stop_may_carry_tool_calls: self.stop_may_carry_tool_calls,
            finish_reasons: self
                .finish_words
                .iter()
                .map(|(word, meaning)| ((*word).to_owned(), *meaning))
                .collect(),
            ..ChatProfile::default()
        }
    }
}

/// The table, sorted by name.
pub const KNOWN_SERVERS: &[KnownServer] = &[
    // https://api-docs.deepseek.com/api/create-chat-completion
    // `insufficient_system_resource` as finish is in the dialect's own list (PRV-C31).
    KnownServer {
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        ..KnownServer::PLAIN
    },
    // https://platform.moonshot.ai/docs/api/chat
    KnownServer {
        name: "kimi",
        base_url: "https://api.moonshot.ai/v1",
        ..KnownServer::PLAIN
    },
    // https://platform.minimax.io/docs/api-reference/text-openai-api
    KnownServer {
        name: "minimax",
        base_url: "https://api.minimax.io/v1",
        limit_key: LimitKey::MaxCompletionTokens,
        ..KnownServer::PLAIN
    },
    // https://docs.ollama.com/api/openai-compatibility
    // Versions before https://github.com/ollama/ollama/pull/7963 end answers with calls by `stop`.
    KnownServer {
        name: "ollama_openai",
        base_url: "http://127.0.0.1:11434/v1",
        needs_credential: false,
        stop_may_carry_tool_calls: true,
        ..KnownServer::PLAIN
    },
    // https://openrouter.ai/docs/api-reference/overview
    // Its attribution headers are optional and the caller's to add.
    KnownServer {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        ..KnownServer::PLAIN
    },
    // https://www.alibabacloud.com/help/en/model-studio/qwen-api-via-openai-chat-completions
    // Other regions have addresses of their own; `model.base_url` names them.
    KnownServer {
        name: "qwen",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ..KnownServer::PLAIN
    },
    // https://docs.sglang.io/basic_usage/openai_api_completions.html
    KnownServer {
        name: "sglang",
        base_url: "http://127.0.0.1:30000/v1",
        needs_credential: false,
        ..KnownServer::PLAIN
    },
    // https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    // A named tool choice ends by `stop`, which the dialect takes for forced calls (PRV-C8).
    KnownServer {
        name: "vllm_openai",
        base_url: "http://127.0.0.1:8000/v1",
        needs_credential: false,
        ..KnownServer::PLAIN
    },
];
