//! `qit conformance`: what scripts read.

use crate::program::run;

#[test]
fn the_report_has_the_agreed_form() {
    // DESIGN, Outputs that others script
    let folder = tempfile::tempdir().unwrap();
    for (mechanism, builtin) in [
        ("tool", "kit"),
        ("checkpoint-store", "memory"),
        ("provider", "scripted"),
        ("provider", "openai-chat"),
    ] {
        let arguments = [
            "conformance",
            mechanism,
            "--builtin",
            builtin,
            "--format",
            "json",
        ];
        let object = run(folder.path(), &arguments)
            .exits(0)
            .json_as("conformance");
        let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "checks",
                "contract_version",
                "failed",
                "implementation",
                "mechanism",
                "not_claimed",
                "passed"
            ]
        );
        assert_eq!(object["mechanism"], mechanism);
        assert_eq!(object["implementation"], builtin);
        assert_eq!(object["contract_version"], 1);
        assert_eq!(object["failed"], 0);
        assert!(object["passed"].as_u64().unwrap() > 0);
        let check = object["checks"][0].as_object().unwrap();
        assert_eq!(
            check.keys().collect::<Vec<_>>(),
            ["detail", "id", "rule", "status"]
        );
    }
}

#[test]
fn the_sqlite_store_proves_its_class_with_processes_of_this_program() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "conformance",
        "checkpoint-store",
        "--builtin",
        "sqlite",
        "--only",
        "K36",
        "--only",
        "K1.",
        "--format",
        "json",
    ];
    let object = run(folder.path(), &arguments).exits(0).json();
    assert!(object["passed"].as_u64().unwrap() >= 2, "{object}");
    assert_eq!(object["not_claimed"], 0, "{object}");
}

#[test]
fn a_mechanism_without_a_suite_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    for mechanism in ["event-sink", "sandbox", "evaluator"] {
        let said = run(folder.path(), &["conformance", mechanism, "--builtin", "x"]).exits(2);
        assert!(said.stderr.contains("not part of this release"), "{said:?}");
    }
    for mechanism in ["tool", "provider"] {
        run(folder.path(), &["conformance", mechanism, "--builtin", "x"]).exits(2);
    }
}
