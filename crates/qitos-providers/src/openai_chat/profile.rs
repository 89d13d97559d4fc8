//! What is known about one Chat-compatible server, stated in code and never guessed (PRV-81).

use std::collections::BTreeMap;

use super::response::ChatFinish;

/// The key that carries the output limit (PRV-81).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitKey {
    /// `max_tokens`, which nearly every server reads.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which newer OpenAI models demand.
    MaxCompletionTokens,
}

impl LimitKey {
    /// The key on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            LimitKey::MaxTokens => "max_tokens",
            LimitKey::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// What a finish reason outside the shared list means on this server (PRV-26).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedFinish {
    /// A normal end.
    Stop,
    /// Cut by the output limit.
    Length,
    /// Ended to call tools.
    ToolCalls,
}

/// Deviations of one server from the dialect.
#[derive(Clone, Debug)]
pub struct ChatProfile {
    /// Which key carries the output limit.
    pub limit_key: LimitKey,
    /// Ask for usage on streams (PRV-76).
    pub include_usage: bool,
    /// Accept calls with finish `stop` even if no call was forced (PRV-C8).
    pub stop_may_carry_tool_calls: bool,
    /// Send the strict form of a tool's schema where there is one (ARG-6).
    pub strict_tools: bool,
    /// Finish reasons that only this server sends.
    pub finish_reasons: BTreeMap<String, MappedFinish>,
}

impl Default for ChatProfile {
    fn default() -> Self {
        ChatProfile {
            limit_key: LimitKey::MaxTokens,
            include_usage: true,
            stop_may_carry_tool_calls: false,
            strict_tools: false,
            finish_reasons: BTreeMap::new(),
        }
    }
}

impl ChatProfile {
    pub(crate) fn finish_of(&self, reason: &str) -> Option<ChatFinish> {
        self.finish_reasons.get(reason).map(|mapped| match mapped {
            MappedFinish::Stop => ChatFinish::Stop,
            MappedFinish::Length => ChatFinish::Length,
            MappedFinish::ToolCalls => ChatFinish::ToolCalls,
        })
    }
}
