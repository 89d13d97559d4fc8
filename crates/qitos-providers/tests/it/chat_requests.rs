//! What reaches the wire, and what is refused before (PRV-11 to PRV-15, PRV-20, PRV-24, PRV-76 to PRV-84).

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{AttemptId, BatchId, SlotId};
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_contracts::tool::result::{AttemptFacts, End as CallEnd, ResultIdentity, ToolResult};
use qitos_contracts::tool::{EffectClass, Returned};
use qitos_providers::Connection;
use qitos_providers::openai_chat::{
    Authentication, ChatCodec, ChatOptions, ChatProfile, ChatSettings, LimitKey, chat_capabilities,
};
use serde_json::{Map, Value, json};

use super::setup::{Deltas, End, Scripted, body_of, items, run, target, view_of};

fn codec(options: ChatOptions) -> ChatCodec {
    ChatCodec::new(options, ChatProfile::default()).unwrap()
}

fn encode(view: &RequestView, options: ChatOptions) -> Value {
    let capabilities = chat_capabilities(target(), None);
    let (payload, report) = codec(options).encode(view, &capabilities, false).unwrap();
    assert!(report.is_consistent());
    body_of(&payload)
}

fn refused(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
) -> CodecError {
    codec(ChatOptions::default())
        .encode(view, capabilities, allow_loss)
        .unwrap_err()
}

pub(crate) fn user(text: &str) -> ItemBody {
    ItemBody::User(UserItem {
        content: vec![ContentBlock::text(text)],
        metadata: Map::new(),
    })
}

pub(crate) fn call(scope: &str, id: &str, batch: &str, arguments: &str) -> AssistantPart {
    AssistantPart::ToolCall(ToolCallPart {
        provider_scope: scope.into(),
        call_id: id.parse().unwrap(),
        batch_id: batch.parse().unwrap(),
        name: "add".into(),
        raw_arguments: arguments.into(),
        parsed_arguments: serde_json::from_str(arguments).ok().map(Arc::new),
        parse_status: ParseStatus::Parsed,
        parse_error: None,
        metadata: Map::new(),
    })
}

pub(crate) fn assistant(parts: Vec<AssistantPart>) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        ..AssistantItem::default()
    })
}

pub(crate) fn text(text: &str) -> AssistantPart {
    AssistantPart::Content(ContentBlock::text(text))
}

const SCOPE: &str = "openai-compatible:chat_completions";

fn options(extra: Value) -> ChatOptions {
    let Value::Object(extra_body) = extra else {
        panic!("an object")
    };
    ChatOptions {
        extra_body,
        ..ChatOptions::default()
    }
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
    view.instructions = Arc::new([
        Instruction {
            role: InstructionRole::System,
            text: "be kind".into(),
        },
        Instruction {
            role: InstructionRole::Developer,
            text: "be brief".into(),
        },
    ]);
    let body = encode(&view, ChatOptions::default());
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "be kind"},
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello \"you\""},
            {"role": "user", "content": "more"},
        ])
    );
    assert_eq!(body["model"], "offline");
    // CTX-49: sorted by name.
    assert_eq!(body["tools"][0]["function"]["name"], "add");
    assert_eq!(body["tools"][1]["type"], "function");
    assert_eq!(
        body["tools"][1]["function"]["parameters"],
        json!({"type": "object"})
    );
    assert!(body.get("tool_choice").is_none());
    assert!(body.get("stream").is_none());
}

#[test]
fn the_output_limit_is_sent_unchanged_under_exactly_one_key_prv_80_prv_81() {
    let view = view_of(items(vec![user("hi")]), &[], target());
    let limited = ChatOptions {
        max_tokens: Some(10_240),
        ..ChatOptions::default()
    };
    let body = encode(&view, limited.clone());
    assert_eq!(body["max_tokens"], 10_240);
    assert!(body.get("max_completion_tokens").is_none());
    let profile = ChatProfile {
        limit_key: LimitKey::MaxCompletionTokens,
        ..ChatProfile::default()
    };
    let (payload, _) = ChatCodec::new(limited, profile)
        .unwrap()
        .encode(&view, &chat_capabilities(target(), None), false)
        .unwrap();
    assert_eq!(body_of(&payload)["max_completion_tokens"], 10_240);
    assert!(body_of(&payload).get("max_tokens").is_none());
}

#[test]
fn extra_body_and_template_options_stand_at_the_top_level_prv_82() {
    let view = view_of(items(vec![user("hi")]), &[], target());
    let mut wanted =
        options(json!({"seed": 7, "do_sample": true, "chat_template_kwargs": {"a": 1}}));
    wanted.chat_template_kwargs = Some(json!({"enable_thinking": true}));
    wanted.do_sample = Some(false);
    wanted.temperature = Some(0.5);
    let body = encode(&view, wanted);
    assert_eq!(body["seed"], 7);
    assert_eq!(body["temperature"], 0.5);
    assert_eq!(body["do_sample"], false, "an option beats extra_body");
    assert_eq!(
        body["chat_template_kwargs"],
        json!({"enable_thinking": true})
    );
    assert!(body.get("extra_body").is_none());
    for empty in [
        options(json!({"chat_template_kwargs": {}})),
        ChatOptions {
            chat_template_kwargs: Some(json!({})),
            ..ChatOptions::default()
        },
    ] {
        assert!(encode(&view, empty).get("chat_template_kwargs").is_none());
    }
}

#[test]
fn options_that_are_not_valid_are_refused_at_construction_prv_82() {
    for key in [
        "model",
        "messages",
        "input",
        "stream",
        "stream_options",
        "tools",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "extra_body",
    ] {
        let error = ChatCodec::new(options(json!({ key: 1 })), ChatProfile::default()).unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid", "{key}");
    }
    for value in [json!("x"), json!(null), json!([1])] {
        let wrong = ChatOptions {
            chat_template_kwargs: Some(value),
            ..ChatOptions::default()
        };
        assert!(ChatCodec::new(wrong, ChatProfile::default()).is_err());
    }
    // PRV-17 `no_secret_keys_in_payload`
    for secret in [
        json!({"api_key": "x"}),
        json!({"a": {"Authorization": "x"}}),
        json!({"a": [{"headers": {}}]}),
        json!({"chat_template_kwargs": {"password": 1}}),
    ] {
        let error = ChatCodec::new(options(secret), ChatProfile::default()).unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid");
        assert!(!error.to_string().contains("\"x\""));
    }
    let wrong = ChatOptions {
        temperature: Some(f64::NAN),
        ..ChatOptions::default()
    };
    assert!(ChatCodec::new(wrong, ChatProfile::default()).is_err());
}

#[test]
fn the_tool_policy_decides_tools_and_choice_prv_83() {
    let mut view = view_of(items(vec![user("hi")]), &["add"], target());
    let thinking = || {
        options(json!({
            "enable_thinking": true, "thinking": {"type": "enabled"},
            "chat_template_kwargs": {"enable_thinking": true},
        }))
    };
    view.tool_use_policy = ToolUsePolicy::Disabled;
    let body = encode(&view, thinking());
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none());
    assert_eq!(body["enable_thinking"], true);
    for policy in [
        ToolUsePolicy::RequiredForNextDecision,
        ToolUsePolicy::RequiredBeforeFinal,
    ] {
        view.tool_use_policy = policy;
        view.tool_use_satisfied = false;
        let body = encode(&view, thinking());
        assert_eq!(body["tool_choice"], "required");
        assert_eq!(body["enable_thinking"], false);
        assert_eq!(body["thinking"], json!({"type": "disabled"}));
        assert_eq!(body["chat_template_kwargs"]["enable_thinking"], false);
        assert!(
            encode(&view, ChatOptions::default())
                .get("thinking")
                .is_none()
        );
        let mut named = thinking();
        named.forced_tool = Some("add".into());
        assert_eq!(
            encode(&view, named)["tool_choice"],
            json!({"type": "function", "function": {"name": "add"}})
        );
        view.tool_use_satisfied = true;
        let body = encode(&view, thinking());
        assert!(body.get("tool_choice").is_none());
        assert_eq!(body["enable_thinking"], true);
    }
}

pub(crate) fn result_item(scope: &str, id: &str, output: Value) -> ItemBody {
    let batch_id: BatchId = "batch_request_1".parse().unwrap();
    let slot_id = SlotId::new(&batch_id, 0);
    let identity = ResultIdentity {
        tool_name: "add".into(),
        call_id: id.parse().unwrap(),
        slot_id: slot_id.clone(),
        owner_generation: 1,
    };
    let attempt = AttemptFacts {
        attempt_id: AttemptId::of_slot(&slot_id, 1, 1),
        attempts: 1,
        latency_ms: 1,
    };
    let end = CallEnd::Returned(Returned::Value(output));
    ItemBody::ToolResult(ToolResultItem {
        provider_scope: scope.into(),
        call_id: id.parse().unwrap(),
        batch_id,
        result: Arc::new(ToolResult::ended(
            identity,
            &EffectClass::Pure,
            end,
            None,
            attempt,
        )),
        synthetic: false,
        closure_reason: None,
    })
}

fn answered_calls(first_result: &str) -> ItemList {
    let result = |id: &str, output: Value| result_item(SCOPE, id, output);
    let other = if first_result == "one" {
        "two@request_1"
    } else {
        "one"
    };
    items(vec![
        user("hi"),
        assistant(vec![
            call(SCOPE, "one", "batch_request_1", "{\"a\":2}"),
            call(SCOPE, "two@request_1", "batch_request_1", "{\"a\":3}"),
        ]),
        result(first_result, json!(5)),
        result(other, json!({"b": "x"})),
    ])
}

#[test]
fn results_stand_in_log_order_and_renamed_ids_go_back_as_the_provider_knew_them_prv_24_prv_111() {
    let view = view_of(answered_calls("two@request_1"), &["add"], target());
    let body = encode(&view, ChatOptions::default());
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(
        messages[1],
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "one", "type": "function", "function": {"name": "add", "arguments": "{\"a\":2}"}},
            {"id": "two", "type": "function", "function": {"name": "add", "arguments": "{\"a\":3}"}},
        ]})
    );
    assert_eq!(messages[2]["tool_call_id"], "two");
    assert_eq!(messages[3]["tool_call_id"], "one");
    assert_eq!(messages[2]["role"], "tool");
    // A plain success is its output and nothing around it.
    assert_eq!(messages[2]["content"], "5");
    assert_eq!(messages[3]["content"], "{\"b\":\"x\"}");
}

#[test]
fn a_result_that_is_no_plain_success_says_how_it_ended_prj_3() {
    let identity = ResultIdentity {
        tool_name: "add".into(),
        call_id: "one".parse().unwrap(),
        slot_id: SlotId::new(&"batch_request_1".parse().unwrap(), 0),
        owner_generation: 1,
    };
    let result = ToolResult::cancelled_unstarted(identity, "user", &EffectClass::Pure);
    let bodies = vec![
        user("hi"),
        assistant(vec![call(SCOPE, "one", "batch_request_1", "{}")]),
        ItemBody::ToolResult(ToolResultItem {
            provider_scope: SCOPE.into(),
            call_id: "one".parse().unwrap(),
            batch_id: "batch_request_1".parse().unwrap(),
            result: Arc::new(result),
            synthetic: true,
            closure_reason: Some("cancelled".into()),
        }),
    ];
    let body = encode(
        &view_of(items(bodies), &["add"], target()),
        ChatOptions::default(),
    );
    let shown: Value =
        serde_json::from_str(body["messages"][2]["content"].as_str().unwrap()).unwrap();
    assert_eq!(shown["status"], "cancelled");
    assert_eq!(shown["schema_version"], "qitos.tool_result.model_view/v1");
}

#[test]
fn a_history_that_begins_with_a_result_is_refused_ctx_28() {
    let all = answered_calls("one");
    let view = view_of(all.suffix(2), &["add"], target());
    let error = refused(&view, &chat_capabilities(target(), None), true);
    assert_eq!(error.code(), "request_closure_violation");
}

#[test]
fn fragments_are_encoded_once_and_shared_by_later_requests_prv_12() {
    let view = view_of(answered_calls("one"), &["add"], target());
    let capabilities = chat_capabilities(target(), None);
    let codec = codec(ChatOptions::default());
    let (first, _) = codec.encode(&view, &capabilities, false).unwrap();
    let (second, _) = codec.encode(&view, &capabilities, false).unwrap();
    assert!(first.fragments().count() > 0);
    for (left, right) in first.fragments().zip(second.fragments()) {
        assert!(Arc::ptr_eq(left, right));
    }
}

#[test]
fn every_undeclared_loss_is_refused_and_named_prv_14() {
    let capabilities = chat_capabilities(target(), None);
    let audio = ContentBlock {
        block_type: "audio".into(),
        ..ContentBlock::default()
    };
    let reasoning = AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: SCOPE.into(),
        reference_id: "r".into(),
        attachment_id: None,
        block_type: "reasoning_content".into(),
        summary: Some("think".into()),
    });
    let image = AssistantPart::Content(ContentBlock {
        block_type: "image_url".into(),
        url: Some("https://example.invalid/a.png".into()),
        ..ContentBlock::default()
    });
    let mut bodies = vec![
        ItemBody::User(UserItem {
            content: vec![ContentBlock::text("look"), audio],
            metadata: Map::new(),
        }),
        assistant(vec![reasoning, image, text("seen")]),
    ];
    bodies.push(user("go on"));
    let mut view = view_of(items(bodies), &[], target());
    view.reasoning_policy.allow_loss = false;
    let CodecError::LossRejected { lossy_fields } = refused(&view, &capabilities, false) else {
        panic!("refused as loss")
    };
    assert_eq!(
        lossy_fields,
        [
            "assistant.reasoning",
            "multimodal.audio",
            "assistant.multimodal.image_url"
        ]
    );
    let (payload, report) = codec(ChatOptions::default())
        .encode(&view, &capabilities, true)
        .unwrap();
    assert_eq!(report.lossy_fields, lossy_fields);
    assert_eq!(report.reasoning, "dropped");
    assert!(!report.lossless && report.is_consistent());
    assert!(!body_of(&payload).to_string().contains("think"));

    // PRV-20: where it can be sent back it goes back in its own field.
    let mut replaying = capabilities.clone();
    replaying.supports_reasoning_input = true;
    replaying.supported_features.push("reasoning".into());
    replaying.check().unwrap();
    let (payload, report) = codec(ChatOptions::default())
        .encode(&view, &replaying, true)
        .unwrap();
    assert_eq!(report.reasoning, "preserved");
    assert_eq!(
        body_of(&payload)["messages"][1]["reasoning_content"],
        "think"
    );
}

#[test]
fn interleaved_answers_are_a_declared_loss_prv_14() {
    let mixed = vec![
        text("before"),
        call(SCOPE, "one", "batch_request_1", "{}"),
        text("after"),
    ];
    let view = view_of(
        items(vec![user("hi"), assistant(mixed)]),
        &["add"],
        target(),
    );
    let error = refused(&view, &chat_capabilities(target(), None), false);
    assert!(error.to_string().contains("assistant.ordered_interleaving"));
}

#[test]
fn images_are_sent_and_an_image_without_content_is_refused() {
    let block = |url: Option<&str>, data: Option<&str>| ContentBlock {
        block_type: if url.is_some() {
            "image_url"
        } else {
            "image_base64"
        }
        .into(),
        url: url.map(Into::into),
        data: data.map(Into::into),
        mime_type: Some("image/jpeg".into()),
        ..ContentBlock::default()
    };
    let view = |block| {
        let content = vec![ContentBlock::text("look"), block];
        let metadata = Map::new();
        view_of(
            items(vec![ItemBody::User(UserItem { content, metadata })]),
            &[],
            target(),
        )
    };
    let body = encode(
        &view(block(Some("https://a.invalid/x"), None)),
        ChatOptions::default(),
    );
    assert_eq!(
        body["messages"][0]["content"],
        json!([{"type": "text", "text": "look"},
               {"type": "image_url", "image_url": {"url": "https://a.invalid/x"}}])
    );
    let body = encode(&view(block(None, Some("AAAA"))), ChatOptions::default());
    let url = &body["messages"][0]["content"][1]["image_url"]["url"];
    assert_eq!(url, "data:image/jpeg;base64,AAAA");
    let error = refused(
        &view(block(None, None)),
        &chat_capabilities(target(), None),
        false,
    );
    assert_eq!(error.code(), "codec_encode_failed");
}

#[test]
fn what_the_target_cannot_do_is_refused_even_with_loss_allowed_prv_15() {
    let base = || view_of(items(vec![user("hi")]), &["add"], target());
    let all = chat_capabilities(target(), Some(1_000));
    let mut no_tools = all.clone();
    no_tools.supports_tool_schemas = false;
    let mut no_choice = all.clone();
    no_choice.supports_tool_choice = false;
    let mut small = all.clone();
    small.max_output_units = Some(10);
    let continuation = ContinuationReference {
        reference_id: "r".into(),
        resolver_key: "k".into(),
        provider: "openai-compatible".into(),
        model: "offline".into(),
        api_mode: "chat_completions".into(),
        attachment_id: None,
        payload_digest: None,
        expires_at: None,
    };
    type Change = Box<dyn Fn(&mut RequestView)>;
    let cases: Vec<(&str, &ProviderCapabilities, Change)> = vec![
        ("tool_schemas", &no_tools, Box::new(|_| {})),
        (
            "tool_choice",
            &no_choice,
            Box::new(|view| view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision),
        ),
        (
            "context_window",
            &all,
            Box::new(|view| view.selection.selected_units = 1_001),
        ),
        (
            "output_budget",
            &small,
            Box::new(|view| view.context_budget.reserved_output_units = 11),
        ),
        (
            "reasoning_mode",
            &all,
            Box::new(|view| view.reasoning_policy.mode = ReasoningMode::SignedBlockReplay),
        ),
        (
            "continuation",
            &all,
            Box::new(move |view| view.continuation = Some(continuation.clone())),
        ),
        (
            "x.vision",
            &all,
            Box::new(|view| view.capability_requirements = vec!["x.vision".into()]),
        ),
        (
            "target",
            &all,
            Box::new(|view| {
                view.target =
                    Arc::new(Target::new("other", "m", "openai", "chat_completions").unwrap());
            }),
        ),
    ];
    for (name, capabilities, change) in cases {
        let mut view = base();
        change(&mut view);
        let error = refused(&view, capabilities, true);
        assert_eq!(error.code(), "codec_capability_mismatch", "{name}");
        assert_eq!(
            error,
            CodecError::CapabilityMismatch {
                unsupported: vec![name.to_owned()]
            }
        );
    }
    let mut view = base();
    view.selection.selected_units = 1_000;
    assert!(
        codec(ChatOptions::default())
            .encode(&view, &all, false)
            .is_ok()
    );
}

#[test]
fn what_changes_per_request_never_stands_before_the_history_ctx_50() {
    let contribution = |id: &str, horizon, placement| {
        let mut contribution = ContextContribution::new(id, "test", json!("text")).unwrap();
        contribution.persistence_horizon = horizon;
        contribution.requested_placement = placement;
        Arc::new(contribution)
    };
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    view.contributions = vec![
        contribution("clock", Horizon::Request, Placement::Developer),
        contribution(
            "notes-project-context",
            Horizon::Session,
            Placement::Developer,
        ),
        contribution("recall", Horizon::Session, Placement::AfterTool),
    ];
    let body = encode(&view, ChatOptions::default());
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "[context notes-project-context]\ntext"},
            {"role": "user", "content": "hi"},
            {"role": "user", "content": "[context clock]\ntext"},
            {"role": "user", "content": "[context recall]\ntext"},
        ])
    );
}

#[test]
fn calls_of_a_text_protocol_go_back_as_text_log_2() {
    let bodies = vec![
        user("hi"),
        assistant(vec![
            text("Action: add(a=2)"),
            call("text", "t1", "batch_request_1", "{\"a\":2}"),
        ]),
        result_item("text", "t1", json!(5)),
    ];
    let body = encode(
        &view_of(items(bodies), &[], target()),
        ChatOptions::default(),
    );
    assert_eq!(
        body["messages"][1],
        json!({"role": "assistant", "content": "Action: add(a=2)"})
    );
    let observation = body["messages"][2]["content"].as_str().unwrap();
    assert_eq!(body["messages"][2]["role"], "user");
    assert!(observation.starts_with("Observation: ") && observation.contains('5'));
}

#[test]
fn a_reused_or_unfit_call_id_gets_an_internal_one_prv_24() {
    let mut view = view_of(
        items(vec![
            user("hi"),
            assistant(vec![call(SCOPE, "call_0", "batch_r0", "{}")]),
        ]),
        &["add"],
        target(),
    );
    let decode = |view: &RequestView, id: &str| {
        let body = json!({"choices": [{"message": {"tool_calls": [
            {"id": id, "function": {"name": "add", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]});
        let decoded = codec(ChatOptions::default())
            .decode(RawResponse::whole(body), view)
            .unwrap();
        let ResponsePart::ToolCall {
            call_id, metadata, ..
        } = decoded.parts[0].clone()
        else {
            panic!("a call")
        };
        (call_id.to_string(), metadata.get("wire_id").cloned())
    };
    let request = view.request_id.to_string();
    assert_eq!(decode(&view, "call_1"), ("call_1".into(), None));
    assert_eq!(
        decode(&view, "call_0"),
        (format!("call_0@{request}"), Some(json!("call_0")))
    );
    let unfit = "a b";
    assert_eq!(
        decode(&view, unfit),
        (format!("call_{request}_0"), Some(json!(unfit)))
    );
    let long = "x".repeat(257);
    assert_eq!(decode(&view, &long).0, format!("call_{request}_0"));
    // Where part of the log is out of sight, no id can be trusted to be new.
    view.source.first_item = 4;
    assert_eq!(decode(&view, "call_1").0, format!("call_1@{request}"));
}

#[test]
fn whole_answers_pass_the_same_verdict_but_keep_unparsable_calls_unexecutable_prv_22_prv_49() {
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let decode =
        |body: Value| codec(ChatOptions::default()).decode(RawResponse::whole(body), &view);
    let answer = |message: Value, finish: Value| json!({"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    let calls = |arguments: &str| {
        json!({"tool_calls": [
        {"id": "a", "function": {"name": "add", "arguments": arguments}}]})
    };
    for (arguments, status, error) in [
        (
            "{\"a\":5",
            ParseStatus::MalformedRaw,
            "malformed_arguments_json",
        ),
        ("[1]", ParseStatus::ParsedInvalid, "arguments_not_object"),
        ("null", ParseStatus::ParsedInvalid, "arguments_not_object"),
    ] {
        let decoded = decode(answer(calls(arguments), json!("tool_calls"))).unwrap();
        let ResponsePart::ToolCall {
            parse_status,
            parse_error,
            parsed_arguments,
            ..
        } = &decoded.parts[0]
        else {
            panic!("a call")
        };
        assert_eq!(
            (*parse_status, parse_error.as_deref()),
            (status, Some(error))
        );
        assert!(parsed_arguments.is_none());
    }
    // PRV-23: the same rule for empty arguments as on streams.
    let decoded = decode(answer(calls("  "), json!("tool_calls"))).unwrap();
    let ResponsePart::ToolCall {
        raw_arguments,
        metadata,
        parse_status,
        ..
    } = &decoded.parts[0]
    else {
        panic!("a call")
    };
    assert_eq!(
        (&**raw_arguments, *parse_status),
        ("{}", ParseStatus::Parsed)
    );
    assert_eq!(metadata["wire_arguments_empty"], true);
    let violation = |body: Value| decode(body).unwrap_err().redacted_details.violation;
    let text = json!({"content": "Hi"});
    for (body, expected) in [
        (
            answer(text.clone(), Value::Null),
            Violation::MissingTerminal,
        ),
        (
            answer(text.clone(), json!("strange")),
            Violation::UnknownTerminal,
        ),
        (
            answer(text.clone(), json!("tool_calls")),
            Violation::TerminalWithoutTool,
        ),
        (
            answer(calls("{}"), json!("stop")),
            Violation::FinishDisallowsTools,
        ),
        (
            answer(calls("{}"), json!("length")),
            Violation::TruncatedToolInput,
        ),
        (
            json!({"choices": [{"message": {}}, {"message": {}}]}),
            Violation::ExtraChoice,
        ),
    ] {
        assert_eq!(violation(body), Some(expected));
    }
    for (body, code) in [
        (
            answer(json!({"content": "x", "refusal": "no"}), json!("stop")),
            "provider_refusal",
        ),
        (
            answer(text.clone(), json!("content_filter")),
            "provider_refusal",
        ),
        (answer(text, json!("abort")), "provider_server_error"),
        (json!({"error": {"code": 503}}), "provider_server_error"),
        (json!({"choices": []}), "provider_response_malformed"),
        (
            json!({"choices": [{"message": {"content": 5}}]}),
            "provider_response_malformed",
        ),
        (json!({}), "provider_response_malformed"),
        (json!([1]), "provider_response_envelope_invalid"),
    ] {
        let failure = decode(body).unwrap_err();
        assert_eq!(failure.error_code, code);
        assert_eq!(failure.request_sent, RequestSent::Yes);
    }
}

#[test]
fn one_attempt_is_one_request_with_its_headers_prv_84_prv_86() {
    let body =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n";
    for (authentication, header) in [
        (
            Authentication::Bearer,
            ("authorization", "Bearer sk-canary"),
        ),
        (Authentication::ApiKey, ("api-key", "sk-canary")),
    ] {
        let transport = Arc::new(Scripted::stream(vec![body.to_vec()], End::Clean));
        let mut settings =
            ChatSettings::new(target(), "https://offline.invalid/v1/chat/completions/");
        settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
            "sk-canary".into(),
        ));
        settings.connection.authentication = authentication;
        settings.connection.default_headers = vec![("X-Title".into(), "qitos".into())];
        assert!(!format!("{settings:?}").contains("sk-canary"));
        let model = settings
            .with_transport(Arc::clone(&transport) as Arc<dyn qitos_providers::http::HttpTransport>)
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
        assert_eq!(seen[0].url, "https://offline.invalid/v1/chat/completions");
        let headers: Vec<(&str, &str)> = seen[0]
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        for wanted in [
            header,
            ("x-title", "qitos"),
            ("accept", "text/event-stream"),
            ("content-type", "application/json"),
        ] {
            assert!(headers.contains(&wanted), "{wanted:?}");
        }
        let sent: Value = serde_json::from_slice(&seen[0].body).unwrap();
        assert_eq!(sent["stream"], true);
        assert_eq!(sent["stream_options"], json!({"include_usage": true}));
        assert!(!format!("{:?}", seen[0]).contains("canary"));
    }
}

#[test]
fn default_headers_cannot_replace_the_clients_own_and_nothing_is_sent_prv_38_prv_84() {
    let build = |change: &dyn Fn(&mut ChatSettings)| {
        let transport = Arc::new(Scripted::stream(Vec::new(), End::Clean));
        let mut settings = ChatSettings::new(target(), "https://offline.invalid/v1");
        change(&mut settings);
        let error = settings
            .with_transport(Arc::clone(&transport) as _)
            .unwrap_err();
        assert!(transport.seen.lock().unwrap().is_empty());
        assert_eq!(error.request_sent, RequestSent::No);
        assert_eq!(error.redacted_details.transport_attempts, 0);
        error.error_code
    };
    for name in [
        "Authorization",
        "content-type",
        "ACCEPT",
        "api-key",
        "Cookie",
        "host",
    ] {
        let code = build(&|settings| {
            settings.connection.default_headers = vec![(name.into(), "x".into())]
        });
        assert_eq!(code, "provider_client_construction_failed", "{name}");
    }
    for url in [
        "",
        "offline.invalid",
        "ftp://a",
        "https://u:p@a/v1",
        "https://a/v1?k=1",
        "https://a/#f",
        "https://",
    ] {
        let code =
            build(&|settings| settings.connection = Connection::new(url, Authentication::Bearer));
        assert_eq!(code, "provider_client_construction_failed", "{url}");
    }
    for secret in ["", " ", "a\nb"] {
        let code = build(&|settings| {
            settings.connection.credential =
                Some(qitos_contracts::secret::SecretValue::new(secret.into()));
        });
        assert_eq!(code, "provider_client_construction_failed");
    }
    let code = build(&|settings| settings.options = options(json!({"n": 2})));
    assert_eq!(code, "codec_transport_options_invalid");
}

#[test]
fn the_capabilities_of_the_dialect_agree_with_themselves_prv_10() {
    chat_capabilities(target(), Some(128_000)).check().unwrap();
}
