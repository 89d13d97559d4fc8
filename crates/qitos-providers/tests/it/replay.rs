//! Fixtures of one dialect, replayed: whole, at every two-chunk split and byte by byte (PRV-51); every successful one
//! cut at every byte, cleanly and by a reset (PRV-50, PRV-53).

use std::path::PathBuf;
use std::sync::Arc;

use qitos_contracts::log::ParseStatus;
use qitos_contracts::model::*;
use qitos_providers::http::HttpTransport;
use serde_json::{Map, Value, json};

use super::setup::{Deltas, End, Scripted, items, run, view_of};

/// What the harness needs to know of a dialect.
pub(crate) struct Dialect {
    /// Folder below `fixtures/provider-streams`.
    pub(crate) folder: &'static str,
    pub(crate) target: fn() -> Target,
    /// The model for a fixture, whose expectation may describe it, over a transport.
    pub(crate) model: fn(&Value, Arc<dyn HttpTransport>) -> Box<dyn Model>,
    /// Whether the data of an event is a terminal: a clean end after it may be a success.
    pub(crate) is_terminal: fn(&str) -> bool,
    /// Whether the data of an event is the end marker: a reset after it spoils nothing (PRV-55).
    pub(crate) is_end_marker: fn(&str) -> bool,
}

pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    pub(crate) expected: Value,
}

impl Dialect {
    /// The fixtures in order of their names.
    pub(crate) fn fixtures(&self) -> Vec<Fixture> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/provider-streams")
            .join(self.folder);
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

    /// Fails unless each row `<letter>1` to `<letter><last>` has a fixture.
    pub(crate) fn has_every_row(&self, letter: &str, last: u32) {
        let fixtures = self.fixtures();
        for number in 1..=last {
            let rule = format!("PRV-{letter}{number}");
            let found = fixtures
                .iter()
                .any(|fixture| fixture.expected["rule"] == rule.as_str());
            assert!(found, "{rule} has no fixture");
        }
    }

    pub(crate) fn replay<'a>(&'a self, fixture: &'a Fixture) -> Replay<'a> {
        let mut transport = Scripted::stream(Vec::new(), End::Clean);
        match fixture.expected.get("content_type") {
            None => {}
            Some(Value::String(kind)) => {
                transport.headers = vec![("content-type".into(), kind.clone())];
            }
            Some(_) => transport.headers.clear(),
        }
        let transport = Arc::new(transport);
        let model = (self.model)(
            &fixture.expected,
            Arc::clone(&transport) as Arc<dyn HttpTransport>,
        );
        let view = self.view(fixture);
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), false)
            .unwrap();
        Replay {
            fixture,
            transport,
            model,
            view,
            payload,
        }
    }

    fn view(&self, fixture: &Fixture) -> RequestView {
        let tools: Vec<&str> = fixture
            .expected
            .get("tools")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut view = view_of(items(Vec::new()), &tools, (self.target)());
        if fixture.expected.get("forced_tool").is_some() {
            view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
        }
        view
    }

    /// Every fixture gives its verdict however it is cut (PRV-51); returns the number of replays.
    pub(crate) fn replay_in_every_split(&self) -> usize {
        let mut replays = 0;
        for fixture in self.fixtures() {
            let expected = expectation(&fixture.expected);
            let replay = self.replay(&fixture);
            let (name, body) = (&fixture.name, &fixture.body);
            let whole = replay.verdict(vec![body.clone()], End::Clean);
            assert_eq!(whole, expected, "{name}");
            let bytes = body.chunks(1).map(<[u8]>::to_vec).collect();
            let verdict = replay.verdict(bytes, End::Clean);
            assert_eq!(verdict, expected, "{name} byte by byte");
            for at in 0..=body.len() {
                let (left, right) = body.split_at(at);
                let chunks = vec![left.to_vec(), right.to_vec()];
                let verdict = replay.verdict(chunks, End::Clean);
                assert_eq!(verdict, expected, "{name} cut at {at}");
            }
            replays += body.len() + 3;
        }
        println!("{}: {replays} replays", self.folder);
        replays
    }

    /// No success before the terminal, wherever the stream is cut (PRV-50, PRV-53); returns the number of cuts.
    pub(crate) fn cut_everywhere(&self) -> usize {
        let mut cuts = 0;
        for fixture in self.fixtures() {
            if fixture.expected.get("success").is_none() {
                continue;
            }
            let whole = expectation(&fixture.expected);
            let replay = self.replay(&fixture);
            for at in 0..fixture.body.len() {
                let prefix = &fixture.body[..at];
                for end in [End::Clean, End::Reset] {
                    cuts += 1;
                    let place = format!("{} cut at {at}, {end:?}", fixture.name);
                    let verdict = replay.verdict(vec![prefix.to_vec()], end);
                    if self.may_succeed(prefix, end) {
                        // Only what trails the terminal may be missing: usage, and that the close was unclean.
                        let mut verdict = verdict["success"].clone();
                        assert!(verdict.is_object(), "{place}");
                        for key in ["usage", "warnings"] {
                            verdict[key] = whole["success"][key].clone();
                        }
                        assert_eq!(verdict, whole["success"], "{place}");
                        continue;
                    }
                    let failure = &verdict["failure"];
                    assert!(failure.is_object(), "{place}: {verdict}");
                    if end == End::Reset {
                        let code = &failure["error_code"];
                        assert_eq!(code, "provider_connection_failed", "{place}");
                        assert_eq!(failure["retryable"], true, "{place}");
                    } else if fixture.expected.get("content_type") == Some(&Value::Null)
                        && failure["violation"] == "non_sse_body"
                    {
                        // Too short to tell what it is.
                        assert!(at < 9, "{place}");
                    } else {
                        assert_eq!(failure["violation"], "missing_terminal", "{place}");
                    }
                }
            }
        }
        println!("{}: {cuts} cuts", self.folder);
        cuts
    }

    fn may_succeed(&self, prefix: &[u8], end: End) -> bool {
        match end {
            End::Clean => holds(prefix, false, self.is_terminal),
            End::Reset => {
                holds(prefix, true, self.is_end_marker) && holds(prefix, true, self.is_terminal)
            }
        }
    }

    /// A damaged stream never panics, never succeeds without a terminal, and gives one verdict in any cut.
    pub(crate) fn damage(&self, which: usize, damage: &[(usize, u8, u8)], cut: usize) {
        let fixtures = self.fixtures();
        let fixture = &fixtures[which % fixtures.len()];
        let mut body = fixture.body.clone();
        for (at, kind, byte) in damage {
            if body.is_empty() {
                break;
            }
            let at = at % body.len();
            match kind {
                0 => body[at] = *byte,
                1 => {
                    body.remove(at);
                }
                2 => body.insert(at, *byte),
                _ => {
                    let piece = body[at..body.len().min(at + usize::from(*byte))].to_vec();
                    body.splice(at..at, piece);
                }
            }
        }
        let replay = self.replay(fixture);
        let whole = replay.verdict(vec![body.clone()], End::Clean);
        let (left, right) = body.split_at(cut % (body.len() + 1));
        let split = replay.verdict(vec![left.to_vec(), right.to_vec()], End::Clean);
        assert_eq!(whole, split, "{}", fixture.name);
        if whole.get("success").is_some() {
            assert!(holds(&body, false, self.is_terminal), "{}", fixture.name);
        }
    }
}

/// One fixture, ready to be sent in any cut.
pub(crate) struct Replay<'fixture> {
    fixture: &'fixture Fixture,
    transport: Arc<Scripted>,
    model: Box<dyn Model>,
    view: RequestView,
    payload: WirePayload,
}

impl Replay<'_> {
    /// What these chunks give, in the words of the fixture.
    pub(crate) fn verdict(&self, chunks: Vec<Vec<u8>>, end: End) -> Value {
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
                let unparsed = decoded.parts.iter().any(|part| {
                    matches!(part, ResponsePart::ToolCall { parse_status, .. }
                        if *parse_status != ParseStatus::Parsed)
                });
                assert!(!unparsed, "{name}: PRV-22");
                success_of(&decoded, &warnings, &self.fixture.expected["success"])
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
                failure_of(&failure)
            }
            Err(ProviderError::Consumer(error)) => panic!("{error}"),
        }
    }
}

/// A decoded answer in the words of a fixture; some facts are told only if the fixture `wanted` them.
pub(crate) fn success_of(decoded: &DecodedResponse, warnings: &[String], wanted: &Value) -> Value {
    let mut calls = Vec::new();
    let mut reasoning = Map::new();
    let mut kept_only = Vec::new();
    for part in &decoded.parts {
        match part {
            ResponsePart::ToolCall {
                call_id,
                name,
                raw_arguments,
                parsed_arguments,
                parse_status,
                ..
            } => {
                // PRV-21
                assert_eq!(
                    parsed_arguments
                        .as_ref()
                        .is_some_and(|value| value.is_object()),
                    *parse_status == ParseStatus::Parsed,
                );
                calls.push(
                    json!({"id": &**call_id, "name": &**name, "arguments": &**raw_arguments}),
                );
            }
            ResponsePart::Reasoning {
                block_type,
                text,
                replayable,
            } => {
                let text = text.as_deref().unwrap_or_default();
                let whole = match reasoning.get(&**block_type).and_then(Value::as_str) {
                    Some(earlier) => format!("{earlier}{text}"),
                    None => text.to_owned(),
                };
                reasoning.insert(block_type.to_string(), whole.into());
                if !replayable {
                    kept_only.push(block_type.to_string());
                }
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
    if !kept_only.is_empty() {
        success["not_replayable"] = kept_only.into();
    }
    if wanted.get("order").is_some() {
        let kind = |part: &ResponsePart| match part {
            ResponsePart::Content(_) => "text",
            ResponsePart::Reasoning { .. } => "reasoning",
            ResponsePart::ToolCall { .. } => "call",
        };
        success["order"] = decoded.parts.iter().map(kind).collect();
    }
    if wanted.get("continuation").is_some() {
        success["continuation"] = decoded.continuation.is_some().into();
    }
    json!({ "success": success })
}

/// A failure in the words of a fixture.
pub(crate) fn failure_of(failure: &ProviderFailure) -> Value {
    let details = &failure.redacted_details;
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

pub(crate) fn known(usage: Option<TokenUsage>) -> Value {
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

/// The part of the expectation that is a verdict.
pub(crate) fn expectation(expected: &Value) -> Value {
    let key = ["success", "failure"]
        .into_iter()
        .find(|key| expected.get(key).is_some())
        .unwrap();
    json!({ key: expected[key] })
}

/// Whether a prefix holds a complete terminal event; `delimited`: only events ended by a blank line count.
///
/// A second, naive reading, independent of the decoder under test.
fn holds(prefix: &[u8], delimited: bool, terminal: fn(&str) -> bool) -> bool {
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
