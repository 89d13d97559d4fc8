//! A configuration becomes a running system (section 2 of the composition specification).
//!
//! Order: names → credential → store → sink → model → protocol, tools, policy → assemble. Cheap checks come first,
//! and no provider request happens anywhere in here (CFG-23).

mod assemble;
mod close;
mod error;
mod open;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use assemble::{Parts, assemble};
use qitos_config::AgentConfig;
use qitos_config::section::{SessionMode, ToolPolicy};
use qitos_contracts::checkpoint::{CheckpointStore, ForkReceipt, SessionError};
use qitos_contracts::digest::Digest;
use qitos_contracts::env::Env;
use qitos_contracts::ids::{ForkOperationId, SessionId};
use qitos_contracts::model::Model;
use qitos_contracts::secret::{
    CredentialReceipt, CredentialRef, CredentialRequest, CredentialResolver, SecretValue,
};
use qitos_contracts::tool::ToolRegistry;
use qitos_contracts::tool::permission::PermissionPolicy;
use qitos_kernel::dispatcher::Dispatcher;
use qitos_kernel::{Engine, ForkFrom, RestoreOptions, Session, Takeover};

use serde_json::{Value, json};

pub use close::CloseFailure;
pub use close::CloseReceipt;
pub use error::{CompositionError, CompositionErrorKind, CompositionFailure};
pub(crate) use open::journal_factory;
pub use open::{OpenedStore, open_store};

use crate::registry::{FactoryRegistry, ModelContext};

/// What a composition may be given from outside.
#[derive(Default)]
pub struct CompositionOptions {
    /// Where credentials come from; without one no credential can be used (CRD-8).
    pub credential_resolver: Option<Arc<dyn CredentialResolver>>,
    /// A live model: caller-owned, never closed here; no credential is resolved (CFG-24).
    pub model_override: Option<Arc<dyn Model>>,
    /// A live environment: caller-owned, serves one session at a time (CFG-25).
    pub env_override: Option<Arc<dyn Env>>,
    /// Permission rules of the program; the default asks for everything that may write (PRM-3).
    pub permissions: PermissionPolicy,
}

impl std::fmt::Debug for CompositionOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CompositionOptions")
            .field("model_override", &self.model_override.is_some())
            .field("env_override", &self.env_override.is_some())
            .finish_non_exhaustive()
    }
}

/// A running system made of a configuration and a registry.
#[derive(Debug)]
pub struct Composition {
    config: AgentConfig,
    engine: Engine,
    store: Option<OpenedStore>,
    dispatcher: Option<Arc<Dispatcher>>,
    credential: Option<CredentialReceipt>,
    journal: Option<PathBuf>,
    model_override: bool,
    state: close::State,
}

impl Composition {
    /// Builds everything that `config` names; on failure what exists is closed and the first error returned.
    ///
    /// # Errors
    /// `agent_composition_failed` with field, reason and names; the credential, store and journal codes.
    ///
    /// # Cancel safety
    /// Dropping it may leave an empty store and journal.
    pub async fn build(
        config: &AgentConfig,
        registry: &FactoryRegistry,
        options: CompositionOptions,
    ) -> Result<Self, CompositionError> {
        let model_override = options.model_override.is_some();
        registry.check(config, model_override)?;
        let (credential, receipt) = if model_override {
            (None, None)
        } else {
            resolve_credential(config, registry, options.credential_resolver.as_deref()).await?
        };
        let durable = config.runtime().session().mode() == SessionMode::Durable;
        let store = if durable {
            Some(open::open_registered(config, registry, true).await?)
        } else {
            None
        };
        let (dispatcher, journal) = open::open_trajectory(config, registry)?;
        let model = match options.model_override {
            Some(model) => model,
            None => build_model(config, registry, credential)?,
        };
        let tools = collect_tools(config, registry)?;
        let builder = assemble(
            config,
            registry,
            Parts {
                model,
                tools,
                store: store.as_ref().map(|opened| Arc::clone(opened.store())),
                dispatcher: dispatcher.clone(),
                permissions: options.permissions,
                env: options.env_override,
                credential: receipt.clone(),
                model_override,
            },
        )?;
        let engine = builder.build().map_err(CompositionError::of_engine)?;
        Ok(Composition {
            config: config.clone(),
            engine,
            store,
            dispatcher,
            credential: receipt,
            journal,
            model_override,
            state: close::State::default(),
        })
    }

    /// The engine, for what has no shortcut here.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where sessions live; none for ephemeral ones.
    #[must_use]
    pub fn store(&self) -> Option<&Arc<dyn CheckpointStore>> {
        self.store.as_ref().map(OpenedStore::store)
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Digest that sessions are bound to (CFG-14).
    #[must_use]
    pub fn config_digest(&self) -> Digest {
        self.config.config_digest()
    }

    /// How the credential was resolved; never the credential.
    #[must_use]
    pub fn credential_receipt(&self) -> Option<&CredentialReceipt> {
        self.credential.as_ref()
    }

    /// Sanitized facts of the launch (CFG-15).
    #[must_use]
    pub fn launch_receipt(&self) -> Value {
        json!({
            "configuration": self.config.sanitized(),
            "credential": self.credential,
            "model_override": self.model_override,
            "journal": self.journal.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy()),
            "compatibility": self.config.compatibility().iter().map(|receipt| format!("{receipt:?}")).collect::<Vec<_>>(),
        })
    }

    /// A new session for `task`, or for the first task of the data set.
    ///
    /// # Errors
    /// `composition_closed`; `agent_composition_failed` without a task; the session codes.
    ///
    /// # Cancel safety
    /// As [`Engine::session`].
    pub async fn session(
        &self,
        task: Option<String>,
        id: Option<SessionId>,
    ) -> Result<Session, CompositionError> {
        self.state.check_open()?;
        let task = task
            .or_else(|| {
                self.config
                    .dataset()
                    .first()
                    .map(|item| item.task().to_owned())
            })
            .ok_or_else(|| {
                CompositionError::failed("dataset", "there is neither a task nor a data set".into())
            })?;
        Ok(self.engine.session_with_id(task, id).await?)
    }

    /// Takes up a session that rests.
    ///
    /// # Errors
    /// `composition_closed`; the codes of [`Engine::restore`].
    ///
    /// # Cancel safety
    /// As [`Engine::restore`].
    pub async fn restore(
        &self,
        session: &SessionId,
        options: RestoreOptions,
    ) -> Result<Session, CompositionError> {
        self.state.check_open()?;
        Ok(self.engine.restore(session, options).await?)
    }

    /// Takes up a session whose owner died.
    ///
    /// # Errors
    /// `composition_closed`; the codes of [`Engine::recover`].
    ///
    /// # Cancel safety
    /// As [`Engine::recover`].
    pub async fn recover(
        &self,
        session: &SessionId,
        takeover: Takeover,
        options: RestoreOptions,
    ) -> Result<Session, CompositionError> {
        self.state.check_open()?;
        Ok(self.engine.recover(session, takeover, options).await?)
    }

    /// Makes a child of a session; never claims the parent (CFG-26).
    ///
    /// # Errors
    /// `composition_closed`; the codes of [`Engine::fork`].
    ///
    /// # Cancel safety
    /// As [`Engine::fork`].
    pub async fn fork(
        &self,
        session: &SessionId,
        from: ForkFrom,
        operation: Option<ForkOperationId>,
    ) -> Result<ForkReceipt, CompositionError> {
        self.state.check_open()?;
        Ok(self.engine.fork(session, from, operation).await?)
    }

    /// Stops workers, flushes and closes the sinks, closes the store that was opened here (CFG-27). Repeats give the
    /// same receipt.
    ///
    /// # Cancel safety
    /// Dropping it may leave sinks open; call it again.
    pub async fn close(&self) -> CloseReceipt {
        self.state
            .close(
                &self.engine,
                self.dispatcher.as_deref(),
                self.store.as_ref(),
                Duration::from_secs(10),
            )
            .await
    }
}

impl From<SessionError> for CompositionError {
    fn from(error: SessionError) -> Self {
        CompositionError::of_session(error)
    }
}

async fn resolve_credential(
    config: &AgentConfig,
    registry: &FactoryRegistry,
    resolver: Option<&dyn CredentialResolver>,
) -> Result<(Option<SecretValue>, Option<CredentialReceipt>), CompositionError> {
    let model = config.model();
    let needed = registry
        .models
        .get(model.provider())
        .is_some_and(|factory| factory.needs_credential());
    let Some(credential) = model.credential() else {
        return if needed {
            Err(CompositionError::failed(
                "model.credential",
                "this provider needs a credential".into(),
            )
            .with_remediation(
                "name one with `model.credential.ref` and give its value to a credential resolver",
            ))
        } else {
            Ok((None, None))
        };
    };
    let reference: CredentialRef = credential.reference().parse().map_err(|_| {
        CompositionError::failed(
            "model.credential.ref",
            "the reference is not a token".into(),
        )
    })?;
    let Some(resolver) = resolver else {
        return Err(CompositionError::failed(
            "model.credential.ref",
            "there is no credential resolver".into(),
        ));
    };
    let (workspace, data_root) = (config.workspace(), config.data_root());
    let excluded = [workspace.as_path(), data_root.as_path()];
    let base_url = Some(model.base_url()).filter(|url| !url.is_empty());
    let request = CredentialRequest {
        reference: &reference,
        base_url,
        excluded_roots: &excluded,
    };
    let resolved = resolver
        .resolve(request)
        .await
        .map_err(CompositionError::of_credential)?;
    Ok((Some(resolved.value), Some(resolved.receipt)))
}

fn build_model(
    config: &AgentConfig,
    registry: &FactoryRegistry,
    credential: Option<SecretValue>,
) -> Result<Arc<dyn Model>, CompositionError> {
    let Some(factory) = registry.models.get(config.model().provider()) else {
        return Err(CompositionError::failed(
            "model.provider",
            "the provider is not registered".into(),
        ));
    };
    let context = ModelContext {
        section: config.model(),
        credential,
    };
    let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| factory.build(context)));
    match built {
        Ok(Ok(model)) => Ok(model),
        Ok(Err(text)) => Err(CompositionError::failed("model", text)),
        Err(_) => Err(CompositionError::failed(
            "model",
            "the model factory panicked".into(),
        )),
    }
}

fn collect_tools(
    config: &AgentConfig,
    registry: &FactoryRegistry,
) -> Result<ToolRegistry, CompositionError> {
    let mut tools = ToolRegistry::new();
    let failed = |error: qitos_contracts::tool::registry::RegistryError| {
        CompositionError::failed("tools", error.to_string())
    };
    if let Some(Some(toolset)) = registry.presets.get(config.tools().preset()) {
        tools
            .register_toolset(Arc::clone(toolset))
            .map_err(failed)?;
    }
    for name in config.tools().include() {
        if let Some(tool) = registry.tools.get(name) {
            tools.register_shared(Arc::clone(tool)).map_err(failed)?;
        }
    }
    let required = matches!(
        config.tools().policy(),
        ToolPolicy::RequiredForNextDecision | ToolPolicy::RequiredBeforeFinal
    );
    if required && tools.is_empty() {
        return Err(CompositionError::failed(
            "tools.policy",
            "a tool is required and none is selected".into(),
        ));
    }
    Ok(tools)
}
