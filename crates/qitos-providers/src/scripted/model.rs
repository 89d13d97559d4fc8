//! The model that plays a script.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use qitos_contracts::model::{
    DeltaSink, FailureCategory, FailureStage, Model, ProviderCapabilities, ProviderCodec,
    ProviderError, ProviderFailure, RawResponse, RequestSent, Target, WirePayload,
};
use serde_json::Value;

use super::react_script::{ReactScript, ScriptError};
use super::step::{Step, StepKind};
use super::transport::{OneStep, Shared};
use crate::openai_chat::{ChatCore, ChatOptions, ChatProfile, ChatSettings};
use crate::time_limits::TimeLimits;

/// How many requests the model remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recording {
    /// Every one, whole: memory grows with the square of a long session.
    #[default]
    All,
    /// The newest ones.
    Last(usize),
}

enum Script {
    List(VecDeque<Step>),
    Made(Box<dyn FnMut(usize) -> Option<Step> + Send>),
    React(ReactScript),
}

/// A model whose answers are written beforehand; registered as `fake`.
///
/// # Contract
/// Each request takes the next step. After the last one a request fails with
/// `x.fake.script_exhausted`; there is no default answer (PRV-107).
pub struct ScriptedModel {
    core: ChatCore,
    name: Arc<str>,
    script: Mutex<Script>,
    shared: Arc<Shared>,
    played: Mutex<usize>,
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ScriptedModel")
            .field("target", &self.core.wire.target)
            .field("requests", &self.request_count())
            .finish_non_exhaustive()
    }
}

impl ScriptedModel {
    /// A model that plays `steps` in order.
    ///
    /// # Errors
    /// The model's name is empty.
    pub fn new(model: &str, steps: Vec<Step>) -> Result<Self, Box<ProviderFailure>> {
        Self::build(model, Script::List(steps.into()), ChatOptions::default())
    }

    /// A model that makes the step of request 0, 1, 2 … on demand.
    ///
    /// # Errors
    /// The model's name is empty.
    pub fn from_fn(
        model: &str,
        make: impl FnMut(usize) -> Option<Step> + Send + 'static,
    ) -> Result<Self, Box<ProviderFailure>> {
        Self::build(model, Script::Made(Box::new(make)), ChatOptions::default())
    }

    /// A model that plays the `script` of a configuration's `extra_body` as `react_text_v1` text:
    /// items `{tool, args}` or `{final}`, each with an optional `thought` (PRV-106, CLI-11).
    ///
    /// Which item answers follows from the request alone: the number of answers already in the
    /// conversation. A session that was stopped and resumed therefore goes on where it was. After a
    /// `final` item the script begins again, for the session's next task.
    ///
    /// # Errors
    /// [`ScriptError`] names the first item that is not valid.
    pub fn from_script(
        model: &str,
        script: &Value,
        options: ChatOptions,
    ) -> Result<Self, ScriptError> {
        let script = ReactScript::read(script)?;
        Self::build(model, Script::React(script), options).map_err(|_| ScriptError::Model)
    }

    fn build(
        model: &str,
        script: Script,
        mut options: ChatOptions,
    ) -> Result<Self, Box<ProviderFailure>> {
        options.extra_body.remove("script");
        let target = Target::new("fake", model, "scripted", "chat_completions")
            .or_else(|_| Target::new("fake", "unnamed", "scripted", "chat_completions"));
        let Ok(target) = target else {
            // Four constant, non-empty strings.
            return Err(unnamed_failure());
        };
        if target.model() != model {
            return Err(Box::new(crate::failure::construction(&target)));
        }
        let mut settings = ChatSettings::new(target, "http://scripted.invalid/v1");
        settings.options = options;
        settings.profile = ChatProfile::default();
        Ok(ScriptedModel {
            core: settings.core()?,
            name: model.into(),
            script: Mutex::new(script),
            shared: Arc::new(Shared::new(Recording::All)),
            played: Mutex::new(0),
        })
    }

    /// The same model with another memory for requests.
    #[must_use]
    pub fn with_recording(self, recording: Recording) -> Self {
        self.shared.lock().recording = recording;
        self
    }

    /// The same model with other time limits.
    #[must_use]
    pub fn with_time_limits(mut self, time_limits: TimeLimits) -> Self {
        self.core.wire.time_limits = time_limits;
        self
    }

    /// The same model under another declared target; capabilities follow.
    #[must_use]
    pub fn with_target(mut self, target: Target) -> Self {
        self.core.capabilities.target = target.clone();
        self.core.wire.target = Arc::new(target);
        self
    }

    /// The recorded request bodies, oldest first; copies.
    #[must_use]
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.shared.lock().requests.iter().cloned().collect()
    }

    /// How many requests came, recorded or not.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.lock().request_count
    }

    /// Connections opened and closed so far.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        let record = self.shared.lock();
        (record.opened, record.closed)
    }

    /// Steps that no request has taken; `None` if they are made on demand.
    #[must_use]
    pub fn undelivered_steps(&self) -> Option<usize> {
        match &*self.script.lock().unwrap_or_else(PoisonError::into_inner) {
            Script::List(steps) => Some(steps.len()),
            Script::Made(_) | Script::React(_) => None,
        }
    }

    fn next_step(&self, payload: &WirePayload) -> Option<Step> {
        let position = {
            let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
            let position = *played;
            *played += 1;
            position
        };
        match &mut *self.script.lock().unwrap_or_else(PoisonError::into_inner) {
            Script::List(steps) => steps.pop_front(),
            Script::Made(make) => make(position),
            Script::React(script) => script.step_for(payload),
        }
    }
}

fn unnamed_failure() -> Box<ProviderFailure> {
    Box::new(ProviderFailure {
        category: FailureCategory::ProviderException,
        message: "the client could not be built".to_owned(),
        provider: "fake".to_owned(),
        api_mode: "chat_completions".to_owned(),
        retryable: false,
        status_code: None,
        error_code: "provider_client_construction_failed".to_owned(),
        stage: FailureStage::Connection,
        request_sent: RequestSent::No,
        remediation: String::new(),
        correlation_digest: None,
        redacted_details: qitos_contracts::model::FailureDetails::default(),
        codec_report: None,
    })
}

#[async_trait]
impl Model for ScriptedModel {
    fn target(&self) -> &Arc<Target> {
        &self.core.wire.target
    }

    fn capabilities(&self) -> &ProviderCapabilities {
        &self.core.capabilities
    }

    fn codec(&self) -> &dyn ProviderCodec {
        &self.core.codec
    }

    async fn send(
        &self,
        payload: WirePayload,
        on_delta: Option<&mut dyn DeltaSink>,
    ) -> Result<RawResponse, ProviderError> {
        let Some(mut step) = self.next_step(&payload) else {
            let failure = ProviderFailure::new(
                &self.core.wire.target,
                FailureCategory::ProviderException,
                "x.fake.script_exhausted",
                FailureStage::Transport,
                RequestSent::No,
                "the script has no further step",
            );
            return Err(failure
                .with_remediation("give the script as many steps as the run makes requests")
                .into());
        };
        if matches!(step.kind, StepKind::Failure(_)) {
            let mut body = Vec::new();
            let _ = payload.write_out(&mut body);
            self.shared.record(body);
            if let Some(gate) = step.gate.take() {
                gate.wait().await;
            }
            if let StepKind::Failure(failure) = step.kind {
                return Err(ProviderError::Failure(failure));
            }
            return Err(crate::failure::invalid_payload(&self.core.wire.target).into());
        }
        let transport = OneStep::new(step, Arc::clone(&self.name), Arc::clone(&self.shared));
        self.core.attempt(&transport, payload, on_delta).await
    }
}
