//! What the text-only adapters send, refuse and declare as lost (PRV-8, PRV-10, PRV-14, PRV-80, PRV-82, PRV-86, PRV-90,
//! PRV-96, PRV-100, PRV-104).

use std::sync::Arc;

use qitos_contracts::error::ContractError;
use qitos_contracts::log::*;
use qitos_contracts::model::*;
use qitos_providers::WholeAnswerModel;
use qitos_providers::http::HttpTransport;
use qitos_providers::local::{LocalOptions, LocalServer, LocalSettings, OllamaMode};
use serde_json::{Map, Value, json};

use super::chat_requests::{assistant, call, result_item, text, user};
use super::setup::{Deltas, End, Scripted, body_of, items, run, view_of};

const CHAT: LocalServer = LocalServer::Ollama(OllamaMode::Chat);
const GENERATE: LocalServer = LocalServer::Ollama(OllamaMode::Generate);
const ALL: [LocalServer; 5] = [
    CHAT,
    GENERATE,
    LocalServer::LmStudio,
    LocalServer::Vllm,
    LocalServer::LiteLlm,
];

fn scripted(answer: &Value) -> Arc<Scripted> {
    Arc::new(Scripted::stream(
        vec![answer.to_string().into_bytes()],
        End::Clean,
    ))
}

fn built(
    server: LocalServer,
    options: LocalOptions,
) -> Result<WholeAnswerModel, Box<ProviderFailure>> {
    let mut settings = LocalSettings::new(server, "offline").unwrap();
    settings.options = options;
    settings.with_transport(scripted(&json!({})))
}

fn model(server: LocalServer) -> WholeAnswerModel {
    built(server, LocalOptions::default()).unwrap()
}

fn extra(value: Value) -> LocalOptions {
    let Value::Object(extra_body) = value else {
        panic!("an object")
    };
    LocalOptions {
        extra_body,
        ..LocalOptions::default()
    }
}

fn view(model: &WholeAnswerModel, bodies: Vec<ItemBody>, tools: &[&str]) -> RequestView {
    view_of(items(bodies), tools, (**model.target()).clone())
}

fn try_encode(
    model: &WholeAnswerModel,
    view: &RequestView,
    allow_loss: bool,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let encoded = model.codec().encode(view, model.capabilities(), allow_loss);
    if let Ok((_, report)) = &encoded {
        assert!(report.is_consistent());
        assert_eq!(
            (&*report.codec_id, report.codec_version),
            model.codec().id()
        );
    }
    encoded
}

/// A conversation in a text protocol, with instructions.
fn conversation(model: &WholeAnswerModel) -> RequestView {
    let bodies = vec![
        user("hi"),
        assistant(vec![
            text("Action: add()"),
            call("text", "one", "batch_request_1", "{}"),
        ]),
        result_item("text", "one", json!("5")),
    ];
    let mut view = view(model, bodies, &[]);
    let instruction = |role, text: &str| Instruction {
        role,
        text: text.into(),
    };
    view.instructions = Arc::new([
        instruction(InstructionRole::System, "be kind"),
        instruction(InstructionRole::Developer, "be brief"),
        instruction(InstructionRole::User, "I am Ada"),
    ]);
    view
}

fn sampling() -> LocalOptions {
    LocalOptions {
        max_tokens: Some(10_240),
        temperature: Some(0.5),
        top_p: Some(0.9),
        extra_body: Map::new(),
    }
}

const MESSAGES: [(&str, &str); 6] = [
    ("system", "be kind"),
    ("system", "be brief"),
    ("user", "I am Ada"),
    ("user", "hi"),
    ("assistant", "Action: add()"),
    ("user", "Observation: 5"),
];

fn messages() -> Value {
    MESSAGES
        .iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect()
}

#[test]
fn every_server_declares_its_target_and_claims_text_alone_prv_8_prv_10_prv_100() {
    for (server, declared) in [
        (CHAT, "ollama/offline/ollama/chat"),
        (GENERATE, "ollama/offline/ollama/generate"),
        (
            LocalServer::LmStudio,
            "lm_studio/offline/lm_studio/chat_completions",
        ),
        (LocalServer::Vllm, "vllm/offline/vllm/chat_completions"),
        (
            LocalServer::LiteLlm,
            "litellm/offline/litellm/chat_completions",
        ),
    ] {
        let model = model(server);
        assert_eq!(format!("{:?}", model.target()), declared);
        let capabilities = model.capabilities();
        capabilities.check().unwrap();
        assert_eq!(capabilities.multimodal_types, ["text"]);
        assert!(!capabilities.supports_streaming && !capabilities.supports_native_tool_calls);
        assert!(!capabilities.supports_reasoning_input && !capabilities.supports_continuation);
    }
    assert!(LocalSettings::new(CHAT, " ").is_err());
}

#[test]
fn ollama_chat_has_its_wire_form_prv_80() {
    let mut options = sampling();
    options.extra_body = extra(json!({"keep_alive": "5m", "options": {"seed": 7}})).extra_body;
    let model = built(CHAT, options).unwrap();
    let view = conversation(&model);
    for _ in 0..2 {
        let (payload, report) = try_encode(&model, &view, false).unwrap();
        assert!(report.lossless);
        assert_eq!(
            body_of(&payload),
            json!({
                "model": "offline",
                "stream": false,
                "keep_alive": "5m",
                "options": {"num_predict": 10_240, "temperature": 0.5, "top_p": 0.9, "seed": 7},
                "messages": messages(),
            })
        );
    }
}

#[test]
fn ollama_generate_gets_one_prompt_that_ends_where_the_model_goes_on() {
    let model = built(GENERATE, sampling()).unwrap();
    let (payload, _) = try_encode(&model, &conversation(&model), false).unwrap();
    assert_eq!(
        body_of(&payload),
        json!({
            "model": "offline",
            "stream": false,
            "options": {"num_predict": 10_240, "temperature": 0.5, "top_p": 0.9},
            "system": "be kind\n\nbe brief",
            "prompt": "user: I am Ada\n\nuser: hi\n\nassistant: Action: add()\n\n\
                       user: Observation: 5\n\nassistant:",
        })
    );
}

#[test]
fn the_compatible_servers_get_a_chat_body_without_streaming_and_litellm_no_retries_prv_86_prv_104()
{
    for server in [
        LocalServer::LmStudio,
        LocalServer::Vllm,
        LocalServer::LiteLlm,
    ] {
        let model = built(server, sampling()).unwrap();
        let (payload, _) = try_encode(&model, &conversation(&model), false).unwrap();
        let mut wanted = json!({
            "model": "offline",
            "max_tokens": 10_240,
            "temperature": 0.5,
            "top_p": 0.9,
            "messages": messages(),
        });
        if server == LocalServer::LiteLlm {
            wanted["num_retries"] = 0.into();
        }
        assert_eq!(body_of(&payload), wanted);
    }
}

#[test]
fn an_option_that_a_server_does_not_take_is_a_declared_loss_prv_104() {
    let options = || extra(json!({"chat_template_kwargs": {"x": 1}, "do_sample": true}));
    let lost = ["options.chat_template_kwargs", "options.do_sample"];
    for server in ALL {
        let model = built(server, options()).unwrap();
        let view = view(&model, vec![user("hi")], &[]);
        if matches!(server, LocalServer::Vllm | LocalServer::LiteLlm) {
            // These take further keys at the top level (PRV-82).
            let body = body_of(&try_encode(&model, &view, false).unwrap().0);
            assert_eq!(body["chat_template_kwargs"], json!({"x": 1}));
            continue;
        }
        assert_eq!(
            try_encode(&model, &view, false).unwrap_err(),
            CodecError::LossRejected {
                lossy_fields: lost.map(String::from).to_vec()
            }
        );
        let (payload, report) = try_encode(&model, &view, true).unwrap();
        assert_eq!(report.lossy_fields, lost);
        assert!(!report.lossless);
        let body = body_of(&payload);
        assert!(body.get("do_sample").is_none() && body.get("chat_template_kwargs").is_none());
    }
}

#[test]
fn a_refusal_names_what_history_and_options_would_lose_prv_14() {
    let image = ItemBody::User(UserItem {
        content: vec![
            ContentBlock::text("look"),
            ContentBlock {
                block_type: "image_url".into(),
                url: Some("https://a.example/i.png".into()),
                ..ContentBlock::default()
            },
        ],
        metadata: Map::new(),
    });
    for server in ALL {
        let model = built(server, extra(json!({"do_sample": true}))).unwrap();
        let view = view(&model, vec![image.clone()], &[]);
        let mut lossy_fields = vec!["multimodal.image_url".to_owned()];
        if !matches!(server, LocalServer::Vllm | LocalServer::LiteLlm) {
            lossy_fields.push("options.do_sample".to_owned());
        }
        assert_eq!(
            try_encode(&model, &view, false).unwrap_err(),
            CodecError::LossRejected {
                lossy_fields: lossy_fields.clone()
            }
        );
        let (payload, report) = try_encode(&model, &view, true).unwrap();
        assert_eq!(report.lossy_fields, lossy_fields);
        assert!(!body_of(&payload).to_string().contains("a.example"));
    }
}

#[test]
fn reasoning_is_dropped_and_said_to_be_prv_20() {
    let thought = AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: "ollama:chat".into(),
        reference_id: "reasoning-1".into(),
        attachment_id: None,
        block_type: "thinking".into(),
        summary: Some("canary".into()),
    });
    for server in ALL {
        let model = model(server);
        let bodies = vec![user("hi"), assistant(vec![thought.clone(), text("hello")])];
        let (payload, report) = try_encode(&model, &view(&model, bodies, &[]), false).unwrap();
        assert_eq!(report.lossy_fields, ["assistant.reasoning"]);
        assert_eq!(report.reasoning, "dropped");
        assert!(!body_of(&payload).to_string().contains("canary"));
    }
}

#[test]
fn tools_and_native_calls_are_refused_before_sending_also_with_loss_allowed_prv_14_prv_15() {
    for server in ALL {
        let model = model(server);
        let tools = view(&model, vec![user("hi")], &["add"]);
        assert_eq!(
            try_encode(&model, &tools, true).unwrap_err(),
            CodecError::CapabilityMismatch {
                unsupported: vec!["tool_schemas".into()]
            }
        );
        let bodies = vec![
            user("hi"),
            assistant(vec![call(
                "openai:chat_completions",
                "one",
                "batch_request_1",
                "{}",
            )]),
            result_item("openai:chat_completions", "one", json!(5)),
        ];
        assert_eq!(
            try_encode(&model, &view(&model, bodies, &[]), true).unwrap_err(),
            CodecError::CapabilityMismatch {
                unsupported: vec!["tool_calls".into()]
            }
        );
    }
}

#[test]
fn options_that_the_client_sets_itself_or_that_look_secret_are_refused_prv_82() {
    for server in ALL {
        for options in [
            json!({"messages": []}),
            json!({"prompt": "x"}),
            json!({"stream": true}),
            json!({"max_tokens": 1}),
            json!({"num_retries": 3}),
            json!({"api_key": "canary"}),
            json!({"format": {"authorization": "canary"}}),
        ] {
            let failure = built(server, extra(options.clone())).unwrap_err();
            let code = &failure.error_code;
            assert_eq!(code, "codec_transport_options_invalid", "{options}");
            assert_eq!(failure.request_sent, RequestSent::No);
            assert!(!format!("{failure} {failure:?}").contains("canary"));
        }
    }
    for options in [
        json!({"options": []}),
        json!({"options": {"num_predict": 1}}),
        json!({"options": {"temperature": 1}}),
    ] {
        assert!(built(CHAT, extra(options.clone())).is_err(), "{options}");
    }
}

#[test]
fn requests_go_to_the_servers_own_path_with_the_key_in_a_header_prv_44_prv_84() {
    for (server, url) in [
        (CHAT, "http://127.0.0.1:11434/api/chat"),
        (GENERATE, "http://127.0.0.1:11434/api/generate"),
        (
            LocalServer::LmStudio,
            "http://127.0.0.1:1234/v1/chat/completions",
        ),
        (
            LocalServer::Vllm,
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        (
            LocalServer::LiteLlm,
            "http://127.0.0.1:4000/v1/chat/completions",
        ),
    ] {
        let answer = match server {
            CHAT => json!({"message": {"content": "Hello"}, "done": true}),
            GENERATE => json!({"response": "Hello", "done": true}),
            _ => json!({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}),
        };
        let transport = scripted(&answer);
        let mut settings = LocalSettings::new(server, "offline").unwrap();
        settings.connection.credential = Some(qitos_contracts::secret::SecretValue::new(
            "key-canary".into(),
        ));
        let model = settings
            .with_transport(Arc::clone(&transport) as Arc<dyn HttpTransport>)
            .unwrap();
        let view = view(&model, vec![user("hi")], &[]);
        let (payload, _) = try_encode(&model, &view, false).unwrap();
        let mut deltas = Deltas::default();
        run(model.send(payload, Some(&mut deltas))).unwrap();
        assert_eq!(deltas.0, ["Hello"], "PRV-100");
        let seen = transport.seen.lock().unwrap();
        assert_eq!(seen[0].url, url);
        let authorization = ("authorization".to_owned(), "Bearer key-canary".to_owned());
        assert!(seen[0].headers.contains(&authorization));
        assert!(!format!("{model:?} {:?}", seen[0]).contains("canary"));
    }
}

#[test]
fn an_error_status_gives_its_row_and_nothing_of_its_text_prv_40_prv_43() {
    for (status, code) in [
        (400, "provider_request_rejected"),
        (401, "provider_authentication_failed"),
        (404, "provider_request_rejected"),
        (429, "provider_rate_limited"),
        (500, "provider_server_error"),
    ] {
        let mut transport = Scripted::stream(vec![b"{\"error\":\"canary\"}".to_vec()], End::Clean);
        transport.status = status;
        let settings = LocalSettings::new(CHAT, "offline").unwrap();
        let model = settings.with_transport(Arc::new(transport)).unwrap();
        let view = view(&model, vec![user("hi")], &[]);
        let (payload, _) = try_encode(&model, &view, false).unwrap();
        let mut deltas = Deltas::default();
        let Err(ProviderError::Failure(failure)) = run(model.send(payload, Some(&mut deltas)))
        else {
            panic!("a failure")
        };
        assert_eq!((failure.code(), failure.status_code), (code, Some(status)));
        assert!(deltas.0.is_empty());
        assert!(!format!("{failure} {failure:?}").contains("canary"));
    }
}

#[cfg(feature = "local")]
mod network {
    //! Over the loopback interface.

    use std::time::Duration;

    use qitos_contracts::model::*;
    use qitos_kit::loopback::{LoopbackServer, Reply};
    use qitos_providers::local::LocalSettings;
    use qitos_providers::{Connection, WholeAnswerModel};
    use serde_json::json;

    use super::super::chat_requests::user;
    use super::super::setup::Deltas;
    use super::{CHAT, try_encode, view};

    const ONE_SECOND: Duration = Duration::from_secs(1);

    fn model(server: &LoopbackServer) -> WholeAnswerModel {
        let mut settings = LocalSettings::new(CHAT, "offline").unwrap();
        let authentication = settings.connection.authentication;
        settings.connection = Connection::new(server.base_url(), authentication);
        settings.over_network().unwrap()
    }

    fn payload(model: &WholeAnswerModel) -> WirePayload {
        let view = view(model, vec![user("hi")], &[]);
        try_encode(model, &view, false).unwrap().0
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn one_request_one_answer_and_the_connection_is_gone_prv_90_prv_104() {
        let answer = json!({"message": {"content": "Hello"}, "done": true}).to_string();
        let reply = Reply::whole(200, "application/json; charset=utf-8", answer);
        let server = LoopbackServer::start(vec![reply]).unwrap();
        let model = model(&server);
        let mut deltas = Deltas::default();
        block_on(model.send(payload(&model), Some(&mut deltas))).unwrap();
        assert_eq!(deltas.0, ["Hello"]);
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].request_line, "POST /api/chat HTTP/1.1");
        assert_eq!(requests[0].header("accept"), Some("application/json"));
        assert_eq!(requests[0].header("authorization"), None);
        assert!(server.wait_until_no_connection(ONE_SECOND));
    }

    #[test]
    fn a_body_that_ends_early_is_a_failure_without_a_delta_prv_50_prv_92() {
        let open = || Reply::chunked(200, "application/json", &[]).piece("{\"message\":{");
        for (reply, code) in [
            (open().end(), "provider_response_decode_failed"),
            (open().reset(), "provider_connection_failed"),
            (open(), "provider_connection_failed"),
        ] {
            let server = LoopbackServer::start(vec![reply]).unwrap();
            let model = model(&server);
            let mut deltas = Deltas::default();
            let outcome = block_on(model.send(payload(&model), Some(&mut deltas)));
            let Err(ProviderError::Failure(failure)) = outcome else {
                panic!("a failure")
            };
            assert_eq!(failure.error_code, code);
            assert_eq!(failure.request_sent, RequestSent::Yes);
            assert!(deltas.0.is_empty());
            assert_eq!(server.requests().len(), 1, "PRV-86");
            assert!(server.wait_until_no_connection(ONE_SECOND));
        }
    }

    #[test]
    fn dropping_the_future_closes_the_connection_within_a_second_prv_96() {
        for reply in [
            Reply::default().hang(),
            Reply::chunked(200, "application/json", &[])
                .piece("{")
                .hang(),
        ] {
            let server = LoopbackServer::start(vec![reply]).unwrap();
            let model = model(&server);
            let mut deltas = Deltas::default();
            block_on(async {
                let mut future = model.send(payload(&model), Some(&mut deltas));
                let reached = async {
                    while !server.wait_for_requests(1, Duration::ZERO) {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::select! {
                    outcome = &mut future => panic!("{outcome:?}"),
                    () = reached => {}
                }
                drop(future);
            });
            assert!(server.wait_until_no_connection(ONE_SECOND));
            assert!(deltas.0.is_empty());
        }
    }
}
