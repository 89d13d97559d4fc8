use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::canonical_json;
use crate::limits::INLINE_OUTPUT_BYTES;
use crate::tool::call::{ErrorKind, Returned, ToolError};
use crate::tool::effect::EffectClass;
use crate::tool::result::{AttemptFacts, End, ResultIdentity};

fn ended(class: &EffectClass, end: End) -> ToolResult {
    let identity = ResultIdentity {
        tool_name: "shell".into(),
        call_id: "call_7".parse().unwrap(),
        slot_id: "batch_1:0".parse().unwrap(),
        owner_generation: 3,
    };
    let attempt = AttemptFacts {
        attempt_id: "attempt_00112233445566778899aabbccddeeff".parse().unwrap(),
        attempts: 1,
        latency_ms: 1,
    };
    ToolResult::ended(identity, class, end, None, attempt)
}

fn returned(value: Value) -> ToolResult {
    ended(&EffectClass::Pure, End::Returned(Returned::Value(value)))
}

fn own(result: ToolResult) -> ToolResult {
    ended(
        &EffectClass::Pure,
        End::Returned(Returned::Result(Box::new(result))),
    )
}

/// Settles with a store that takes everything; also gives what it took.
fn stored(result: ToolResult, limit: usize) -> (ToolResult, Vec<Spill>) {
    let bodies = spills(&result, limit);
    let outcomes = bodies
        .iter()
        .map(|spill| SpillOutcome {
            part: spill.part,
            stored: Ok(ArtifactRef::of_body(
                "tool-result-output",
                spill.media_type,
                &spill.body,
            )),
        })
        .collect();
    (settle(result, limit, outcomes), bodies)
}

fn refused(result: ToolResult, limit: usize) -> ToolResult {
    let outcomes = spills(&result, limit)
        .iter()
        .map(|spill| SpillOutcome {
            part: spill.part,
            stored: Err("artifact_store_limit".into()),
        })
        .collect();
    settle(result, limit, outcomes)
}

fn shown(view: &ModelView) -> &str {
    view.model_output.as_str().unwrap()
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

#[test]
fn prj_2_the_batch_is_dealt_in_declaration_order() {
    assert_eq!(result_limit(1, 0, &[]), 50_000);
    assert_eq!(result_limit(4, 3, &[]), 50_000);
    assert_eq!(result_limit(5, 0, &[]), 40_000);
    assert_eq!(result_limit(7, 0, &[]), 28_572);
    assert_eq!(result_limit(7, 6, &[]), 28_571);
    assert_eq!(result_limit(10_000, 9_999, &[]), 512);
    assert_eq!(result_limit(0, 0, &[]), 50_000);
    // Further limits only tighten.
    assert_eq!(result_limit(1, 0, &[Some(100), None]), 100);
    assert_eq!(result_limit(1, 0, &[Some(1_000_000)]), 50_000);
    for slots in 1..=128 {
        let dealt: usize = (0..slots)
            .map(|index| result_limit(slots, index, &[]))
            .sum();
        assert!(dealt <= 200_000, "{slots}");
    }
}

#[test]
fn prj_3_a_view_has_its_fourteen_keys_and_nothing_else() {
    let reference = ArtifactRef::of_body("store", "text/plain", b"x");
    let result = own(ToolResult::success(json!({"rows": 2}))
        .unwrap()
        .with_metadata("secret", json!("metadata"))
        .with_provenance("source", json!("provenance"))
        .with_normalized_request(Map::from_iter([("q".into(), json!("request"))]))
        .with_artifact(reference.clone())
        .unwrap());
    let text = project(&result, 1000).to_text();
    let value = canonical_json::read_canonical(text.as_bytes()).unwrap();
    let keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        keys,
        [
            "action_id",
            "artifacts",
            "effect_state",
            "error",
            "error_code",
            "model_output",
            "next_action",
            "omissions",
            "outcome_unknown",
            "recoverable",
            "recovery_hint",
            "schema_version",
            "status",
            "tool_name",
        ]
    );
    assert_eq!(value["schema_version"], VIEW_SCHEMA);
    assert_eq!(value["model_output"], json!({"rows": 2}));
    assert_eq!(
        value["artifacts"],
        json!([{
            "artifact_id": reference.artifact_id,
            "byte_length": 1,
            "media_type": "text/plain",
            "model_summary": null,
            "required": true,
            "sha256": reference.sha256,
        }])
    );
    for hidden in ["metadata", "provenance", "request", "tool-result-output"] {
        assert!(!text.contains(hidden), "{hidden}");
    }
}

#[test]
fn prj_4_the_source_is_the_first_that_there_is() {
    let view = |result: ToolResult| project(&own(result), 1000).model_output;
    let output = json!({"model_summary": "short", "rows": [1]});
    let both = ToolResult::success(output.clone())
        .unwrap()
        .with_model_output(json!({"shown": 1}))
        .unwrap();
    assert_eq!(view(both), json!({"shown": 1}));
    assert_eq!(view(ToolResult::success(output).unwrap()), json!("short"));
    let unnamed = json!({"model_summary": 5});
    assert_eq!(view(ToolResult::success(unnamed.clone()).unwrap()), unnamed);
    let failure = ToolResult::failure(ErrorKind::Semantic, "no", "in words");
    assert_eq!(view(failure.clone()), json!("in words"));
    assert_eq!(view(failure.with_output(json!(1)).unwrap()), json!(1));
    assert_eq!(view(ToolResult::success(Value::Null).unwrap()), Value::Null);
}

#[test]
fn tck_28_views_are_bounded_and_the_artifact_holds_every_byte() {
    for unit in ["x", "é", "\u{1F600}"] {
        // A debug build redacts slowly, so the large sizes are few.
        let limits: &[usize] = if unit == "x" { &[512, 50_000] } else { &[512] };
        for limit in limits.iter().copied() {
            for size in [limit - 1, limit] {
                let text = unit.repeat(size);
                let (settled, bodies) = stored(returned(json!(text)), limit);
                let view = project(&settled, limit);
                assert_eq!(shown(&view), text);
                assert_eq!((view.omissions, view.cut), (None, None));
                assert!(bodies.iter().all(|spill| spill.part == SpillPart::Output));
            }
            for size in [limit + 1, (limit * 10).min(50_001)] {
                let text = unit.repeat(size);
                let (settled, bodies) = stored(returned(json!(text)), limit);
                assert_eq!(bodies.len(), 1);
                assert_eq!(bodies[0].body, text.as_bytes());
                let view = project(&settled, limit);
                let omissions = view.omissions.clone().unwrap();
                let id = ArtifactRef::of_body("r", "t", text.as_bytes()).artifact_id;
                assert_eq!(omissions.artifact_id.as_deref(), Some(id.as_str()));
                assert_eq!(omissions.reason.as_ref(), "over_limit");
                assert!(characters(shown(&view)) <= limit);
                let kept =
                    characters(&shown(&view).replace(|character| !unit.contains(character), ""));
                // The marker line holds no `x` and no character of the others.
                assert_eq!(kept as u64 + omissions.characters, size as u64);
                let marker = format!(
                    "[{} of {size} characters omitted; artifact {id}]",
                    omissions.characters
                );
                let (head, tail) = shown(&view).split_once(&format!("\n{marker}\n")).unwrap();
                let (head, tail) = (characters(head), characters(tail));
                assert!(
                    head * 3 <= tail * 7 + 7 && tail * 7 <= head * 3 + 10,
                    "{head} {tail}"
                );
                assert_eq!(settled.artifact_refs().len(), 1);
                // PRJ-9: again, and from the log, it is the same.
                assert_eq!(project(&settled, limit), view);
                let read = ToolResult::from_bytes(settled.canonical_bytes()).unwrap();
                assert_eq!(project(&read, limit).to_text(), view.to_text());
            }
        }
    }
}

#[test]
fn prj_6_a_cut_gives_its_original_and_shown_size() {
    let (settled, _) = stored(returned(json!("x".repeat(1000))), 600);
    let view = project(&settled, 600);
    let cut = view.cut.unwrap();
    assert_eq!(cut.original, 1000);
    assert_eq!(cut.original - cut.shown, view.omissions.unwrap().characters);
}

#[test]
fn prj_1_a_large_output_leaves_the_log_and_its_excerpt_stays() {
    let limit = 50_000;
    let rows: Vec<Value> = (0..50_000).map(|row| json!({ "row": row })).collect();
    let output = Value::Array(rows);
    let (settled, bodies) = stored(returned(output.clone()), limit);
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0].part, SpillPart::OutputShown);
    assert_eq!(bodies[0].media_type, "application/json");
    assert_eq!(canonical_json::read_canonical(&bodies[0].body), Ok(output));
    assert_eq!(
        settled.output()["artifact"]["artifact_id"],
        settled.artifact_refs()[0].artifact_id.as_str()
    );
    assert!(settled.canonical_bytes().len() < INLINE_OUTPUT_BYTES);
    let view = project(&settled, limit);
    assert!(shown(&view).starts_with("[{\"row\":0},"));
    assert!(shown(&view).ends_with("{\"row\":49999}]"));
    assert!(characters(shown(&view)) <= limit);
    assert!(view.omissions.is_some());
}

#[test]
fn ctx_42_a_summary_is_shown_whole_even_when_its_output_leaves() {
    let output = json!({"model_summary": "two words", "body": "x".repeat(INLINE_OUTPUT_BYTES)});
    let (settled, bodies) = stored(returned(output), 1000);
    assert_eq!(bodies[0].part, SpillPart::Output);
    let view = project(&settled, 1000);
    assert_eq!(shown(&view), "two words");
    assert_eq!(view.omissions, None);
}

#[test]
fn a_deep_but_short_output_leaves_the_log_and_is_shown_as_text() {
    let deep = (0..80).fold(json!(1), |inner, _| json!([inner]));
    let (settled, bodies) = stored(returned(deep.clone()), 1000);
    assert_eq!(bodies.len(), 1);
    let text = String::from_utf8(canonical_json::to_bytes(&deep).unwrap()).unwrap();
    assert_eq!(shown(&project(&settled, 1000)), text);
}

#[test]
fn what_a_tool_wants_shown_is_spilled_beside_its_output() {
    let result = own(ToolResult::success(json!("y".repeat(INLINE_OUTPUT_BYTES)))
        .unwrap()
        .with_model_output(json!("x".repeat(INLINE_OUTPUT_BYTES)))
        .unwrap());
    let (settled, bodies) = stored(result, 2000);
    let parts: Vec<SpillPart> = bodies.iter().map(|spill| spill.part).collect();
    assert_eq!(parts, [SpillPart::Output, SpillPart::Shown]);
    assert_eq!(settled.artifact_refs().len(), 2);
    assert!(settled.canonical_bytes().len() < 10_000);
    let view = project(&settled, 2000);
    let shown_id = settled.artifact_refs()[1].artifact_id.as_str();
    assert_eq!(
        view.omissions.unwrap().artifact_id.as_deref(),
        Some(shown_id)
    );
}

#[test]
fn prj_5_a_refusing_store_leaves_a_reason_and_no_id() {
    let settled = refused(returned(json!("x".repeat(1000))), 600);
    let view = project(&settled, 600);
    let omissions = view.omissions.clone().unwrap();
    assert_eq!(omissions.artifact_id, None);
    assert_eq!(omissions.reason.as_ref(), "artifact_store_limit");
    assert!(shown(&view).contains("no artifact: artifact_store_limit]"));
    // Over the inline bound but not over what an item can hold: it stays where it is.
    let settled = refused(returned(json!("x".repeat(INLINE_OUTPUT_BYTES))), 600);
    assert_eq!(
        settled.output().as_str().unwrap().len(),
        INLINE_OUTPUT_BYTES
    );
}

#[test]
fn prj_8_an_unknown_outcome_is_said_in_words() {
    let severed = ended(
        &EffectClass::Undeclared,
        End::TimedOut {
            worker_running: false,
        },
    );
    let view = project(&severed, 1000);
    assert!(view.outcome_unknown);
    assert!(view.recovery_hint.unwrap().contains("may have happened"));
    let known = project(&returned(json!(1)), 1000);
    assert_eq!(known.recovery_hint, None);
}

#[test]
fn prj_9_secrets_paths_and_keys_are_redacted_and_counted() {
    let output = json!({
        "[REDACTED_KEY_1]": "taken",
        "api_key": "abc",
        "note": "see /home/ann/x.txt, password=hunter2",
        "password": "swordfish",
        "token_count": 7,
    });
    let result = returned(output);
    let view = project(&result, 1000);
    assert_eq!(
        view.model_output,
        json!({
            "[REDACTED_KEY_1]": "taken",
            "[REDACTED_KEY_2]": "[REDACTED]",
            "[REDACTED_KEY_3]": "[REDACTED]",
            "note": "see [REDACTED_PATH], password=[REDACTED]",
            "token_count": 7,
        })
    );
    assert_eq!(
        view.redactions,
        Redactions {
            secrets: 3,
            host_paths: 1,
            keys: 2
        }
    );
    // Canonical truth keeps what it was.
    assert_eq!(result.output()["password"], "swordfish");
    let error = ToolError::new("no", "cannot open /etc/shadow").with_hint("try /home/ann/b");
    let failed = ended(&EffectClass::Pure, End::Failed(error));
    let text = project(&failed, 1000).to_text();
    assert!(!text.contains("/etc") && !text.contains("/home"), "{text}");
}

#[test]
fn prj_9_a_cut_makes_no_path_of_half_a_word() {
    // The tail starts inside `foo/home/ann/…`.
    let text = format!("{}{}", "x".repeat(1000), "foo/home/ann/".repeat(100));
    let limit = 600;
    let (settled, _) = stored(returned(json!(text)), limit);
    let view = project(&settled, limit);
    let (again, counts) = crate::record::privacy::redact_text(shown(&view));
    assert_eq!(again, shown(&view));
    assert_eq!(counts.host_paths, 0);
    assert!(characters(shown(&view)) <= limit);
}

#[test]
fn a_long_error_is_whole_in_the_output_and_cut_in_the_error() {
    let message = "é".repeat(20_000);
    let failed = ended(
        &EffectClass::Pure,
        End::Failed(ToolError::new("no", message.clone())),
    );
    assert!(failed.error().unwrap().len() <= 16 * 1024);
    assert_eq!(failed.output(), &json!(message));
    let (settled, bodies) = stored(failed, 1000);
    assert_eq!(bodies[0].body, message.as_bytes());
    assert!(project(&settled, 1000).omissions.is_some());
}

#[test]
fn tiny_limits_do_not_panic_and_hold() {
    for limit in 0..200 {
        let (settled, _) = stored(returned(json!("é".repeat(300))), limit);
        let view = project(&settled, limit);
        assert!(characters(shown(&view)) <= limit, "{limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_output_gives_a_bounded_view_that_the_log_gives_again(
        output in crate::canonical_json::any_json_for_tests(),
        limit in 0usize..400,
    ) {
        let (settled, _) = stored(returned(output), limit);
        let view = project(&settled, limit);
        if view.cut.is_some() {
            prop_assert!(characters(shown(&view)) <= limit);
        }
        let text = view.to_text();
        prop_assert!(canonical_json::is_canonical(text.as_bytes()));
        let read = ToolResult::from_bytes(settled.canonical_bytes()).unwrap();
        prop_assert_eq!(project(&read, limit).to_text(), text);
    }
}
