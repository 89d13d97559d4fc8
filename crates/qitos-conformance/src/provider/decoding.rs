//! A successful answer in its normal form (PRV-18, PRV-19, PRV-70, PRV-100).

use qitos_contracts::error::ContractError as _;
use qitos_contracts::log::ParseStatus;
use qitos_contracts::model::{CodecError, DecodedResponse, DeltaSink, FinishReason, ResponsePart};
use serde_json::Value;

use super::exchange::{Stopped, exchange};
use super::expect::{
    Texts, bytewise, form, must_succeed, named, replying, stand, whole_reply, wire,
};
use super::peer::Ending;
use super::subject::{Answer, Form, ProviderSubject, needs};
use super::views::TOOLS;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "part_order",
            "decoding gives the normal form, its parts in the provider's order",
            &["PRV-18", "PRV-21", "PRV-24"],
            part_order,
        ),
        Check::new(
            "deltas_equal_text",
            "what the callback was given, joined, is the text of the answer",
            &["PRV-19", "PRV-51"],
            deltas_equal_text,
        ),
        Check::new(
            "usage_unknown_stays_unknown",
            "an answer without usage has none, not 0; a reported 0 is 0",
            &["PRV-70"],
            usage_unknown_stays_unknown,
        ),
        Check::new(
            "no_streaming_claim_one_chunk",
            "a provider that does not claim streaming gives a callback the complete text at once, and an execution with a callback is refused before sending",
            &["PRV-100", "PRV-101"],
            no_streaming_claim_one_chunk,
        )
        .needing(needs::WHOLE_ONLY),
    ]
}

/// Text in several scripts, cut in the middle of words and between a letter and its accent.
pub(super) const PIECES: [&str; 5] = ["Grü", "ße, 漢", "字 and 😀", " e", "\u{301}."];

/// An answer with everything that the provider claims.
fn full_answer(stage: &Stage<dyn ProviderSubject>) -> Answer {
    let capabilities = stage.subject().capabilities();
    let mut answer = Answer::text(&PIECES);
    let names = TOOLS.iter().zip(["one", "two"]);
    let calls = match (
        capabilities.supports_native_tool_calls,
        capabilities.supports_parallel_tool_calls,
    ) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    };
    for (name, id) in names.take(calls) {
        answer = answer.calling(id, name, "{\"a\":2,\"b\":3}");
    }
    answer
}

/// Which parts an answer must have: text as one word, calls by name.
fn parts_of(decoded: &DecodedResponse) -> Vec<&str> {
    let mut parts: Vec<&str> = decoded
        .parts
        .iter()
        .map(|part| match part {
            ResponsePart::Content(_) => "text",
            ResponsePart::Reasoning { .. } => "reasoning",
            ResponsePart::ToolCall { name, .. } => name,
        })
        .collect();
    // One text may come as several blocks.
    parts.dedup();
    parts
}

async fn part_order(stage: Stage<dyn ProviderSubject>) -> Verdict {
    for with_callback in [false, true] {
        let answer = full_answer(&stage);
        let bytes = wire(&stage, &answer, form(&stage, with_callback))?;
        let stand = stand(&stage, vec![whole_reply(&bytes)])?;
        let (_, decoded) = stand.ask(with_callback).await?;
        let decoded = must_succeed(decoded, "a whole answer")?;
        let mut wanted = vec!["text"];
        wanted.extend(answer.calls.iter().map(|call| call.name.as_str()));
        let seen = parts_of(&decoded);
        ensure!(
            seen == wanted,
            "{} parts in another order than the provider's {}",
            seen.len(),
            wanted.len()
        );
        ensure!(
            decoded.text() == answer.joined_text(),
            "the text is {}, the provider's was {}",
            named(&decoded.text()),
            named(&answer.joined_text())
        );
        let finish = if answer.calls.is_empty() {
            FinishReason::Stop
        } else {
            FinishReason::ToolCalls
        };
        ensure!(
            decoded.finish.reason == finish && !decoded.finish.raw.is_empty(),
            "the answer ends with {:?} instead of {finish:?}, or without the provider's word",
            decoded.finish.reason
        );
        calls_are_whole(&decoded, &answer)?;
    }
    Ok(())
}

/// Calls of a successful answer are the provider's, unchanged, with ids of their own.
fn calls_are_whole(decoded: &DecodedResponse, answer: &Answer) -> Verdict {
    let mut ids: Vec<&str> = Vec::new();
    let mut wanted = answer.calls.iter();
    for part in &decoded.parts {
        let ResponsePart::ToolCall {
            call_id,
            raw_arguments,
            parsed_arguments,
            parse_status,
            parse_error,
            ..
        } = part
        else {
            continue;
        };
        let call = wanted
            .next()
            .ok_or_else(|| Failure::new("a call that the provider did not make"))?;
        let sent: Option<Value> = serde_json::from_str(&call.arguments).ok();
        let raw: Option<Value> = serde_json::from_str(raw_arguments).ok();
        ensure!(
            parsed_arguments.as_deref() == sent.as_ref()
                && raw == sent
                && *parse_status == ParseStatus::Parsed
                && parse_error.is_none(),
            "a whole call came back with other arguments or not parsed"
        );
        ensure!(
            !call_id.is_empty() && !ids.contains(&&**call_id),
            "two calls of one answer share an id, or one has none"
        );
        ids.push(call_id);
    }
    Ok(())
}

async fn deltas_equal_text(stage: Stage<dyn ProviderSubject>) -> Verdict {
    for answer in [Answer::text(&PIECES), full_answer(&stage)] {
        let bytes = wire(&stage, &answer, form(&stage, true))?;
        let all = bytes.all();
        for pieces in [vec![all.clone()], bytewise(&all)] {
            let stand = stand(&stage, vec![replying(&bytes, pieces, Ending::Clean)])?;
            let (texts, decoded) = stand.ask(true).await?;
            let decoded = must_succeed(decoded, "a whole answer")?;
            let shown = texts.0.concat();
            ensure!(
                shown == decoded.text() && shown == answer.joined_text(),
                "the callback was given {}, the answer's text is {}",
                named(&shown),
                named(&decoded.text())
            );
        }
    }
    Ok(())
}

async fn usage_unknown_stays_unknown(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let reports = stage.subject().capabilities().supports_usage;
    for with_callback in [false, true] {
        let form = form(&stage, with_callback);
        let silent = wire(&stage, &Answer::text(&["Hi"]), form)?;
        let telling = wire(&stage, &Answer::text(&["Hi"]).using(7, 0), form)?;
        let stand = stand(&stage, vec![whole_reply(&silent), whole_reply(&telling)])?;
        let (_, decoded) = stand.ask(with_callback).await?;
        let unknown = must_succeed(decoded, "an answer without usage")?.usage;
        ensure!(
            unknown.is_none_or(|usage| !usage.is_known()),
            "usage was not sent, and the response has some"
        );
        ensure!(
            unknown.is_none(),
            "usage of which nothing is known must be absent"
        );
        if !reports {
            continue;
        }
        let (_, decoded) = stand.ask(with_callback).await?;
        let known = must_succeed(decoded, "an answer with usage")?.usage;
        let known = known.unwrap_or_default();
        ensure!(
            known.prompt_tokens == Some(7) && known.completion_tokens == Some(0),
            "usage was sent as 7 and 0 and came back as {:?} and {:?}",
            known.prompt_tokens,
            known.completion_tokens
        );
    }
    Ok(())
}

async fn no_streaming_claim_one_chunk(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let answer = Answer::text(&PIECES);
    let bytes = wire(&stage, &answer, Form::Whole)?;
    let all = bytes.all();
    let reply = || replying(&bytes, bytewise(&all), Ending::Clean);
    let stand = stand(&stage, vec![reply()])?;
    let (texts, decoded) = stand.ask(true).await?;
    let decoded = must_succeed(decoded, "a whole answer")?;
    ensure!(
        texts.0.len() == 1,
        "{} chunks instead of one",
        texts.0.len()
    );
    ensure!(
        texts.0.concat() == decoded.text(),
        "the one chunk is {}, the answer's text is {}",
        named(&texts.0.concat()),
        named(&decoded.text())
    );
    let before = stand.peer.opened();
    let view = stand.question()?;
    let mut texts = Texts::default();
    let sink: Option<&mut dyn DeltaSink> = Some(&mut texts);
    match exchange(&*stand.model, &view, true, sink, None).await {
        Err(Stopped::Codec(error @ CodecError::CapabilityMismatch { .. })) => ensure!(
            error.code() == "codec_capability_mismatch" && stand.peer.opened() == before,
            "the refused execution opened a connection"
        ),
        Ok(_) => {
            return Err(Failure::new(
                "an execution with a callback was sent and answered",
            ));
        }
        Err(stopped) => {
            return Err(Failure::new(format!(
                "an execution with a callback gave {}",
                stopped.code()
            )));
        }
    }
    Ok(())
}
