//! `qit demo`.

use crate::program::run;

#[test]
fn the_demo_goes_on_in_a_second_process() {
    let folder = tempfile::tempdir().unwrap();
    let object = run(folder.path(), &["demo", "--format", "json"])
        .exits(0)
        .json_as("demo");
    assert_eq!(
        object["final_result"],
        "Indexed 2 notes: Session, Artifact."
    );
    let processes = object["processes"].as_array().unwrap();
    assert_eq!(processes[0]["lifecycle"], "paused");
    assert_eq!(processes[0]["tool_calls"], 1);
    assert_eq!(processes[1]["lifecycle"], "completed");
    assert_eq!(processes[1]["tool_calls"], 2);
    assert_ne!(processes[0]["pid"], processes[1]["pid"]);
    let lineage = object["lineage"].as_array().unwrap();
    assert_eq!(lineage[0]["lifecycle"], "created");
    assert_eq!(lineage.last().unwrap()["lifecycle"], "completed");
    assert_ne!(
        lineage[0]["owner_run_id"],
        lineage.last().unwrap()["owner_run_id"]
    );
    assert_eq!(object["next"].as_array().unwrap().len(), 3);
    for command in object["next"].as_array().unwrap() {
        let words: Vec<&str> = command.as_str().unwrap().split(' ').skip(1).collect();
        run(folder.path(), &words).exits(0);
    }
    let again = run(folder.path(), &["demo"]).exits(2);
    assert!(
        again.stderr.contains("exists already and is left as it is"),
        "{again:?}"
    );
}

#[test]
fn the_demo_prints_its_story() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), &["demo"]).exits(0);
    assert!(
        said.stdout
            .starts_with("Indexed 2 notes: Session, Artifact.\n"),
        "{said:?}"
    );
    assert!(
        said.stdout.contains("look further\n  qit session inspect "),
        "{said:?}"
    );
    assert_eq!(said.stderr.matches("process ").count(), 2, "{said:?}");
}
