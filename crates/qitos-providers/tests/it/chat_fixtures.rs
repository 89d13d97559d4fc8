//! Every row of tables S and C: one fixture, replayed whole, at every two-chunk split and byte by byte (PRV-51);
//! every successful one cut at every byte (PRV-50, PRV-53).

use std::path::PathBuf;
use std::sync::Arc;

use qitos_contracts::model::*;
use qitos_providers::http::HttpTransport;
use qitos_providers::openai_chat::{ChatModel, ChatProfile, ChatSettings, MappedFinish};
use serde_json::{Map, Value, json};

use super::setup::{Deltas, End, Scripted, items, run, target, view_of};

struct Fixture {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

fn fixtures() -> Vec<Fixture> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/provider-streams/openai-chat");
    let mut fixtures: Vec<Fixture> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sse"))
        .map(|path| Fixture {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            body: std::fs::read(&path).unwrap(),
            expected: serde_json::from_slice(
                &std::fs::read(path.with_extension("expected.json")).unwrap(),
            )
            .unwrap(),
        })
        .filter(|fixture| fixture.expected.get("repeated_every_seconds").is_none())
        .collect();
    fixtures.sort_by(|left, right| left.name.cmp(&right.name));
    fixtures
}

impl Fixture {
    fn settings(&self) -> ChatSettings {
        let mut settings = ChatSettings::new(target(), "https://offline.invalid/v1");
        let mut profile = ChatProfile::default();
        if let Some(wanted) = self.expected.get("profile") {
            profile.stop_may_carry_tool_calls = wanted
                .get("stop_may_carry_tool_calls")
                .is_some_and(|value| value == true);
            if wanted.get("finish_reasons").is_some() {
                profile
                    .finish_reasons
                    .insert("strange".into(), MappedFinish::Stop);
            }
        }
        settings.profile = profile;
        settings
    }

    fn view(&self) -> RequestView {
        let tools: Vec<&str> = self
            .expected
            .get("tools")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut view = view_of(items(Vec::new()), &tools, target());
        if self.expected.get("forced_tool").is_some() {
            view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
        }
        view
    }

    fn replay(&self) -> Replay<'_> {
        let mut transport = Scripted::stream(Vec::new(), End::Clean);
        match self.expected.get("content_type") {
            None => {}
            Some(Value::String(kind)) => {
                transport.headers = vec![("content-type".into(), kind.clone())];
            }
            Some(_) => transport.headers.clear(),
        }
        let transport = Arc::new(transport);
        let model = self
            .settings()
            .with_transport(Arc::clone(&transport) as Arc<dyn HttpTransport>)
            .unwrap();
        let view = self.view();
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), false)
            .unwrap();
        Replay {
            fixture: self,
            transport,
            model,
            view,
            payload,
        }
    }
}

/// One fixture, ready to be sent in any cut.
struct Replay<'fixture> {
    fixture: &'fixture Fixture,
    transport: Arc<Scripted>,
    model: ChatModel,
    view: RequestView,
    payload: WirePayload,
}

impl Replay<'_> {
    /// What these chunks give, in the words of the fixture.
    fn verdict(&self, chunks: Vec<Vec<u8>>, end: End) -> Value {
        *self.transport.chunks.lock().unwrap() = chunks;
        *self.transport.end.lock().unwrap() = end;
        self.transport.seen.lock().unwrap().clear();
        let name = &self.fixture.name;
        let mut deltas = Deltas::default();
        let answer = run(self.model.send(self.payload.clone(), Some(&mut deltas)));
        let delivered = deltas.0.concat();
        match answer {
            Ok(raw) => {
                let warnings = raw.warnings.clone();
                let decoded = self.model.codec().decode(raw, &self.view).unwrap();
                assert_eq!(decoded.text(), delivered, "{name}: PRV-19");
                success(&decoded, &warnings)
            }
            Err(ProviderError::Failure(failure)) => {
                let details = &failure.redacted_details;
                assert_eq!(
                    details.partial_text_characters,
                    delivered.chars().count() as u64,
                    "{name}: counted what was delivered",
                );
                assert_eq!(failure.request_sent, RequestSent::Yes, "{name}");
                assert_eq!(failure.status_code, None, "{name}: PRV-41");
                assert_eq!(details.transport_attempts, 1);
                json!({"failure": {
                    "error_code": failure.error_code,
                    "category": failure.category,
                    "violation": details.violation,
                    "retryable": failure.retryable,
                    "partial_text_characters": details.partial_text_characters,
                    "partial_tool_calls": details.partial_tool_calls,
                    "usage": known(details.usage),
                }})
            }
            Err(ProviderError::Consumer(error)) => panic!("{error}"),
        }
    }
}

fn known(usage: Option<TokenUsage>) -> Value {
    let Some(usage) = usage else {
        return Value::Null;
    };
    let Value::Object(fields) = serde_json::to_value(usage).unwrap() else {
        unreachable!()
    };
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect::<Map<_, _>>()
        .into()
}

fn success(decoded: &DecodedResponse, warnings: &[String]) -> Value {
    let mut calls = Vec::new();
    let mut reasoning = Map::new();
    for part in &decoded.parts {
        match part {
            ResponsePart::ToolCall {
                call_id,
                name,
                raw_arguments,
                parsed_arguments,
                ..
            } => {
                // PRV-22: a native stream never yields a call that is not parsed.
                assert!(parsed_arguments.as_ref().unwrap().is_object());
                calls.push(
                    json!({"id": &**call_id, "name": &**name, "arguments": &**raw_arguments}),
                );
            }
            ResponsePart::Reasoning {
                block_type, text, ..
            } => {
                reasoning.insert(block_type.to_string(), json!(text.as_deref()));
            }
            ResponsePart::Content(_) => {}
        }
    }
    let mut success = json!({
        "text": decoded.text(),
        "calls": calls,
        "finish": decoded.finish.reason,
        "finish_raw": decoded.finish.raw,
        "usage": known(decoded.usage),
        "warnings": warnings,
    });
    if !reasoning.is_empty() {
        success["reasoning"] = reasoning.into();
    }
    json!({ "success": success })
}

/// The part of the expectation that is a verdict.
fn expectation(expected: &Value) -> Value {
    let key = ["success", "failure"]
        .into_iter()
        .find(|key| expected.get(key).is_some())
        .unwrap();
    json!({ key: expected[key] })
}

#[test]
fn every_row_of_tables_s_and_c_has_a_fixture() {
    let rules: Vec<String> = fixtures()
        .iter()
        .map(|fixture| fixture.expected["rule"].as_str().unwrap().to_owned())
        .collect();
    for number in 1..=31 {
        assert!(rules.contains(&format!("PRV-C{number}")), "C{number}");
    }
    for number in 1..=13 {
        assert!(rules.contains(&format!("PRV-S{number}")), "S{number}");
    }
}

#[test]
fn a_fixture_gives_its_verdict_however_it_is_cut_prv_51() {
    let mut replays = 0;
    for fixture in fixtures() {
        let expected = expectation(&fixture.expected);
        let replay = fixture.replay();
        let body = &fixture.body;
        assert_eq!(
            replay.verdict(vec![body.clone()], End::Clean),
            expected,
            "{}",
            fixture.name
        );
        let bytes = body.chunks(1).map(<[u8]>::to_vec).collect();
        assert_eq!(
            replay.verdict(bytes, End::Clean),
            expected,
            "{} byte by byte",
            fixture.name
        );
        for at in 0..=body.len() {
            let (left, right) = body.split_at(at);
            let chunks = vec![left.to_vec(), right.to_vec()];
            assert_eq!(
                replay.verdict(chunks, End::Clean),
                expected,
                "{} cut at {at}",
                fixture.name
            );
        }
        replays += body.len() + 3;
    }
    println!("replays: {replays}");
}

/// Whether a prefix holds a complete terminal event; `delimited`: only events ended by a blank line count.
///
/// A second, naive reading, independent of the decoder under test.
fn holds_terminal(prefix: &[u8], delimited: bool, terminal: fn(&str) -> bool) -> bool {
    let text = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&prefix[..error.valid_up_to()]).unwrap(),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events: Vec<&str> = text.split("\n\n").collect();
    let last = events.pop().unwrap();
    let data = |event: &str| {
        event
            .split('\n')
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect::<Vec<_>>()
            .join("\n")
    };
    events.iter().any(|event| terminal(&data(event))) || (!delimited && terminal(&data(last)))
}

fn is_finish(data: &str) -> bool {
    serde_json::from_str::<Value>(data).is_ok_and(|value| {
        value["choices"][0]["finish_reason"]
            .as_str()
            .is_some_and(|finish| !finish.is_empty())
    })
}

fn is_end_marker(data: &str) -> bool {
    data == "[DONE]"
}

#[test]
fn a_successful_stream_cut_anywhere_before_its_terminal_is_a_failure_prv_50_prv_53() {
    let mut cuts = 0;
    for fixture in fixtures() {
        if fixture.expected.get("success").is_none() {
            continue;
        }
        let whole = expectation(&fixture.expected);
        let replay = fixture.replay();
        for at in 0..fixture.body.len() {
            let prefix = &fixture.body[..at];
            for end in [End::Clean, End::Reset] {
                cuts += 1;
                let verdict = replay.verdict(vec![prefix.to_vec()], end);
                let may_succeed = match end {
                    End::Clean => holds_terminal(prefix, false, is_finish),
                    _ => {
                        holds_terminal(prefix, true, is_end_marker)
                            && holds_terminal(prefix, true, is_finish)
                    }
                };
                let where_ = format!("{} cut at {at}, {end:?}", fixture.name);
                if may_succeed {
                    // Only what trails the terminal may be missing: usage.
                    let mut verdict = verdict["success"].clone();
                    assert!(verdict.is_object(), "{where_}");
                    verdict["usage"] = whole["success"]["usage"].clone();
                    assert_eq!(verdict, whole["success"], "{where_}");
                    continue;
                }
                let failure = &verdict["failure"];
                assert!(failure.is_object(), "{where_}: {verdict}");
                match end {
                    End::Reset => {
                        assert_eq!(
                            failure["error_code"], "provider_connection_failed",
                            "{where_}"
                        );
                        assert_eq!(failure["retryable"], true, "{where_}");
                    }
                    _ if fixture.expected.get("content_type") == Some(&Value::Null)
                        && failure["violation"] == "non_sse_body" =>
                    {
                        // Too short to tell what it is.
                        assert!(at < 9, "{where_}");
                    }
                    _ => assert_eq!(failure["violation"], "missing_terminal", "{where_}"),
                }
            }
        }
    }
    println!("cuts: {cuts}");
    assert!(cuts > 20_000, "{cuts}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

    /// Damaged streams never panic, never succeed without a terminal, and give one verdict in any cut.
    #[test]
    fn damaged_streams_fail_closed_in_any_cut_prv_50_prv_51(
        which in 0usize..1_000,
        damage in proptest::collection::vec((0usize..4_000, 0u8..4, proptest::prelude::any::<u8>()), 1..4),
        cut in 0usize..4_000,
    ) {
        let fixtures = fixtures();
        let fixture = &fixtures[which % fixtures.len()];
        let mut body = fixture.body.clone();
        for (at, kind, byte) in damage {
            if body.is_empty() {
                break;
            }
            let at = at % body.len();
            match kind {
                0 => body[at] = byte,
                1 => {
                    body.remove(at);
                }
                2 => body.insert(at, byte),
                _ => {
                    let piece = body[at..body.len().min(at + usize::from(byte))].to_vec();
                    body.splice(at..at, piece);
                }
            }
        }
        let replay = fixture.replay();
        let whole = replay.verdict(vec![body.clone()], End::Clean);
        let (left, right) = body.split_at(cut % (body.len() + 1));
        let split = replay.verdict(vec![left.to_vec(), right.to_vec()], End::Clean);
        proptest::prop_assert_eq!(&whole, &split, "{}", fixture.name);
        if whole.get("success").is_some() {
            proptest::prop_assert!(holds_terminal(&body, false, is_finish), "{}", fixture.name);
        }
    }
}
