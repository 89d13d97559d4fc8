//! The scripted model. It plays its own steps, so the suite's peer lends it replies and watches its connections.

use std::sync::Arc;

use async_trait::async_trait;
use qitos::models::http::TransportError;
use qitos::models::scripted::{BodyEnd, ScriptedModel, Step};
use qitos::models::{
    DeltaSink, Model, ProviderCapabilities, ProviderCodec, ProviderError, ProviderFailure,
    RawResponse, Target, WirePayload,
};
use qitos_conformance::provider::{
    Answer, Ending, Form, PeerConnection, ProviderSubject, Reply, ReplyBody, ScriptedPeer, Setup,
    WireForm,
};

use super::chat;

pub(super) struct Subject;

fn build(setup: &Setup, name: &str) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
    let peer = setup.peer.clone();
    let script = ScriptedModel::from_fn(name, move |_| step(&peer))?;
    Ok(Arc::new(Watched {
        script,
        peer: setup.peer.clone(),
    }))
}

/// The next reply as a step; none if the script is over.
fn step(peer: &ScriptedPeer) -> Option<Step> {
    Some(match peer.take_reply(&[])? {
        Reply::Silence => {
            peer.note_hang();
            Step::hang()
        }
        Reply::Lost => Step::transport(TransportError::Reset),
        Reply::Body(body) => body_step(body, peer),
    })
}

fn body_step(body: ReplyBody, peer: &ScriptedPeer) -> Step {
    let is_stream = |(name, value): &(String, String)| {
        name == "content-type" && (value == "text/event-stream" || value == "application/json")
    };
    if body.status != 200 || body.headers.len() != 1 || !body.headers.iter().all(is_stream) {
        return Step::status(body.status, body.headers, body.pieces.concat());
    }
    let end = match body.ending {
        Ending::Clean => BodyEnd::Clean,
        Ending::Reset => BodyEnd::Reset,
        Ending::Hang | Ending::Repeat { .. } => {
            peer.note_hang();
            BodyEnd::Hang
        }
    };
    Step::bytes(body.pieces, end)
}

/// The model, with one of the peer's connections open as long as one of its own is.
#[derive(Debug)]
struct Watched {
    script: ScriptedModel,
    peer: ScriptedPeer,
}

/// Closes with the attempt, unless the model still holds a connection.
struct Mirror<'model> {
    script: &'model ScriptedModel,
    connection: Option<PeerConnection>,
}

impl Drop for Mirror<'_> {
    fn drop(&mut self) {
        let (opened, closed) = self.script.connections();
        if opened != closed {
            // Never closed: the suite then sees what the model does.
            std::mem::forget(self.connection.take());
        }
    }
}

#[async_trait]
impl Model for Watched {
    fn target(&self) -> &Arc<Target> {
        self.script.target()
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        self.script.capabilities()
    }

    fn codec(&self) -> &dyn ProviderCodec {
        self.script.codec()
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let _mirror = Mirror {
            script: &self.script,
            connection: Some(self.peer.open_connection()),
        };
        self.script.send(payload, on_delta).await
    }
}

impl ProviderSubject for Subject {
    fn name(&self) -> &str {
        "scripted"
    }

    fn capabilities(&self) -> ProviderCapabilities {
        let target = chat::constant(Target::new(
            "fake",
            "notes-fake",
            "scripted",
            "chat_completions",
        ));
        qitos::models::openai_chat::chat_capabilities(target, None)
    }

    fn build(&self, setup: &Setup) -> Result<Arc<dyn Model>, Box<ProviderFailure>> {
        build(setup, "notes-fake")
    }

    fn build_flawed(&self, setup: &Setup) -> Option<Result<Arc<dyn Model>, Box<ProviderFailure>>> {
        Some(build(setup, ""))
    }

    fn wire(&self, answer: &Answer, form: Form) -> Option<WireForm> {
        Some(chat::wire(answer, form))
    }
}
