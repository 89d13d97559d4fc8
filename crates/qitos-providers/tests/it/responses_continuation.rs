//! Provider state of Responses answers: what is kept, how it comes back (PRV-19, PRV-27, PRV-32, PRV-34).

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::error::ContractError;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::openai_responses::{ResponsesCodec, ResponsesOptions, responses_capabilities};
use serde_json::{Map, Value, json};

use super::chat_requests::{assistant, call, result_item, text, user};
use super::responses_requests::{SCOPE, target};
use super::setup::{body_of, items, view_of};

fn codec(store: bool) -> ResponsesCodec {
    let extra_body = match json!({"store": store}) {
        Value::Object(extra_body) if !store => extra_body,
        _ => Map::new(),
    };
    ResponsesCodec::new(ResponsesOptions {
        extra_body,
        ..ResponsesOptions::default()
    })
    .unwrap()
}

fn view(bodies: Vec<ItemBody>) -> RequestView {
    view_of(items(bodies), &["add"], target())
}

fn reference(id: &str) -> ContinuationReference {
    ContinuationReference {
        reference_id: id.into(),
        resolver_key: "k".into(),
        provider: "openai-compatible".into(),
        model: "offline".into(),
        api_mode: "responses".into(),
        attachment_id: None,
        payload_digest: None,
        expires_at: None,
    }
}

fn resolved(id: &str, payload: Value) -> ResolvedContinuation {
    ResolvedContinuation {
        reference: reference(id),
        payload,
    }
}

/// An answer as the engine keeps it: its parts, and the reference of its state.
fn kept(decoded: &DecodedResponse, id: &str) -> ItemBody {
    let parts = decoded
        .parts
        .iter()
        .map(|part| match part {
            ResponsePart::Content(block) => AssistantPart::Content(block.clone()),
            ResponsePart::Reasoning {
                block_type, text, ..
            } => AssistantPart::ReasoningBlock(ReasoningBlock {
                provider_scope: SCOPE.into(),
                reference_id: "r".into(),
                attachment_id: None,
                block_type: Arc::clone(block_type),
                summary: text.clone(),
            }),
            ResponsePart::ToolCall {
                call_id,
                raw_arguments,
                ..
            } => call(SCOPE, call_id, "batch_request_1", raw_arguments),
        })
        .collect();
    with_reference(parts, id)
}

fn with_reference(parts: Vec<AssistantPart>, id: &str) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments: vec![ContinuationAttachment {
            attachment_id: "continuation-1".into(),
            reference: reference(id),
        }],
        metadata: Map::new(),
    })
}

fn decode(codec: &ResponsesCodec, output: Value) -> DecodedResponse {
    let body = json!({"id": "resp_1", "status": "completed", "output": output});
    codec
        .decode(RawResponse::whole(body), &view(vec![user("hi")]))
        .unwrap()
}

fn native(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": format!("opaque-canary {id} \u{2028}\"")})
}

fn search() -> Value {
    json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q", "n": 1.0}})
}

fn function_call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "add", "arguments": "{\"a\":1}"})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "content": [{"type": "output_text", "text": text}]})
}

#[test]
fn an_answer_gives_its_id_and_its_native_items_and_shows_neither_prv_27_prv_32() {
    let output = json!([
        native("rs_1"),
        message("so"),
        search(),
        function_call("one")
    ]);
    for store in [true, false] {
        let decoded = decode(&codec(store), output.clone());
        assert_eq!(
            decoded.continuation,
            Some(json!({"response_id": "resp_1", "native_reasoning": [native("rs_1"), search()]}))
        );
        let shown = format!("{decoded:?} {:?}", decoded.parts);
        assert!(!shown.contains("canary"), "{shown}");
        assert_eq!(decoded.provider_metadata["response_id"], "resp_1");
        assert!(
            !json!(decoded.provider_metadata)
                .to_string()
                .contains("canary")
        );
    }
    // Nothing worth keeping without storage, and nothing that could be found again with it.
    assert_eq!(
        decode(&codec(false), json!([message("so")])).continuation,
        None
    );
    let body = json!({"status": "completed", "output": [message("so")]});
    let decoded = codec(true)
        .decode(RawResponse::whole(body), &view(vec![user("hi")]))
        .unwrap();
    assert_eq!(decoded.continuation, None);
}

#[test]
fn with_storage_a_request_starts_after_the_newest_answer_prv_32() {
    let codec = codec(true);
    let mut view = view(vec![
        user("hi"),
        with_reference(vec![text("old")], "a"),
        user("more"),
        with_reference(vec![call(SCOPE, "one", "batch_request_1", "{}")], "b"),
        result_item(SCOPE, "one", json!(5)),
    ]);
    view.continuation = Some(reference("b"));
    view.instructions = Arc::new([Instruction {
        role: InstructionRole::System,
        text: "be kind".into(),
    }]);
    let capabilities = responses_capabilities(target(), None);
    let (mut payload, mut report) = codec.encode(&view, &capabilities, false).unwrap();
    assert!(report.lossless);
    // Only the newest is asked for: the server holds the rest.
    let waiting: Vec<&str> = payload
        .waiting()
        .iter()
        .map(|state| state.reference.reference_id.as_str())
        .collect();
    assert_eq!(waiting, ["b"]);
    let state = json!({"response_id": "resp_9", "native_reasoning": []});
    codec
        .apply_continuation(&mut payload, &resolved("b", state.clone()), &mut report)
        .unwrap();
    let body = body_of(&payload);
    assert_eq!(body["previous_response_id"], "resp_9");
    assert_eq!(body["instructions"], "be kind", "the server keeps none");
    assert_eq!(body["tools"][0]["name"], "add");
    assert_eq!(
        body["input"],
        json!([{"type": "function_call_output", "call_id": "one", "output": "5"}])
    );
    assert_eq!(report.continuation, "previous_response_id");
    // A second time nothing waits and nothing changes.
    codec
        .apply_continuation(&mut payload, &resolved("b", state), &mut report)
        .unwrap();
    assert_eq!(body_of(&payload), body);
}

#[test]
fn a_state_that_cannot_be_had_leaves_the_whole_history_in_the_request_prv_31() {
    let mut view = view(vec![
        user("hi"),
        with_reference(vec![text("old")], "a"),
        user("more"),
    ]);
    view.continuation = Some(reference("a"));
    let capabilities = responses_capabilities(target(), None);
    let (payload, _) = codec(true).encode(&view, &capabilities, false).unwrap();
    assert_eq!(payload.waiting().len(), 1);
    let body = body_of(&payload);
    assert!(body.get("previous_response_id").is_none());
    assert_eq!(
        body["input"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "old"},
            {"role": "user", "content": "more"},
        ])
    );
}

#[test]
fn messages_before_the_history_are_sent_again_only_if_they_changed() {
    let codec = codec(true);
    let capabilities = responses_capabilities(target(), None);
    let lasting = |content: &str| {
        let mut contribution = ContextContribution::new("project", "test", json!(content)).unwrap();
        contribution.persistence_horizon = Horizon::Session;
        contribution.requested_placement = Placement::User;
        Arc::new(contribution)
    };
    let mut first = view(vec![user("hi")]);
    first.contributions = vec![lasting("one")];
    let body = json!({"id": "resp_1", "status": "completed", "output": [message("so")]});
    let decoded = codec.decode(RawResponse::whole(body), &first).unwrap();
    let state = decoded.continuation.unwrap();
    assert_eq!(state["lead_digest"].as_str().unwrap().len(), 64);

    let mut second = view(vec![
        user("hi"),
        with_reference(vec![text("so")], "a"),
        user("more"),
    ]);
    second.continuation = Some(reference("a"));
    let more = json!({"role": "user", "content": "more"});
    for (content, expected) in [
        ("one", json!([more])),
        (
            "two",
            json!([{"role": "user", "content": "[context project]\ntwo"}, more]),
        ),
    ] {
        second.contributions = vec![lasting(content)];
        let (mut payload, mut report) = codec.encode(&second, &capabilities, false).unwrap();
        codec
            .apply_continuation(&mut payload, &resolved("a", state.clone()), &mut report)
            .unwrap();
        assert_eq!(body_of(&payload)["input"], expected);
    }
}

#[test]
fn without_storage_native_items_return_to_their_places_once_per_item_prv_27_prv_32() {
    let codec = codec(false);
    let capabilities = responses_capabilities(target(), None);
    let output = json!([
        native("rs_1"),
        message("so"),
        search(),
        native("rs_2"),
        function_call("one")
    ]);
    let decoded = decode(&codec, output);
    let state = decoded.continuation.clone().unwrap();
    let mut view = view(vec![
        user("hi"),
        kept(&decoded, "a"),
        result_item(SCOPE, "one", json!(5)),
    ]);
    view.continuation = Some(reference("a"));
    let (mut payload, mut report) = codec.encode(&view, &capabilities, false).unwrap();
    assert!(report.lossless);
    assert_eq!(report.reasoning, "native_item_continuation");
    codec
        .apply_continuation(&mut payload, &resolved("a", state), &mut report)
        .unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(report.continuation, "native_items");
    let body = body_of(&payload);
    assert_eq!(body["store"], false);
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    assert!(body.get("previous_response_id").is_none());
    let expected = json!([
        {"role": "user", "content": "hi"},
        native("rs_1"),
        {"role": "assistant", "content": "so"},
        search(),
        native("rs_2"),
        function_call("one"),
        {"type": "function_call_output", "call_id": "one", "output": "5"},
    ]);
    assert_eq!(body["input"], expected);

    // Later requests find the bytes at the item: nothing waits, nothing is resolved again.
    let (again, _) = codec.encode(&view, &capabilities, false).unwrap();
    assert!(again.waiting().is_empty());
    assert_eq!(body_of(&again)["input"], expected);
    assert!(
        payload
            .fragments()
            .zip(again.fragments())
            .all(|(left, right)| Arc::ptr_eq(left, right))
    );
}

#[test]
fn state_of_another_target_is_not_sent_and_its_reasoning_a_declared_loss_prv_29() {
    let decoded = decode(&codec(false), json!([native("rs_1"), message("so")]));
    let state = decoded.continuation.clone().unwrap();
    let list = items(vec![user("hi"), kept(&decoded, "a"), user("more")]);
    let mut view = view_of(list.clone(), &[], target());
    view.continuation = Some(reference("a"));
    let codec = codec(false);
    let (mut payload, mut report) = codec
        .encode(&view, &responses_capabilities(target(), None), false)
        .unwrap();
    codec
        .apply_continuation(&mut payload, &resolved("a", state), &mut report)
        .unwrap();
    assert!(body_of(&payload).to_string().contains("opaque-canary"));

    // The same items, now for another model: bytes made with the first one's state stay away.
    let other = Target::new("openai-compatible", "other", "openai", "responses").unwrap();
    let view = view_of(list, &[], other.clone());
    let (payload, report) = codec
        .encode(&view, &responses_capabilities(other, None), false)
        .unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
    assert!(!body_of(&payload).to_string().contains("canary"));
}

#[test]
fn reasoning_that_is_to_be_dropped_is_not_gone_on_from_either_prv_20() {
    for store in [true, false] {
        let codec = codec(store);
        let decoded = decode(&codec, json!([native("rs_1"), message("so")]));
        let mut view = view(vec![user("hi"), kept(&decoded, "a"), user("more")]);
        view.continuation = Some(reference("a"));
        view.reasoning_policy.mode = ReasoningMode::Drop;
        let (payload, report) = codec
            .encode(&view, &responses_capabilities(target(), None), false)
            .unwrap();
        assert!(payload.waiting().is_empty());
        assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
        assert_eq!(body_of(&payload)["input"][1]["content"], "so");
    }
}

#[test]
fn an_answer_whose_calls_the_agent_replaced_is_not_gone_on_from() {
    let replaced = || {
        let parts = vec![text("so"), call("text", "own", "batch_request_1", "{}")];
        let mut view = view(vec![
            user("hi"),
            with_reference(parts, "a"),
            result_item("text", "own", json!(5)),
        ]);
        view.continuation = Some(reference("a"));
        view
    };
    // The server would wait for results of calls that the log does not have.
    let view = replaced();
    let capabilities = responses_capabilities(target(), None);
    let (payload, report) = codec(true).encode(&view, &capabilities, false).unwrap();
    assert!(payload.waiting().is_empty());
    assert!(report.lossless);
    assert_eq!(body_of(&payload)["input"].as_array().unwrap().len(), 3);
    // Without native tools, calls in text are all there is, and the server waits for nothing.
    let mut view = replaced();
    view.tool_schemas = Arc::new(ToolSchemas::default());
    let (payload, _) = codec(true).encode(&view, &capabilities, false).unwrap();
    assert_eq!(payload.waiting().len(), 1);
}

#[test]
fn native_items_go_first_if_somebody_changed_the_parts() {
    let codec = codec(false);
    let view = view(vec![
        user("hi"),
        with_reference(vec![text("so")], "a"),
        user("more"),
    ]);
    let (mut payload, mut report) = codec
        .encode(&view, &responses_capabilities(target(), None), false)
        .unwrap();
    let state = json!({"response_id": "r", "native_reasoning": [native("rs_1"), native("rs_2")]});
    codec
        .apply_continuation(&mut payload, &resolved("a", state), &mut report)
        .unwrap();
    assert_eq!(
        body_of(&payload)["input"],
        json!([
            {"role": "user", "content": "hi"},
            native("rs_1"),
            native("rs_2"),
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "more"},
        ])
    );
}

#[test]
fn state_that_is_not_of_this_codec_is_refused_and_not_shown() {
    for (store, state, code) in [
        (true, json!({"native_reasoning": []}), "codec_encode_failed"),
        (true, json!({"response_id": ""}), "codec_encode_failed"),
        (true, json!({"response_id": 7}), "codec_encode_failed"),
        (true, json!("canary"), "codec_encode_failed"),
        (false, json!({"response_id": "r"}), "codec_encode_failed"),
        (
            false,
            json!({"native_reasoning": ["canary"]}),
            "codec_encode_failed",
        ),
        // Kept while the server stored answers: the reasoning itself is only there.
        (
            false,
            json!({"native_reasoning": [{"type": "reasoning", "id": "canary"}]}),
            "codec_loss_rejected",
        ),
    ] {
        let codec = codec(store);
        let mut view = view(vec![
            user("hi"),
            with_reference(vec![text("so")], "a"),
            user("more"),
        ]);
        view.continuation = Some(reference("a"));
        let (mut payload, mut report) = codec
            .encode(&view, &responses_capabilities(target(), None), false)
            .unwrap();
        let error = codec
            .apply_continuation(&mut payload, &resolved("a", state), &mut report)
            .unwrap_err();
        assert_eq!(error.code(), code);
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}

#[test]
fn an_include_of_the_callers_replaces_the_one_that_is_asked_for() {
    let mut extra_body = Map::new();
    extra_body.insert("store".into(), false.into());
    extra_body.insert("include".into(), json!([]));
    let codec = ResponsesCodec::new(ResponsesOptions {
        extra_body,
        ..ResponsesOptions::default()
    })
    .unwrap();
    let (payload, _) = codec
        .encode(
            &view(vec![user("hi"), assistant(vec![text("so")])]),
            &responses_capabilities(target(), None),
            false,
        )
        .unwrap();
    assert_eq!(body_of(&payload)["include"], json!([]));
}

#[test]
fn the_phase_of_a_message_goes_back_with_it_prv_27() {
    let codec = codec(false);
    let mut first = message("looking");
    first["phase"] = "commentary".into();
    let decoded = decode(&codec, json!([first, message("so")]));
    let view = view(vec![user("hi"), kept(&decoded, "a"), user("more")]);
    let (payload, _) = codec
        .encode(&view, &responses_capabilities(target(), None), false)
        .unwrap();
    let input = &body_of(&payload)["input"];
    assert_eq!(
        input[1],
        json!({"role": "assistant", "content": "looking", "phase": "commentary"})
    );
    assert_eq!(input[2], json!({"role": "assistant", "content": "so"}));
}
