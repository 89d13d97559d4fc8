//! What a failure may say (PRV-43, PRV-44).

use std::error::Error;

use qitos_contracts::model::{Model, ProviderError, ProviderFailure};
use serde_json::json;

use super::expect::{Texts, form, replying, stand, telling, wire};
use super::peer::{Ending, Reply};
use super::subject::{Answer, CANARY, Form, ProviderSubject};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn ProviderSubject>> {
    vec![Check::new(
        "failure_is_redacted",
        "credential, address, headers, bodies, error texts and partial answers are absent from Display, Debug, JSON and the sources of a failure",
        &["PRV-43", "PRV-44"],
        failure_is_redacted,
    )]
}

/// Everything that a failure can be asked.
fn said(error: &ProviderError) -> Vec<String> {
    let mut said = vec![
        error.to_string(),
        format!("{error:?}"),
        format!("{error:#?}"),
    ];
    let mut source: Option<&dyn Error> = error.source();
    // A chain longer than this is no chain of causes.
    for _ in 0..64 {
        let Some(cause) = source else { break };
        said.push(format!("{cause} {cause:?}"));
        source = cause.source();
    }
    if let ProviderError::Failure(failure) = error {
        said.push(json!(**failure).to_string());
    }
    said
}

fn silent(what: &str, said: &[String]) -> Verdict {
    let shown = said.iter().any(|text| text.to_lowercase().contains(CANARY));
    ensure!(!shown, "{what}: a secret or content is in the failure");
    Ok(())
}

/// Replies that end in a failure; all of them say the canary wherever they can.
fn replies(
    stage: &Stage<dyn ProviderSubject>,
    with_callback: bool,
) -> Result<Vec<(String, Reply)>, Failure> {
    let error = json!({
        "type": "error",
        "error": {
            "type": format!("{CANARY}_error"),
            "code": CANARY,
            "status": CANARY,
            "message": format!("your key sk-{CANARY} at https://{CANARY}.invalid/v1"),
            "param": CANARY,
        },
    })
    .to_string();
    // Not a plain id, so it may not be kept either.
    let header = format!("{CANARY} value/{CANARY}");
    let mut replies: Vec<(String, Reply)> = [400, 401, 403, 404, 413, 429, 500, 503, 529, 302]
        .map(|status| {
            let reply = telling(status, "application/json", &error, &header);
            (format!("status {status}"), reply)
        })
        .into();
    let text = format!("<html>{CANARY}</html>");
    replies.push(("no connection".into(), Reply::Lost));
    replies.push((
        "a page instead of an answer".into(),
        telling(200, "text/html", &text, &header),
    ));
    replies.push((
        "an error under status 200".into(),
        telling(200, "application/json", &error, &header),
    ));
    let form = form(stage, with_callback);
    let mut partial = Answer::text(&[CANARY, CANARY, "end"]);
    if stage.subject().capabilities().supports_native_tool_calls {
        let arguments = format!("{{\"a\":\"{CANARY}\"}}");
        partial = partial.calling("one", "add", &arguments);
    }
    let bytes = wire(stage, &partial, form)?;
    for ending in [Ending::Clean, Ending::Reset] {
        let what = format!("a cut answer, {ending:?}");
        let reply = replying(&bytes, vec![bytes.before_terminal.clone()], ending);
        replies.push((what, reply));
    }
    let broken = [&bytes.before_terminal[..], b"\n\n", error.as_bytes()].concat();
    let reply = replying(&bytes, vec![broken], Ending::Clean);
    replies.push(("an answer that goes astray".into(), reply));
    if form == Form::Streamed {
        let event = format!("event: error\ndata: {error}\n\n");
        let reply = replying(&bytes, vec![event.into_bytes()], Ending::Clean);
        replies.push(("an error in the stream".into(), reply));
    }
    Ok(replies)
}

async fn failure_is_redacted(stage: Stage<dyn ProviderSubject>) -> Verdict {
    for with_callback in [false, true] {
        for (what, reply) in replies(&stage, with_callback)? {
            let stand = stand(&stage, vec![reply])?;
            let error = failure_of(&*stand.model, &stand, with_callback, &what).await?;
            silent(&what, &said(&error))?;
            silent(&what, &[format!("{:?}", stand.model)])?;
        }
    }
    Ok(())
}

async fn failure_of(
    model: &dyn Model,
    stand: &super::expect::Stand,
    with_callback: bool,
    what: &str,
) -> Result<ProviderError, Failure> {
    let (view, payload) = stand.asking()?;
    let mut texts = Texts::default();
    let sent = if with_callback {
        model.send(payload, Some(&mut texts)).await
    } else {
        model.send(payload, None).await
    };
    match sent {
        Err(ProviderError::Consumer(_)) => Err(Failure::new(format!(
            "{what}: it became an error of the consumer"
        ))),
        Err(error) => Ok(error),
        Ok(raw) => {
            silent(what, &[format!("{raw:?}")])?;
            let decoded: Result<_, Box<ProviderFailure>> = model.codec().decode(raw, &view);
            match decoded {
                Ok(_) => Err(Failure::new(format!("{what}: it became a success"))),
                Err(failure) => Ok(ProviderError::Failure(failure)),
            }
        }
    }
}
