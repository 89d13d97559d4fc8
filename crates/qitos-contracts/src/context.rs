//! Contributors, budgets and contributions (section 1 of the context specification).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::artifact::Sensitivity;
use crate::canonical_json;
use crate::digest::Digest;
use crate::error::{ContractError, Performed, Retry};
use crate::ids::SessionId;
use crate::model::Target;

/// Where a contribution wants to stand; the codec decides the wire role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// With the platform's instructions; trusted contributors only (CTX-7).
    System,
    /// With the developer's instructions; trusted contributors only (CTX-7).
    #[default]
    Developer,
    /// As user-level data.
    User,
    /// After the newest results.
    AfterTool,
}

/// How long the bytes are expected to stay equal; decides the cache segment (section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Horizon {
    /// This request only.
    #[default]
    Request,
    /// The session.
    Session,
    /// Until its digest changes.
    UntilChanged,
}

/// A piece of context, with what it is worth and how far it may travel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextContribution {
    /// Unique over all contributors.
    pub contribution_id: String,
    /// Provenance label, such as `project:context`.
    pub source: String,
    /// What the model may see.
    pub content: Value,
    /// SHA-256 of the canonical content.
    pub digest: Digest,
    /// Higher first.
    pub priority: i64,
    /// Where it wants to stand.
    pub requested_placement: Placement,
    /// How long its bytes stay equal.
    pub persistence_horizon: Horizon,
    /// For traces and transfers.
    pub sensitivity: Sensitivity,
    /// `false`: never in a request.
    pub model_visible: bool,
    /// It must be in the request or the request fails.
    pub required: bool,
    /// Provenance of the content, not a suppression key.
    pub revision: Option<String>,
}

impl ContextContribution {
    /// An optional contribution of priority 0 for this request, placed with the developer's instructions.
    ///
    /// # Errors
    /// The content holds a number that canonical JSON refuses.
    pub fn new(
        contribution_id: impl Into<String>,
        source: impl Into<String>,
        content: Value,
    ) -> Result<Self, canonical_json::CanonicalError> {
        let digest = canonical_json::digest(&content)?;
        Ok(ContextContribution {
            contribution_id: contribution_id.into(),
            source: source.into(),
            content,
            digest,
            priority: 0,
            requested_placement: Placement::Developer,
            persistence_horizon: Horizon::Request,
            sensitivity: Sensitivity::Internal,
            model_visible: true,
            required: false,
            revision: None,
        })
    }
}

/// What a contributor is told.
#[derive(Clone, Debug)]
pub struct ContextRequest {
    /// Names this request; non-empty.
    pub request_key: String,
    /// Whom the request is for.
    pub target: Arc<Target>,
    /// The session.
    pub session_id: Option<SessionId>,
    /// Bounded JSON, copied.
    pub metadata: Map<String, Value>,
}

/// Why context could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// `context_policy_error`: wrong type, duplicate ids, an invocation failed.
    #[error("contributor `{contributor}` broke its contract: {reason}")]
    Policy {
        /// The contributor.
        contributor: String,
        /// A constant text.
        reason: &'static str,
    },
    /// `required_context_missing`.
    #[error("required context `{contribution}` is missing")]
    RequiredMissing {
        /// The contribution or contributor.
        contribution: String,
    },
    /// `context_budget_exceeded`.
    #[error("the request needs {required} units and has {available}")]
    BudgetExceeded {
        /// Units needed.
        required: u64,
        /// Units available.
        available: u64,
    },
    /// `context_compaction_required`: something would have to be left out and no policy allows it (CTX-31).
    #[error("exchanges would have to be left out and no compaction policy is bound")]
    CompactionRequired,
}

impl ContractError for ContextError {
    fn code(&self) -> &str {
        match self {
            ContextError::Policy { .. } => "context_policy_error",
            ContextError::RequiredMissing { .. } => "required_context_missing",
            ContextError::BudgetExceeded { .. } => "context_budget_exceeded",
            ContextError::CompactionRequired => "context_compaction_required",
        }
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }

    fn performed(&self) -> Performed {
        Performed::No
    }
}

/// A source of context, bound by name at composition (CTX-1 to CTX-8).
///
/// # Contract
/// Confers no right to any tool or resource (CTX-3). What it returns is copied; later changes are invisible.
#[async_trait]
pub trait ContextContributor: fmt::Debug + Send + Sync + 'static {
    /// Unique, non-empty; contributors run in id order (CTX-2).
    fn contributor_id(&self) -> &str;

    /// Whether leaving it out fails the request (CTX-6).
    fn required(&self) -> bool;

    /// Whether it may ask for `system` or `developer` placement (CTX-7).
    fn trusted(&self) -> bool;

    /// The contributions for one request.
    ///
    /// # Errors
    /// An error omits an optional contributor and fails a required one (CTX-6).
    ///
    /// # Cancel safety
    /// Dropped at its deadline; dropping it means nothing happened.
    async fn contribute(
        &self,
        request: &ContextRequest,
    ) -> Result<Vec<ContextContribution>, ContextError>;
}
