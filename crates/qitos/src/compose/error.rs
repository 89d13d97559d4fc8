//! Why a composition failed, with everything a person needs to mend it.

use std::fmt;
use std::ops::Deref;

use qitos_contracts::checkpoint::SessionError;
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::secret::CredentialError;
use qitos_kernel::EngineError;

/// Why a composition could not be built or used; reads like its [`CompositionFailure`].
#[derive(Clone, Debug)]
pub struct CompositionError(Box<CompositionFailure>);

impl Deref for CompositionError {
    type Target = CompositionFailure;

    fn deref(&self) -> &CompositionFailure {
        &self.0
    }
}

/// What is known about a failed composition.
#[derive(Clone, Debug)]
pub struct CompositionFailure {
    code: String,
    /// Field of the configuration, if one is to blame.
    pub field: Option<String>,
    /// Machine reason, where a specification names one (PRV-2, PRV-3).
    pub reason: Option<String>,
    /// Registered names of the category, sorted (CFG-19).
    pub names: Vec<String>,
    /// What happened.
    pub message: String,
    /// What a person can do; may be empty.
    pub remediation: String,
    kind: CompositionErrorKind,
    retry: Retry,
}

/// Which part failed; decides exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompositionErrorKind {
    /// The configuration or the program's registrations.
    Configuration,
    /// A credential.
    Credential,
    /// The sandbox.
    Sandbox,
    /// Session or store.
    Session,
    /// The trajectory.
    Trajectory,
}

impl CompositionError {
    pub(crate) fn failed(field: &str, message: String) -> Self {
        CompositionError(Box::new(CompositionFailure {
            code: "agent_composition_failed".into(),
            field: Some(field.into()),
            reason: None,
            names: Vec::new(),
            message,
            remediation: String::new(),
            kind: CompositionErrorKind::Configuration,
            retry: Retry::Never,
        }))
    }

    pub(crate) fn unknown_name(field: &str, name: &str, mut names: Vec<String>) -> Self {
        names.sort();
        let mut error = CompositionError::failed(field, format!("`{name}` is not registered"));
        error.0.remediation = format!("registered: {}", names.join(", "));
        error.0.names = names;
        error
    }

    pub(crate) fn with_reason(mut self, reason: &str) -> Self {
        if reason == "sandbox_unavailable" {
            self.0.kind = CompositionErrorKind::Sandbox;
        }
        self.0.reason = Some(reason.into());
        self
    }

    pub(crate) fn with_remediation(mut self, remediation: &str) -> Self {
        self.0.remediation = remediation.into();
        self
    }

    pub(crate) fn closed() -> Self {
        let mut error = CompositionError::failed("", "the composition is closed".into());
        error.0.code = "composition_closed".into();
        error.0.field = None;
        error
    }

    pub(crate) fn of_engine(error: EngineError) -> Self {
        let mut failed = CompositionError::failed("", error.to_string());
        failed.0.reason = Some(error.code().to_owned());
        failed.0.field = None;
        failed
    }

    pub(crate) fn of_credential(error: CredentialError) -> Self {
        let mut failed = CompositionError::failed("model.credential.ref", error.to_string());
        failed.0.code = error.code().to_owned();
        failed.0.kind = CompositionErrorKind::Credential;
        failed.0.retry = error.retry();
        failed
    }

    pub(crate) fn of_session(error: SessionError) -> Self {
        let mut failed = CompositionError::failed("", error.message.clone());
        failed.0.code = error.error_code.as_str().to_owned();
        failed.0.field = None;
        failed.0.remediation = error.remediation.clone();
        failed.0.reason = error
            .metadata
            .get("reason")
            .and_then(|reason| reason.as_str())
            .map(str::to_owned);
        failed.0.kind = CompositionErrorKind::Session;
        failed.0.retry = error.retry();
        failed
    }

    pub(crate) fn of_trajectory(text: String) -> Self {
        let mut failed = CompositionError::failed("runtime.trajectory", text.clone());
        failed.0.code = text
            .split(':')
            .next()
            .unwrap_or("required_sink_unavailable")
            .to_owned();
        failed.0.kind = CompositionErrorKind::Trajectory;
        failed
    }

    /// Which part failed.
    #[must_use]
    pub fn kind(&self) -> CompositionErrorKind {
        self.kind
    }
}

impl fmt::Display for CompositionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) if !field.is_empty() => write!(formatter, "{} ({field})", self.message),
            _ => formatter.write_str(&self.message),
        }
    }
}

impl std::error::Error for CompositionError {}

impl ContractError for CompositionError {
    fn code(&self) -> &str {
        &self.code
    }

    fn retry(&self) -> Retry {
        self.retry
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}
