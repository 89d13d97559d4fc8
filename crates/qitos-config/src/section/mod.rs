//! The one list of fields: for each its key, type, bounds, default and text.
//!
//! Every entry gives, from one line, the typed field with its getter, the setter of the builder, the row that the
//! reader follows and the property of the JSON Schema. The tables stand in the order of the specification.

#[macro_use]
mod table;
mod agent;
mod root;
mod runtime;

pub use agent::{
    Agent, AgentEdit, Credential, CredentialEdit, Model, ModelEdit, ModelRequest, ModelRequestEdit,
    ToolOptions, ToolOptionsEdit, ToolPolicy, Tools, ToolsEdit,
};
pub use root::{
    Budgets, BudgetsEdit, Compaction, CompactionEdit, ContextEdit, ContextSettings, DatasetItem,
    Evaluation, EvaluationEdit, FailurePolicy, FailurePolicyEdit, Lifecycle, LifecycleEdit, Memory,
    MemoryEdit, ProviderStreamFailure, RootEdit, Sections, ToolFailure,
};
pub use runtime::{
    Environment, EnvironmentEdit, EnvironmentInput, EnvironmentInputEdit, ResourceEnforcement,
    Runtime, RuntimeEdit, Session, SessionEdit, SessionMode, SinkFailurePolicy, Trajectory,
    TrajectoryEdit, TrajectoryPrivacy, WorkspaceBacking,
};

pub(crate) use root::{SCHEMA, SCHEMA_V1};
pub(crate) use runtime::UNSAFE_HOST_KEYS;
