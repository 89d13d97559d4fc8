use qitos_config::{
    ConfigErrorCode, MAX_BYTES, MAX_DEPTH, MAX_METADATA_BYTES, MAX_NODES, MAX_SCALAR_BYTES,
};

use crate::{document, json, yaml};

#[track_caller]
fn check_bound(build: impl Fn(usize) -> String, limit: usize, code: ConfigErrorCode) {
    for (size, fits) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
        let loaded = yaml(&build(size));
        match loaded {
            Ok(_) => assert!(fits, "{size} was accepted"),
            Err(errors) => {
                assert!(!fits, "{size} was refused: {errors}");
                assert_eq!(errors.errors()[0].code, code);
            }
        }
    }
}

#[test]
fn a_document_holds_at_most_256_kib() {
    // CFG-1
    let start = document("{name: a}", "#");
    check_bound(
        |size| format!("{start}{}", "x".repeat(size - start.len())),
        MAX_BYTES,
        ConfigErrorCode::ConfigSyntaxInvalid,
    );
}

#[test]
fn nesting_stops_at_32_levels_in_both_formats() {
    // CFG-1: the root and `metadata` are two levels
    let nested = |size: usize| format!("{}{}", "[".repeat(size - 2), "]".repeat(size - 2));
    check_bound(
        |size| document("{name: a}", &format!("metadata: {{a: {}}}", nested(size))),
        MAX_DEPTH,
        ConfigErrorCode::ConfigSyntaxInvalid,
    );
    let in_json = |size: usize| {
        format!(
            r#"{{"schema":"qitos.agent","agent":{{"name":"a"}},"model":{{"provider":"fake","model":"m"}},"tools":{{}},"runtime":{{"environment":{{"type":"local","workspace":"."}}}},"budgets":{{"max_steps":3}},"metadata":{{"a":{}}}}}"#,
            nested(size)
        )
    };
    assert!(json(&in_json(MAX_DEPTH)).is_ok());
    assert!(json(&in_json(MAX_DEPTH + 1)).is_err());
    assert!(json(&format!("{}1", "[".repeat(100_000))).is_err());
    assert!(yaml(&format!("{}1", "[".repeat(100_000))).is_err());
    assert!(yaml(&"- ".repeat(100_000)).is_err());
    assert!(yaml(&"? ".repeat(100_000)).is_err());
}

#[test]
fn a_document_holds_at_most_20000_nodes() {
    // CFG-1: keys count; 31 nodes stand outside of the list
    let with = |count: usize| {
        document(
            "{name: a}",
            &format!("metadata: {{a: [{}]}}", "1,".repeat(count)),
        )
    };
    check_bound(
        |size| with(size - 31),
        MAX_NODES,
        ConfigErrorCode::ConfigSyntaxInvalid,
    );
}

#[test]
fn a_scalar_holds_at_most_64_kib() {
    // CFG-1
    check_bound(
        |size| document("{name: a}", &format!("dataset: [\"{}\"]", "x".repeat(size))),
        MAX_SCALAR_BYTES,
        ConfigErrorCode::ConfigSyntaxInvalid,
    );
}

#[test]
fn metadata_holds_at_most_64_kib_of_canonical_json() {
    // {"a":"…","b":"…"} is 15 bytes of punctuation
    check_bound(
        |size| {
            let rest = size - 15 - 40_000;
            document(
                "{name: a}",
                &format!(
                    "metadata: {{a: \"{}\", b: \"{}\"}}",
                    "x".repeat(40_000),
                    "y".repeat(rest)
                ),
            )
        },
        MAX_METADATA_BYTES,
        ConfigErrorCode::ConfigSchemaInvalid,
    );
}

#[test]
fn the_alias_bomb_is_refused_without_expanding_it() {
    // CFG-2, check cfg.bomb_tag_merge_refused
    let mut bomb = String::from(
        "a: &a [\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\",\"lol\"]\n",
    );
    for (before, name) in ('a'..='h').zip('b'..='i') {
        bomb.push_str(&format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{before}"); 9].join(",")
        ));
    }
    let started = std::time::Instant::now();
    let errors = yaml(&bomb).unwrap_err();
    // Ten milliseconds in a release build; the margin is for unoptimised code on a busy machine.
    assert!(started.elapsed().as_millis() < 200);
    assert_eq!(
        errors.errors()[0].code,
        ConfigErrorCode::ConfigSyntaxInvalid
    );
    assert_eq!(
        (errors.errors()[0].line, errors.errors()[0].column),
        (Some(1), Some(7))
    );
}
