//! Threads that read: each owns a connection, none is held across an await or a page boundary (STO-29).

use std::cell::{Ref, RefCell};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use qitos_contracts::checkpoint::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::closing::{Alive, Door};
use crate::connection::open_reader;
use crate::keys::Keys;

/// Reads that may wait; more wait with their callers.
const QUEUE: usize = 256;

type Job = Box<dyn FnOnce(&Reading) + Send>;

/// What a reading thread owns.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) connection: Connection,
    keys: RefCell<Keys>,
}

impl Reading {
    fn open(path: &std::path::Path) -> Result<Self, StoreError> {
        Ok(Reading {
            connection: open_reader(path)?,
            keys: RefCell::default(),
        })
    }

    /// The keys of everything that is committed by now.
    pub(crate) fn keys(&self) -> Result<Ref<'_, Keys>, StoreError> {
        self.keys.borrow_mut().refresh(&self.connection)?;
        Ok(self.keys.borrow())
    }
}

/// A pool of reading threads.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Door<Job>,
    path: PathBuf,
}

impl Readers {
    /// Opens one connection per thread; the threads end once the pool is dropped.
    pub(crate) fn start(
        path: &std::path::Path,
        threads: u32,
        alive: &Alive,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (queue, jobs) = mpsc::channel::<Job>(QUEUE);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut handles = Vec::new();
        for _ in 0..threads {
            let reading = Reading::open(path)?;
            let jobs = Arc::clone(&jobs);
            let alive = Alive::clone(alive);
            let handle = std::thread::Builder::new()
                .name("qitos-sqlite-reader".into())
                .spawn(move || {
                    loop {
                        // Whoever holds the lock waits for the next job; the others wait for the lock.
                        let job = jobs
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .blocking_recv();
                        let Some(job) = job else { break };
                        job(&reading);
                    }
                    drop(reading);
                    drop(alive);
                })
                .map_err(|error| StoreError::PersistenceFailed {
                    operation: "start a reader",
                    detail: error.kind().to_string(),
                })?;
            handles.push(handle);
        }
        let readers = Readers {
            queue: Door::open(queue),
            path: path.to_owned(),
        };
        Ok((readers, handles))
    }

    /// No more reads; those that are queued are answered.
    pub(crate) fn shut(&self) {
        self.queue.shut();
    }

    /// Runs `read` on one of the threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reading) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |reading| {
            let _ = reply.send(read(reading));
        });
        let gone = || StoreError::PersistenceFailed {
            operation: "read",
            detail: "the reader is gone".into(),
        };
        self.queue.sender()?.send(job).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs `read` on a connection opened for it alone (STO-6).
    pub(crate) async fn read_fresh<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reading) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let path = self.path.clone();
        self.read(move |_| read(&Reading::open(&path)?)).await
    }
}
