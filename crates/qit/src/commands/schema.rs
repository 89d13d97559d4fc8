//! `qit schema`: the JSON Schema of `agent.yaml` (CFG-34).

use qitos::config::json_schema;
use serde_json::json;

use crate::answer::{Answer, Outcome};
use crate::args::Schema;
use crate::failure::Failure;

/// The schema as it is written to files: indented, with a line end.
pub(crate) fn text() -> String {
    // A tree of plain values always serialises; its compact form is the same document.
    let schema = json_schema();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_else(|_| schema.to_string());
    text.push('\n');
    text
}

/// Prints or writes it.
pub(crate) fn perform(arguments: &Schema) -> Outcome {
    let Some(path) = &arguments.output else {
        return Ok(Answer::new(text(), json_schema()));
    };
    std::fs::write(path, text()).map_err(|error| Failure::file("write the schema", &error))?;
    let shown = path.to_string_lossy();
    Ok(Answer::new(
        format!("wrote {shown}"),
        json!({"written": shown}),
    ))
}
