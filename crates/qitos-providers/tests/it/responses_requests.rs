//! What a Responses request holds, and what is refused before (PRV-12 to PRV-15, PRV-24, PRV-27, PRV-32, PRV-80 to PRV-83).

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::error::ContractError;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::openai_responses::{
    ResponsesCodec, ResponsesOptions, ResponsesSettings, responses_capabilities,
};
use serde_json::{Map, Value, json};

use super::chat_requests::{assistant, call, result_item, text, user};
use super::setup::{body_of, items, view_of};

pub(crate) const SCOPE: &str = "openai-compatible:responses";

pub(crate) fn target() -> Target {
    Target::new("openai-compatible", "offline", "openai", "responses").unwrap()
}

fn options(extra: Value) -> ResponsesOptions {
    let Value::Object(extra_body) = extra else {
        panic!("an object")
    };
    ResponsesOptions {
        extra_body,
        ..ResponsesOptions::default()
    }
}

fn codec(options: ResponsesOptions) -> ResponsesCodec {
    ResponsesCodec::new(options).unwrap()
}

fn encode(view: &RequestView, options: ResponsesOptions) -> Value {
    let capabilities = responses_capabilities(target(), None);
    let (payload, report) = codec(options).encode(view, &capabilities, false).unwrap();
    assert!(report.is_consistent());
    body_of(&payload)
}

fn plain(view: &RequestView) -> Value {
    encode(view, ResponsesOptions::default())
}

fn reasoning(scope: &str) -> AssistantPart {
    AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: scope.into(),
        reference_id: "reasoning-1".into(),
        attachment_id: None,
        block_type: "reasoning".into(),
        summary: Some("think".into()),
    })
}

fn contribution(id: &str, horizon: Horizon, placement: Placement) -> Arc<ContextContribution> {
    let mut contribution = ContextContribution::new(id, "test", json!("text")).unwrap();
    contribution.persistence_horizon = horizon;
    contribution.requested_placement = placement;
    Arc::new(contribution)
}

#[test]
fn capabilities_are_those_of_the_table_prv_10() {
    let capabilities = responses_capabilities(target(), Some(9));
    capabilities.check().unwrap();
    assert!(capabilities.supports_continuation && capabilities.supports_streaming);
    assert!(capabilities.supports_reasoning_input && capabilities.supports_reasoning_output);
    assert!(capabilities.supports_tool_choice && capabilities.supports_structured_output);
    assert_eq!(capabilities.max_input_units, Some(9));
    assert_eq!(capabilities.api_style, "responses");
}

#[test]
fn instructions_stand_beside_an_input_of_history_and_context_ctx_50() {
    let mut view = view_of(
        items(vec![
            user("hi"),
            assistant(vec![text("hello \"you\"")]),
            user("more"),
        ]),
        &[],
        target(),
    );
    let instruction = |role, text: &str| Instruction {
        role,
        text: text.into(),
    };
    view.instructions = Arc::new([
        instruction(InstructionRole::System, "be kind"),
        instruction(InstructionRole::Developer, "be brief"),
        instruction(InstructionRole::User, "call me A"),
    ]);
    view.contributions = vec![
        contribution("clock", Horizon::Request, Placement::Developer),
        contribution("project", Horizon::Session, Placement::Developer),
        contribution("recall", Horizon::Session, Placement::User),
    ];
    let body = plain(&view);
    assert_eq!(
        body,
        json!({
            "model": "offline",
            "instructions": "be kind\n\nbe brief\n\n[context project]\ntext",
            "input": [
                {"role": "user", "content": "call me A"},
                {"role": "user", "content": "[context recall]\ntext"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "hello \"you\""},
                {"role": "user", "content": "more"},
                {"role": "user", "content": "[context clock]\ntext"},
            ],
        })
    );
}

#[test]
fn tools_are_flat_and_always_say_whether_they_are_strict() {
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    let tool = |name: &str, strict_schema| ToolSchema {
        name: name.into(),
        description: format!("tool {name}"),
        input_schema: json!({"type": "object"}),
        strict_schema,
    };
    let strict_schema = json!({"type": "object", "additionalProperties": false});
    view.tool_schemas = Arc::new(ToolSchemas::new(vec![
        tool("multiply", None),
        tool("add", Some(strict_schema.clone())),
    ]));
    let entry = |name: &str, parameters: Value, strict: bool| {
        json!({"type": "function", "name": name, "description": format!("tool {name}"),
               "parameters": parameters, "strict": strict})
    };
    let loose = json!({"type": "object"});
    assert_eq!(
        plain(&view)["tools"],
        json!([
            entry("add", loose.clone(), false),
            entry("multiply", loose.clone(), false)
        ])
    );
    let strict = ResponsesOptions {
        strict_tools: true,
        ..ResponsesOptions::default()
    };
    assert_eq!(
        encode(&view, strict)["tools"],
        json!([
            entry("add", strict_schema, true),
            entry("multiply", loose, false)
        ])
    );
}

#[test]
fn the_output_limit_is_sent_unchanged_under_exactly_one_key_prv_80_prv_81() {
    let mut view = view_of(items(vec![user("hi")]), &[], target());
    let limited = ResponsesOptions {
        max_tokens: Some(10_240),
        temperature: Some(0.5),
        top_p: Some(0.25),
        ..ResponsesOptions::default()
    };
    let body = encode(&view, limited.clone());
    assert_eq!(body["max_output_tokens"], 10_240);
    assert_eq!(body["temperature"], 0.5);
    assert_eq!(body["top_p"], 0.25);
    assert!(body.get("max_tokens").is_none() && body.get("max_completion_tokens").is_none());
    view.max_output_tokens = Some(7);
    assert_eq!(encode(&view, limited)["max_output_tokens"], 7);
}

#[test]
fn extra_body_stands_at_the_top_level_and_own_keys_are_refused_prv_82() {
    let view = view_of(items(vec![user("hi")]), &[], target());
    let body = encode(
        &view,
        options(
            json!({"reasoning": {"effort": "low"}, "chat_template_kwargs": {"a": 1}, "store": true}),
        ),
    );
    assert_eq!(body["reasoning"], json!({"effort": "low"}));
    assert_eq!(body["chat_template_kwargs"], json!({"a": 1}));
    assert_eq!(body["store"], true);
    assert!(body.get("extra_body").is_none() && body.get("include").is_none());
    let empty = encode(&view, options(json!({"chat_template_kwargs": {}})));
    assert!(empty.get("chat_template_kwargs").is_none());
    for key in [
        "background",
        "conversation",
        "extra_body",
        "input",
        "instructions",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "previous_response_id",
        "stream",
        "stream_options",
        "tools",
    ] {
        let error = ResponsesCodec::new(options(json!({ key: 1 }))).unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid", "{key}");
    }
    for wrong in [
        json!({"store": "false"}),
        json!({"store": null}),
        json!({"include": "x"}),
        json!({"include": [1]}),
        json!({"chat_template_kwargs": 1}),
        json!({"reasoning": {"api_key": "sk-canary"}}),
    ] {
        let error = ResponsesCodec::new(options(wrong)).unwrap_err();
        assert_eq!(error.code(), "codec_transport_options_invalid");
        assert!(!error.to_string().contains("canary"));
    }
    let mut settings = ResponsesSettings::new(target(), "https://offline.invalid/v1");
    settings.options.max_tokens = Some(0);
    let transport = super::setup::Scripted::stream(Vec::new(), super::setup::End::Clean);
    let failure = settings.with_transport(Arc::new(transport)).unwrap_err();
    assert_eq!(failure.error_code, "codec_transport_options_invalid");
    assert_eq!(failure.request_sent, RequestSent::No);
}

#[test]
fn the_tool_policy_decides_tools_and_choice_prv_83() {
    let mut view = view_of(items(vec![user("hi")]), &["add"], target());
    let thinking = || options(json!({"enable_thinking": true, "tool_choice": "auto"}));
    assert_eq!(encode(&view, thinking())["tool_choice"], "auto");
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
        let named = ResponsesOptions {
            forced_tool: Some("add".into()),
            ..ResponsesOptions::default()
        };
        assert_eq!(
            encode(&view, named)["tool_choice"],
            json!({"type": "function", "name": "add"})
        );
        view.tool_use_satisfied = true;
        assert!(plain(&view).get("tool_choice").is_none());
    }
}

#[test]
fn an_answer_goes_back_in_its_own_order_and_results_by_call_id_prv_24_prv_69() {
    let view = view_of(
        items(vec![
            user("hi"),
            assistant(vec![
                text("before"),
                call(SCOPE, "one", "batch_request_1", "{\"a\":2}"),
                text("between"),
                call(SCOPE, "two@request_1", "batch_request_1", "{\"a\":3}"),
            ]),
            result_item(SCOPE, "two@request_1", json!(5)),
            result_item(SCOPE, "one", json!({"b": "x"})),
        ]),
        &["add"],
        target(),
    );
    let capabilities = responses_capabilities(target(), None);
    let (payload, report) = codec(ResponsesOptions::default())
        .encode(&view, &capabilities, false)
        .unwrap();
    assert!(report.lossless);
    assert_eq!(report.tool_schema_conversion, "flat");
    let function_call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "add", "arguments": arguments});
    assert_eq!(
        body_of(&payload)["input"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "before"},
            function_call("one", "{\"a\":2}"),
            {"role": "assistant", "content": "between"},
            function_call("two", "{\"a\":3}"),
            {"type": "function_call_output", "call_id": "two", "output": "5"},
            {"type": "function_call_output", "call_id": "one", "output": "{\"b\":\"x\"}"},
        ])
    );
}

#[test]
fn text_protocol_calls_are_text_and_their_results_observations() {
    let view = view_of(
        items(vec![
            user("hi"),
            assistant(vec![
                text("Action: add()"),
                call("text", "one", "batch_request_1", "{}"),
            ]),
            result_item("text", "one", json!(5)),
        ]),
        &[],
        target(),
    );
    assert_eq!(
        plain(&view)["input"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "Action: add()"},
            {"role": "user", "content": "Observation: 5"},
        ])
    );
}

#[test]
fn images_are_sent_and_what_cannot_be_carried_is_a_declared_loss_prv_14() {
    let image = ContentBlock {
        block_type: "image_base64".into(),
        data: Some("AAAA".into()),
        mime_type: Some("image/jpeg".into()),
        detail: Some("low".into()),
        ..ContentBlock::default()
    };
    let audio = ContentBlock {
        block_type: "audio".into(),
        ..ContentBlock::default()
    };
    let view = |blocks: Vec<ContentBlock>| {
        let content = blocks;
        let metadata = Map::new();
        view_of(
            items(vec![ItemBody::User(UserItem { content, metadata })]),
            &[],
            target(),
        )
    };
    let body = plain(&view(vec![ContentBlock::text("look"), image.clone()]));
    assert_eq!(
        body["input"][0]["content"],
        json!([
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "detail": "low", "image_url": "data:image/jpeg;base64,AAAA"},
        ])
    );
    let capabilities = responses_capabilities(target(), None);
    let lossy = view(vec![image, audio]);
    let refused = codec(ResponsesOptions::default())
        .encode(&lossy, &capabilities, false)
        .unwrap_err();
    assert_eq!(refused.code(), "codec_loss_rejected");
    let (_, report) = codec(ResponsesOptions::default())
        .encode(&lossy, &capabilities, true)
        .unwrap();
    assert_eq!(report.lossy_fields, ["multimodal.audio"]);
    let empty = view(vec![
        ContentBlock::text("look"),
        ContentBlock {
            block_type: "image_url".into(),
            ..ContentBlock::default()
        },
    ]);
    let error = codec(ResponsesOptions::default())
        .encode(&empty, &capabilities, false)
        .unwrap_err();
    assert_eq!(error.code(), "codec_encode_failed");
}

#[test]
fn fragments_are_encoded_once_and_shared_by_later_requests_prv_12() {
    let view = view_of(
        items(vec![user("hi"), assistant(vec![text("hello")])]),
        &[],
        target(),
    );
    let capabilities = responses_capabilities(target(), None);
    let codec = codec(ResponsesOptions::default());
    let (first, _) = codec.encode(&view, &capabilities, false).unwrap();
    let (second, _) = codec.encode(&view, &capabilities, false).unwrap();
    assert_eq!(first.fragments().count(), 2);
    for (left, right) in first.fragments().zip(second.fragments()) {
        assert!(Arc::ptr_eq(left, right));
    }
}

#[test]
fn a_history_that_begins_with_a_result_is_refused_ctx_28() {
    let all = items(vec![
        user("hi"),
        assistant(vec![call(SCOPE, "one", "batch_request_1", "{}")]),
        result_item(SCOPE, "one", json!(5)),
    ]);
    let view = view_of(all.suffix(2), &["add"], target());
    let error = codec(ResponsesOptions::default())
        .encode(&view, &responses_capabilities(target(), None), true)
        .unwrap_err();
    assert_eq!(error.code(), "request_closure_violation");
}

#[test]
fn reasoning_without_its_state_is_a_declared_loss_and_nothing_else_is_prv_14_prv_32() {
    let history = |parts| items(vec![user("hi"), assistant(parts), user("go on")]);
    let capabilities = responses_capabilities(target(), None);
    for (extra, with_reasoning) in [
        (json!({}), true),
        (json!({"store": false}), true),
        (json!({}), false),
        (json!({"store": false}), false),
    ] {
        let parts = if with_reasoning {
            vec![reasoning("openai:chat_completions"), text("seen")]
        } else {
            vec![text("seen")]
        };
        let mut view = view_of(history(parts), &[], target());
        view.reasoning_policy.allow_loss = false;
        let encoded = codec(options(extra.clone())).encode(&view, &capabilities, false);
        if !with_reasoning {
            let (_, report) = encoded.unwrap();
            assert!(report.lossless);
            assert_eq!(report.reasoning, "not_present");
            continue;
        }
        let lossy_fields = vec!["assistant.reasoning".to_owned()];
        assert_eq!(
            encoded.unwrap_err(),
            CodecError::LossRejected {
                lossy_fields: lossy_fields.clone()
            }
        );
        let (payload, report) = codec(options(extra))
            .encode(&view, &capabilities, true)
            .unwrap();
        assert_eq!(report.lossy_fields, lossy_fields);
        assert_eq!(report.reasoning, "dropped");
        assert!(payload.waiting().is_empty());
        assert!(!body_of(&payload).to_string().contains("think"));
    }
}
