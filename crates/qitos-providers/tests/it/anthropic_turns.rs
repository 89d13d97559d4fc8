//! Turns with provider state on the Messages wire: kept, put back, lost (PRV-27, PRV-32, PRV-34).

use qitos_contracts::error::ContractError;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::anthropic::AnthropicOptions;
use serde_json::{Map, Value, json};

use super::anthropic_requests::{
    BATCH, SCOPE, answer, capabilities, codec, decode, encoded, target,
};
use super::chat_requests::{assistant, call, result_item, text, user};
use super::setup::{body_of, items, view_of};

fn reasoning(summary: &str, attached: bool) -> AssistantPart {
    AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: SCOPE.into(),
        reference_id: "reasoning-1".into(),
        attachment_id: attached.then(|| "continuation-1".into()),
        block_type: "thinking".into(),
        summary: Some(summary.into()),
    })
}

fn reference(id: &str, target: &Target) -> ContinuationReference {
    ContinuationReference {
        reference_id: id.into(),
        resolver_key: "test".into(),
        provider: target.provider().into(),
        model: target.model().into(),
        api_mode: target.api_mode().into(),
        attachment_id: None,
        payload_digest: None,
        expires_at: None,
    }
}

fn attached(parts: Vec<AssistantPart>, id: &str, target: &Target) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments: vec![ContinuationAttachment {
            attachment_id: "continuation-1".into(),
            reference: reference(id, target),
        }],
        metadata: Map::new(),
    })
}

fn resolved(id: &str, payload: Value) -> ResolvedContinuation {
    ResolvedContinuation {
        reference: reference(id, &target()),
        payload,
    }
}

/// One turn as the server wrote it.
fn turn() -> Value {
    json!([
        {"type": "thinking", "thinking": " let me\u{2028}see ", "signature": "c2ln+/=="},
        {"type": "text", "text": " Adding.\n"},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"b": 1.0, "a": [null, "é"]}},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "Zm9v"}]},
        {"type": "text", "text": "Sunny", "citations": [{"cited_text": "Sun", "encrypted_index": "YmFy"}]},
        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {}},
    ])
}

#[test]
fn a_turn_goes_back_in_its_original_positions_with_every_string_as_it_came_prv_32_prv_34_prv_27() {
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let decoded = decode(answer(turn(), "tool_use"), &view).unwrap();
    let kinds: Vec<&str> = decoded
        .parts
        .iter()
        .map(|part| match part {
            ResponsePart::Content(_) => "text",
            ResponsePart::Reasoning { block_type, .. } => block_type,
            ResponsePart::ToolCall { .. } => "call",
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "thinking",
            "text",
            "call",
            "redacted_thinking",
            "text",
            "call"
        ]
    );
    assert_eq!(decoded.text(), " Adding.\nSunny");
    // PRV-27: opaque strings are in no Debug output.
    let shown = format!("{decoded:?}");
    for opaque in ["c2ln", "b3BhcXVl", "Zm9v", "YmFy", "let me"] {
        assert!(!shown.contains(opaque), "{opaque}");
    }
    let state = decoded.continuation.unwrap();
    assert_eq!(state, json!({"content": turn()}));

    let history = vec![
        user("hi"),
        attached(
            vec![
                reasoning(" let me\u{2028}see ", true),
                text(" Adding.\n"),
                call(SCOPE, "toolu_1", BATCH, "{}"),
                call(SCOPE, "toolu_2", BATCH, "{}"),
            ],
            "state-1",
            &target(),
        ),
        result_item(SCOPE, "toolu_1", json!(1)),
        result_item(SCOPE, "toolu_2", json!(2)),
    ];
    let mut view = view_of(items(history), &["add"], target());
    view.continuation = Some(reference("state-1", &target()));
    let (mut payload, mut report) = encoded(&view, AnthropicOptions::default());
    assert!(report.lossless && report.reasoning == "signed_block_replay");
    assert_eq!(payload.waiting().len(), 1);
    // Without its state the turn goes out as the log has it.
    let bare = body_of(&payload)["messages"][1]["content"].clone();
    assert_eq!(bare.as_array().unwrap().len(), 3);
    let codec = codec(AnthropicOptions::default());
    codec
        .apply_continuation(&mut payload, &resolved("state-1", state), &mut report)
        .unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(report.continuation, "signed_block_replay");
    let sent = body_of(&payload);
    assert_eq!(
        sent["messages"][1],
        json!({"role": "assistant", "content": turn()})
    );
    assert_eq!(sent["messages"][2]["content"].as_array().unwrap().len(), 2);
    // Once per item, not once per request (PRV-12).
    let (again, _) = encoded(&view, AnthropicOptions::default());
    assert!(again.waiting().is_empty());
    assert_eq!(body_of(&again), sent);
}

#[test]
fn a_paused_turn_is_resent_unchanged_and_last_a14() {
    let content = json!([
        {"type": "text", "text": "Looking."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
    ]);
    let view = view_of(items(vec![user("hi")]), &[], target());
    let decoded = decode(answer(content.clone(), "pause_turn"), &view).unwrap();
    assert_eq!(decoded.finish.reason, FinishReason::Paused);
    assert!(decoded.finish.truncated());
    let history = vec![
        user("hi"),
        attached(vec![text("Looking.")], "state-1", &target()),
    ];
    let view = view_of(items(history), &[], target());
    let (mut payload, mut report) = encoded(&view, AnthropicOptions::default());
    let state = resolved("state-1", decoded.continuation.unwrap());
    codec(AnthropicOptions::default())
        .apply_continuation(&mut payload, &state, &mut report)
        .unwrap();
    assert_eq!(
        body_of(&payload)["messages"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": content},
        ])
    );
}

#[test]
fn a_turn_that_the_log_holds_whole_needs_no_state() {
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let content = json!([
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "text", "text": "Adding.", "citations": null},
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
    ]);
    let decoded = decode(answer(content, "tool_use"), &view).unwrap();
    assert!(decoded.continuation.is_none());
    assert!(matches!(
        &decoded.parts[0],
        ResponsePart::Reasoning {
            replayable: false,
            ..
        }
    ));
}

#[test]
fn a_state_of_another_form_is_refused() {
    let history = vec![
        user("hi"),
        attached(vec![reasoning("hm", true)], "state-1", &target()),
        user("more"),
    ];
    let view = view_of(items(history), &[], target());
    for state in [
        json!({}),
        json!([1]),
        json!({"content": []}),
        json!({"content": ["x"]}),
        json!({"content": [{"text": "x"}]}),
    ] {
        let (mut payload, mut report) = encoded(&view, AnthropicOptions::default());
        let error = codec(AnthropicOptions::default())
            .apply_continuation(&mut payload, &resolved("state-1", state), &mut report)
            .unwrap_err();
        assert_eq!(error.code(), "codec_encode_failed");
        assert_eq!(payload.waiting().len(), 1);
    }
}

#[test]
fn reasoning_that_cannot_go_back_is_a_named_loss_prv_14_prv_34() {
    let other = Target::new("anthropic", "another", "messages", "messages").unwrap();
    for answer in [
        // A18: no signature came.
        assistant(vec![reasoning("hm", false), text("a")]),
        // One of two blocks had none.
        attached(
            vec![reasoning("hm", true), reasoning("hm", false), text("a")],
            "state-1",
            &target(),
        ),
        // The state is another model's.
        attached(vec![reasoning("hm", true), text("a")], "state-1", &other),
    ] {
        let mut view = view_of(items(vec![user("hi"), answer, user("more")]), &[], target());
        let (_, report) = encoded(&view, AnthropicOptions::default());
        assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
        assert_eq!(report.reasoning, "dropped");
        view.reasoning_policy.allow_loss = false;
        let error = codec(AnthropicOptions::default())
            .encode(&view, &capabilities(), false)
            .unwrap_err();
        assert_eq!(error.code(), "codec_loss_rejected");
    }
}

#[test]
fn under_the_policy_drop_no_reasoning_goes_back_and_none_is_kept() {
    let mut view = view_of(items(vec![user("hi")]), &["add"], target());
    view.reasoning_policy.mode = ReasoningMode::Drop;
    let decoded = decode(answer(turn(), "tool_use"), &view).unwrap();
    let kept = decoded.continuation.unwrap().to_string();
    assert!(kept.contains("server_tool_use") && !kept.contains("thinking"));
    assert!(decoded.parts.iter().all(|part| !matches!(
        part,
        ResponsePart::Reasoning {
            replayable: true,
            ..
        }
    )));
    let thought_alone = json!([turn()[0], {"type": "text", "text": "Hi"}]);
    let decoded = decode(answer(thought_alone, "end_turn"), &view).unwrap();
    assert!(decoded.continuation.is_none());

    // State that holds reasoning from before the policy stays where it is, and that is said.
    let history = vec![
        user("hi"),
        attached(vec![reasoning("hm", true), text("a")], "state-1", &target()),
        attached(vec![text("b")], "state-2", &target()),
        user("more"),
    ];
    let mut view = view_of(items(history), &[], target());
    view.reasoning_policy.mode = ReasoningMode::Drop;
    let codec = codec(AnthropicOptions::default());
    let error = codec.encode(&view, &capabilities(), false).unwrap_err();
    assert_eq!(error.code(), "codec_loss_rejected");
    let (payload, report) = codec.encode(&view, &capabilities(), true).unwrap();
    assert_eq!(
        report.lossy_fields,
        ["assistant.reasoning", "continuation.state"]
    );
    assert!(!report.lossless);
    assert_eq!(payload.waiting().len(), 1);
    assert_eq!(payload.waiting()[0].reference.reference_id, "state-2");
}

#[test]
fn an_id_that_the_log_cannot_keep_has_one_name_in_call_state_and_result_prv_24() {
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let unfit = "x".repeat(400);
    let mut content = turn();
    content[2]["id"] = unfit.clone().into();
    let decoded = decode(answer(content, "tool_use"), &view).unwrap();
    let ResponsePart::ToolCall { call_id, .. } = &decoded.parts[2] else {
        panic!("a call")
    };
    assert_eq!(**call_id, format!("call_{}_0", view.request_id));
    let state = decoded.continuation.unwrap();
    assert_eq!(state["content"][2]["id"], **call_id);
    assert_eq!(state["content"][7]["id"], "toolu_2");

    // A repeated id is renamed in the log alone.
    let repeated = items(vec![
        user("hi"),
        assistant(vec![call(SCOPE, "toolu_1", BATCH, "{}")]),
        result_item(SCOPE, "toolu_1", json!(1)),
    ]);
    let view = view_of(repeated, &["add"], target());
    let decoded = decode(answer(turn(), "tool_use"), &view).unwrap();
    let ResponsePart::ToolCall { call_id, .. } = &decoded.parts[2] else {
        panic!("a call")
    };
    assert_eq!(**call_id, format!("toolu_1@{}", view.request_id));
    assert_eq!(decoded.continuation.unwrap()["content"][2]["id"], "toolu_1");
}
