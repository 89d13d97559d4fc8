//! What is known about one server that speaks the dialect, stated in code and never guessed.

use std::collections::BTreeMap;

use qitos_contracts::model::FinishReason;

/// Deviations of one server from the dialect.
#[derive(Clone, Debug, Default)]
pub struct AnthropicProfile {
    /// The server takes a forced tool choice; then, and only then, the model claims it (PRV-10a).
    pub tool_choice: bool,
    /// Stop reasons that only this server sends (PRV-26).
    pub stop_reasons: BTreeMap<String, FinishReason>,
}
