//! Opening what a configuration names: store and trajectory.

use std::path::PathBuf;
use std::sync::Arc;

use qitos_config::AgentConfig;
use qitos_config::section::{SinkFailurePolicy, TrajectoryPrivacy};
use qitos_contracts::checkpoint::CheckpointStore;
#[cfg(feature = "sqlite")]
use qitos_contracts::checkpoint::SessionError;
use qitos_contracts::error::ContractError;
use qitos_contracts::event::{FailurePolicy, SinkRegistration};
use qitos_contracts::record::PrivacyView;
use qitos_journal::{JournalError, JournalOptions, JournalSink, SyncPolicy};
use qitos_kernel::dispatcher::Dispatcher;
use qitos_kernel::system::{SystemClock, SystemIds};
use qitos_kit::in_memory::MemoryCheckpointStore;

use super::CompositionError;
use crate::registry::{FactoryRegistry, SinkFactory, StoreKind};

/// Makes the data root with rights for its owner only.
fn make_data_root(config: &AgentConfig) -> Result<PathBuf, CompositionError> {
    let root = config.data_root();
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&root).map_err(|error| {
        CompositionError::failed(
            "runtime.data_root",
            format!("the data root cannot be made: {}", error.kind()),
        )
    })?;
    Ok(root)
}

/// Path of the configured SQLite file.
#[cfg(feature = "sqlite")]
fn store_path(config: &AgentConfig) -> PathBuf {
    match config.runtime().session().path() {
        Some(written) => config.resolve_path(written),
        None => config.data_root().join("sessions.sqlite3"),
    }
}

/// A store that was opened here and is closed by whoever opened it.
#[derive(Clone, Debug)]
pub struct OpenedStore {
    store: Arc<dyn CheckpointStore>,
    #[cfg(feature = "sqlite")]
    file: Option<Arc<qitos_store_sqlite::SqliteStore>>,
    /// False for a live store of the registry, which stays its owner's.
    ours: bool,
}

impl OpenedStore {
    fn without_file(store: Arc<dyn CheckpointStore>, ours: bool) -> Self {
        OpenedStore {
            store,
            #[cfg(feature = "sqlite")]
            file: None,
            ours,
        }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn CheckpointStore> {
        &self.store
    }

    /// Returns once every connection is closed; true when there was something of ours to close.
    ///
    /// # Cancel safety
    /// Closing goes on; asking again waits for the rest.
    pub async fn close(&self) -> bool {
        #[cfg(feature = "sqlite")]
        if let Some(file) = &self.file {
            file.close().await;
        }
        self.ours
    }
}

/// Opens the store of a configuration with the built-in factories, without a model; for inspection.
///
/// # Errors
/// The store's codes; with `create` false a missing file is `store_foreign`, and nothing is created.
///
/// # Cancel safety
/// Dropping it may leave an empty store if `create` is true.
pub async fn open_store(
    config: &AgentConfig,
    create: bool,
) -> Result<OpenedStore, CompositionError> {
    open_registered(config, &FactoryRegistry::builtin(), create).await
}

pub(super) async fn open_registered(
    config: &AgentConfig,
    registry: &FactoryRegistry,
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(unused_variables, reason = "only a file is made")
    )]
    create: bool,
) -> Result<OpenedStore, CompositionError> {
    let name = config.runtime().session().store();
    match registry.stores.get(name) {
        Some(StoreKind::Memory) => Ok(OpenedStore::without_file(
            Arc::new(MemoryCheckpointStore::new()),
            true,
        )),
        Some(StoreKind::Live(store)) => Ok(OpenedStore::without_file(Arc::clone(store), false)),
        #[cfg(feature = "sqlite")]
        Some(StoreKind::Sqlite) => {
            let path = store_path(config);
            let mut options = qitos_store_sqlite::OpenOptions::default();
            if create {
                make_data_root(config)?;
                options = options.create();
            }
            let store = qitos_store_sqlite::SqliteStore::open(path, options)
                .await
                .map_err(SessionError::from)?;
            let file = Arc::new(store);
            Ok(OpenedStore {
                store: Arc::clone(&file) as Arc<dyn CheckpointStore>,
                file: Some(file),
                ours: true,
            })
        }
        Some(StoreKind::Unavailable) | None => {
            let names = registry.stores.keys().cloned().collect();
            Err(CompositionError::unknown_name(
                "runtime.session.store",
                name,
                names,
            ))
        }
    }
}

/// Opens the configured sink and registers it with a dispatcher of its own (SNK-20, CFG-29).
pub(super) fn open_trajectory(
    config: &AgentConfig,
    registry: &FactoryRegistry,
) -> Result<(Option<Arc<Dispatcher>>, Option<PathBuf>), CompositionError> {
    let trajectory = config.runtime().trajectory();
    if !trajectory.enabled() {
        return Ok((None, None));
    }
    let Some(factory) = registry.sinks.get(trajectory.sink()) else {
        let names = registry.sinks.keys().cloned().collect();
        return Err(CompositionError::unknown_name(
            "runtime.trajectory.sink",
            trajectory.sink(),
            names,
        ));
    };
    let (sink, next_sequence, path) = match trajectory.output() {
        Some(written) => {
            let path = config.resolve_path(written);
            let (sink, next) = factory(path.clone()).map_err(CompositionError::of_trajectory)?;
            (sink, next, path)
        }
        None => open_next_free(make_data_root(config)?, factory)?,
    };
    let policy = match trajectory.failure_policy() {
        SinkFailurePolicy::Required => FailurePolicy::Required,
        SinkFailurePolicy::Optional => FailurePolicy::Optional,
    };
    let view = match trajectory.privacy() {
        TrajectoryPrivacy::Private => PrivacyView::RawPrivate,
        TrajectoryPrivacy::PublicRedacted => PrivacyView::RedactedPublic,
    };
    let mut dispatcher = Dispatcher::new(Arc::new(SystemClock::new()), next_sequence);
    dispatcher
        .register(
            SinkRegistration::new(sink)
                .with_failure_policy(policy)
                .with_view(view),
        )
        .map_err(|error| CompositionError::of_trajectory(format!("{}: {error}", error.code())))?;
    Ok((Some(Arc::new(dispatcher)), Some(path)))
}

/// CFG-29: a live composition holds the default journal; the next free one is opened.
fn open_next_free(
    root: PathBuf,
    factory: &SinkFactory,
) -> Result<(Box<dyn qitos_contracts::event::EventSink>, u64, PathBuf), CompositionError> {
    const MOST: u32 = 64;
    let mut last = String::new();
    for number in 1..=MOST {
        let name = if number == 1 {
            "trajectory.journal".to_owned()
        } else {
            format!("trajectory-{number}.journal")
        };
        let path = root.join(name);
        match factory(path.clone()) {
            Ok((sink, next)) => return Ok((sink, next, path)),
            Err(text) if text.starts_with("journal_locked") => last = text,
            Err(text) => return Err(CompositionError::of_trajectory(text)),
        }
    }
    Err(CompositionError::of_trajectory(last))
}

/// The factory registered as `journal`.
pub(crate) fn journal_factory() -> SinkFactory {
    Arc::new(|path| {
        let told = |error: JournalError| format!("{}: {error}", error.code());
        let options = JournalOptions::new(Arc::new(SystemClock::new()), Arc::new(SystemIds))
            .with_sync(SyncPolicy::Group);
        let (sink, _recovered) = JournalSink::open(&path, options).map_err(told)?;
        let next = sink.next_sequence();
        Ok((
            Box::new(sink) as Box<dyn qitos_contracts::event::EventSink>,
            next,
        ))
    })
}
