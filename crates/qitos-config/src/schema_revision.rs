//! Older revisions of the schema are converted before anything is checked (CFG-9).

use crate::config::CompatibilityReceipt;
use crate::document::{Kind, Node};
use crate::section::{SCHEMA, SCHEMA_V1, UNSAFE_HOST_KEYS};

/// The scalar's text, when `node` is a string.
fn text_of(node: &Node) -> Option<&str> {
    match &node.kind {
        Kind::Quoted(text) | Kind::Plain(text) => Some(text),
        _ => None,
    }
}

/// Rewrites `qitos.agent/v1` as the current revision and says what was changed.
pub(crate) fn convert(root: &mut Node) -> Vec<CompatibilityReceipt> {
    let mut receipts = Vec::new();
    let is_old = root.get("schema").and_then(text_of) == Some(SCHEMA_V1);
    if !is_old {
        return receipts;
    }
    receipts.push(CompatibilityReceipt::new(
        "agent_schema_revision_compatibility",
        "schema",
        "qitos.agent/v1 was read as qitos.agent",
    ));
    if let Some(schema) = root.get_mut("schema") {
        schema.kind = Kind::Quoted(SCHEMA.to_owned());
    }
    let environment = root
        .get_mut("runtime")
        .and_then(|runtime| runtime.get_mut("environment"));
    let Some(environment) = environment else {
        return receipts;
    };
    if environment.get("type").and_then(text_of) != Some("host") {
        return receipts;
    }
    if let Kind::Mapping(entries) = &mut environment.kind {
        entries.retain(|entry| UNSAFE_HOST_KEYS.contains(&entry.key.as_str()));
    }
    if let Some(kind) = environment.get_mut("type") {
        kind.kind = Kind::Quoted("unsafe_host".to_owned());
    }
    receipts.push(CompatibilityReceipt::new(
        "host_environment_renamed_unsafe_host",
        "runtime.environment.type",
        "environment host is unsafe_host; what it claimed about isolation was dropped, for it isolates nothing",
    ));
    receipts
}
