//! What reaches the Messages wire, what is refused before, and what whole answers become.

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::SlotId;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_contracts::tool::EffectClass;
use qitos_contracts::tool::result::{ResultIdentity, ToolResult};
use qitos_providers::anthropic::{
    AnthropicCodec, AnthropicOptions, AnthropicProfile, AnthropicSettings, anthropic_capabilities,
};
use qitos_providers::http::HttpTransport;
use serde_json::{Map, Value, json};

use super::chat_requests::{assistant, call, result_item, text, user};
use super::setup::{Deltas, End, Scripted, body_of, items, run, view_of};

pub(crate) fn target() -> Target {
    Target::new("anthropic", "claude-offline", "messages", "messages").unwrap()
}

pub(crate) const SCOPE: &str = "anthropic:messages";
pub(crate) const BATCH: &str = "batch_request_1";

pub(crate) fn codec(options: AnthropicOptions) -> AnthropicCodec {
    AnthropicCodec::new(options, AnthropicProfile::default()).unwrap()
}

fn options(extra: Value) -> AnthropicOptions {
    let Value::Object(extra_body) = extra else {
        panic!("an object")
    };
    AnthropicOptions {
        extra_body,
        ..AnthropicOptions::default()
    }
}

pub(crate) fn capabilities() -> ProviderCapabilities {
    anthropic_capabilities(target(), None)
}

pub(crate) fn encoded(view: &RequestView, options: AnthropicOptions) -> (WirePayload, CodecReport) {
    let (payload, report) = codec(options).encode(view, &capabilities(), false).unwrap();
    assert!(report.is_consistent());
    (payload, report)
}

pub(crate) fn encode(view: &RequestView, options: AnthropicOptions) -> Value {
    body_of(&encoded(view, options).0)
}

fn messages(bodies: Vec<ItemBody>) -> Value {
    let view = view_of(items(bodies), &["add"], target());
    encode(&view, AnthropicOptions::default())["messages"].take()
}

pub(crate) fn decode(
    body: Value,
    view: &RequestView,
) -> Result<DecodedResponse, Box<ProviderFailure>> {
    codec(AnthropicOptions::default()).decode(RawResponse::whole(body), view)
}

#[test]
fn instructions_history_and_tools_have_their_wire_form() {
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
        instruction(InstructionRole::User, "remember me"),
        instruction(InstructionRole::Developer, "be brief"),
        instruction(InstructionRole::System, "  "),
    ]);
    assert_eq!(
        encode(&view, AnthropicOptions::default()),
        json!({
            "model": "claude-offline",
            "max_tokens": 2048,
            "system": [{"type": "text", "text": "be kind"}, {"type": "text", "text": "be brief"}],
            "messages": [
                {"role": "user", "content": "remember me"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": [{"type": "text", "text": "hello \"you\""}]},
                {"role": "user", "content": "more"},
            ],
            "tools": [
                {"name": "add", "description": "tool add", "input_schema": {"type": "object"}},
                {"name": "multiply", "description": "tool multiply", "input_schema": {"type": "object"}},
            ],
        })
    );
}

#[test]
fn the_output_limit_is_always_there_and_unchanged_prv_80() {
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    assert_eq!(
        encode(&view, AnthropicOptions::default())["max_tokens"],
        2_048
    );
    let limited = AnthropicOptions {
        max_tokens: 10_240,
        ..AnthropicOptions::default()
    };
    assert_eq!(encode(&view, limited.clone())["max_tokens"], 10_240);
    view.max_output_tokens = Some(77);
    assert_eq!(encode(&view, limited)["max_tokens"], 77);
}

#[test]
fn options_stand_at_the_top_level_and_wrong_ones_are_refused_prv_82() {
    let view = view_of(items(vec![user("hi")]), &[], target());
    let mut wanted = options(json!({
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "top_k": 5, "chat_template_kwargs": {},
    }));
    wanted.temperature = Some(0.5);
    wanted.top_p = Some(0.9);
    let body = encode(&view, wanted);
    assert_eq!(body["thinking"]["budget_tokens"], 1024);
    assert_eq!(body["top_k"], 5);
    assert_eq!(
        (&body["temperature"], &body["top_p"]),
        (&json!(0.5), &json!(0.9))
    );
    assert!(body.get("extra_body").is_none() && body.get("chat_template_kwargs").is_none());
    for wrong in [
        json!({"model": 1}),
        json!({"messages": 1}),
        json!({"system": "x"}),
        json!({"input": 1}),
        json!({"stream": true}),
        json!({"stream_options": {}}),
        json!({"tools": []}),
        json!({"n": 2}),
        json!({"max_tokens": 1}),
        json!({"max_completion_tokens": 1}),
        json!({"max_output_tokens": 1}),
        json!({"extra_body": {}}),
        json!({"thinking": "on"}),
        json!({"tool_choice": "any"}),
        json!({"chat_template_kwargs": [1]}),
        json!({"api_key": "x"}),
        json!({"metadata": {"Authorization": "x"}}),
    ] {
        let error = AnthropicCodec::new(options(wrong.clone()), AnthropicProfile::default());
        let error = error.unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid", "{wrong}");
    }
    let zero = AnthropicOptions {
        max_tokens: 0,
        ..AnthropicOptions::default()
    };
    assert!(AnthropicCodec::new(zero, AnthropicProfile::default()).is_err());
}

#[test]
fn a_forced_choice_is_refused_unless_the_profile_claims_it_and_ends_thinking_prv_10a_prv_83() {
    let mut view = view_of(items(vec![user("hi")]), &["add"], target());
    let thinking = || {
        options(json!({
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        }))
    };
    view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
    let error = codec(thinking())
        .encode(&view, &capabilities(), true)
        .unwrap_err();
    assert_eq!(
        error,
        CodecError::CapabilityMismatch {
            unsupported: vec!["tool_choice".into()]
        }
    );

    let mut claimed = capabilities();
    claimed.supports_tool_choice = true;
    let body = |view: &RequestView, options: AnthropicOptions| {
        let (payload, _) = codec(options).encode(view, &claimed, false).unwrap();
        body_of(&payload)
    };
    let forced = body(&view, thinking());
    assert_eq!(forced["tool_choice"], json!({"type": "any"}));
    assert_eq!(forced["thinking"], json!({"type": "disabled"}));
    let mut named = AnthropicOptions {
        forced_tool: Some("add".into()),
        ..AnthropicOptions::default()
    };
    let forced = body(&view, named.clone());
    assert_eq!(
        forced["tool_choice"],
        json!({"type": "tool", "name": "add"})
    );
    assert!(forced.get("thinking").is_none());
    view.tool_use_satisfied = true;
    named.extra_body = thinking().extra_body;
    let free = body(&view, named);
    assert_eq!(free["tool_choice"]["type"], "auto");
    assert_eq!(free["thinking"]["type"], "enabled");
    view.tool_use_policy = ToolUsePolicy::Disabled;
    let without = body(&view, thinking());
    assert!(without.get("tools").is_none() && without.get("tool_choice").is_none());

    let mut settings = AnthropicSettings::new(target(), "https://offline.invalid");
    settings.profile.tool_choice = true;
    let transport = Arc::new(Scripted::stream(Vec::new(), End::Clean));
    let model = settings.with_transport(transport).unwrap();
    assert!(model.capabilities().supports_tool_choice);
    model.capabilities().check().unwrap();
    capabilities().check().unwrap();
    assert!(!capabilities().supports_tool_choice);
}

fn cancelled(id: &str) -> ItemBody {
    let identity = ResultIdentity {
        tool_name: "add".into(),
        call_id: id.parse().unwrap(),
        slot_id: SlotId::new(&BATCH.parse().unwrap(), 1),
        owner_generation: 1,
    };
    ItemBody::ToolResult(ToolResultItem {
        provider_scope: SCOPE.into(),
        call_id: id.parse().unwrap(),
        batch_id: BATCH.parse().unwrap(),
        result: Arc::new(ToolResult::cancelled_unstarted(
            identity,
            "user",
            &EffectClass::Pure,
        )),
        synthetic: true,
        closure_reason: Some("cancelled".into()),
    })
}

fn steering(words: &str) -> ItemBody {
    ItemBody::Steering(SteeringItem {
        content: vec![ContentBlock::text(words)],
        metadata: Map::new(),
    })
}

#[test]
fn all_results_of_a_batch_stand_in_one_message_before_other_words_prv_24_prv_111() {
    let bodies = vec![
        user("hi"),
        assistant(vec![
            text("Adding."),
            call(SCOPE, "toolu_1", BATCH, "{\"a\":2}"),
            call(SCOPE, "toolu_2@request_1", BATCH, "{}"),
            call(SCOPE, "toolu_3", BATCH, "{}"),
        ]),
        result_item(SCOPE, "toolu_2@request_1", json!({"b": "x"})),
        result_item(SCOPE, "toolu_1", json!(5)),
        cancelled("toolu_3"),
        steering("faster"),
    ];
    let sent = messages(bodies);
    assert_eq!(
        sent[1],
        json!({"role": "assistant", "content": [
            {"type": "text", "text": "Adding."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 2}},
            {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {}},
            {"type": "tool_use", "id": "toolu_3", "name": "add", "input": {}},
        ]})
    );
    let results = &sent[2]["content"];
    assert_eq!(
        (&results[0], &results[1]),
        (
            &json!({"type": "tool_result", "tool_use_id": "toolu_2", "content": "{\"b\":\"x\"}"}),
            &json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "5"}),
        )
    );
    assert_eq!(results[2]["is_error"], true);
    assert!(
        results[2]["content"]
            .as_str()
            .unwrap()
            .contains("cancelled")
    );
    assert_eq!(results[3], Value::Null);
    assert_eq!(sent[3], json!({"role": "user", "content": "faster"}));
    assert_eq!(sent[4], Value::Null);
}

#[test]
fn results_are_found_in_long_histories_and_written_once_prv_12() {
    // Batches lie across the borders of frozen segments; every prefix is asked with the fragments of earlier ones.
    let mut log = ExchangeLog::new();
    let mut append = |body: ItemBody| {
        let item = Item {
            item_id: format!("item-{}", log.items().len()).parse().unwrap(),
            exchange_id: log.exchange_for(&body),
            body,
        };
        log.append(item, &mut Vec::new()).unwrap();
        log.items().clone()
    };
    append(user("hi"));
    for turn in 0..80 {
        let batch = format!("batch_request_{turn}");
        let ids: Vec<String> = (0..3).map(|slot| format!("toolu_{turn}_{slot}")).collect();
        let calls = ids.iter().map(|id| call(SCOPE, id, &batch, "{}")).collect();
        let mut list = append(assistant(calls));
        for id in &ids {
            let ItemBody::ToolResult(mut result) = result_item(SCOPE, id, json!(turn)) else {
                unreachable!()
            };
            result.batch_id = batch.parse().unwrap();
            list = append(ItemBody::ToolResult(result));
        }
        let view = view_of(list.clone(), &["add"], target());
        let sent = encode(&view, AnthropicOptions::default());
        let sent = sent["messages"].as_array().unwrap();
        assert_eq!(sent.len(), 1 + 2 * (turn + 1));
        for (earlier, pair) in sent[1..].chunks(2).enumerate() {
            let answered: Vec<&str> = pair[1]["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|block| block["tool_use_id"].as_str().unwrap())
                .collect();
            let wanted: Vec<String> = (0..3)
                .map(|slot| format!("toolu_{earlier}_{slot}"))
                .collect();
            assert_eq!(answered, wanted);
        }
        // The same items without any kept fragment give the same bytes.
        if turn % 20 == 19 {
            let mut fresh = ItemList::new();
            for item in list.iter() {
                fresh.push(SealedItem::seal(item.item().clone(), &mut Vec::new()).unwrap());
            }
            let again = encode(
                &view_of(fresh, &["add"], target()),
                AnthropicOptions::default(),
            );
            assert_eq!(again["messages"].as_array().unwrap(), sent);
        }
    }
}

#[test]
fn fragments_are_encoded_once_and_shared_by_later_requests_prv_12() {
    let view = view_of(items(vec![user("hi"), user("again")]), &[], target());
    let (first, _) = encoded(&view, AnthropicOptions::default());
    let (second, _) = encoded(&view, AnthropicOptions::default());
    let pairs: Vec<_> = first.fragments().zip(second.fragments()).collect();
    assert_eq!(pairs.len(), 2);
    assert!(pairs.iter().all(|(left, right)| Arc::ptr_eq(left, right)));
}

#[test]
fn calls_of_other_models_get_ids_that_the_server_takes() {
    let scope = "openai-compatible:chat_completions";
    let sent = messages(vec![
        user("hi"),
        assistant(vec![call(scope, "functions.add:0", BATCH, "{}")]),
        result_item(scope, "functions.add:0", json!("")),
    ]);
    assert_eq!(sent[1]["content"][0]["id"], "functions_add_0");
    assert_eq!(
        sent[2]["content"][0],
        json!({"type": "tool_result", "tool_use_id": "functions_add_0"})
    );
    let own = messages(vec![
        user("hi"),
        assistant(vec![call(SCOPE, "functions.add:0", BATCH, "{}")]),
        result_item(SCOPE, "functions.add:0", json!(1)),
    ]);
    assert_eq!(own[1]["content"][0]["id"], "functions.add:0");
    assert_eq!(own[2]["content"][0]["tool_use_id"], "functions.add:0");
}

#[test]
fn calls_of_a_text_protocol_go_back_as_text_log_2() {
    let sent = messages(vec![
        user("hi"),
        assistant(vec![
            text("Action: add"),
            call("text", "text_1", BATCH, "{}"),
        ]),
        result_item("text", "text_1", json!(5)),
    ]);
    assert_eq!(sent[1]["content"].as_array().unwrap().len(), 1);
    assert_eq!(
        sent[2],
        json!({"role": "user", "content": "Observation: 5"})
    );
}

#[test]
fn blank_texts_and_empty_answers_are_left_out_because_the_server_refuses_them() {
    let sent = messages(vec![
        user("hi"),
        assistant(vec![text("\n\n"), text("a "), text("")]),
        user("more"),
        assistant(vec![text(" \n")]),
        user("still"),
    ]);
    assert_eq!(sent[1]["content"], json!([{"type": "text", "text": "a "}]));
    assert_eq!(sent[3], json!({"role": "user", "content": "still"}));
}

#[test]
fn images_go_as_base64_and_what_is_not_carried_is_a_named_loss_prv_14() {
    let image = |block_type: &str, data: Option<&str>| ContentBlock {
        block_type: block_type.into(),
        data: data.map(Into::into),
        url: Some("https://offline.invalid/x.png".into()),
        mime_type: Some("image/jpeg".into()),
        ..ContentBlock::default()
    };
    let view = |block: ContentBlock| {
        let content = vec![ContentBlock::text("look"), block];
        let body = ItemBody::User(UserItem {
            content,
            metadata: Map::new(),
        });
        view_of(items(vec![body]), &[], target())
    };
    let carried = view(image("image_base64", Some("QUJD")));
    let (payload, report) = encoded(&carried, AnthropicOptions::default());
    assert_eq!(
        body_of(&payload)["messages"][0]["content"],
        json!([
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"}},
        ])
    );
    assert_eq!(report.multimodal_conversion, "converted");
    let codec = codec(AnthropicOptions::default());
    let empty = view(image("image_base64", None));
    let error = codec.encode(&empty, &capabilities(), true).unwrap_err();
    assert_eq!(error.code(), "codec_encode_failed");
    for kind in ["image_url", "image_file"] {
        let lost = view(image(kind, None));
        let error = codec.encode(&lost, &capabilities(), false).unwrap_err();
        assert_eq!(error.code(), "codec_loss_rejected");
        let (payload, report) = codec.encode(&lost, &capabilities(), true).unwrap();
        assert_eq!(report.lossy_fields, [format!("multimodal.{kind}")]);
        let content = &body_of(&payload)["messages"][0]["content"];
        assert_eq!(content.as_array().unwrap().len(), 1);
    }
}

fn contribution(id: &str, placement: Placement, horizon: Horizon) -> Arc<ContextContribution> {
    let mut made = ContextContribution::new(id, "test", json!(format!("about {id}"))).unwrap();
    made.requested_placement = placement;
    made.persistence_horizon = horizon;
    Arc::new(made)
}

#[test]
fn contributions_stand_where_they_keep_the_prefix_and_never_after_a_paused_answer_ctx_50() {
    let contributions = vec![
        contribution("trusted", Placement::System, Horizon::Session),
        contribution("told", Placement::User, Horizon::Session),
        contribution("now", Placement::System, Horizon::Request),
    ];
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    view.contributions.clone_from(&contributions);
    let body = encode(&view, AnthropicOptions::default());
    assert_eq!(body["system"].as_array().unwrap().len(), 1);
    let said = |body: &Value| -> Vec<String> {
        let messages = body["messages"].as_array().unwrap();
        messages
            .iter()
            .map(|message| message["content"].to_string())
            .collect()
    };
    let sent = said(&body);
    assert!(sent[0].contains("told") && sent[1].contains("hi") && sent[2].contains("now"));

    let mut paused = view_of(
        items(vec![user("hi"), assistant(vec![text("Looking.")])]),
        &[],
        target(),
    );
    paused.contributions = contributions;
    let sent = said(&encode(&paused, AnthropicOptions::default()));
    assert!(sent[1].contains("now") && sent[3].contains("Looking."));
}

pub(crate) fn answer(content: Value, stop_reason: &str) -> Value {
    json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-offline",
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2},
    })
}

#[test]
fn whole_answers_pass_the_same_verdict_but_keep_unparsable_calls_unexecutable_prv_22_prv_49() {
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let decoded = decode(
        answer(json!([{"type": "text", "text": "Hi"}]), "end_turn"),
        &view,
    );
    let decoded = decoded.unwrap();
    assert_eq!(decoded.text(), "Hi");
    assert_eq!(decoded.model_name.as_deref(), Some("claude-offline"));
    assert_eq!(decoded.provider_metadata["response_id"], "msg_01");
    let usage = decoded.usage.unwrap();
    assert_eq!(
        (usage.prompt_tokens, usage.total_tokens),
        (Some(7), Some(10))
    );
    assert_eq!(usage.cached_tokens, Some(2));

    let with_input = |input: Value| {
        let mut block = json!({"type": "tool_use", "id": "toolu_1", "name": "add"});
        if !input.is_null() {
            block["input"] = input;
        }
        let decoded = decode(answer(json!([block]), "tool_use"), &view).unwrap();
        let ResponsePart::ToolCall {
            raw_arguments,
            parse_status,
            metadata,
            ..
        } = decoded.parts[0].clone()
        else {
            panic!("a call")
        };
        let empty = metadata.contains_key("wire_arguments_empty");
        (raw_arguments.to_string(), parse_status, empty)
    };
    let parsed = ParseStatus::Parsed;
    assert_eq!(
        with_input(json!({"a": 1})),
        ("{\"a\":1}".into(), parsed, false)
    );
    assert_eq!(with_input(json!({})), ("{}".into(), parsed, false));
    // PRV-23
    assert_eq!(with_input(Value::Null), ("{}".into(), parsed, true));
    assert_eq!(with_input(json!("")), ("{}".into(), parsed, true));
    let invalid = ParseStatus::ParsedInvalid;
    assert_eq!(with_input(json!([1])), ("[1]".into(), invalid, false));

    let tool = json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}});
    let hi = json!({"type": "text", "text": "Hi"});
    for (body, code, violation) in [
        (
            answer(json!([hi]), ""),
            "provider_stream_protocol_error",
            Some(Violation::MissingTerminal),
        ),
        (
            answer(json!([hi]), "strange"),
            "provider_stream_protocol_error",
            Some(Violation::UnknownTerminal),
        ),
        (
            answer(json!([hi]), "tool_use"),
            "provider_stream_protocol_error",
            Some(Violation::TerminalWithoutTool),
        ),
        (
            answer(json!([tool]), "end_turn"),
            "provider_stream_protocol_error",
            Some(Violation::FinishDisallowsTools),
        ),
        (
            answer(json!([tool]), "pause_turn"),
            "provider_stream_protocol_error",
            Some(Violation::FinishDisallowsTools),
        ),
        (
            answer(json!([tool]), "max_tokens"),
            "provider_stream_protocol_error",
            Some(Violation::TruncatedToolInput),
        ),
        (
            answer(json!([tool, tool]), "tool_use"),
            "provider_stream_protocol_error",
            Some(Violation::ToolIdentityConflict),
        ),
        (
            answer(json!([{"type": "tool_use", "name": "add"}]), "tool_use"),
            "provider_stream_protocol_error",
            Some(Violation::ToolIdentityMissing),
        ),
        (answer(json!([hi]), "refusal"), "provider_refusal", None),
        (
            answer(json!([{"text": "Hi"}]), "end_turn"),
            "provider_response_malformed",
            None,
        ),
        (
            answer(json!(["Hi"]), "end_turn"),
            "provider_response_malformed",
            None,
        ),
        (
            answer(json!("Hi"), "end_turn"),
            "provider_response_malformed",
            None,
        ),
        (
            answer(json!([{"type": "text", "text": 5}]), "end_turn"),
            "provider_response_malformed",
            None,
        ),
        (json!([1]), "provider_response_envelope_invalid", None),
        (
            json!({"type": "error", "error": {"type": "overloaded_error"}}),
            "provider_overloaded",
            None,
        ),
        (json!({"type": "error"}), "provider_server_error", None),
    ] {
        let failure = decode(body.clone(), &view).unwrap_err();
        assert_eq!(failure.error_code, code, "{body}");
        assert_eq!(failure.redacted_details.violation, violation, "{body}");
        assert_eq!(failure.request_sent, RequestSent::Yes);
        assert_eq!(failure.status_code, None);
    }
    let refused = decode(answer(json!([hi]), "refusal"), &view).unwrap_err();
    assert_eq!(refused.redacted_details.partial_text_characters, 2);
    assert_eq!(
        refused.redacted_details.usage.unwrap().total_tokens,
        Some(10)
    );
}

#[test]
fn one_attempt_is_one_request_with_its_headers_prv_84_prv_86() {
    let stream = "event: message_start\ndata: {\"message\":{}}\n\n\
        event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
        event: message_stop\ndata: {}\n\n";
    for (base_url, version) in [
        ("https://offline.invalid", None),
        ("https://offline.invalid/", Some("2024-01-01")),
        ("https://offline.invalid/v1", None),
        ("https://offline.invalid/v1/messages/", None),
    ] {
        let transport = Arc::new(Scripted::stream(vec![stream.into()], End::Clean));
        let mut settings = AnthropicSettings::new(target(), base_url);
        settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
            "sk-canary".into(),
        ));
        if let Some(version) = version {
            settings.connection.default_headers =
                vec![("Anthropic-Version".into(), version.into())];
        }
        assert!(!format!("{settings:?}").contains("canary"));
        let model = settings
            .with_transport(Arc::clone(&transport) as Arc<dyn HttpTransport>)
            .unwrap();
        assert!(!format!("{model:?}").contains("canary"));
        let view = view_of(items(vec![user("hi")]), &[], target());
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), false)
            .unwrap();
        run(model.send(payload, Some(&mut Deltas::default()))).unwrap();
        let seen = transport.seen.lock().unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].url, "https://offline.invalid/v1/messages");
        let version = version.unwrap_or("2023-06-01");
        for (name, value) in [
            ("x-api-key", "sk-canary"),
            ("anthropic-version", version),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
        ] {
            let sent: Vec<&str> = seen[0]
                .headers
                .iter()
                .filter(|(have, _)| have == name)
                .map(|(_, value)| value.as_str())
                .collect();
            assert_eq!(sent, [value], "{name}");
        }
        let sent: Value = serde_json::from_slice(&seen[0].body).unwrap();
        assert_eq!(sent["stream"], true);
        assert!(sent.get("stream_options").is_none());
    }
}

#[test]
fn what_would_replace_the_clients_own_headers_is_refused_and_nothing_is_sent_prv_38_prv_84() {
    for name in ["x-api-key", "authorization", "content-type", "accept"] {
        let transport = Arc::new(Scripted::stream(Vec::new(), End::Clean));
        let mut settings = AnthropicSettings::new(target(), "https://offline.invalid");
        settings.connection.default_headers = vec![(name.into(), "x".into())];
        let failure = settings
            .with_transport(Arc::clone(&transport) as Arc<dyn HttpTransport>)
            .unwrap_err();
        assert_eq!(failure.error_code, "provider_client_construction_failed");
        assert_eq!(failure.request_sent, RequestSent::No);
        assert!(transport.seen.lock().unwrap().is_empty());
    }
    let mut settings = AnthropicSettings::new(target(), "https://offline.invalid");
    settings.options = options(json!({"stream": true}));
    let transport = Arc::new(Scripted::stream(Vec::new(), End::Clean));
    let failure = settings.with_transport(transport).unwrap_err();
    assert_eq!(failure.error_code, "codec_transport_options_invalid");
}
