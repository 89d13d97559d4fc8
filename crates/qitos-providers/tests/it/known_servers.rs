//! The table of known servers: what a row says reaches the wire, and nothing else does (PRV-76, PRV-81, PRV-C8).

use std::sync::Arc;

use qitos_contracts::model::*;
use qitos_providers::http::HttpTransport;
use qitos_providers::openai_chat::{ChatOptions, ChatSettings, KNOWN_SERVERS, KnownServer};
use serde_json::{Value, json};

use super::chat_requests::user;
use super::setup::{Deltas, End, Scripted, items, run, target, view_of};

/// The answer of a known server to a request with a tool, and the request.
fn exchange(
    server: &KnownServer,
    stream: &str,
) -> (Result<RawResponse, ProviderError>, Value, String) {
    let transport = Arc::new(Scripted::stream(
        vec![stream.as_bytes().to_vec()],
        End::Clean,
    ));
    let mut settings = ChatSettings::new(target(), server.base_url);
    settings.profile = server.profile();
    settings.options = ChatOptions {
        max_tokens: Some(10_240),
        ..ChatOptions::default()
    };
    let model = settings
        .with_transport(Arc::clone(&transport) as Arc<dyn HttpTransport>)
        .unwrap();
    let view = view_of(items(vec![user("hi")]), &["add"], target());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    let answer = run(model.send(payload, Some(&mut Deltas::default())));
    let seen = transport.seen.lock().unwrap();
    let body = serde_json::from_slice(&seen[0].body).unwrap();
    (answer, body, seen[0].url.clone())
}

const TEXT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
const CALL_WITH_STOP: &str = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"one\",\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"stop\"}]}\n\n";

#[test]
fn every_row_has_a_name_of_its_own_an_address_and_exactly_one_limit_key_prv_81() {
    let names: Vec<&str> = KNOWN_SERVERS.iter().map(|server| server.name).collect();
    assert_eq!(
        names,
        [
            "deepseek",
            "kimi",
            "minimax",
            "ollama_openai",
            "openrouter",
            "qwen",
            "sglang",
            "vllm_openai",
        ]
    );
    for server in KNOWN_SERVERS {
        let (answer, body, url) = exchange(server, TEXT);
        answer.unwrap();
        assert_eq!(url, format!("{}/chat/completions", server.base_url));
        let local = server.base_url.starts_with("http://127.0.0.1:");
        assert!(local || server.base_url.starts_with("https://"));
        assert_eq!(server.needs_credential, !local, "{}", server.name);
        let wanted = if server.name == "minimax" {
            ["max_completion_tokens", "max_tokens"]
        } else {
            ["max_tokens", "max_completion_tokens"]
        };
        assert_eq!(body[wanted[0]], 10_240, "{}", server.name);
        assert!(body.get(wanted[1]).is_none(), "{}", server.name);
        // PRV-76: each of them documents the option.
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
    }
}

#[test]
fn only_the_row_that_says_so_takes_calls_that_end_by_stop_prv_c8() {
    for server in KNOWN_SERVERS {
        let (answer, ..) = exchange(server, CALL_WITH_STOP);
        if server.name == "ollama_openai" {
            assert_eq!(answer.unwrap().warnings, ["stop_carried_tool_calls"]);
            continue;
        }
        let Err(ProviderError::Failure(failure)) = answer else {
            panic!("{}", server.name)
        };
        assert_eq!(
            failure.redacted_details.violation,
            Some(Violation::FinishDisallowsTools)
        );
    }
}

#[test]
fn a_name_is_looked_up_as_it_is_written_and_nothing_is_guessed_prv_2_prv_81() {
    for server in KNOWN_SERVERS {
        let found = KnownServer::named(server.name).unwrap();
        assert_eq!(found.base_url, server.base_url);
    }
    for name in [
        "",
        "DeepSeek",
        "deepseek-chat",
        "https://api.deepseek.com/v1",
        "qwen3",
    ] {
        assert!(KnownServer::named(name).is_none(), "{name}");
    }
}
