//! What a caller of the reader can rely on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "these are tests"
)]

mod bounds;
mod code;
mod errors;
mod files;
mod identity;

use qitos_config::{AgentConfig, ConfigErrors, Format};

/// A complete document whose `agent` block and end are given.
fn document(agent: &str, rest: &str) -> String {
    format!(
        "schema: qitos.agent\nagent: {agent}\nmodel: {{provider: fake, model: m}}\ntools: {{}}\nruntime:\n  environment: {{type: local, workspace: .}}\nbudgets: {{max_steps: 3}}\n{rest}"
    )
}

fn yaml(text: &str) -> Result<AgentConfig, ConfigErrors> {
    AgentConfig::from_str(text, Format::Yaml, std::env::temp_dir())
}

fn json(text: &str) -> Result<AgentConfig, ConfigErrors> {
    AgentConfig::from_str(text, Format::Json, std::env::temp_dir())
}
