//! Names and the factories behind them (CFG-18 to CFG-21).
//!
//! Registration is explicit, in code. A name in a configuration is only ever looked up here; it can never load,
//! import or execute anything.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use qitos_config::AgentConfig;
use qitos_config::section::Model as ModelSection;
use qitos_contracts::context::ContextContributor;
use qitos_contracts::decision::DecisionParser;
use qitos_contracts::model::{ContinuationResolver, Model};
use qitos_contracts::secret::SecretValue;
use qitos_contracts::tool::Tool;
use qitos_contracts::tool::function::Toolset;
use qitos_kit::parsers::ProtocolRegistry;
use qitos_providers::openai_chat::KNOWN_SERVERS;

use crate::compose::CompositionError;
use crate::models::openai_factory::Service;

/// What a model factory is given: its own part of the configuration and the secret that part names.
pub struct ModelContext<'a> {
    /// `model` of the configuration.
    pub section: &'a ModelSection,
    /// The resolved credential, if the section names one.
    pub credential: Option<SecretValue>,
}

/// Makes a model; sends nothing (PRV-38).
pub trait ModelFactory: Send + Sync + 'static {
    /// Whether a configuration must name a credential (CRD-8).
    fn needs_credential(&self) -> bool;

    /// Whether the client is compiled in; otherwise `model_provider_unavailable` (PRV-3).
    fn is_available(&self) -> bool;

    /// Whether the client for `model.api_mode` is compiled in, for a provider with a client for each mode (PRV-3).
    fn is_available_as(&self, api_mode: Option<&str>) -> bool {
        let _ = api_mode;
        self.is_available()
    }

    /// Makes the model.
    ///
    /// # Errors
    /// A text that names no secret and no path.
    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String>;
}

struct Plain<F>(F);

impl<F> ModelFactory for Plain<F>
where
    F: Fn(ModelContext<'_>) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
{
    fn needs_credential(&self) -> bool {
        false
    }

    fn is_available(&self) -> bool {
        true
    }

    fn build(&self, context: ModelContext<'_>) -> Result<Arc<dyn Model>, String> {
        (self.0)(context)
    }
}

/// Opens the sink of a trajectory at a path.
pub type SinkFactory = Arc<
    dyn Fn(PathBuf) -> Result<(Box<dyn qitos_contracts::event::EventSink>, u64), String>
        + Send
        + Sync,
>;

/// The name of what is there without registration.
const BUILT_IN: &str = "default";

/// Everything that configurations may name.
#[derive(Clone)]
pub struct FactoryRegistry {
    pub(crate) models: BTreeMap<String, Arc<dyn ModelFactory>>,
    pub(crate) tools: BTreeMap<String, Arc<dyn Tool>>,
    pub(crate) presets: BTreeMap<String, Option<Arc<dyn Toolset>>>,
    pub(crate) contributors: BTreeMap<String, Arc<dyn ContextContributor>>,
    pub(crate) continuations: BTreeMap<String, Arc<dyn ContinuationResolver>>,
    pub(crate) stores: BTreeMap<String, StoreKind>,
    pub(crate) sinks: BTreeMap<String, SinkFactory>,
    pub(crate) environments: BTreeMap<String, bool>,
    pub(crate) protocols: ProtocolRegistry,
    errors: Vec<CompositionError>,
}

/// A checkpoint store that configurations may name.
#[derive(Clone)]
pub(crate) enum StoreKind {
    Memory,
    #[cfg(feature = "sqlite")]
    Sqlite,
    Unavailable,
    Live(Arc<dyn qitos_contracts::checkpoint::CheckpointStore>),
}

impl fmt::Debug for FactoryRegistry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FactoryRegistry")
            .field("models", &self.models.keys())
            .field("tools", &self.tools.keys())
            .field("presets", &self.presets.keys())
            .finish_non_exhaustive()
    }
}

impl FactoryRegistry {
    /// The built-in factories; those whose client is not compiled in are there by name (PRV-3).
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = FactoryRegistry {
            models: BTreeMap::new(),
            tools: BTreeMap::new(),
            presets: BTreeMap::new(),
            contributors: BTreeMap::new(),
            continuations: BTreeMap::new(),
            stores: BTreeMap::new(),
            sinks: BTreeMap::new(),
            environments: BTreeMap::new(),
            protocols: ProtocolRegistry::builtin(),
            errors: Vec::new(),
        };
        registry
            .models
            .insert("fake".into(), Arc::new(Plain(crate::models::factory::fake)));
        for (name, service) in [
            ("azure_openai", Service::Azure),
            ("azure-openai", Service::Azure),
            ("openai_compatible", Service::Compatible),
            ("openai-compatible", Service::Compatible),
            ("openai", Service::OpenAi),
        ] {
            let factory = crate::models::openai_factory::factory(service);
            registry.models.insert(name.into(), factory);
        }
        for server in KNOWN_SERVERS {
            let factory = Arc::new(crate::models::known_server_factory::Known(server));
            registry.models.insert(server.name.into(), factory);
        }
        registry.models.insert(
            "gemini".into(),
            Arc::new(crate::models::gemini_factory::Gemini),
        );
        for name in crate::models::local_factory::NAMES {
            let factory = Arc::new(crate::models::local_factory::Local(name));
            registry.models.insert(name.into(), factory);
        }
        let anthropic = Arc::new(crate::models::anthropic_factory::Anthropic);
        registry.models.insert("anthropic".into(), anthropic);
        registry.presets.insert("none".into(), None);
        registry.presets.insert(
            "demo_notes".into(),
            Some(Arc::new(crate::presets::DemoNotes)),
        );
        registry.stores.insert("memory".into(), StoreKind::Memory);
        #[cfg(feature = "sqlite")]
        registry.stores.insert("sqlite".into(), StoreKind::Sqlite);
        #[cfg(not(feature = "sqlite"))]
        registry
            .stores
            .insert("sqlite".into(), StoreKind::Unavailable);
        registry
            .stores
            .insert("postgres".into(), StoreKind::Unavailable);
        registry
            .sinks
            .insert("journal".into(), crate::compose::journal_factory());
        registry.environments.insert("unsafe_host".into(), true);
        registry.environments.insert("local".into(), false);
        registry.environments.insert("docker".into(), false);
        registry
    }

    fn taken(&mut self, field: &'static str, name: &str, is_taken: bool) -> bool {
        if is_taken {
            self.errors.push(CompositionError::failed(
                field,
                format!("`{name}` is registered already"),
            ));
        }
        is_taken
    }

    /// Registers a model under a name of its own; needs no credential unless its section names one.
    #[must_use]
    pub fn model(
        mut self,
        name: &str,
        factory: impl Fn(ModelContext<'_>) -> Result<Arc<dyn Model>, String> + Send + Sync + 'static,
    ) -> Self {
        if !self.taken("model.provider", name, self.models.contains_key(name)) {
            self.models.insert(name.into(), Arc::new(Plain(factory)));
        }
        self
    }

    /// Registers a model factory that says more about itself.
    #[must_use]
    pub fn model_factory(mut self, name: &str, factory: Arc<dyn ModelFactory>) -> Self {
        if !self.taken("model.provider", name, self.models.contains_key(name)) {
            self.models.insert(name.into(), factory);
        }
        self
    }

    /// Registers a tool for `tools.include`.
    #[must_use]
    pub fn tool(mut self, name: &str, tool: impl Tool) -> Self {
        if !self.taken("tools.include", name, self.tools.contains_key(name)) {
            self.tools.insert(name.into(), Arc::new(tool));
        }
        self
    }

    /// Registers a toolset for `tools.preset`.
    #[must_use]
    pub fn toolset(mut self, name: &str, toolset: impl Toolset) -> Self {
        if !self.taken("tools.preset", name, self.presets.contains_key(name)) {
            self.presets.insert(name.into(), Some(Arc::new(toolset)));
        }
        self
    }

    /// Registers a source of context for `context.contributors`.
    #[must_use]
    pub fn contributor(mut self, name: &str, contributor: Arc<dyn ContextContributor>) -> Self {
        if !self.taken(
            "context.contributors",
            name,
            self.contributors.contains_key(name),
        ) {
            self.contributors.insert(name.into(), contributor);
        }
        self
    }

    /// Registers a resolver for `context.continuation_resolver`; `default` is built in.
    #[must_use]
    pub fn continuation_resolver(
        mut self,
        name: &str,
        resolver: Arc<dyn ContinuationResolver>,
    ) -> Self {
        let is_taken = name == BUILT_IN || self.continuations.contains_key(name);
        if !self.taken("context.continuation_resolver", name, is_taken) {
            self.continuations.insert(name.into(), resolver);
        }
        self
    }

    /// Registers a live store for `runtime.session.store`.
    #[must_use]
    pub fn store(
        mut self,
        name: &str,
        store: Arc<dyn qitos_contracts::checkpoint::CheckpointStore>,
    ) -> Self {
        if !self.taken(
            "runtime.session.store",
            name,
            self.stores.contains_key(name),
        ) {
            self.stores.insert(name.into(), StoreKind::Live(store));
        }
        self
    }

    /// Registers a sink for `runtime.trajectory.sink`; the factory gives the sink and its next sequence.
    #[must_use]
    pub fn sink(mut self, name: &str, factory: SinkFactory) -> Self {
        if !self.taken(
            "runtime.trajectory.sink",
            name,
            self.sinks.contains_key(name),
        ) {
            self.sinks.insert(name.into(), factory);
        }
        self
    }

    /// Registers a text protocol with its parser.
    #[must_use]
    pub fn protocol(mut self, parser: Arc<dyn DecisionParser>) -> Self {
        let name = parser.protocol_id().to_owned();
        if !self.taken("agent.protocol", &name, self.protocols.get(&name).is_some()) {
            self.protocols.register(parser);
        }
        self
    }

    /// The registered names of every category, sorted; for diagnosis.
    #[must_use]
    pub fn names(&self) -> BTreeMap<&'static str, Vec<String>> {
        BTreeMap::from([
            ("model.provider", self.models.keys().cloned().collect()),
            ("tools.include", self.tools.keys().cloned().collect()),
            ("tools.preset", self.presets.keys().cloned().collect()),
            (
                "context.contributors",
                self.contributors.keys().cloned().collect(),
            ),
            (
                "context.continuation_resolver",
                self.continuations.keys().cloned().collect(),
            ),
            (
                "runtime.session.store",
                self.stores.keys().cloned().collect(),
            ),
            (
                "runtime.trajectory.sink",
                self.sinks.keys().cloned().collect(),
            ),
            (
                "runtime.environment.type",
                self.environments.keys().cloned().collect(),
            ),
            (
                "agent.protocol",
                self.protocols
                    .protocols()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            ),
        ])
    }

    /// Model providers by name and whether their client is compiled in; for `qit doctor`.
    #[must_use]
    pub fn providers(&self) -> BTreeMap<String, bool> {
        self.models
            .iter()
            .map(|(name, factory)| (name.clone(), factory.is_available()))
            .collect()
    }

    /// Checks every name of a configuration without building, creating or reading anything; for `--dry-run` (CLI-5).
    ///
    /// # Errors
    /// As [`Composition::build`](crate::compose::Composition::build) for names.
    pub fn resolve(&self, config: &AgentConfig) -> Result<(), CompositionError> {
        self.check(config, false)
    }

    /// Checks every name of a configuration before anything is built (CFG-19).
    pub(crate) fn check(
        &self,
        config: &AgentConfig,
        model_override: bool,
    ) -> Result<(), CompositionError> {
        if let Some(error) = self.errors.first() {
            return Err(error.clone());
        }
        let unknown = |field: &'static str, name: &str, names: Vec<String>| {
            CompositionError::unknown_name(field, name, names)
        };
        if !model_override {
            let provider = config.model().provider();
            match self.models.get(provider) {
                None => {
                    let names = self.models.keys().cloned().collect();
                    return Err(unknown("model.provider", provider, names)
                        .with_reason("model_provider_unknown"));
                }
                Some(factory) if !factory.is_available_as(config.model().api_mode()) => {
                    let text = format!(
                        "the client of provider `{provider}` is not compiled into this program"
                    );
                    return Err(CompositionError::failed("model.provider", text)
                        .with_reason("model_provider_unavailable"));
                }
                Some(_) => {}
            }
        }
        let preset = config.tools().preset();
        if !self.presets.contains_key(preset) {
            return Err(unknown(
                "tools.preset",
                preset,
                self.presets.keys().cloned().collect(),
            ));
        }
        for name in config.tools().include() {
            if !self.tools.contains_key(name) {
                return Err(unknown(
                    "tools.include",
                    name,
                    self.tools.keys().cloned().collect(),
                ));
            }
        }
        for name in config.context().contributors() {
            if !self.contributors.contains_key(name) {
                return Err(unknown(
                    "context.contributors",
                    name,
                    self.contributors.keys().cloned().collect(),
                ));
            }
        }
        let built_in = || [BUILT_IN.to_owned()].into_iter();
        let resolvers = built_in()
            .chain(self.continuations.keys().cloned())
            .collect();
        let context = config.context();
        for (field, name, names) in [
            ("context.selector", context.selector(), built_in().collect()),
            (
                "context.budget_policy",
                context.budget_policy(),
                built_in().collect(),
            ),
            (
                "context.artifact_resolver",
                context.artifact_resolver(),
                built_in().collect(),
            ),
            (
                "context.continuation_resolver",
                context.continuation_resolver(),
                resolvers,
            ),
        ] {
            let names: Vec<String> = names;
            if !names.iter().any(|known| known == name) {
                return Err(unknown(field, name, names));
            }
        }
        let store = config.runtime().session().store();
        match self.stores.get(store) {
            None => {
                return Err(unknown(
                    "runtime.session.store",
                    store,
                    self.stores.keys().cloned().collect(),
                ));
            }
            Some(StoreKind::Unavailable) => {
                let text = format!("the store `{store}` is not compiled into this program");
                return Err(CompositionError::failed("runtime.session.store", text)
                    .with_reason("store_unavailable"));
            }
            Some(_) => {}
        }
        let sink = config.runtime().trajectory().sink();
        if config.runtime().trajectory().enabled() && !self.sinks.contains_key(sink) {
            return Err(unknown(
                "runtime.trajectory.sink",
                sink,
                self.sinks.keys().cloned().collect(),
            ));
        }
        let environment = config.runtime().environment().kind();
        match self.environments.get(environment) {
            None => {
                let names = self.environments.keys().cloned().collect();
                Err(unknown("runtime.environment.type", environment, names))
            }
            Some(false) => {
                let text = format!("environment `{environment}` is not part of this program yet");
                Err(CompositionError::failed("runtime.environment.type", text)
                    .with_reason("sandbox_unavailable")
                    .with_remediation("use `unsafe_host`, which isolates nothing and offers no file or command tool"))
            }
            Some(true) => Ok(()),
        }
    }
}
