//! `cargo xtask schema`: writes the JSON Schemas that the repository keeps.

use std::path::Path;

/// Writes `docs/schemas/agent.schema.json`.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let path = root.join("docs/schemas/agent.schema.json");
    let mut text = serde_json::to_string_pretty(&qitos_config::json_schema())
        .map_err(|error| error.to_string())?;
    text.push('\n');
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
