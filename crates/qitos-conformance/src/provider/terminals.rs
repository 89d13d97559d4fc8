//! Nothing is a success before its terminal (PRV-22, PRV-50, PRV-53, PRV-61).

use qitos_contracts::log::ParseStatus;
use qitos_contracts::model::{DecodedResponse, ResponsePart};
use serde_json::Value;

use super::exchange::Stopped;
use super::expect::{form, must_fail, must_succeed, replying, stand, wire};
use super::peer::Ending;
use super::subject::{Answer, ProviderSubject, WireForm, needs};
use super::views::TOOLS;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![
        Check::new(
            "no_success_without_terminal",
            "an answer cut anywhere before its terminal is a typed failure, however the connection ends",
            &["PRV-50", "PRV-53"],
            no_success_without_terminal,
        ),
        Check::new(
            "half_call_never_returned",
            "arguments that are not whole never come back as a parsed call",
            &["PRV-22", "PRV-61"],
            half_call_never_returned,
        )
        .needing(needs::TOOL_CALLS),
    ]
}

const ARGUMENTS: &str = "{\"a\":52,\"b\":[1,{\"c\":\"x\"}]}";

/// What an answer whose bytes end after `length` gives.
async fn cut(
    stage: &Stage<dyn ProviderSubject>,
    bytes: &WireForm,
    length: usize,
    ending: Ending,
    with_callback: bool,
) -> Result<Result<DecodedResponse, Stopped>, Failure> {
    let all = bytes.all();
    let kept = all.get(..length).unwrap_or(&all).to_vec();
    let stand = stand(stage, vec![replying(bytes, vec![kept], ending)])?;
    let (_, answer) = stand.ask(with_callback).await?;
    ensure!(
        stand.peer.open() == 0,
        "cut at byte {length}: the connection is still open"
    );
    Ok(answer)
}

async fn no_success_without_terminal(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let mut answers = vec![Answer::text(&["Hel", "lo 漢", "."]).using(5, 3)];
    if stage.subject().capabilities().supports_native_tool_calls {
        answers.push(Answer::text(&["so"]).calling("one", "add", ARGUMENTS));
    }
    for answer in &answers {
        for with_callback in [false, true] {
            let bytes = wire(&stage, answer, form(&stage, with_callback))?;
            let whole = bytes.until_terminal().len();
            for length in 0..whole {
                for ending in [Ending::Clean, Ending::Reset] {
                    let place = format!("cut at byte {length} of {whole}, {ending:?}");
                    let answer = cut(&stage, &bytes, length, ending, with_callback).await?;
                    must_fail(answer, &place)?;
                }
            }
            for length in [whole, bytes.all().len()] {
                let place = format!("whole with {length} bytes");
                let answer = cut(&stage, &bytes, length, Ending::Clean, with_callback).await?;
                must_succeed(answer, &place)?;
            }
        }
    }
    Ok(())
}

/// Every call that came back parsed must be the one that was made, whole.
fn no_half_call(answer: Result<DecodedResponse, Stopped>, place: &str) -> Verdict {
    let Ok(decoded) = answer else { return Ok(()) };
    let whole: Option<Value> = serde_json::from_str(ARGUMENTS).ok();
    for part in &decoded.parts {
        if let ResponsePart::ToolCall {
            parsed_arguments,
            parse_status,
            ..
        } = part
        {
            let parsed = *parse_status == ParseStatus::Parsed || parsed_arguments.is_some();
            ensure!(
                !parsed || parsed_arguments.as_deref() == whole.as_ref(),
                "{place}: a call with half its arguments came back parsed"
            );
        }
    }
    Ok(())
}

async fn half_call_never_returned(stage: Stage<dyn ProviderSubject>) -> Verdict {
    let [name, _] = TOOLS;
    for with_callback in [false, true] {
        let form = form(&stage, with_callback);
        let whole = Answer::default().calling("one", name, ARGUMENTS);
        let bytes = wire(&stage, &whole, form)?;
        for length in 0..bytes.all().len() {
            for ending in [Ending::Clean, Ending::Reset] {
                let place = format!("cut at byte {length}, {ending:?}");
                let answer = cut(&stage, &bytes, length, ending, with_callback).await?;
                no_half_call(answer, &place)?;
            }
        }
        // The same under a terminal that says all is well: servers do that when the limit cuts a call.
        for (length, _) in ARGUMENTS.char_indices().skip(1) {
            let half = ARGUMENTS.get(..length).unwrap_or_default();
            let answer = Answer::default().calling("one", name, half);
            let Some(bytes) = stage.subject().wire(&answer, form) else {
                // A form that carries arguments as JSON cannot carry half of them.
                continue;
            };
            let all = bytes.all().len();
            let place = format!("{length} bytes of arguments under a whole terminal");
            let answer = cut(&stage, &bytes, all, Ending::Clean, with_callback).await?;
            no_half_call(answer, &place)?;
        }
    }
    Ok(())
}
