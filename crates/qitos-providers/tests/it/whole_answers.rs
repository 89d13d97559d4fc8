//! Answers that come in one piece (section 9): each fixture whole, in every split, and cut at every byte, cleanly and
//! by a reset, with a sink and without (PRV-100, PRV-102).

use std::path::PathBuf;
use std::sync::Arc;

use qitos_contracts::model::*;
use qitos_providers::gemini::GeminiSettings;
use qitos_providers::http::HttpTransport;
use qitos_providers::local::{LocalServer, LocalSettings, OllamaMode};
use serde_json::Value;

use super::replay::{expectation, failure_of, success_of};
use super::setup::{Deltas, End, Scripted, items, run, view_of};

/// A dialect whose answers are one JSON object.
struct WholeDialect {
    /// Folder below `fixtures/provider-answers`.
    folder: &'static str,
    target: fn() -> Target,
    model: fn(Arc<dyn HttpTransport>) -> Box<dyn Model>,
    /// Cases that must be there, so that no sentence of the rules goes without one.
    cases: &'static [&'static str],
}

const GEMINI: WholeDialect = WholeDialect {
    folder: "gemini",
    target: || Target::new("google", "gemini-offline", "gemini", "generate_content").unwrap(),
    model: |transport| {
        let settings = GeminiSettings::new((GEMINI.target)(), "https://offline.invalid/v1beta");
        let model: Box<dyn Model> = Box::new(settings.with_transport(transport).unwrap());
        model
    },
    cases: &[
        "blocked-prompt",
        "blocked-prompt-with-candidate",
        "call",
        "call-arguments-list",
        "call-arguments-missing",
        "call-name-missing",
        "calls-parallel",
        "candidate-index",
        "candidates-empty",
        "candidates-missing",
        "candidates-two",
        "envelope",
        "error-object",
        "finish-blocklist",
        "finish-empty",
        "finish-malformed-function-call",
        "finish-max-tokens",
        "finish-max-tokens-all-thought",
        "finish-max-tokens-call",
        "finish-missing",
        "finish-null",
        "finish-other",
        "finish-prohibited-content",
        "finish-recitation",
        "finish-safety",
        "finish-spii",
        "parts-interleaved",
        "signature-alone",
        "signed-call",
        "signed-text",
        "signed-thought",
        "text",
        "text-empty",
        "text-unicode",
        "thought",
        "unknown-part",
        "usage-missing",
    ],
};

fn local(server: LocalServer, transport: Arc<dyn HttpTransport>) -> Box<dyn Model> {
    let settings = LocalSettings::new(server, "offline").unwrap();
    Box::new(settings.with_transport(transport).unwrap())
}

const OLLAMA_CHAT: WholeDialect = WholeDialect {
    folder: "ollama-chat",
    target: || Target::new("ollama", "offline", "ollama", "chat").unwrap(),
    model: |transport| local(LocalServer::Ollama(OllamaMode::Chat), transport),
    // A tool call can only stand in a message.
    cases: &[
        "calls",
        "content-list",
        "content-missing",
        "done-false",
        "done-missing",
        "done-reason-length",
        "done-reason-load",
        "done-reason-missing",
        "done-reason-unknown",
        "done-text",
        "envelope",
        "error",
        "text",
        "text-empty",
        "text-unicode",
        "thinking",
        "usage-missing",
        "usage-negative",
        "usage-prompt-missing",
        "usage-zero",
    ],
};

const OLLAMA_GENERATE: WholeDialect = WholeDialect {
    folder: "ollama-generate",
    target: || Target::new("ollama", "offline", "ollama", "generate").unwrap(),
    model: |transport| local(LocalServer::Ollama(OllamaMode::Generate), transport),
    cases: &[
        "content-list",
        "content-missing",
        "done-false",
        "done-missing",
        "done-reason-length",
        "done-reason-load",
        "done-reason-missing",
        "done-reason-unknown",
        "done-text",
        "envelope",
        "error",
        "text",
        "text-empty",
        "text-unicode",
        "thinking",
        "usage-missing",
        "usage-negative",
        "usage-prompt-missing",
        "usage-zero",
    ],
};

/// The Chat wire without streaming, under each name that speaks it.
const CHAT_TEXT: [WholeDialect; 3] = [
    WholeDialect {
        folder: "chat-text",
        target: || Target::new("litellm", "offline", "litellm", "chat_completions").unwrap(),
        model: |transport| local(LocalServer::LiteLlm, transport),
        cases: CHAT_TEXT_CASES,
    },
    WholeDialect {
        folder: "chat-text",
        target: || Target::new("lm_studio", "offline", "lm_studio", "chat_completions").unwrap(),
        model: |transport| local(LocalServer::LmStudio, transport),
        cases: CHAT_TEXT_CASES,
    },
    WholeDialect {
        folder: "chat-text",
        target: || Target::new("vllm", "offline", "vllm", "chat_completions").unwrap(),
        model: |transport| local(LocalServer::Vllm, transport),
        cases: CHAT_TEXT_CASES,
    },
];

const CHAT_TEXT_CASES: &[&str] = &[
    "calls",
    "choices-empty",
    "choices-missing",
    "choices-two",
    "envelope",
    "error-object",
    "finish-abort",
    "finish-content-filter",
    "finish-empty",
    "finish-eos",
    "finish-length",
    "finish-missing",
    "finish-null",
    "finish-tool-calls-without-call",
    "finish-unknown",
    "reasoning",
    "refusal",
    "text",
    "text-null",
    "text-unicode",
    "usage-missing",
];

struct Fixture {
    name: String,
    body: Vec<u8>,
    expected: Value,
}

impl WholeDialect {
    fn fixtures(&self) -> Vec<Fixture> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../fixtures/provider-answers")
            .join(self.folder);
        let mut fixtures: Vec<Fixture> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| {
                let file = path.file_name()?.to_str()?;
                let name = file.strip_suffix(".json")?;
                if name.ends_with(".expected") {
                    return None;
                }
                let expected = path.with_file_name(format!("{name}.expected.json"));
                Some(Fixture {
                    name: name.to_owned(),
                    body: std::fs::read(&path).unwrap(),
                    expected: serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap(),
                })
            })
            .collect();
        fixtures.sort_by(|left, right| left.name.cmp(&right.name));
        fixtures
    }

    fn check(&self) {
        let fixtures = self.fixtures();
        let names: Vec<&str> = fixtures.iter().map(|fixture| &*fixture.name).collect();
        assert_eq!(names, self.cases, "{}", self.folder);
        let (mut replays, mut cuts) = (0, 0);
        for fixture in &fixtures {
            let replay = Replay::new(self, fixture);
            replays += replay.in_every_split();
            cuts += replay.cut_everywhere();
        }
        println!("{}: {replays} replays, {cuts} cuts", self.folder);
    }
}

struct Replay<'fixture> {
    fixture: &'fixture Fixture,
    transport: Arc<Scripted>,
    model: Box<dyn Model>,
    view: RequestView,
    payload: WirePayload,
}

impl<'fixture> Replay<'fixture> {
    fn new(dialect: &WholeDialect, fixture: &'fixture Fixture) -> Self {
        let mut transport = Scripted::stream(Vec::new(), End::Clean);
        transport.headers = vec![("content-type".into(), "application/json".into())];
        let transport = Arc::new(transport);
        let model = (dialect.model)(Arc::clone(&transport) as Arc<dyn HttpTransport>);
        assert!(!model.capabilities().supports_streaming, "PRV-100");
        model.capabilities().check().unwrap();
        let view = view_of(items(Vec::new()), &[], (dialect.target)());
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

    /// What these chunks give; the same with a sink as without.
    fn verdict(&self, chunks: &[&[u8]], end: End) -> Value {
        let name = &self.fixture.name;
        let mut verdicts = [false, true].map(|with_sink| {
            let chunks = chunks.iter().map(|chunk| chunk.to_vec()).collect();
            *self.transport.chunks.lock().unwrap() = chunks;
            *self.transport.end.lock().unwrap() = end;
            self.transport.seen.lock().unwrap().clear();
            let mut deltas = Deltas::default();
            let sink = with_sink.then_some(&mut deltas as &mut dyn DeltaSink);
            let answer = run(self.model.send(self.payload.clone(), sink)).map_err(|error| {
                let ProviderError::Failure(failure) = error else {
                    panic!("{error}")
                };
                failure
            });
            let seen = self.transport.seen.lock().unwrap().len();
            assert_eq!(seen, 1, "{name}: PRV-104");
            let decoded = answer.and_then(|raw| {
                assert!(!raw.streamed, "{name}");
                self.model.codec().decode(raw, &self.view)
            });
            match decoded {
                Ok(decoded) => {
                    if with_sink {
                        assert_eq!(deltas.0, [decoded.text()], "{name}: PRV-100");
                    }
                    let mut verdict = success_of(&decoded, &[], &self.fixture.expected["success"]);
                    let calls = verdict["success"]["calls"].as_array_mut().unwrap();
                    for call in calls {
                        let id = call["id"].as_str().unwrap();
                        call["id"] = id
                            .replace(self.view.request_id.as_str(), "<request_id>")
                            .into();
                    }
                    verdict
                }
                Err(failure) => {
                    assert!(deltas.0.is_empty(), "{name}: PRV-50");
                    assert_eq!(failure.request_sent, RequestSent::Yes, "{name}");
                    assert_eq!(failure.status_code, None, "{name}: PRV-41");
                    assert!(
                        !format!("{failure:?} {failure}").contains("canary"),
                        "{name}"
                    );
                    failure_of(&failure)
                }
            }
        });
        let [without, with] = &mut verdicts;
        assert_eq!(without, with, "{name}: a sink changes the verdict");
        without.take()
    }

    fn in_every_split(&self) -> usize {
        let expected = expectation(&self.fixture.expected);
        let (name, body) = (&self.fixture.name, &self.fixture.body);
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(self.verdict(&bytes, End::Clean), expected, "{name}");
        for at in 0..=body.len() {
            let (left, right) = body.split_at(at);
            let verdict = self.verdict(&[left, right], End::Clean);
            assert_eq!(verdict, expected, "{name} split at {at}");
        }
        body.len() + 2
    }

    /// A body that is not whole is never a success, and never another failure's either.
    fn cut_everywhere(&self) -> usize {
        let (name, body) = (&self.fixture.name, &self.fixture.body);
        let whole = body.trim_ascii_end().len();
        for at in 0..body.len() {
            let cut = self.verdict(&[&body[..at]], End::Reset);
            let failure = &cut["failure"];
            assert_eq!(
                failure["error_code"], "provider_connection_failed",
                "{name} at {at}"
            );
            assert_eq!(failure["retryable"], true, "{name} at {at}");
        }
        for at in 0..whole {
            let cut = self.verdict(&[&body[..at]], End::Clean);
            let code = &cut["failure"]["error_code"];
            assert_eq!(code, "provider_response_decode_failed", "{name} at {at}");
        }
        body.len() + whole
    }
}

#[test]
fn gemini_gives_its_verdict_on_every_answer_and_none_on_a_part_of_one_prv_102_prv_103() {
    GEMINI.check();
}

#[test]
fn ollama_gives_its_verdict_on_every_answer_and_none_on_a_part_of_one_prv_102() {
    OLLAMA_CHAT.check();
    OLLAMA_GENERATE.check();
}

#[test]
fn a_chat_answer_in_one_piece_gives_its_verdict_under_every_name_prv_102() {
    for dialect in &CHAT_TEXT {
        dialect.check();
    }
}

/// Answers that were damaged on the way never panic, and pass only if they are still a whole JSON object.
fn damage(dialect: &WholeDialect, which: usize, damage: &[(usize, u8, u8)]) {
    let fixtures = dialect.fixtures();
    let fixture = &fixtures[which % fixtures.len()];
    let mut body = fixture.body.clone();
    for (at, kind, byte) in damage {
        let at = at % body.len();
        match kind {
            0 => body[at] = *byte,
            1 if body.len() > 1 => {
                body.remove(at);
            }
            _ => body.insert(at, *byte),
        }
    }
    // `verdict` holds the answers with and without a sink against each other.
    let verdict = Replay::new(dialect, fixture).verdict(&[&body], End::Clean);
    if verdict.get("success").is_some() {
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert!(value.is_object(), "{}", fixture.name);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_answers_fail_closed_prv_50(
        dialect in 0usize..4,
        which in 0usize..1_000,
        changes in proptest::collection::vec((0usize..4_000, 0u8..3, proptest::prelude::any::<u8>()), 1..4),
    ) {
        let dialect = [&GEMINI, &OLLAMA_CHAT, &OLLAMA_GENERATE, &CHAT_TEXT[0]][dialect];
        damage(dialect, which, &changes);
    }
}
