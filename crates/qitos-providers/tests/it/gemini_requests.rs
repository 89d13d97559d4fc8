//! What reaches Gemini's wire, and what is refused before (PRV-10, PRV-14, PRV-20, PRV-32, PRV-44, PRV-80 to PRV-84,
//! PRV-100 to PRV-104).

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::error::ContractError;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::gemini::{GeminiCodec, GeminiOptions, GeminiSettings, gemini_capabilities};
use serde_json::{Map, Value, json};

use super::chat_requests::{assistant, call, result_item, text, user};
use super::setup::{Deltas, End, Scripted, body_of, items, run, view_of};

const SCOPE: &str = "google:generate_content";

fn target() -> Target {
    Target::new("google", "gemini-offline", "gemini", "generate_content").unwrap()
}

fn codec() -> GeminiCodec {
    GeminiCodec::new(GeminiOptions::default()).unwrap()
}

fn capabilities() -> ProviderCapabilities {
    gemini_capabilities(target(), None)
}

fn try_encode(
    view: &RequestView,
    allow_loss: bool,
) -> Result<(WirePayload, CodecReport), CodecError> {
    codec().encode(view, &capabilities(), allow_loss)
}

fn encode(view: &RequestView) -> Value {
    let (payload, report) = try_encode(view, false).unwrap();
    assert!(report.is_consistent());
    body_of(&payload)
}

fn options(extra: Value) -> GeminiOptions {
    let Value::Object(extra_body) = extra else {
        panic!("an object")
    };
    GeminiOptions {
        extra_body,
        ..GeminiOptions::default()
    }
}

fn thought(scope: &str, attachment_id: Option<&str>) -> AssistantPart {
    AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: scope.into(),
        reference_id: "reasoning-1".into(),
        attachment_id: attachment_id.map(Into::into),
        block_type: "thought".into(),
        summary: Some("Let me see.".into()),
    })
}

fn reference(target: &Target) -> ContinuationReference {
    ContinuationReference {
        reference_id: "ref-1".into(),
        resolver_key: "memory".into(),
        provider: target.provider().into(),
        model: target.model().into(),
        api_mode: target.api_mode().into(),
        attachment_id: None,
        payload_digest: None,
        expires_at: None,
    }
}

/// An answer whose signed parts are kept elsewhere.
fn signed(parts: Vec<AssistantPart>, target: &Target) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments: vec![ContinuationAttachment {
            attachment_id: "continuation-1".into(),
            reference: reference(target),
        }],
        metadata: Map::new(),
    })
}

#[test]
fn instructions_history_tools_and_options_have_their_wire_form() {
    let mut view = view_of(
        items(vec![
            user("hi"),
            assistant(vec![text("hello \"you\"")]),
            user("more"),
        ]),
        &["multiply", "add"],
        target(),
    );
    let instruction = |role, text: &str| Instruction {
        role,
        text: text.into(),
    };
    view.instructions = Arc::new([
        instruction(InstructionRole::System, "be kind"),
        instruction(InstructionRole::Developer, "be brief"),
        instruction(InstructionRole::User, "I am Ada"),
    ]);
    let extra = json!({
        "safetySettings": [],
        "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
    });
    let codec = GeminiCodec::new(GeminiOptions {
        max_tokens: Some(10_240),
        temperature: Some(0.5),
        top_p: Some(0.9),
        ..options(extra)
    })
    .unwrap();
    let (payload, report) = codec.encode(&view, &capabilities(), false).unwrap();
    assert_eq!(report.codec_id, "qitos.google.generate_content");
    assert_eq!(report.tool_schema_conversion, "function_declarations");
    let declaration = |name: &str| {
        json!({
            "name": name,
            "description": format!("tool {name}"),
            "parametersJsonSchema": {"type": "object"},
        })
    };
    // PRV-80: the limit is unchanged; the model stands in the path.
    assert_eq!(
        body_of(&payload),
        json!({
            "systemInstruction": {"parts": [{"text": "be kind"}, {"text": "be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "I am Ada"}]},
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"text": "hello \"you\""}]},
                {"role": "user", "parts": [{"text": "more"}]},
            ],
            "tools": [{"functionDeclarations": [declaration("add"), declaration("multiply")]}],
            "generationConfig": {
                "maxOutputTokens": 10_240,
                "temperature": 0.5,
                "topP": 0.9,
                "thinkingConfig": {"includeThoughts": true},
            },
            "safetySettings": [],
        })
    );
}

#[test]
fn trusted_contributions_are_instructions_and_those_of_one_request_come_last_ctx_50() {
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    let contribution = |id: &str, placement, horizon| {
        let mut contribution = ContextContribution::new(id, "test", json!(id)).unwrap();
        contribution.requested_placement = placement;
        contribution.persistence_horizon = horizon;
        Arc::new(contribution)
    };
    view.contributions = vec![
        contribution("rules", Placement::System, Horizon::Session),
        contribution("notes", Placement::User, Horizon::Session),
        contribution("now", Placement::System, Horizon::Request),
    ];
    let body = encode(&view);
    assert_eq!(
        body["systemInstruction"]["parts"],
        json!([{"text": "[context rules]\nrules"}])
    );
    let texts: Vec<&Value> = body["contents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|content| &content["parts"][0]["text"])
        .collect();
    assert_eq!(
        texts,
        ["[context notes]\nnotes", "hi", "[context now]\nnow"]
    );
}

/// Two calls of one name whose results came in the other order, then a turn with one call.
fn two_batches() -> Vec<ItemBody> {
    vec![
        user("hi"),
        assistant(vec![
            text("both"),
            call(SCOPE, "one", "batch_request_1", "{\"a\":2}"),
            call(SCOPE, "two", "batch_request_1", "{\"a\":3}"),
        ]),
        result_item(SCOPE, "two", json!({"b": "x"})),
        result_item(SCOPE, "one", json!(5)),
        user("again"),
    ]
}

#[test]
fn results_of_a_batch_are_one_content_in_declaration_order_because_the_wire_has_no_ids_prv_25() {
    let body = encode(&view_of(items(two_batches()), &["add"], target()));
    let response =
        |output: &str| json!({"functionResponse": {"name": "add", "response": {"output": output}}});
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [
                {"text": "both"},
                {"functionCall": {"name": "add", "args": {"a": 2}}},
                {"functionCall": {"name": "add", "args": {"a": 3}}},
            ]},
            {"role": "user", "parts": [response("5"), response("{\"b\":\"x\"}")]},
            {"role": "user", "parts": [{"text": "again"}]},
        ])
    );
}

#[test]
fn results_stay_together_across_the_segments_of_a_long_history_prv_12() {
    let mut bodies = Vec::new();
    for turn in 0..150 {
        let batch = format!("batch_request_{turn}");
        let ids = [format!("a{turn}"), format!("b{turn}")];
        bodies.push(user(&format!("turn {turn}")));
        bodies.push(assistant(
            ids.iter().map(|id| call(SCOPE, id, &batch, "{}")).collect(),
        ));
        for id in &ids {
            let ItemBody::ToolResult(mut result) = result_item(SCOPE, id, json!(id)) else {
                unreachable!()
            };
            result.batch_id = batch.parse().unwrap();
            bodies.push(ItemBody::ToolResult(result));
        }
    }
    let all = items(bodies);
    // Grown step by step, as a session grows, and whole at once: the same contents.
    let mut grown = ItemList::new();
    for (index, item) in all.iter().enumerate() {
        grown.push(Arc::clone(item));
        if index % 4 == 3 {
            try_encode(&view_of(grown.clone(), &["add"], target()), false).unwrap();
        }
    }
    let body = encode(&view_of(grown, &["add"], target()));
    let contents = body["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 450);
    for (turn, contents) in contents.chunks(3).enumerate() {
        assert_eq!(contents[0]["parts"][0]["text"], format!("turn {turn}"));
        let outputs: Vec<&Value> = contents[2]["parts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| &part["functionResponse"]["response"]["output"])
            .collect();
        assert_eq!(
            outputs,
            [&json!(format!("a{turn}")), &json!(format!("b{turn}"))]
        );
    }
}

#[test]
fn an_open_batch_and_a_history_that_begins_with_a_result_are_refused_ctx_28() {
    let all = items(two_batches());
    let mut open = ItemList::new();
    all.iter()
        .take(3)
        .for_each(|item| open.push(Arc::clone(item)));
    for list in [open, all.suffix(2)] {
        let error = try_encode(&view_of(list, &["add"], target()), true).unwrap_err();
        assert_eq!(error.code(), "request_closure_violation");
    }
}

#[test]
fn an_id_that_the_provider_gave_goes_back_to_it_and_the_log_keeps_its_own_prv_25() {
    let model = model_over(json!({"candidates": [{
        "content": {"parts": [{"functionCall": {"name": "add", "args": {}, "id": "fc-1"}}]},
        "finishReason": "STOP",
    }]}));
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    let raw = run(model.send(payload, None)).unwrap();
    let decoded = model.codec().decode(raw, &view).unwrap();
    let [
        ResponsePart::ToolCall {
            call_id, metadata, ..
        },
    ] = &decoded.parts[..]
    else {
        panic!("{decoded:?}")
    };
    assert_eq!(**call_id, format!("call_{}_0", view.request_id));
    let AssistantPart::ToolCall(mut kept) = call(SCOPE, call_id, "batch_request_1", "{}") else {
        unreachable!()
    };
    kept.metadata = metadata.clone();
    let bodies = vec![
        user("hi"),
        assistant(vec![AssistantPart::ToolCall(kept)]),
        result_item(SCOPE, call_id, json!(1)),
    ];
    let body = encode(&view_of(items(bodies), &["add"], target()));
    assert_eq!(
        body["contents"][1]["parts"][0]["functionCall"]["id"],
        "fc-1"
    );
    assert_eq!(
        body["contents"][2]["parts"][0]["functionResponse"]["id"],
        "fc-1"
    );
}

#[test]
fn calls_of_a_text_protocol_are_text_and_their_results_observations() {
    let bodies = vec![
        user("hi"),
        assistant(vec![
            text("Action: add()"),
            call("text", "one", "batch_request_1", "{}"),
        ]),
        result_item("text", "one", json!("5")),
    ];
    let body = encode(&view_of(items(bodies), &[], target()));
    assert_eq!(
        body["contents"][1]["parts"],
        json!([{"text": "Action: add()"}])
    );
    assert_eq!(
        body["contents"][2]["parts"],
        json!([{"text": "Observation: 5"}])
    );
}

#[test]
fn images_are_parts_and_what_cannot_be_carried_is_a_named_loss_prv_14() {
    let block = |kind: &str, url: Option<&str>, data: Option<&str>| ContentBlock {
        block_type: kind.into(),
        url: url.map(Into::into),
        data: data.map(Into::into),
        mime_type: Some("image/jpeg".into()),
        ..ContentBlock::default()
    };
    let with = |blocks: Vec<ContentBlock>| {
        let body = ItemBody::User(UserItem {
            content: blocks,
            metadata: Map::new(),
        });
        view_of(items(vec![body]), &[], target())
    };
    let body = encode(&with(vec![
        ContentBlock::text("look"),
        block("image_url", Some("https://a.example/i.jpg"), None),
        block("image_base64", None, Some("QUJD")),
        block("image_url", Some("data:image/png;base64,REVG"), None),
    ]));
    assert_eq!(
        body["contents"][0]["parts"],
        json!([
            {"text": "look"},
            {"fileData": {"fileUri": "https://a.example/i.jpg", "mimeType": "image/jpeg"}},
            {"inlineData": {"mimeType": "image/jpeg", "data": "QUJD"}},
            {"inlineData": {"mimeType": "image/png", "data": "REVG"}},
        ])
    );
    let file = with(vec![block("image_file", Some("file-1"), None)]);
    let error = try_encode(&file, false).unwrap_err();
    assert_eq!(
        error,
        CodecError::LossRejected {
            lossy_fields: vec!["multimodal.image_file".into()]
        }
    );
    let (payload, report) = try_encode(&file, true).unwrap();
    assert_eq!(report.lossy_fields, ["multimodal.image_file"]);
    assert_eq!(
        body_of(&payload)["contents"][0]["parts"],
        json!([{"text": ""}])
    );
    let empty = with(vec![block("image_url", None, None)]);
    assert_eq!(
        try_encode(&empty, false).unwrap_err().code(),
        "codec_encode_failed"
    );
}

#[test]
fn a_forced_choice_is_refused_before_sending_because_the_row_declares_none_prv_10_prv_15() {
    let mut view = view_of(items(vec![user("hi")]), &["add"], target());
    view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
    assert_eq!(
        try_encode(&view, true).unwrap_err(),
        CodecError::CapabilityMismatch {
            unsupported: vec!["tool_choice".into()]
        }
    );
    view.tool_use_policy = ToolUsePolicy::Disabled;
    view.tool_use_satisfied = true;
    let body = encode(&view);
    assert!(body.get("tools").is_none(), "PRV-83");
}

#[test]
fn thoughts_of_this_target_go_back_as_thoughts_and_others_are_a_declared_loss_prv_20_prv_103() {
    let view = |part| {
        let bodies = vec![user("hi"), assistant(vec![part, text("hello")])];
        view_of(items(bodies), &[], target())
    };
    let (payload, report) = try_encode(&view(thought(SCOPE, None)), false).unwrap();
    assert_eq!(report.reasoning, "preserved");
    assert_eq!(
        body_of(&payload)["contents"][1]["parts"],
        json!([{"text": "Let me see.", "thought": true}, {"text": "hello"}])
    );
    // Another provider's, and one whose signature no attachment of this target keeps.
    for part in [
        thought("anthropic:messages", None),
        thought(SCOPE, Some("continuation-1")),
    ] {
        let mut view = view(part);
        let (payload, report) = try_encode(&view, false).unwrap();
        assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
        assert_eq!(report.reasoning, "dropped");
        let parts = &body_of(&payload)["contents"][1]["parts"];
        assert_eq!(*parts, json!([{"text": "hello"}]));
        view.reasoning_policy.allow_loss = false;
        assert_eq!(
            try_encode(&view, false).unwrap_err().code(),
            "codec_loss_rejected"
        );
    }
    let mut dropped = view(thought(SCOPE, None));
    dropped.reasoning_policy.mode = ReasoningMode::Drop;
    let (_, report) = try_encode(&dropped, false).unwrap();
    assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
}

fn signed_turn() -> (Vec<ItemBody>, Value) {
    let bodies = vec![
        user("hi"),
        signed(
            vec![
                thought(SCOPE, Some("continuation-1")),
                text("First "),
                call(SCOPE, "one", "batch_request_1", "{\"a\":2}"),
            ],
            &target(),
        ),
        result_item(SCOPE, "one", json!(5)),
    ];
    let parts = json!([
        {"text": "Let me see.", "thought": true},
        {"text": "First ", "thoughtSignature": "c2ln \u{e9}=="},
        {"functionCall": {"name": "add", "args": {"a": 2}}, "thoughtSignature": "Y2FuYXJ5"},
        {"text": "", "thoughtSignature": "bGFzdA=="},
    ]);
    (bodies, parts)
}

#[test]
fn a_signature_returns_in_the_part_and_place_it_came_in_prv_32_prv_103() {
    let (bodies, parts) = signed_turn();
    let view = view_of(items(bodies), &["add"], target());
    let (mut payload, mut report) = try_encode(&view, false).unwrap();
    // Without its state the answer stands there as the log has it.
    assert_eq!(
        body_of(&payload)["contents"][1]["parts"],
        json!([
            {"text": "Let me see.", "thought": true},
            {"text": "First "},
            {"functionCall": {"name": "add", "args": {"a": 2}}},
        ])
    );
    let [waiting] = payload.waiting() else {
        panic!("one answer waits")
    };
    let resolved = ResolvedContinuation {
        reference: waiting.reference.clone(),
        payload: json!({ "parts": parts }),
    };
    codec()
        .apply_continuation(&mut payload, &resolved, &mut report)
        .unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(report.reasoning, "signed_block_replay");
    assert!(report.lossless && report.is_consistent());
    let contents = &body_of(&payload)["contents"];
    assert_eq!(contents[1], json!({"role": "model", "parts": parts}));
    assert_eq!(contents[2]["parts"][0]["functionResponse"]["name"], "add");

    // The next request of the session shares the bytes and asks for nothing.
    let (payload, _) = try_encode(&view, false).unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(body_of(&payload)["contents"][1]["parts"], parts);
}

#[test]
fn dropping_thoughts_keeps_the_signatures_of_text_and_calls_prv_103() {
    let (bodies, parts) = signed_turn();
    let mut view = view_of(items(bodies), &["add"], target());
    view.reasoning_policy.mode = ReasoningMode::Drop;
    let (mut payload, mut report) = try_encode(&view, false).unwrap();
    let resolved = ResolvedContinuation {
        reference: reference(&target()),
        payload: json!({ "parts": parts }),
    };
    codec()
        .apply_continuation(&mut payload, &resolved, &mut report)
        .unwrap();
    assert_eq!(report.reasoning, "dropped");
    let sent = body_of(&payload)["contents"][1]["parts"].clone();
    assert_eq!(sent.as_array().unwrap()[..], parts.as_array().unwrap()[1..]);
    let (payload, _) = try_encode(&view, false).unwrap();
    assert_eq!(body_of(&payload)["contents"][1]["parts"], sent);
}

#[test]
fn the_state_of_another_model_is_not_asked_for_and_a_wrong_state_is_refused_prv_29_prv_33() {
    let (mut bodies, _) = signed_turn();
    let view = view_of(items(bodies.clone()), &["add"], target());
    for wrong in [
        json!(null),
        json!({"parts": []}),
        json!({"parts": ["Y2FuYXJ5"]}),
        json!([1]),
    ] {
        let (mut payload, mut report) = try_encode(&view, false).unwrap();
        let before = body_of(&payload);
        let resolved = ResolvedContinuation {
            reference: reference(&target()),
            payload: wrong,
        };
        let error = codec()
            .apply_continuation(&mut payload, &resolved, &mut report)
            .unwrap_err();
        assert_eq!(error.code(), "codec_encode_failed");
        assert!(!format!("{error} {error:?}").contains("Y2FuYXJ5"));
        assert_eq!(body_of(&payload), before);
    }
    let other = Target::new("google", "gemini-other", "gemini", "generate_content").unwrap();
    bodies[1] = signed(
        vec![thought(SCOPE, Some("continuation-1")), text("x")],
        &other,
    );
    bodies.truncate(2);
    let (payload, report) = try_encode(&view_of(items(bodies), &[], target()), false).unwrap();
    assert!(payload.waiting().is_empty());
    assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
}

#[test]
fn options_that_the_client_sets_itself_or_that_look_secret_are_refused_prv_82() {
    for extra in [
        json!({"contents": []}),
        json!({"tools": []}),
        json!({"systemInstruction": {}}),
        json!({"extra_body": {}}),
        json!({"api_key": "canary"}),
        json!({"safetySettings": {"authorization": "canary"}}),
        json!({"generationConfig": []}),
        json!({"generationConfig": {"maxOutputTokens": 1}}),
        json!({"generationConfig": {"candidateCount": 2}}),
    ] {
        let error = GeminiCodec::new(options(extra.clone())).unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid", "{extra}");
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
    let zero = GeminiOptions {
        max_tokens: Some(0),
        ..GeminiOptions::default()
    };
    assert!(GeminiCodec::new(zero).is_err());
}

fn model_over(answer: Value) -> qitos_providers::WholeAnswerModel {
    let mut transport = Scripted::stream(vec![answer.to_string().into_bytes()], End::Clean);
    transport.headers = vec![("content-type".into(), "application/json".into())];
    GeminiSettings::new(target(), "https://offline.invalid/v1beta")
        .with_transport(Arc::new(transport))
        .unwrap()
}

#[test]
fn the_key_travels_in_its_header_and_the_model_in_the_path_prv_44() {
    for (name, path) in [
        ("gemini-offline", "models/gemini-offline"),
        ("models/gemini-offline", "models/gemini-offline"),
        ("tunedModels/mine-1", "tunedModels/mine-1"),
    ] {
        let answer = json!({"candidates": [{"finishReason": "STOP"}]}).to_string();
        let transport = Arc::new(Scripted::stream(vec![answer.into_bytes()], End::Clean));
        let target = Target::new("google", name, "gemini", "generate_content").unwrap();
        let mut settings = GeminiSettings::new(target.clone(), "https://offline.invalid/v1beta/");
        settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
            "key-canary".into(),
        ));
        let model = settings
            .with_transport(Arc::clone(&transport) as Arc<dyn qitos_providers::http::HttpTransport>)
            .unwrap();
        let view = view_of(items(vec![user("hi")]), &[], target);
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), false)
            .unwrap();
        run(model.send(payload, None)).unwrap();
        let seen = transport.seen.lock().unwrap();
        assert_eq!(
            seen[0].url,
            format!("https://offline.invalid/v1beta/{path}:generateContent")
        );
        let header = |name: &str| {
            let found = seen[0].headers.iter().find(|(have, _)| have == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(header("x-goog-api-key"), Some("key-canary"));
        assert_eq!(header("authorization"), None);
        assert_eq!(header("accept"), Some("application/json"));
        assert!(!format!("{model:?}").contains("canary"));
    }
    for name in [
        "a/b",
        "..",
        "a?key=1",
        "models/",
        "models/a:b",
        "a b",
        "\u{e9}",
    ] {
        let target = Target::new("google", name, "gemini", "generate_content").unwrap();
        let settings = GeminiSettings::new(target, "https://offline.invalid/v1beta");
        let failure = settings
            .with_transport(Arc::new(Scripted::stream(Vec::new(), End::Clean)))
            .unwrap_err();
        assert_eq!(
            failure.error_code, "provider_client_construction_failed",
            "{name}"
        );
        assert_eq!(failure.request_sent, RequestSent::No);
    }
}

/// An error that only this consumer knows.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("the consumer stopped")]
struct Stopped(u32);

struct Failing;

impl DeltaSink for Failing {
    fn delta(&mut self, _: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(Box::new(Stopped(7)))
    }
}

#[test]
fn a_sink_gets_one_delta_and_its_error_comes_back_unchanged_prv_94_prv_100() {
    let answer = || {
        model_over(json!({"candidates": [{
            "content": {"parts": [{"text": "Hel"}, {"text": "lo"}]},
            "finishReason": "STOP",
        }]}))
    };
    let view = view_of(items(vec![user("hi")]), &[], target());
    let model = answer();
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    let mut deltas = Deltas::default();
    let raw = run(model.send(payload.clone(), Some(&mut deltas))).unwrap();
    assert_eq!(deltas.0, ["Hello"]);
    assert_eq!(model.codec().decode(raw, &view).unwrap().text(), "Hello");
    let Err(ProviderError::Consumer(error)) = run(answer().send(payload, Some(&mut Failing)))
    else {
        panic!("the consumer's own error")
    };
    assert_eq!(error.downcast_ref::<Stopped>(), Some(&Stopped(7)));
}
