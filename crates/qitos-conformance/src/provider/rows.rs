//! Tables S, C, R and A, row by row: the fixtures of a dialect, replayed against its client (PRV-17).

use std::time::Duration;

use qitos_contracts::model::{
    DecodedResponse, DeltaSink, ProviderFailure, RequestSent, RequestView, ResponsePart,
    TokenUsage, ToolUsePolicy,
};
use serde_json::{Map, Value, json};

use super::exchange::{Stopped, send};
use super::expect::{Texts, bytewise, encoded, must_succeed, named, stand, stand_on, wire};
use super::peer::{Ending, Reply, ScriptedPeer};
use super::row_tables;
use super::subject::{Answer, Form, ProviderSubject, Setup};
use super::views;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

/// The dialects whose streams the specification lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Chat Completions: tables S and C.
    OpenAiChat,
    /// Responses: tables S and R.
    OpenAiResponses,
    /// Anthropic Messages: tables S and A.
    Anthropic,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Dialect; 3] = [
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::Anthropic,
    ];

    /// The folder of its fixtures.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Dialect::OpenAiChat => "openai-chat",
            Dialect::OpenAiResponses => "openai-responses",
            Dialect::Anthropic => "anthropic",
        }
    }

    fn own_rows(self) -> &'static [Row] {
        match self {
            Dialect::OpenAiChat => row_tables::CHAT,
            Dialect::OpenAiResponses => row_tables::RESPONSES,
            Dialect::Anthropic => row_tables::ANTHROPIC,
        }
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) rules: &'static [&'static str],
    pub(super) sentence: &'static str,
}

/// A recorded stream and the verdict on it.
#[derive(Clone, Copy, Debug)]
pub struct StreamFixture {
    /// The folder.
    pub dialect: &'static str,
    /// The name of the file.
    pub case: &'static str,
    /// The rule that it shows, alone.
    pub rules: &'static [&'static str],
    /// The body of the answer.
    pub bytes: &'static [u8],
    /// The expectation, as JSON.
    pub expected: &'static str,
}

/// Every fixture of the repository, in order of folder and name.
pub const STREAM_FIXTURES: &[StreamFixture] =
    include!(concat!(env!("OUT_DIR"), "/stream_fixtures.rs"));

fn fixtures(dialect: Dialect) -> impl Iterator<Item = &'static StreamFixture> {
    STREAM_FIXTURES
        .iter()
        .filter(move |fixture| fixture.dialect == dialect.folder())
}

/// A check for each row of the dialect's tables, and one for each further rule that it has fixtures for.
pub(super) fn checks(dialect: Dialect) -> Vec<Check<dyn ProviderSubject>> {
    let mut rows: Vec<Row> = row_tables::SSE
        .iter()
        .chain(dialect.own_rows())
        .copied()
        .collect();
    for fixture in fixtures(dialect) {
        let Some(id) = fixture.rules.first() else {
            continue;
        };
        if !rows.iter().any(|row| row.id == *id) {
            rows.push(Row {
                id,
                rules: fixture.rules,
                sentence: "the streams that show this rule have the verdict that it gives",
            });
        }
    }
    rows.into_iter()
        .map(|row| {
            Check::new(row.id, row.sentence, row.rules, move |stage| {
                replay_row(stage, dialect, row.id)
            })
        })
        .collect()
}

async fn replay_row(
    stage: Stage<dyn ProviderSubject>,
    dialect: Dialect,
    id: &'static str,
) -> Verdict {
    let mut replayed = 0;
    for fixture in fixtures(dialect).filter(|fixture| fixture.rules.contains(&id)) {
        let expected: Value = serde_json::from_str(fixture.expected)
            .map_err(|_| Failure::new(format!("{}: no JSON", fixture.case)))?;
        match expected.get("repeated_every_seconds") {
            Some(_) => repeats(&stage, fixture, &expected).await?,
            None => replays(&stage, fixture, &expected).await?,
        }
        replayed += 1;
    }
    if replayed > 0 {
        return Ok(());
    }
    // Some rows of table S are about bytes below every dialect; those can be made from an answer of any of them.
    match made_of_an_answer(&stage, id)? {
        Some(body) => reads_alike(&stage, id, &body).await,
        None if id == HEARTBEATS => heartbeats(&stage).await,
        None => Err(Failure::new("no fixture shows this row")),
    }
}

const HEARTBEATS: &str = "PRV-S14";

/// Text with characters of two, three and four bytes.
const TEXT: [&str; 3] = ["Grü", "ße, 漢", "字 and 😀"];

/// An answer changed as the row says, if nothing of its meaning is changed by that.
fn made_of_an_answer(
    stage: &Stage<dyn ProviderSubject>,
    id: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = wire(stage, &Answer::text(&TEXT), Form::Streamed)?.all();
    let text = String::from_utf8(bytes)
        .map_err(|_| Failure::new("the subject's stream is not UTF-8 text"))?;
    let changed = match id {
        "PRV-S1" => text.replace("\n\n", "\n\n: OPENROUTER PROCESSING\n\n:\n\n"),
        "PRV-S2" => text.replace('\n', "\r\n"),
        // A comma between two members of the first object becomes the end of a line.
        "PRV-S3" => text
            .replace("data: ", "data:")
            .replacen(",\"", ",\ndata:\"", 1),
        "PRV-S4" => text,
        "PRV-S5" => format!("\u{FEFF}{text}"),
        _ => return Ok(None),
    };
    Ok(Some(changed.into_bytes()))
}

async fn reads_alike(stage: &Stage<dyn ProviderSubject>, id: &str, body: &[u8]) -> Verdict {
    for pieces in [vec![body.to_vec()], bytewise(body)] {
        let reply = Reply::of(Some("text/event-stream"), pieces);
        let stand = stand(stage, vec![reply])?;
        let (texts, decoded) = stand.ask(true).await?;
        let decoded = must_succeed(decoded, id)?;
        ensure!(
            decoded.text() == TEXT.concat() && texts.0.concat() == TEXT.concat(),
            "the text is {}, the peer sent {}",
            named(&decoded.text()),
            named(&TEXT.concat())
        );
    }
    Ok(())
}

async fn heartbeats(stage: &Stage<dyn ProviderSubject>) -> Verdict {
    let expected = json!({"failure": {
        "error_code": "provider_timeout",
        "category": "timeout",
        "timeout_kind": "progress",
        "retryable": true,
    }});
    comments_for_ever(stage, b": ping\n\n", &expected, "comments for ever").await
}

/// Most places at which one body is cut in two; a longer body is cut at evenly spread ones.
const CUTS: usize = 64;

/// The same verdict whole, byte by byte and in two pieces (PRV-51).
async fn replays(
    stage: &Stage<dyn ProviderSubject>,
    fixture: &StreamFixture,
    expected: &Value,
) -> Verdict {
    let body = fixture.bytes;
    let mut ways = vec![
        ("whole".to_owned(), vec![body.to_vec()]),
        ("byte by byte".to_owned(), bytewise(body)),
    ];
    let step = body.len().div_ceil(CUTS).max(1);
    for at in (0..=body.len()).step_by(step) {
        let (left, right) = body.split_at(at);
        ways.push((format!("cut at {at}"), vec![left.to_vec(), right.to_vec()]));
    }
    for (way, pieces) in ways {
        let place = format!("{} {way}", fixture.case);
        let verdict = verdict(stage, expected, pieces, Ending::Clean, None, &place).await?;
        compare(&verdict, expected, &place)?;
    }
    Ok(())
}

/// Comments for ever: only the wait for a data event ends it (PRV-S14).
async fn repeats(
    stage: &Stage<dyn ProviderSubject>,
    fixture: &StreamFixture,
    expected: &Value,
) -> Verdict {
    comments_for_ever(stage, fixture.bytes, expected, fixture.case).await
}

async fn comments_for_ever(
    stage: &Stage<dyn ProviderSubject>,
    bytes: &[u8],
    expected: &Value,
    place: &str,
) -> Verdict {
    let limit = Duration::from_millis(200);
    let ending = Ending::Repeat {
        bytes: bytes.to_vec(),
        every: limit / 8,
    };
    let verdict = verdict(stage, expected, Vec::new(), ending, Some(limit), place).await?;
    compare(&verdict, expected, place)
}

/// Only what the fixture names is compared; what it does not name is another rule's.
fn compare(verdict: &Value, expected: &Value, place: &str) -> Verdict {
    for kind in ["success", "failure"] {
        let Some(wanted) = expected.get(kind) else {
            continue;
        };
        let Some(seen) = verdict.get(kind) else {
            let other = verdict
                .pointer("/failure/violation")
                .or_else(|| verdict.pointer("/failure/error_code"));
            return Err(Failure::new(format!(
                "{place}: no {kind}, but {}",
                other.map_or_else(|| "the other".to_owned(), Value::to_string)
            )));
        };
        // Reasoning is never invented, so what a fixture does not name must not be there (PRV-20).
        for key in ["reasoning", "not_replayable"] {
            let empty = match seen.get(key) {
                Some(Value::Object(fields)) => fields.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                _ => true,
            };
            ensure!(
                wanted.get(key).is_some() || empty,
                "{place}: {key} that the fixture does not have"
            );
        }
        for (key, value) in wanted.as_object().into_iter().flatten() {
            let found = seen.get(key).unwrap_or(&Value::Null);
            ensure!(
                found == value,
                "{place}: {key} is {}, not {}",
                named(&found.to_string()),
                named(&value.to_string())
            );
        }
        return Ok(());
    }
    Err(Failure::new(format!(
        "{place}: a fixture without a verdict"
    )))
}

fn view_of(stand: &super::expect::Stand, expected: &Value) -> Result<RequestView, Failure> {
    let tools: Vec<&str> = expected
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut view = views::view(stand.model.target(), vec![views::user("question")], &tools)?;
    if expected.get("forced_tool").is_some() {
        view.tool_use_policy = ToolUsePolicy::RequiredForNextDecision;
    }
    Ok(view)
}

/// What these pieces give, in the words of the fixtures.
async fn verdict(
    stage: &Stage<dyn ProviderSubject>,
    expected: &Value,
    pieces: Vec<Vec<u8>>,
    ending: Ending,
    progress_limit: Option<Duration>,
    place: &str,
) -> Result<Value, Failure> {
    let content_type = match expected.get("content_type") {
        None => Some("text/event-stream"),
        Some(given) => given.as_str(),
    };
    let reply = Reply::ending(content_type, pieces, ending);
    let mut setup = Setup::new(ScriptedPeer::new(vec![reply]));
    setup.progress_limit = progress_limit;
    setup.described = expected.clone();
    let stand = stand_on(stage, &setup)?;
    let view = view_of(&stand, expected)?;
    let (payload, _) = encoded(&*stand.model, &view, false)?;
    let mut texts = Texts::default();
    let sink: Option<&mut dyn DeltaSink> = Some(&mut texts);
    let outcome = send(&*stand.model, payload, sink).await;
    let shown = texts.0.concat();
    let verdict = match outcome {
        Ok(raw) => {
            let warnings = raw.warnings.clone();
            match stand.model.codec().decode(raw, &view) {
                Ok(decoded) => {
                    ensure!(
                        decoded.text() == shown,
                        "{place}: the callback was given another text than the answer's"
                    );
                    success(&decoded, &warnings, place)?
                }
                Err(failure) => failed(&failure, &shown, place)?,
            }
        }
        Err(Stopped::Failure(failure)) => failed(&failure, &shown, place)?,
        Err(stopped) => {
            return Err(Failure::new(format!("{place}: {}", stopped.code())));
        }
    };
    ensure!(
        stand.peer.open() == 0,
        "{place}: the connection is still open"
    );
    Ok(verdict)
}

fn failed(failure: &ProviderFailure, shown: &str, place: &str) -> Result<Value, Failure> {
    let details = &failure.redacted_details;
    ensure!(
        failure.request_sent == RequestSent::Yes && details.transport_attempts == 1,
        "{place}: an answer began, and the failure does not say so"
    );
    ensure!(
        failure.status_code.is_none(),
        "{place}: a status stands in a failure inside a 200 answer (PRV-41)"
    );
    ensure!(
        details.partial_text_characters == shown.chars().count() as u64,
        "{place}: {} characters counted, {} shown",
        details.partial_text_characters,
        shown.chars().count()
    );
    Ok(json!({"failure": {
        "error_code": failure.error_code,
        "category": failure.category,
        "violation": details.violation,
        "timeout_kind": details.timeout_kind,
        "retryable": failure.retryable,
        "partial_text_characters": details.partial_text_characters,
        "partial_tool_calls": details.partial_tool_calls,
        "usage": known(details.usage),
    }}))
}

fn success(decoded: &DecodedResponse, warnings: &[String], place: &str) -> Result<Value, Failure> {
    let mut calls = Vec::new();
    let mut order = Vec::new();
    let mut reasoning: Map<String, Value> = Map::new();
    let mut not_replayable = Vec::new();
    for part in &decoded.parts {
        match part {
            ResponsePart::Content(_) => order.push("text"),
            ResponsePart::Reasoning {
                block_type,
                text,
                replayable,
            } => {
                order.push("reasoning");
                let earlier = reasoning
                    .get(&**block_type)
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let joined = format!("{earlier}{}", text.as_deref().unwrap_or_default());
                reasoning.insert(block_type.to_string(), joined.into());
                if !replayable {
                    not_replayable.push(block_type.to_string());
                }
            }
            ResponsePart::ToolCall {
                call_id,
                name,
                raw_arguments,
                parsed_arguments,
                ..
            } => {
                order.push("call");
                ensure!(
                    parsed_arguments
                        .as_ref()
                        .is_some_and(|parsed| parsed.is_object()),
                    "{place}: a stream gave a call that is not parsed (PRV-22)"
                );
                calls.push(
                    json!({"id": &**call_id, "name": &**name, "arguments": &**raw_arguments}),
                );
            }
        }
    }
    Ok(json!({"success": {
        "text": decoded.text(),
        "calls": calls,
        "order": order,
        "finish": decoded.finish.reason,
        "finish_raw": decoded.finish.raw,
        "usage": known(decoded.usage),
        "warnings": warnings,
        "reasoning": reasoning,
        "not_replayable": not_replayable,
        "continuation": decoded.continuation.is_some(),
    }}))
}

/// The known fields of usage; null if there is none.
fn known(usage: Option<TokenUsage>) -> Value {
    match usage.map(|usage| json!(usage)) {
        Some(Value::Object(fields)) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect::<Map<_, _>>()
            .into(),
        _ => Value::Null,
    }
}
