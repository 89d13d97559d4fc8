//! What is written reads back, and nothing else does.

use proptest::prelude::*;

use super::*;
use crate::canonical_json::any_json_for_tests;

/// The example of section 4: an undeclared call whose worker ran past its deadline.
const EXAMPLE: &str = r#"{"schema_version":"qitos.tool_result/v2","status":"timed_out","success":false,"tool_name":"shell","action_id":"call_7","output":null,"model_output":null,
 "error":"deadline of 5 s passed","error_kind":"execution","error_code":"timeout","recoverable":false,"recovery_hint":"check before repeating","next_action":null,
 "complete":false,"truncated":false,"omitted":{},"attempts":1,"latency_ms":7003,"declared_effects":[],"filesystem_changes":[],"artifact_refs":[],
 "normalized_request":{},"provenance":{},"worker_still_running":true,"attempt_id":"attempt_00112233445566778899aabbccddeeff",
 "effect_ref":"effect:undeclared:batch_request_0123456789abcdef01234567:0","effect_state":"unknown","idempotency_ref":null,
 "retry_disposition":"blocked_worker_running","reconciliation_required":true,"outcome_unknown":true,"late_result":false,"owner_generation":3,
 "stale_owner":false,"batch_closure":{},"metadata":{}}"#;

#[test]
fn the_example_of_the_specification_is_what_the_constructor_makes() {
    let example = ToolResult::from_bytes(EXAMPLE.as_bytes()).unwrap();
    let made = ToolResult::ended(
        identity(),
        &EffectClass::Undeclared,
        End::TimedOut {
            worker_running: true,
        },
        None,
        attempt(),
    );
    let mut expected: Value = serde_json::from_str(EXAMPLE).unwrap();
    assert_eq!(expected.as_object().unwrap().len(), 36);
    assert_eq!(
        canonical_json::to_bytes(&expected).unwrap(),
        example.canonical_bytes()
    );
    expected["error"] = json!("the deadline passed");
    assert_eq!(
        canonical_json::to_bytes(&expected).unwrap(),
        made.canonical_bytes()
    );
}

#[test]
fn res_1_the_reader_names_each_fault() {
    let good: Value = serde_json::from_str(EXAMPLE).unwrap();
    let code = |value: Value| ToolResult::from_value(value).unwrap_err().code().to_owned();
    for key in good.as_object().unwrap().keys() {
        let mut missing = good.clone();
        missing.as_object_mut().unwrap().remove(key);
        assert_eq!(code(missing), "missing_canonical_field", "{key}");
    }
    for (key, value, expected) in [
        ("extra", json!(1), "unknown_canonical_field"),
        (
            "schema_version",
            json!("qitos.tool_result/v1"),
            "unknown_schema_version",
        ),
        ("schema_version", json!(2), "unknown_schema_version"),
        ("status", json!("failed"), "invalid_terminal_status"),
        ("status", json!(1), "invalid_canonical_field"),
        ("error_kind", json!("network"), "invalid_error_kind"),
        ("effect_state", json!("maybe"), "invalid_effect_state"),
        (
            "retry_disposition",
            json!("later"),
            "invalid_retry_disposition",
        ),
        ("attempt_id", json!("attempt-1"), "invalid_attempt_identity"),
        ("attempt_id", json!(1), "invalid_attempt_identity"),
        ("batch_closure", json!([]), "invalid_batch_closure"),
        (
            "batch_closure",
            json!({"slots": []}),
            "invalid_batch_closure",
        ),
        ("artifact_refs", json!([{}]), "invalid_artifact_ref"),
        ("artifact_refs", json!({}), "invalid_canonical_field"),
        ("attempts", json!(-1), "invalid_canonical_field"),
        ("attempts", json!(1.0), "invalid_canonical_field"),
        ("latency_ms", json!(-0.5), "invalid_canonical_field"),
        ("latency_ms", json!("7"), "invalid_canonical_field"),
        ("omitted", json!({"rows": -1}), "invalid_canonical_field"),
        (
            "next_action",
            json!({"args": {}}),
            "invalid_canonical_field",
        ),
        (
            "next_action",
            json!({"name": "a", "more": 1}),
            "invalid_canonical_field",
        ),
        (
            "filesystem_changes",
            json!(["a"]),
            "invalid_canonical_field",
        ),
        ("metadata", Value::Null, "invalid_canonical_field"),
        ("owner_generation", json!("3"), "invalid_canonical_field"),
        ("effect_ref", json!("a b"), "invalid_canonical_field"),
        ("tool_name", json!(1), "invalid_canonical_field"),
        ("success", Value::Null, "invalid_canonical_field"),
    ] {
        let mut changed = good.clone();
        changed[key] = value;
        assert_eq!(code(changed), expected, "{key}");
    }
    assert_eq!(code(json!([])), "invalid_canonical_payload");
    let bytes = |text: &str| ToolResult::from_bytes(text.as_bytes()).unwrap_err();
    assert_eq!(bytes("").code(), "invalid_canonical_payload");
    let infinite = EXAMPLE.replace("7003", "1e999");
    assert_eq!(bytes(&infinite).code(), "non_serializable_value");
    let mut deep = json!(1);
    for _ in 0..RESULT_DEPTH {
        deep = json!([deep]);
    }
    let mut changed = good.clone();
    changed["output"] = deep;
    assert_eq!(code(changed), "non_serializable_value");
}

#[test]
fn res_1_artifact_references_are_exact_and_unique() {
    let reference = ArtifactRef::of_body("tool-result-output", "text/plain", b"body");
    let made = ToolResult::success(json!({"big": true}))
        .unwrap()
        .with_artifact_output(reference.clone())
        .unwrap();
    assert_eq!(made.artifact_refs(), std::slice::from_ref(&reference));
    assert_eq!(made.output()["artifact"]["sha256"], json!(reference.sha256));
    let twice = made.clone().with_artifact(reference.clone()).unwrap();
    assert_eq!(twice, made);
    let value = canonical_json::read_canonical(made.canonical_bytes()).unwrap();
    assert_eq!(ToolResult::from_value(value.clone()), Ok(made));
    let code = |change: &dyn Fn(&mut Value)| {
        let mut changed = value.clone();
        change(&mut changed["artifact_refs"]);
        ToolResult::from_value(changed)
            .unwrap_err()
            .code()
            .to_owned()
    };
    let first = value["artifact_refs"][0].clone();
    let changes: [&dyn Fn(&mut Value); 6] = [
        &|refs| refs.as_array_mut().unwrap().push(first.clone()),
        &|refs| {
            refs[0].as_object_mut().unwrap().remove("model_summary");
        },
        &|refs| refs[0]["extra"] = json!(1),
        &|refs| refs[0]["artifact_id"] = json!("/etc/passwd"),
        &|refs| refs[0]["model_summary"] = json!("x".repeat(1025)),
        &|refs| refs[0]["encoding"] = json!("text"),
    ];
    for change in changes {
        assert_eq!(code(change), "invalid_artifact_ref");
    }
}

#[test]
fn exe_14_a_closure_round_trips_and_a_reference_leaves_it_out() {
    let result = ToolResult::success(json!(1)).unwrap();
    let plain = result.result_ref();
    let closure = BatchClosure {
        batch_id: "batch_1".parse().unwrap(),
        slots: vec![
            result.closed_slot(),
            ClosedSlot {
                action_id: "call_8".into(),
                state: SlotClosure::Open,
                attempt_id: None,
                result_ref: None,
            },
        ],
    };
    // An anonymous result has no line of its own in a closure that is read back.
    let mut named = closure.clone();
    named.slots[0].action_id = "call_7".into();
    let closed = result.with_batch_closure(named.clone());
    assert_eq!(closed.result_ref(), plain);
    assert_eq!(plain.len(), "result:".len() + 64);
    let again = ToolResult::from_bytes(closed.canonical_bytes()).unwrap();
    assert_eq!(again.batch_closure(), Some(&named));
    assert_eq!(again.canonical_bytes(), closed.canonical_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_value_under_any_key_makes_the_reader_panic(
        key in any::<prop::sample::Index>(),
        value in any_json_for_tests(),
    ) {
        let mut changed: Value = serde_json::from_str(EXAMPLE).unwrap();
        let keys: Vec<String> = changed.as_object().unwrap().keys().cloned().collect();
        changed[key.get(&keys).as_str()] = value;
        if let Ok(read) = ToolResult::from_value(changed.clone()) {
            prop_assert_eq!(read.canonical_bytes(), canonical_json::to_bytes(&changed).unwrap());
        }
    }

    #[test]
    fn no_changed_byte_makes_the_reader_panic(position in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(read) = ToolResult::from_bytes(&bytes) {
            prop_assert_eq!(ToolResult::from_bytes(read.canonical_bytes()), Ok(read));
        }
    }

    #[test]
    fn res_4_any_output_round_trips(output in any_json_for_tests(), shown in any_json_for_tests()) {
        let made = ToolResult::success(output).unwrap().with_model_output(shown).unwrap();
        let read = ToolResult::from_bytes(made.canonical_bytes()).unwrap();
        prop_assert_eq!(read.canonical_bytes(), made.canonical_bytes());
        prop_assert_eq!(read, made);
    }
}
