//! Closing that can be waited for: the queues shut, and the threads tell when their connections are gone.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use qitos_contracts::checkpoint::StoreError;
use tokio::sync::mpsc;

/// What [`SqliteStore::close`](crate::SqliteStore::close) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReceipt {
    /// True when the file stands alone: nobody else was using it, so its log was written into it and removed.
    pub log_removed: bool,
}

/// The way into a queue, until it is shut.
pub(crate) struct Door<T>(Mutex<Option<mpsc::Sender<T>>>);

impl<T> fmt::Debug for Door<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.sender().is_ok() {
            "open"
        } else {
            "shut"
        })
    }
}

impl<T> Door<T> {
    pub(crate) fn open(sender: mpsc::Sender<T>) -> Self {
        Door(Mutex::new(Some(sender)))
    }

    /// The queue; whoever got it before it was shut may still use it.
    pub(crate) fn sender(&self) -> Result<mpsc::Sender<T>, StoreError> {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.clone().ok_or_else(|| StoreError::PersistenceFailed {
            operation: "use the store",
            detail: "it is closed".into(),
        })
    }

    pub(crate) fn shut(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Held by every thread that owns a connection, until after that is closed.
pub(crate) type Alive = mpsc::Sender<()>;

/// Where the end of the threads is seen.
#[derive(Debug)]
pub(crate) struct Closing {
    threads: tokio::sync::Mutex<mpsc::Receiver<()>>,
    file: PathBuf,
}

impl Closing {
    pub(crate) fn of(file: &Path) -> (Self, Alive) {
        let (alive, threads) = mpsc::channel(1);
        let closing = Closing {
            threads: tokio::sync::Mutex::new(threads),
            file: file.to_owned(),
        };
        (closing, alive)
    }

    /// Waits until no thread is left.
    pub(crate) async fn finished(&self) -> CloseReceipt {
        // Nothing is ever sent: this ends when the last sender goes.
        while self.threads.lock().await.recv().await.is_some() {}
        let mut log = self.file.clone().into_os_string();
        log.push("-wal");
        CloseReceipt {
            log_removed: !Path::new(&log).exists(),
        }
    }
}
