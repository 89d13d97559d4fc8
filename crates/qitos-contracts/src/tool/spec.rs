//! What a tool declares before any call (section 1.2).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::schema::Schema;
use crate::env::OpsGroup;

/// When a call needs a person's yes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ApprovalNeed {
    /// Never.
    #[default]
    Never,
    /// Before every call.
    Always,
    /// When [`needs_approval`](super::Tool::needs_approval) says so.
    Predicate,
}

/// What kinds of access a tool asks for; an input of policy, never a grant (TOL-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// Reads files.
    pub filesystem_read: bool,
    /// Writes files.
    pub filesystem_write: bool,
    /// Talks to the network.
    pub network: bool,
    /// Starts processes.
    pub command: bool,
}

/// Repetition inside a slot after an orderly, recoverable error (RES-16).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, at least 1.
    pub max_attempts: u32,
    /// Seconds before the second attempt; doubles with each further one.
    pub backoff_factor: f64,
    /// Bound of one wait.
    pub max_backoff: Duration,
    /// Spread of the wait, 0 to 1.
    pub jitter: f64,
    /// Codes that may be repeated.
    pub retryable_codes: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 1,
            backoff_factor: 0.5,
            max_backoff: Duration::from_secs(60),
            jitter: 0.0,
            retryable_codes: Vec::new(),
        }
    }
}

/// How a tool declares its effect in general; the class of one call is [`Tool::effect`](super::Tool::effect).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectDeclaration {
    /// Changes nothing.
    Pure,
    /// Writes without a contract.
    Undeclared,
    /// Names its effect.
    Declared {
        /// The backend drops repeats of a key.
        dedupe: bool,
        /// [`reconcile`](super::Tool::reconcile) answers.
        reconcile: bool,
    },
}

/// How the tool's code runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ToolLifecycle {
    /// A function on a worker thread.
    SyncFunction,
    /// A future that can be dropped.
    #[default]
    AsyncCoroutine,
    /// A thread of its own.
    Thread,
    /// A child process.
    Subprocess,
    /// An HTTP request.
    HttpClient,
    /// A request to an MCP server.
    McpRequest,
    /// An operation of the environment.
    EnvironmentOperation,
    /// Work that goes on after the call.
    BackgroundOperation,
}

impl ToolLifecycle {
    /// The word of the manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolLifecycle::SyncFunction => "sync_function",
            ToolLifecycle::AsyncCoroutine => "async_coroutine",
            ToolLifecycle::Thread => "thread",
            ToolLifecycle::Subprocess => "subprocess",
            ToolLifecycle::HttpClient => "http_client",
            ToolLifecycle::McpRequest => "mcp_request",
            ToolLifecycle::EnvironmentOperation => "environment_operation",
            ToolLifecycle::BackgroundOperation => "background_operation",
        }
    }

    /// Whether the code occupies a worker that cannot be stopped from outside (EXE-10).
    #[must_use]
    pub const fn is_blocking(self) -> bool {
        matches!(self, ToolLifecycle::SyncFunction | ToolLifecycle::Thread)
    }
}

/// How a running call can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancellation {
    /// Not at all.
    None,
    /// By the token.
    Cooperative,
    /// By terminating the owned process.
    TerminateOwnedProcess,
    /// By killing the owned process.
    KillOwnedProcess,
}

/// MCP hints as received (TOL-9).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolAnnotations {
    /// The hints.
    pub hints: Map<String, Value>,
    /// The server is trusted; otherwise hints may only make the treatment stricter.
    pub trusted: bool,
}

/// Where a tool comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOrigin {
    /// `function`, `mcp`, …
    pub source: String,
    /// The toolset, if any.
    pub toolset: Option<String>,
    /// Version of the source.
    pub version: Option<String>,
}

/// What a tool declares before any call; immutable once built.
///
/// Construct with [`ToolSpec::new`] and the `with_…` methods; the registry validates it
/// (TOL-1, TOL-4, ARG-1).
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Canonical name (TOL-1).
    pub name: Arc<str>,
    /// Title for people.
    pub title: Option<String>,
    /// Description for the model; never empty (TOL-4).
    pub description: String,
    /// Long text replacing the description in text protocols.
    pub prompt: Option<String>,
    /// Object-rooted schema of the arguments (section 2).
    pub input_schema: Value,
    /// Schema of a success's output.
    pub output_schema: Option<Value>,
    /// The tool changes nothing outside itself.
    pub read_only: bool,
    /// Whether calls may overlap; authoritative when set (EXE-2).
    pub concurrency_safe: Option<bool>,
    /// When a call needs a person's yes.
    pub needs_approval: ApprovalNeed,
    /// Access the tool asks for.
    pub permissions: Permissions,
    /// Operation groups of the environment that must exist.
    pub required_ops: Vec<OpsGroup>,
    /// Time limit per attempt.
    pub timeout: Option<Duration>,
    /// Repetition inside a slot.
    pub retry: RetryPolicy,
    /// The effect in general.
    pub effect: EffectDeclaration,
    /// Repeating with equal arguments changes nothing more.
    pub idempotent: bool,
    /// How the code runs.
    pub lifecycle: ToolLifecycle,
    /// How it can be stopped.
    pub cancellation: Cancellation,
    /// Tightens the model view only (PRJ-2).
    pub result_max_chars: Option<u64>,
    /// Produces artifacts.
    pub produces_artifact: bool,
    /// May go on in the background.
    pub supports_background: bool,
    /// Needs a person while it runs.
    pub requires_user_interaction: bool,
    /// MCP hints.
    pub annotations: Option<ToolAnnotations>,
    /// Where the tool comes from.
    pub origin: ToolOrigin,
}

impl ToolSpec {
    /// A tool that may write without a contract: the careful default.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        ToolSpec {
            name: name.into(),
            title: None,
            description: description.into(),
            prompt: None,
            input_schema,
            output_schema: None,
            read_only: false,
            concurrency_safe: None,
            needs_approval: ApprovalNeed::Never,
            permissions: Permissions::default(),
            required_ops: Vec::new(),
            timeout: None,
            retry: RetryPolicy::default(),
            effect: EffectDeclaration::Undeclared,
            idempotent: false,
            lifecycle: ToolLifecycle::default(),
            cancellation: Cancellation::Cooperative,
            result_max_chars: None,
            produces_artifact: false,
            supports_background: false,
            requires_user_interaction: false,
            annotations: None,
            origin: ToolOrigin {
                source: "function".into(),
                toolset: None,
                version: None,
            },
        }
    }

    /// The tool changes nothing outside itself; its effect is `Pure`.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self.effect = EffectDeclaration::Pure;
        self
    }

    /// Sets the general effect declaration.
    #[must_use]
    pub fn with_effect(mut self, effect: EffectDeclaration) -> Self {
        self.effect = effect;
        self
    }

    /// Sets the time limit per attempt.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Says whether calls may overlap.
    #[must_use]
    pub fn with_concurrency_safe(mut self, safe: bool) -> Self {
        self.concurrency_safe = Some(safe);
        self
    }

    /// Sets how the code runs and, with it, the default way to stop it.
    #[must_use]
    pub fn with_lifecycle(mut self, lifecycle: ToolLifecycle) -> Self {
        self.lifecycle = lifecycle;
        if lifecycle.is_blocking() {
            self.cancellation = Cancellation::None;
        }
        self
    }

    /// Sets the repetition policy.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Repeating with equal arguments changes nothing more.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    /// May a cut-off attempt be dispatched again on recovery (DUR-5)?
    #[must_use]
    pub fn may_repeat_after_crash(&self) -> bool {
        self.idempotent || self.effect == EffectDeclaration::Pure
    }

    /// The fields marked M of section 1.2, as one JSON object of the manifest (REG-7).
    #[must_use]
    pub fn manifest_entry(&self, wire_name: &str) -> Value {
        let effect = match self.effect {
            EffectDeclaration::Pure => json!({"kind": "pure"}),
            EffectDeclaration::Undeclared => json!({"kind": "undeclared"}),
            EffectDeclaration::Declared { dedupe, reconcile } => {
                json!({"kind": "declared", "dedupe": dedupe, "reconcile": reconcile})
            }
        };
        let approval = match self.needs_approval {
            ApprovalNeed::Never => "never",
            ApprovalNeed::Always => "always",
            ApprovalNeed::Predicate => "predicate",
        };
        json!({
            "name": self.name.as_ref(),
            "wire_name": wire_name,
            "title": self.title,
            "description": self.description,
            "prompt": self.prompt,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "read_only": self.read_only,
            "concurrency_safe": self.concurrency_safe,
            "needs_approval": approval,
            "permissions": {
                "filesystem_read": self.permissions.filesystem_read,
                "filesystem_write": self.permissions.filesystem_write,
                "network": self.permissions.network,
                "command": self.permissions.command,
            },
            "required_ops": self.required_ops.iter().map(|group| group.as_str()).collect::<Vec<_>>(),
            "timeout_ms": self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            "retry": {
                "max_attempts": self.retry.max_attempts,
                "backoff_factor": self.retry.backoff_factor,
                "max_backoff_ms": u64::try_from(self.retry.max_backoff.as_millis()).unwrap_or(u64::MAX),
                "jitter": self.retry.jitter,
                "retryable_codes": self.retry.retryable_codes,
            },
            "effect": effect,
            "idempotent": self.idempotent,
            "produces_artifact": self.produces_artifact,
            "supports_background": self.supports_background,
            "requires_user_interaction": self.requires_user_interaction,
            "annotations": self.annotations.as_ref().map(|annotations| {
                json!({"hints": annotations.hints, "trusted": annotations.trusted})
            }),
            "origin": {
                "source": self.origin.source,
                "toolset": self.origin.toolset,
                "version": self.origin.version,
            },
        })
    }
}

/// A spec whose schemas were compiled; what a registry holds.
#[derive(Clone, Debug)]
pub struct CompiledSpec {
    /// Compiled `input_schema`.
    pub input: Arc<Schema>,
    /// Compiled `output_schema`.
    pub output: Option<Arc<Schema>>,
}
