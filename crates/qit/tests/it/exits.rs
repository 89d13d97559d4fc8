//! Exit statuses that need more than a mistake on the command line (section 4 of the composition specification).

use crate::program::{change, notes, run};

const CONFIG: &str = "notes_agent/agent.yaml";

#[test]
fn a_run_that_fails_closed_on_its_tool_exits_with_1() {
    // CFG-32, table of section 4: 1
    let folder = tempfile::tempdir().unwrap();
    notes(folder.path());
    change(
        folder.path(),
        "tool: summarize_note",
        "tool: summarise_note",
    );
    let arguments = ["run", "--config", CONFIG, "--format", "json"];
    let object = run(folder.path(), &arguments).exits(1).json();
    assert_eq!(object["stop_reason"], "unrecoverable_error", "{object}");
    assert_eq!(object["final_result"], serde_json::Value::Null, "{object}");
    assert_eq!(object["tool_calls"], 0, "{object}");
}
