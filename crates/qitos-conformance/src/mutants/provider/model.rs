//! A right model with a flaw.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, FailureCategory, FailureStage, Model, ProviderCapabilities, ProviderCodec,
    ProviderError, ProviderFailure, RawResponse, RequestSent, Target, WirePayload,
};
use serde_json::json;

use super::codec::{INVENTED_CALL, INVENTED_TEXT, MutantCodec};
use super::flaw::Flaw;
use crate::provider::{PeerConnection, ScriptedPeer};

pub(super) struct MutantModel {
    pub(super) inner: Arc<dyn Model>,
    pub(super) capabilities: ProviderCapabilities,
    pub(super) codec: MutantCodec,
    pub(super) flaw: Flaw,
    pub(super) credential: String,
    pub(super) peer: ScriptedPeer,
    pub(super) kept: Mutex<Vec<PeerConnection>>,
    pub(super) cancelled: AtomicUsize,
}

impl fmt::Debug for MutantModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MutantModel")
            .field("inner", &self.inner)
            .field("flaw", &self.flaw)
            .finish_non_exhaustive()
    }
}

/// Notices that an attempt was dropped before it ended.
struct Attempt<'model> {
    model: &'model MutantModel,
    connection: Option<PeerConnection>,
    ended: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.model.cancelled.fetch_add(1, Ordering::Relaxed);
        let mut kept = self
            .model
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.extend(self.connection.take());
    }
}

/// Remembers what was shown, and passes it on as the flaw has it.
struct Spoiled<'sink> {
    inner: &'sink mut dyn DeltaSink,
    flaw: Flaw,
    shown: String,
}

impl DeltaSink for Spoiled<'_> {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.shown.push_str(text);
        match self.flaw {
            Flaw::RepeatsDeltas => {
                self.inner.delta(text)?;
                self.inner.delta(text)
            }
            Flaw::SplitsItsOneChunk => {
                let middle = text.chars().count() / 2;
                let at = text
                    .char_indices()
                    .nth(middle)
                    .map_or(text.len(), |(at, _)| at);
                let (left, right) = text.split_at(at);
                self.inner.delta(left)?;
                self.inner.delta(right)
            }
            _ => self.inner.delta(text),
        }
    }
}

impl MutantModel {
    fn exhausted(&self) -> ProviderError {
        ProviderFailure::new(
            self.inner.target(),
            FailureCategory::ProviderException,
            "provider_response_decode_failed",
            FailureStage::Decode,
            RequestSent::No,
            "no more",
        )
        .into()
    }

    fn judged(
        &self,
        outcome: Result<RawResponse, ProviderError>,
        shown: &str,
    ) -> Result<RawResponse, ProviderError> {
        match (outcome, self.flaw) {
            (Err(ProviderError::Failure(_)), Flaw::AnswersAnyway) => {
                Ok(RawResponse::whole(json!({ INVENTED_TEXT: shown })))
            }
            (Err(ProviderError::Failure(_)), Flaw::TakesAnyEndForTheTerminal)
                if !shown.is_empty() =>
            {
                Ok(RawResponse::whole(json!({ INVENTED_TEXT: shown })))
            }
            (Err(ProviderError::Failure(failure)), Flaw::CompletesHalfCalls)
                if failure.redacted_details.partial_tool_calls > 0 =>
            {
                Ok(RawResponse::whole(json!({ INVENTED_CALL: true })))
            }
            (Err(ProviderError::Failure(mut failure)), Flaw::TellsTheKey) => {
                failure.message = format!("{} ({})", failure.message, self.credential);
                Err(ProviderError::Failure(failure))
            }
            (Err(ProviderError::Consumer(error)), Flaw::RewrapsConsumerErrors) => {
                Err(ProviderError::Consumer(error.to_string().into()))
            }
            (outcome, _) => outcome,
        }
    }
}

#[async_trait]
impl Model for MutantModel {
    fn target(&self) -> &Arc<Target> {
        self.inner.target()
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        if self.flaw == Flaw::DiesOfTheSecondCancel && self.cancelled.load(Ordering::Relaxed) >= 2 {
            return Err(self.exhausted());
        }
        let keeps = self.flaw == Flaw::KeepsDroppedConnections;
        let mut attempt = Attempt {
            model: self,
            connection: keeps.then(|| self.peer.open_connection()),
            ended: false,
        };
        let mut shown = String::new();
        let outcome = match on_delta {
            None => self.inner.send(payload, None).await,
            Some(inner) => {
                let mut spoiled = Spoiled {
                    inner,
                    flaw: self.flaw,
                    shown: String::new(),
                };
                let outcome = self.inner.send(payload, Some(&mut spoiled)).await;
                shown = spoiled.shown;
                outcome
            }
        };
        attempt.ended = true;
        drop(attempt);
        self.judged(outcome, &shown)
    }
}
