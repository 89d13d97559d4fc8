//! Text protocols: how a model without native tool calls says what it decided (tools specification, section 9).
//!
//! | Protocol | Shape | Calls | Fallbacks |
//! |---|---|---|---|
//! | `react_text_v1` | labelled lines, `Action: name(key=value)` | 1 | none |
//! | `json_decision_v1` | one JSON object | many | none |
//! | `json_decision_multi_v1` | the same, its prompt asks for independent calls | many | `json_decision_v1`, `xml_decision_v1`, `react_text_v1` |
//! | `xml_decision_v1` | one `<decision>` element | 1 | none |
//! | `native_tool_calls_v1` | the provider's own tool calls; text is never a call (TXT-13) | many | none |
//!
//! All of them read a text in one pass, refuse what they cannot read exactly, and say so in
//! [`ParseDiagnostics`](qitos_contracts::decision::ParseDiagnostics) that go back to the model.

mod fallback_chain;
mod grammar;
mod json_decision;
mod json_document;
mod native_tool_calls;
mod react_call;
mod react_text;
mod registry;
mod tool_listing;
mod xml_decision;
mod xml_reader;

#[cfg(test)]
mod tests;

pub use fallback_chain::TextParser;
pub use native_tool_calls::NativeToolCalls;
pub use registry::{
    DEFAULT_PROTOCOL, ProtocolChoice, ProtocolRegistry, ProtocolRequest, UnknownProtocol,
};
