//! How a prompt lists tools: from the frozen manifest, byte for byte the schema of a native request (TXT-12).

use std::fmt::Write as _;

use qitos_contracts::canonical_json;
use qitos_contracts::decision::ToolListing;

/// One paragraph per tool: name, description, canonical schema.
pub(super) fn listing(tools: &[ToolListing<'_>]) -> String {
    if tools.is_empty() {
        return "No tools are available; answer directly.\n".to_owned();
    }
    let mut text = String::from("Tools (names are exact; arguments follow the JSON Schema):\n");
    for tool in tools {
        // A schema in a frozen manifest is canonical JSON already; a list built by hand may not be.
        let schema = canonical_json::to_bytes(tool.input_schema)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or_else(|| tool.input_schema.to_string());
        let _ = writeln!(
            text,
            "- {}: {}\n  arguments: {schema}",
            tool.name,
            tool.description.trim()
        );
    }
    text
}
