use qitos_config::{ConfigErrorCode, MAX_ERRORS};
use qitos_contracts::error::{ContractError, Performed, Retry};

use crate::{document, json, yaml};

const CANARY: &str = "sk-canary-7f3a9";

#[track_caller]
fn check_position(text: &str, field: &str, line: u32, column: u32) {
    let errors = yaml(text).unwrap_err();
    let error = errors
        .errors()
        .iter()
        .find(|error| error.field == field)
        .unwrap_or_else(|| panic!("no error for {field}: {errors}"));
    assert_eq!((error.line, error.column), (Some(line), Some(column)));
}

#[test]
fn errors_point_at_the_offending_key_or_value() {
    // CFG-7, check cfg.positions_and_no_value_echo
    check_position(&document("{name: a, nmae: b}", ""), "agent.nmae", 2, 18);
    check_position(&document("{name: 12}", ""), "agent.name", 2, 15);
    check_position(&document("{seed: 1}", ""), "agent.name", 2, 8);
    check_position(&document("\n  name: a\n  seed: -1", ""), "agent.seed", 4, 9);
    check_position(&document("{name: ünï, seed: x}", ""), "agent.seed", 2, 26);
    check_position(&document("{name: a}", "metadata: {a: 1, a: 2}"), "", 8, 18);
    check_position("schema: [", "", 1, 9);
}

#[test]
fn no_value_is_ever_echoed() {
    // CFG-7
    for text in [
        document(&format!("{{name: a, seed: {CANARY}}}"), ""),
        document(&format!("{{name: a, protocol: {CANARY}!}}"), ""),
        document("{name: a}", &format!("failure_policy: {{tool: {CANARY}}}")),
        document(
            "{name: a}",
            &format!("context: {{contributors: [{CANARY} x]}}"),
        ),
        document("{name: a}", &format!("api_key: {CANARY}")),
        document("{name: a}", &format!("metadata: {{a: \"{CANARY}${{X}}\"}}")),
        document("{name: a}", &format!("metadata: {{a: !{CANARY} b}}")),
        document("{name: a}", &format!("metadata: {{a: *{CANARY}}}")),
        document("{name: a}", &format!("metadata: {{a: \"{CANARY}")),
        document(CANARY, ""),
        document("{name: a}", "").replace(
            "model: m}",
            &format!("model: m, base_url: \"https://u:{CANARY}@h\"}}"),
        ),
        document("{name: a}", "").replace(
            "model: m}",
            &format!("model: m, credential: {{ref: \"{CANARY} \"}}}}"),
        ),
        document("{name: a}", "").replace("workspace: .", &format!("workspace: ./{CANARY}")),
        document("{name: a}", "").replace("schema: qitos.agent", &format!("schema: {CANARY}")),
    ] {
        let errors = yaml(&text).unwrap_err();
        let shown = format!(
            "{errors} {errors:?} {}",
            serde_json::to_string(&errors).unwrap()
        );
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn keys_that_look_like_credentials_point_to_credentials() {
    // CFG-7
    for key in ["api_key", "token", "password"] {
        let errors = yaml(&document("{name: a}", &format!("{key}: x"))).unwrap_err();
        let error = &errors.errors()[0];
        assert_eq!(error.code, ConfigErrorCode::ConfigUnknownField);
        assert!(error.remediation.contains("model.credential.ref"));
    }
}

#[test]
fn an_unknown_key_names_path_siblings_and_nearest_spelling() {
    // CFG-4, check cfg.unknown_key_each_level (with the fixtures)
    let errors = yaml(&document("{name: a}", "failure_policy: {tol: continue}")).unwrap_err();
    let error = &errors.errors()[0];
    assert_eq!(error.field, "failure_policy.tol");
    assert_eq!(
        error.remediation,
        "did you mean tool? allowed here: tool, provider_stream"
    );
}

#[test]
fn a_duplicate_key_names_both_positions() {
    // CFG-3, check cfg.duplicate_key_deep
    let errors = yaml(&document(
        "{name: a}",
        "metadata:\n  a:\n    b: 1\n    b: 2\n",
    ))
    .unwrap_err();
    let error = &errors.errors()[0];
    assert_eq!(error.code, ConfigErrorCode::ConfigSyntaxInvalid);
    assert_eq!(
        error.message,
        "a key is given twice: first at line 10 column 5, again at line 11 column 5"
    );
}

#[test]
fn independent_errors_come_together_sorted_by_position() {
    // CFG-7
    let text = document(
        "{name: '', seed: -1, extra: 1}",
        "metadata: {a: 1e999}\nbudget: {}\n",
    );
    let errors = yaml(&text).unwrap_err();
    let fields: Vec<&str> = errors
        .errors()
        .iter()
        .map(|error| error.field.as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "agent.name",
            "agent.seed",
            "agent.extra",
            "metadata.a",
            "budget"
        ]
    );
    assert_eq!(errors.code(), "config_schema_invalid");
    assert_eq!(
        (errors.retry(), errors.performed()),
        (Retry::Never, Performed::No)
    );
}

#[test]
fn at_most_twenty_errors_are_returned_and_they_are_the_first() {
    // CFG-7
    for count in [MAX_ERRORS - 1, MAX_ERRORS, MAX_ERRORS + 1, 1000] {
        let many: String = (0..count)
            .map(|index| format!("wrong_{index:04}: 1\n"))
            .collect();
        let errors = yaml(&document("{name: a}", &many)).unwrap_err();
        assert_eq!(errors.errors().len(), count.min(MAX_ERRORS));
        assert_eq!(errors.errors()[0].field, "wrong_0000");
    }
}

#[test]
fn json_is_read_as_json_and_nothing_more() {
    // CFG-1
    let strict = r#"{"schema":"qitos.agent","agent":{"name":"a\u00e9\ud83d\ude00"},"model":{"provider":"fake","model":"m"},
        "tools":{},"runtime":{"environment":{"type":"local","workspace":"."}},"budgets":{"max_steps":3}}"#;
    assert_eq!(json(strict).unwrap().agent().name(), "aé😀");
    // Each case: the text, and the error stands so many characters after the start of the needle.
    for (text, needle, after) in [
        (strict.replace("\"name\"", "name"), "name", 0),
        (strict.replace("{}", "{},}"), ",}", 1),
        (strict.replace("3}", "3,}"), ",}", 1),
        (strict.replace("3}", "03}"), "03", 0),
        (strict.replace("3}", "3} // x"), "3} //", 3),
        (strict.replace("{}", "{} # x\n"), "{} #", 3),
        (strict.replace("\"m\"", "'m'"), "'m'", 0),
        (strict.replace("\"m\"", "True"), "True", 0),
        (strict.replace("\\ude00", "x"), "\\ud83d", 6),
        (
            strict.replace("\"tools\":", "\"agent\":"),
            "\"agent\":{}",
            0,
        ),
        (format!("{strict} []"), "[]", 0),
        (String::new(), "", 0),
    ] {
        let at = text.find(needle).unwrap() + after;
        let before = &text[..at];
        let line = u32::try_from(before.matches('\n').count() + 1).unwrap();
        let start = before.rfind('\n').map_or(0, |index| index + 1);
        let column = u32::try_from(before[start..].chars().count() + 1).unwrap();
        let errors = json(&text).unwrap_err();
        let error = &errors.errors()[0];
        assert_eq!(error.code, ConfigErrorCode::ConfigSyntaxInvalid, "{text}");
        assert_eq!(
            (error.line, error.column),
            (Some(line), Some(column)),
            "{text}"
        );
    }
}
