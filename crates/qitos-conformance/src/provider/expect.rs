//! What every group of checks does: stand a model up against a peer, ask it, collect its text.

use std::error::Error;
use std::sync::Arc;

use qitos_contracts::digest::Digest;
use qitos_contracts::model::{
    CodecReport, DeltaSink, Model, ProviderFailure, RequestSent, RequestView, WirePayload,
};

use super::exchange::{Stopped, send};
use super::peer::{Ending, Reply, ReplyBody, ScriptedPeer};
use super::subject::{Answer, Form, ProviderSubject, Setup, WireForm};
use super::views;
use crate::check::{Failure, Stage, Verdict, ensure};

/// A model and the peer that answers it.
pub(super) struct Stand {
    pub(super) model: Arc<dyn Model>,
    pub(super) peer: ScriptedPeer,
}

impl Stand {
    /// A view with one question.
    pub(super) fn question(&self) -> Result<RequestView, Failure> {
        views::question(self.model.target(), self.model.capabilities())
    }

    /// A payload that asks it, without loss.
    pub(super) fn asking(&self) -> Result<(RequestView, WirePayload), Failure> {
        let view = self.question()?;
        let (payload, _) = encoded(&*self.model, &view, false)?;
        Ok((view, payload))
    }

    /// Asks the question and decodes the answer; the callback's text beside it.
    pub(super) async fn ask(
        &self,
        with_callback: bool,
    ) -> Result<
        (
            Texts,
            Result<qitos_contracts::model::DecodedResponse, Stopped>,
        ),
        Failure,
    > {
        let (view, payload) = self.asking()?;
        let mut texts = Texts::default();
        let sink: Option<&mut dyn DeltaSink> = if with_callback {
            Some(&mut texts)
        } else {
            None
        };
        let answer = match send(&*self.model, payload, sink).await {
            Ok(raw) => self
                .model
                .codec()
                .decode(raw, &view)
                .map_err(Stopped::Failure),
            Err(stopped) => Err(stopped),
        };
        Ok((texts, answer))
    }
}

/// A model whose peer plays `replies`.
pub(super) fn stand(
    stage: &Stage<dyn ProviderSubject>,
    replies: Vec<Reply>,
) -> Result<Stand, Failure> {
    stand_on(stage, &Setup::new(ScriptedPeer::new(replies)))
}

/// A model of this set-up.
pub(super) fn stand_on(
    stage: &Stage<dyn ProviderSubject>,
    setup: &Setup,
) -> Result<Stand, Failure> {
    let model = stage
        .subject()
        .build(setup)
        .map_err(|failure| Failure::new(format!("building failed: {}", failure.error_code)))?;
    Ok(Stand {
        model,
        peer: setup.peer.clone(),
    })
}

/// A payload that must be possible.
pub(super) fn encoded(
    model: &dyn Model,
    view: &RequestView,
    allow_loss: bool,
) -> Result<(WirePayload, CodecReport), Failure> {
    use qitos_contracts::error::ContractError as _;
    model
        .codec()
        .encode(view, model.capabilities(), allow_loss)
        .map_err(|error| Failure::new(format!("a plain view was refused: {}", error.code())))
}

/// The body of a payload.
pub(super) fn body_of(payload: &WirePayload) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    payload
        .write_out(&mut body)
        .map_err(|error| Failure::new(format!("the payload is not JSON: {error}")))?;
    Ok(body)
}

/// The form that a request with or without a callback is answered in.
pub(super) fn form(stage: &Stage<dyn ProviderSubject>, with_callback: bool) -> Form {
    if with_callback && stage.subject().capabilities().supports_streaming {
        Form::Streamed
    } else {
        Form::Whole
    }
}

/// The bytes of an answer that every provider of this kind can be given.
pub(super) fn wire(
    stage: &Stage<dyn ProviderSubject>,
    answer: &Answer,
    form: Form,
) -> Result<WireForm, Failure> {
    stage
        .subject()
        .wire(answer, form)
        .ok_or_else(|| Failure::new(format!("the subject has no {form:?} form for an answer")))
}

/// A reply that sends these bytes of an answer at once, or byte by byte.
pub(super) fn replying(wire: &WireForm, pieces: Vec<Vec<u8>>, ending: Ending) -> Reply {
    Reply::ending(wire.content_type.as_deref(), pieces, ending)
}

/// A reply that sends the whole answer.
pub(super) fn whole_reply(wire: &WireForm) -> Reply {
    replying(wire, vec![wire.all()], Ending::Clean)
}

/// Bytes one at a time.
pub(super) fn bytewise(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.iter().map(|byte| vec![*byte]).collect()
}

/// A model that takes the credential says so nowhere; this reply says it everywhere.
pub(super) fn telling(status: u16, content_type: &str, body: &str, header: &str) -> Reply {
    Reply::Body(ReplyBody {
        status,
        headers: vec![
            ("content-type".into(), content_type.into()),
            ("x-request-id".into(), header.into()),
            ("x-debug".into(), header.into()),
        ],
        pieces: vec![body.as_bytes().to_vec()],
        ending: Ending::Clean,
    })
}

/// Remembers every piece of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts(pub(super) Vec<String>);

impl DeltaSink for Texts {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.push(text.to_owned());
        Ok(())
    }
}

/// Names a text without showing it (PRV-17: reports hold digests and check names only).
pub(super) fn named(text: &str) -> String {
    format!(
        "{} characters, digest {}",
        text.chars().count(),
        Digest::of(text.as_bytes()).short_hex(12)
    )
}

/// A failure after the request was sent must say so, and count one attempt (PRV-39).
pub(super) fn was_sent(failure: &ProviderFailure, place: &str) -> Verdict {
    ensure!(
        failure.request_sent != RequestSent::No && failure.redacted_details.transport_attempts == 1,
        "{place}: {} says that nothing was sent",
        failure.error_code
    );
    ensure!(
        !failure.error_code.is_empty() && !failure.message.is_empty(),
        "{place}: a failure without code or message"
    );
    Ok(())
}

/// What became of an answer that had to be a typed failure.
pub(super) fn must_fail<T>(outcome: Result<T, Stopped>, place: &str) -> Verdict {
    match outcome {
        Ok(_) => Err(Failure::new(format!("{place}: it became a success"))),
        Err(Stopped::Failure(failure)) => was_sent(&failure, place),
        Err(stopped) => Err(Failure::new(format!(
            "{place}: no failure of the provider, but {}",
            stopped.code()
        ))),
    }
}

/// What became of an answer that had to be a success.
pub(super) fn must_succeed<T>(outcome: Result<T, Stopped>, place: &str) -> Result<T, Failure> {
    outcome.map_err(|stopped| Failure::new(format!("{place}: it failed with {}", stopped.code())))
}
