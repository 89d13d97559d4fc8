//! Rule: which protocol a run speaks (TXT-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use qitos_contracts::decision::DecisionParser;
use qitos_contracts::error::{ContractError, Performed, Retry};

use super::fallback_chain::TextParser;
use super::native_tool_calls::NativeToolCalls;

/// The protocol of a run for which nobody named one (TXT-1).
pub const DEFAULT_PROTOCOL: &str = "react_text_v1";

/// Protocols by id, with their parsers.
#[derive(Clone, Debug)]
pub struct ProtocolRegistry {
    parsers: BTreeMap<String, Arc<dyn DecisionParser>>,
    model_names: Vec<(String, String)>,
}

/// Who may name a protocol, strongest first (TXT-1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ProtocolRequest<'a> {
    /// The engine's argument.
    pub engine: Option<&'a str>,
    /// The agent's own setting; `auto` counts as none.
    pub agent: Option<&'a str>,
    /// A parser that was handed over: it brings its own protocol.
    pub parser: Option<&'a Arc<dyn DecisionParser>>,
    /// The model's declaration.
    pub model: Option<&'a str>,
    /// The model's name, matched with the registered prefixes.
    pub model_name: Option<&'a str>,
}

/// The parser of a run.
#[derive(Clone, Debug)]
pub struct ProtocolChoice {
    /// The parser; its protocol is the run's.
    pub parser: Arc<dyn DecisionParser>,
    /// An unknown protocol that the model declared and that was ignored; to be reported.
    pub ignored: Option<String>,
}

/// The engine or the agent asked for a protocol that nobody registered; code `configuration_error` (TXT-1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown protocol {protocol:?}; known: {}", known.join(", "))]
pub struct UnknownProtocol {
    /// The id asked for.
    pub protocol: String,
    /// The ids that exist, sorted.
    pub known: Vec<String>,
}

impl ContractError for UnknownProtocol {
    fn code(&self) -> &str {
        "configuration_error"
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

impl Default for ProtocolRegistry {
    fn default() -> Self {
        ProtocolRegistry::builtin()
    }
}

impl ProtocolRegistry {
    /// The protocols of this crate.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = ProtocolRegistry {
            parsers: BTreeMap::new(),
            model_names: Vec::new(),
        };
        registry.register(Arc::new(TextParser::react_text()));
        registry.register(Arc::new(TextParser::json_decision()));
        registry.register(Arc::new(TextParser::json_decision_multi()));
        registry.register(Arc::new(TextParser::xml_decision()));
        registry.register(Arc::new(NativeToolCalls));
        registry
    }

    /// Adds a parser under its own protocol id; one that was there before is returned.
    pub fn register(&mut self, parser: Arc<dyn DecisionParser>) -> Option<Arc<dyn DecisionParser>> {
        self.parsers.insert(parser.protocol_id().to_owned(), parser)
    }

    /// Makes models whose name starts with `prefix` speak `protocol` when nobody says otherwise.
    pub fn register_model_name(&mut self, prefix: impl Into<String>, protocol: impl Into<String>) {
        self.model_names.push((prefix.into(), protocol.into()));
    }

    /// The parser of a protocol.
    #[must_use]
    pub fn get(&self, protocol: &str) -> Option<Arc<dyn DecisionParser>> {
        self.parsers.get(protocol).cloned()
    }

    /// All protocol ids, sorted.
    #[must_use]
    pub fn protocols(&self) -> Vec<&str> {
        self.parsers.keys().map(String::as_str).collect()
    }

    /// Chooses the protocol of a run (TXT-1).
    ///
    /// # Errors
    /// `configuration_error` if the engine or the agent names an unknown protocol. One that the model
    /// declares is ignored and reported in [`ProtocolChoice::ignored`].
    pub fn choose(&self, request: ProtocolRequest<'_>) -> Result<ProtocolChoice, UnknownProtocol> {
        let named = [request.engine, request.agent]
            .into_iter()
            .flatten()
            .find(|protocol| *protocol != "auto");
        if let Some(protocol) = named {
            return match self.get(protocol) {
                Some(parser) => Ok(ProtocolChoice {
                    parser,
                    ignored: None,
                }),
                None => Err(self.unknown(protocol)),
            };
        }
        if let Some(parser) = request.parser {
            return Ok(ProtocolChoice {
                parser: Arc::clone(parser),
                ignored: None,
            });
        }
        let declared = request.model.and_then(|protocol| self.get(protocol));
        let ignored = match (request.model, &declared) {
            (Some(protocol), None) => Some(protocol.to_owned()),
            _ => None,
        };
        let by_name = || {
            let name = request.model_name?;
            let (_, protocol) = self
                .model_names
                .iter()
                .find(|(prefix, _)| name.starts_with(prefix.as_str()))?;
            self.get(protocol)
        };
        declared
            .or_else(by_name)
            .or_else(|| self.get(DEFAULT_PROTOCOL))
            .map(|parser| ProtocolChoice { parser, ignored })
            .ok_or_else(|| self.unknown(DEFAULT_PROTOCOL))
    }

    fn unknown(&self, protocol: &str) -> UnknownProtocol {
        UnknownProtocol {
            protocol: protocol.to_owned(),
            known: self.parsers.keys().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn chosen(request: ProtocolRequest<'_>) -> (String, Option<String>) {
        let mut registry = ProtocolRegistry::builtin();
        registry.register_model_name("talker-", "xml_decision_v1");
        let choice = registry.choose(request).unwrap();
        (choice.parser.protocol_id().to_owned(), choice.ignored)
    }

    #[test]
    fn txt_1_the_strongest_voice_wins() {
        let parser: Arc<dyn DecisionParser> = Arc::new(TextParser::json_decision());
        let mut request = ProtocolRequest {
            engine: Some("json_decision_multi_v1"),
            agent: Some("xml_decision_v1"),
            parser: Some(&parser),
            model: Some("native_tool_calls_v1"),
            model_name: Some("talker-7b"),
        };
        assert_eq!(chosen(request).0, "json_decision_multi_v1");
        request.engine = None;
        assert_eq!(chosen(request).0, "xml_decision_v1");
        request.agent = Some("auto");
        assert_eq!(chosen(request).0, "json_decision_v1");
        request.parser = None;
        assert_eq!(chosen(request).0, "native_tool_calls_v1");
        request.model = None;
        assert_eq!(chosen(request).0, "xml_decision_v1");
        request.model_name = Some("other");
        assert_eq!(chosen(request).0, "react_text_v1");
    }

    #[test]
    fn txt_1_an_unknown_protocol_is_refused_from_people_and_ignored_from_models() {
        let registry = ProtocolRegistry::builtin();
        for request in [
            ProtocolRequest {
                engine: Some("nope_v1"),
                ..Default::default()
            },
            ProtocolRequest {
                agent: Some("nope_v1"),
                ..Default::default()
            },
            ProtocolRequest {
                engine: Some("auto"),
                agent: Some("nope_v1"),
                ..Default::default()
            },
        ] {
            assert_eq!(
                registry.choose(request).unwrap_err().code(),
                "configuration_error"
            );
        }
        let (protocol, ignored) = chosen(ProtocolRequest {
            model: Some("nope_v1"),
            ..Default::default()
        });
        assert_eq!(
            (protocol.as_str(), ignored.as_deref()),
            ("react_text_v1", Some("nope_v1"))
        );
    }
}
