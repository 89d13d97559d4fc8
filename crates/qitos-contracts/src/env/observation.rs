//! What goes into an Env and what comes out of it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::identity::SandboxIdentity;
use super::ops::OpsGroup;
use super::record_form::{SandboxToken, present};

/// What a composition asks an environment factory for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvSpec {
    /// The registered name, such as `local`, `docker` or `unsafe_host`; always explicit (SBX-17).
    #[serde(rename = "type")]
    pub kind: String,
    /// Settings of that environment.
    pub config: Map<String, Value>,
    /// Names of the tools that will act in it.
    pub required_tools: Vec<String>,
    /// Facts or groups that must be there.
    pub capabilities: Vec<String>,
    /// Free description; never read by the environment.
    pub metadata: Map<String, Value>,
}

impl EnvSpec {
    /// A request for the named environment with no settings.
    #[must_use]
    pub fn new(kind: impl Into<String>) -> Self {
        EnvSpec {
            kind: kind.into(),
            config: Map::new(),
            required_tools: Vec::new(),
            capabilities: Vec::new(),
            metadata: Map::new(),
        }
    }
}

/// The arguments of [`Env::setup`](super::Env::setup); equal requests are one set-up (SBX-5).
#[derive(Clone, Debug, PartialEq)]
pub struct EnvRequest {
    /// Whose environment it is.
    pub identity: SandboxIdentity,
    /// Groups that tools of this run require.
    pub required_ops: Vec<OpsGroup>,
    /// A captured workspace to begin from (`workspace_artifact` of the snapshot, SBX-68).
    pub restore_from: Option<SandboxToken>,
}

impl EnvRequest {
    /// A fresh environment for an owner, without required groups.
    #[must_use]
    pub fn new(identity: SandboxIdentity) -> Self {
        EnvRequest {
            identity,
            required_ops: Vec::new(),
            restore_from: None,
        }
    }
}

/// What an agent sees; equal between two calls without a step (SBX-6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvObservation {
    /// What is observed.
    pub data: Map<String, Value>,
    /// How it was observed.
    pub metadata: Map<String, Value>,
}

/// An action of the environment's own vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvAction {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// The owner that acts; an older one is refused (SBX-10).
    pub owner_generation: u64,
}

/// A failed action: data for the agent, not a failure of the Env (SBX-6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvStepError {
    /// A stable code.
    pub code: String,
    /// A fixed human text without command text, file content or environment values (SBX-3).
    pub message: String,
}

/// What one action did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvStepResult {
    /// What is seen afterwards.
    pub observation: EnvObservation,
    /// The environment's task is over.
    pub done: bool,
    /// A reward, where the environment gives one.
    #[serde(deserialize_with = "present")]
    pub reward: Option<f64>,
    /// Further facts.
    pub info: Map<String, Value>,
    /// Present when the action failed.
    #[serde(deserialize_with = "present")]
    pub error: Option<EnvStepError>,
}

/// Whether an environment works (SBX-5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthReport {
    /// It works.
    pub ok: bool,
    /// Stable tokens, empty exactly when it works.
    pub reasons: Vec<String>,
}

impl HealthReport {
    /// It works.
    #[must_use]
    pub fn healthy() -> Self {
        HealthReport {
            ok: true,
            reasons: Vec::new(),
        }
    }

    /// It does not, for these reasons.
    #[must_use]
    pub fn unhealthy(reasons: Vec<String>) -> Self {
        HealthReport { ok: false, reasons }
    }
}
