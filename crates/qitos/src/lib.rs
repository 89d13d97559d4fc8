//! QitOS: a durable agent kernel with six replaceable mechanisms.
//!
//! One engine runs an agent step by step and commits what matters before anything depends on it. Around it stand
//! six mechanisms that anyone can replace while keeping their public contracts:
//!
//! | mechanism | here |
//! |---|---|
//! | Provider | [`models`] |
//! | Tool | [`mod@tool`], [`macro@tool`] |
//! | Checkpoint store | [`checkpoint`] |
//! | Event sink | [`tracing`] |
//! | Sandbox | [`mod@env`] |
//! | Evaluator | [`evaluate`] |
//!
//! Programs put them together by hand with [`Engine`], or from a configuration with
//! [`compose::Composition`].
//!
//! Features: `sqlite` (the reference store), `openai-chat`, `openai-responses`, `anthropic`, `gemini`, `local` (the HTTP
//! clients of these dialects). All are on by default; without them the crate needs neither a C compiler nor an HTTP
//! client.

pub use qitos_contracts::tool;
pub use qitos_macros::{tool, toolset};

pub mod compose;
pub mod credentials;
pub mod presets;
pub mod registry;

/// The Provider mechanism: the contract, the scripted model, the dialects that are compiled in.
pub mod models {
    pub(crate) mod anthropic_factory;
    pub(crate) mod factory;
    pub(crate) mod gemini_factory;
    pub(crate) mod known_server_factory;
    pub(crate) mod local_factory;
    pub(crate) mod openai_factory;
    #[cfg(test)]
    mod tests;

    pub use crate::registry::{ModelContext, ModelFactory};
    pub use qitos_contracts::model::*;
    pub use qitos_providers::{
        WholeAnswerModel, anthropic, gemini, http, local, openai_chat, openai_responses, scripted,
    };
}

/// The checkpoint store mechanism: the contract, the store in memory, SQLite.
pub mod checkpoint {
    pub use qitos_contracts::checkpoint::*;
    pub use qitos_kit::in_memory::MemoryCheckpointStore;
    #[cfg(feature = "sqlite")]
    pub use qitos_store_sqlite as sqlite;
}

/// The event sink mechanism: records, the sink contract, the dispatcher, the journal.
pub mod tracing {
    pub use qitos_contracts::event::*;
    pub use qitos_contracts::record;
    pub use qitos_journal as journal;
    pub use qitos_kernel::dispatcher::Dispatcher;
}

/// The sandbox mechanism: the contract alone in this release.
pub mod env {
    pub use qitos_contracts::env::*;
}

/// The evaluator mechanism: the contract alone in this release.
pub mod evaluate {
    pub use qitos_contracts::evaluate::*;
}

/// What all contracts share.
pub mod contracts {
    pub use qitos_contracts::*;
}

/// Configurations: `agent.yaml` and its equal in code.
pub mod config {
    pub use qitos_config::*;
}

/// Implementations without network, database or unsafe code.
pub mod kit {
    pub use qitos_kit::*;
}

/// Sessions and what runs them.
pub mod session {
    pub use qitos_kernel::session::*;
}

pub use qitos_kernel as kernel;
pub use qitos_kernel::{
    AgentError, AgentModule, Budget, CancelMode, Criterion, Critic, CriticInput, Engine,
    EngineBuilder, EngineError, EnginePolicy, EngineResult, ExecutorMode, FailFast, Failure,
    ForkFrom, History, Hook, Observation, Prompt, Reduced, RestoreOptions, RunError, RunOptions,
    RunOutcome, Session, StopReason, Takeover, Task, Verdict,
};

/// What the code that `#[tool]` generates refers to; no interface.
#[doc(hidden)]
pub mod __private {
    pub use {async_trait, schemars, serde, serde_json};
}

/// The README and the guides, compiled and run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/write-a-tool.md")]
    struct WriteATool;
}
