//! What the suite needs of a provider: how to build it against a peer, and how its peer writes answers.

use std::sync::Arc;
use std::time::Duration;

use qitos_contracts::model::{Model, ProviderCapabilities, ProviderFailure};
use serde_json::Value;

use super::peer::ScriptedPeer;
use super::rows::Dialect;
use crate::check::Claims;

/// Stands in everything that no failure may show: credential, address, headers, bodies, error texts.
pub(super) const CANARY: &str = "canary7f3e91";

/// What one model is built with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Setup {
    /// Answers every request of the model.
    pub peer: ScriptedPeer,
    /// The credential, for models that need one. It must never be seen again (PRV-44).
    pub credential: String,
    /// Where the model would find its peer, for models that want an address. It must never be seen again.
    pub base_url: String,
    /// How long the model may wait for a data event, where a check depends on it (PRV-85).
    pub progress_limit: Option<Duration>,
    /// What a fixture says about its request and its server, such as `profile`; null elsewhere.
    pub described: Value,
}

impl Setup {
    pub(super) fn new(peer: ScriptedPeer) -> Self {
        Setup {
            peer,
            credential: format!("sk-{CANARY}"),
            base_url: format!("https://{CANARY}.invalid/{CANARY}/v1"),
            progress_limit: None,
            described: Value::Null,
        }
    }
}

/// An answer that the peer is to give, before any dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text, in the pieces in which it streams; it stands before the calls.
    pub text: Vec<String>,
    /// Reasoning in front of the text, with whatever provider state belongs to it; only for providers that claim
    /// `continuation`.
    pub reasoning: Option<String>,
    /// The calls.
    pub calls: Vec<AnswerCall>,
    /// Input and output tokens, if the peer reports any.
    pub usage: Option<(u64, u64)>,
}

/// A call of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerCall {
    /// The provider's id, for dialects that have ids.
    pub id: String,
    /// The name.
    pub name: String,
    /// The arguments as the model wrote them; not always whole JSON.
    pub arguments: String,
}

impl Answer {
    pub(super) fn text(pieces: &[&str]) -> Self {
        Answer {
            text: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
            ..Answer::default()
        }
    }

    pub(super) fn thinking(mut self, reasoning: &str) -> Self {
        self.reasoning = Some(reasoning.into());
        self
    }

    pub(super) fn calling(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.calls.push(AnswerCall {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        });
        self
    }

    pub(super) fn using(mut self, prompt_tokens: u64, completion_tokens: u64) -> Self {
        self.usage = Some((prompt_tokens, completion_tokens));
        self
    }

    /// The whole text.
    #[must_use]
    pub fn joined_text(&self) -> String {
        self.text.concat()
    }
}

/// How an answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As one value, for requests without a callback and for providers that do not stream.
    Whole,
    /// As a stream.
    Streamed,
}

/// The bytes of a successful answer, cut where its terminal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireForm {
    /// The media type, if the peer names one.
    pub content_type: Option<String>,
    /// Everything before the terminal.
    pub before_terminal: Vec<u8>,
    /// The terminal, up to the byte with which the answer is known to be whole: without that byte it is a failure,
    /// with it and a clean end it is a success.
    pub terminal: Vec<u8>,
    /// What follows, such as an end marker.
    pub after_terminal: Vec<u8>,
}

impl WireForm {
    /// A body whose last byte makes it whole, such as one JSON value.
    #[must_use]
    pub fn whole(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut before_terminal = body.into();
        let terminal = before_terminal.pop().into_iter().collect();
        WireForm {
            content_type: Some(content_type.into()),
            before_terminal,
            terminal,
            after_terminal: Vec::new(),
        }
    }

    /// The bytes up to and with the terminal.
    pub(super) fn until_terminal(&self) -> Vec<u8> {
        [&self.before_terminal[..], &self.terminal].concat()
    }

    /// All bytes.
    pub(super) fn all(&self) -> Vec<u8> {
        [
            &self.before_terminal[..],
            &self.terminal,
            &self.after_terminal,
        ]
        .concat()
    }
}

/// A provider under test.
///
/// The models of one subject all speak to a [`ScriptedPeer`], either directly or through a transport that the
/// subject replaces; everything above the transport is the real thing.
pub trait ProviderSubject: Send + Sync + 'static {
    /// The name in the report.
    fn name(&self) -> &str;

    /// What its models claim.
    fn capabilities(&self) -> ProviderCapabilities;

    /// A model whose requests are answered by `setup.peer`.
    ///
    /// # Errors
    /// The client could not be built; nothing was sent (PRV-38).
    fn build(&self, setup: &Setup) -> Result<Arc<dyn Model>, Box<ProviderFailure>>;

    /// The same with settings that no model can be built from, such as an address that is none; nothing, if building
    /// cannot fail.
    fn build_flawed(&self, setup: &Setup) -> Option<Result<Arc<dyn Model>, Box<ProviderFailure>>> {
        let _ = setup;
        None
    }

    /// The bytes with which the peer gives `answer`; nothing, if this form cannot say it.
    ///
    /// Every provider has a form for text. What is not claimed (calls, streaming) is not asked for.
    fn wire(&self, answer: &Answer, form: Form) -> Option<WireForm>;

    /// The dialect, if the model is a client of one whose streams the specification lists row by row.
    fn dialect(&self) -> Option<Dialect> {
        None
    }
}

impl Claims for dyn ProviderSubject {
    fn claims(&self, name: &str) -> bool {
        let capabilities = self.capabilities();
        match name {
            "streaming" => capabilities.supports_streaming,
            "whole answers only" => !capabilities.supports_streaming,
            "tool_calls" => capabilities.supports_native_tool_calls,
            "cancellation" => capabilities.supports_cancellation,
            "continuation" => capabilities.supports_continuation,
            _ => false,
        }
    }

    fn has_hook(&self, _name: &str) -> bool {
        false
    }
}

/// Needs that several checks share.
pub(super) mod needs {
    use crate::check::Need;

    pub(in crate::provider) const TOOL_CALLS: &[Need] = &[Need::Claim("tool_calls")];
    pub(in crate::provider) const CANCELLATION: &[Need] = &[Need::Claim("cancellation")];
    pub(in crate::provider) const WHOLE_ONLY: &[Need] = &[Need::Claim("whole answers only")];
    pub(in crate::provider) const CONTINUATION: &[Need] = &[Need::Claim("continuation")];
}
