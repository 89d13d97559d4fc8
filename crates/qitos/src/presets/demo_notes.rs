//! Preset `demo_notes`: two built-in notes and a tool that summarizes them.
//!
//! Pure functions only: no files, no network, no environment. The `notes` template of `qit new` and the offline
//! examples use it (CLI-11, PRV-105, PRV-106).

use std::sync::Arc;

use qitos_contracts::tool::function::Toolset;
use qitos_contracts::tool::{Tool, ToolError};

/// Title and text of each note, in the order of their index.
const NOTES: [(&str, &str); 2] = [
    (
        "Session",
        "a durable container with one head, continued by whichever process owns it.",
    ),
    (
        "Artifact",
        "an immutable body of bytes that is named by its digest.",
    ),
];

/// Summarizes one of the built-in notes as `Title: text`.
///
/// # Arguments
/// * `index` - which note, counted from 0; there are two
///
/// # Errors
/// `note_not_found` for any other index; the model may choose another one.
#[crate::tool(crate = crate, read_only, concurrency_safe, idempotent)]
pub fn summarize_note(index: u32) -> Result<String, ToolError> {
    let note = usize::try_from(index)
        .ok()
        .and_then(|index| NOTES.get(index));
    note.map(|(title, text)| format!("{title}: {text}"))
        .ok_or_else(|| {
            ToolError::new("note_not_found", "there is no note with this index")
                .recoverable()
                .with_hint("The notes have the indexes 0 and 1.")
        })
}

/// The preset as a toolset without a namespace: its one tool is `summarize_note`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DemoNotes;

impl Toolset for DemoNotes {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn tools(self: Arc<Self>) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(SummarizeNote)]
    }
}

#[cfg(test)]
mod tests {
    use qitos_contracts::tool::{EffectDeclaration, ToolRegistry};

    use super::*;

    #[test]
    fn the_two_notes_are_titled_session_and_artifact() {
        assert!(summarize_note(0).unwrap().starts_with("Session: "));
        assert!(summarize_note(1).unwrap().starts_with("Artifact: "));
        assert_eq!(summarize_note(2).unwrap_err().code, "note_not_found");
    }

    #[test]
    fn the_preset_registers_one_pure_tool() {
        let mut registry = ToolRegistry::new();
        registry.register_toolset(Arc::new(DemoNotes)).unwrap();
        let spec = SummarizeNote.spec();
        assert_eq!(spec.name.as_ref(), "summarize_note");
        assert_eq!(spec.effect, EffectDeclaration::Pure);
        assert!(spec.required_ops.is_empty());
        assert_eq!(spec.input_schema["properties"]["index"]["minimum"], 0);
    }
}
