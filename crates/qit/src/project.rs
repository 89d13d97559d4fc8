//! A configuration on the command line and what belongs to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::checkpoint::{CheckpointStore, SessionError};
use qitos::compose::open_store;
use qitos::config::AgentConfig;
use qitos::contracts::ids::SessionId;

use crate::exit_code::ExitCode;
use crate::failure::Failure;

/// The file of a configuration's SQLite store; none for other stores.
pub(crate) fn store_file(config: &AgentConfig) -> Option<PathBuf> {
    let session = config.runtime().session();
    (session.store() == "sqlite").then(|| match session.path() {
        Some(written) => config.resolve_path(written),
        None => config.data_root().join("sessions.sqlite3"),
    })
}

/// Opens the store of a configuration, which must be there already, asks it, and closes it whatever the answer is.
pub(crate) async fn with_store<T>(
    config: &AgentConfig,
    ask: impl AsyncFnOnce(&Arc<dyn CheckpointStore>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(file) = store_file(config)
        && !file.exists()
    {
        return Err(no_session("this project has no session store yet"));
    }
    let opened = open_store(config, false).await?;
    let answer = ask(opened.store()).await;
    opened.close().await;
    answer
}

/// Opens the store of a configuration to look at it.
///
/// A store whose owner lives or was killed has a write-ahead log, and looking leaves that as it is (SES-64). A closed
/// store has none: it is opened as usual, because only a connection that may write takes away what it puts beside the
/// file.
pub(crate) async fn store_to_look_at(file: &Path) -> Result<SqliteStore, Failure> {
    if !file.exists() {
        return Err(no_session("this project has no session store yet"));
    }
    let options = match has_log(file) {
        true => OpenOptions::default().read_only(),
        false => OpenOptions::default(),
    };
    SqliteStore::open(file, options)
        .await
        .map_err(|error| SessionError::from(error).into())
}

fn has_log(file: &Path) -> bool {
    std::fs::metadata(beside(file, "-wal")).is_ok_and(|log| log.len() > 0)
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn no_session(message: &str) -> Failure {
    Failure::new(
        ExitCode::Session,
        "session_not_found",
        message,
        "run the project once, or check `--config`",
    )
}

/// Reads a session id from the command line.
pub(crate) fn session_id(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(
            "`--session-id` is not a session id",
            "a session id is `session_` and 16 to 64 hex digits; `qit session list` shows those that exist",
        )
    })
}

/// Loads a configuration and shows what was read in older spellings (CFG-9).
pub(crate) fn load(path: &Path) -> Result<AgentConfig, Failure> {
    let config = AgentConfig::from_file(path)?;
    for receipt in config.compatibility() {
        crate::answer::note(&format!(
            "warning[{}]: {} ({})",
            receipt.code, receipt.message, receipt.field
        ));
    }
    Ok(config)
}
