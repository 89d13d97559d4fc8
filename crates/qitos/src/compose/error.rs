//! Why a composition failed, with everything a person needs to mend it.

use std::fmt;

use qitos_contracts::checkpoint::SessionError;
use qitos_contracts::error::{ContractError, Performed, Retry};
use qitos_contracts::secret::CredentialError;
use qitos_kernel::EngineError;

/// Why a composition could not be built or used.
#[derive(Clone, Debug)]
pub struct CompositionError {
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
        CompositionError {
            code: "agent_composition_failed".into(),
            field: Some(field.into()),
            reason: None,
            names: Vec::new(),
            message,
            remediation: String::new(),
            kind: CompositionErrorKind::Configuration,
            retry: Retry::Never,
        }
    }

    pub(crate) fn unknown_name(field: &str, name: &str, mut names: Vec<String>) -> Self {
        names.sort();
        let mut error = CompositionError::failed(field, format!("`{name}` is not registered"));
        error.remediation = format!("registered: {}", names.join(", "));
        error.names = names;
        error
    }

    pub(crate) fn with_reason(mut self, reason: &str) -> Self {
        if reason == "sandbox_unavailable" {
            self.kind = CompositionErrorKind::Sandbox;
        }
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn with_remediation(mut self, remediation: &str) -> Self {
        self.remediation = remediation.into();
        self
    }

    pub(crate) fn closed() -> Self {
        CompositionError {
            code: "composition_closed".into(),
            field: None,
            ..CompositionError::failed("", "the composition is closed".into())
        }
    }

    pub(crate) fn of_engine(error: EngineError) -> Self {
        CompositionError {
            reason: Some(error.code().to_owned()),
            field: None,
            ..CompositionError::failed("", error.to_string())
        }
    }

    pub(crate) fn of_credential(error: CredentialError) -> Self {
        CompositionError {
            code: error.code().to_owned(),
            kind: CompositionErrorKind::Credential,
            retry: error.retry(),
            ..CompositionError::failed("model.credential.ref", error.to_string())
        }
    }

    pub(crate) fn of_session(error: SessionError) -> Self {
        CompositionError {
            code: error.error_code.as_str().to_owned(),
            field: None,
            remediation: error.remediation.clone(),
            reason: error
                .metadata
                .get("reason")
                .and_then(|reason| reason.as_str())
                .map(str::to_owned),
            kind: CompositionErrorKind::Session,
            retry: error.retry(),
            ..CompositionError::failed("", error.message)
        }
    }

    pub(crate) fn of_trajectory(text: String) -> Self {
        CompositionError {
            code: text
                .split(':')
                .next()
                .unwrap_or("required_sink_unavailable")
                .to_owned(),
            kind: CompositionErrorKind::Trajectory,
            ..CompositionError::failed("runtime.trajectory", text.clone())
        }
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
