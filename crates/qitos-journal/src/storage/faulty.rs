//! A storage in memory that fails the n-th operation and knows what a power cut would leave.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Storage, StoredFile};

/// Which operation fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A write that takes nothing.
    Write(io::ErrorKind),
    /// A write that takes half, and the next that takes nothing.
    ShortWrite(io::ErrorKind),
    Sync,
    /// Any operation that changes something.
    Any,
}

#[derive(Clone, Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    /// What a power cut leaves.
    durable: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Arc<Mutex<FileState>>>,
    durable_names: BTreeMap<String, Arc<Mutex<FileState>>>,
    /// Operations of the faulty kind until the fault; `None` when none is planned.
    countdown: Option<(usize, Fault)>,
    operations: usize,
    fail_truncate: bool,
    bytes_read: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyStorage(Arc<Mutex<State>>);

fn refused(kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, "planned fault")
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Write,
    Sync,
    Other,
}

impl FaultyStorage {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A storage that holds these files durably.
    pub(crate) fn of(files: &[(String, Vec<u8>)]) -> Self {
        let storage = FaultyStorage::default();
        for (name, bytes) in files {
            let file = FileState {
                bytes: bytes.clone(),
                durable: bytes.clone(),
            };
            let file = Arc::new(Mutex::new(file));
            let mut state = storage.state();
            state.files.insert(name.clone(), Arc::clone(&file));
            state.durable_names.insert(name.clone(), file);
        }
        storage
    }

    pub(crate) fn fail_at(&self, operation: usize, fault: Fault) {
        self.state().countdown = Some((operation, fault));
    }

    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.countdown = None;
        state.fail_truncate = false;
    }

    pub(crate) fn fail_truncate(&self) {
        self.state().fail_truncate = true;
    }

    /// Whether the planned fault is still to come.
    pub(crate) fn fault_is_pending(&self) -> bool {
        self.state().countdown.is_some()
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.state().bytes_read
    }

    /// The files as other processes see them.
    pub(crate) fn files(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let read = |file: &Arc<Mutex<FileState>>| file.lock().unwrap().bytes.clone();
        state
            .files
            .iter()
            .map(|(name, file)| (name.clone(), read(file)))
            .collect()
    }

    /// The files as a power cut leaves them: only what was synced, under synced names.
    pub(crate) fn after_power_cut(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.state();
        let read = |file: &Arc<Mutex<FileState>>| file.lock().unwrap().durable.clone();
        state
            .durable_names
            .iter()
            .map(|(name, file)| (name.clone(), read(file)))
            .collect()
    }

    /// Counts an operation and says whether it is the one to fail.
    fn fault(&self, operation: Operation) -> Option<Fault> {
        let mut state = self.state();
        state.operations += 1;
        let (left, fault) = state.countdown?;
        let concerned = match fault {
            Fault::Write(_) | Fault::ShortWrite(_) => operation == Operation::Write,
            Fault::Sync => operation == Operation::Sync,
            Fault::Any => true,
        };
        if !concerned {
            return None;
        }
        if left > 0 {
            state.countdown = Some((left - 1, fault));
            return None;
        }
        state.countdown = match fault {
            Fault::ShortWrite(kind) => Some((0, Fault::Write(kind))),
            _ => None,
        };
        Some(fault)
    }

    fn check(&self, operation: Operation) -> io::Result<()> {
        match self.fault(operation) {
            Some(_) => Err(refused(io::ErrorKind::Other)),
            None => Ok(()),
        }
    }

    fn handle(&self, file: &Arc<Mutex<FileState>>) -> Box<dyn StoredFile> {
        Box::new(FaultyFile {
            storage: self.clone(),
            file: Arc::clone(file),
        })
    }
}

impl Storage for FaultyStorage {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self
            .state()
            .files
            .keys()
            .filter(|name| !name.contains('/'))
            .cloned()
            .collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = self.state().files.get(name).cloned();
        file.map(|file| self.handle(&file))
            .ok_or_else(|| refused(io::ErrorKind::NotFound))
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        self.check(Operation::Other)?;
        self.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        self.check(Operation::Other)?;
        let file = Arc::new(Mutex::new(FileState::default()));
        self.state().files.insert(name.into(), Arc::clone(&file));
        Ok(self.handle(&file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(Operation::Other)?;
        let mut state = self.state();
        let file = state
            .files
            .remove(from)
            .ok_or_else(|| refused(io::ErrorKind::NotFound))?;
        state.files.insert(to.into(), file);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.check(Operation::Sync)?;
        let mut state = self.state();
        state.durable_names = state.files.clone();
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    storage: FaultyStorage,
    file: Arc<Mutex<FileState>>,
}

impl StoredFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.lock().unwrap().bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.file.lock().unwrap();
        let rest = state
            .bytes
            .get(usize::try_from(offset).unwrap()..)
            .unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.storage.state().bytes_read += count as u64;
        Ok(count)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match self.storage.fault(Operation::Write) {
            None => bytes.len(),
            Some(Fault::ShortWrite(_)) if bytes.len() > 1 => bytes.len() / 2,
            Some(Fault::Write(kind) | Fault::ShortWrite(kind)) => return Err(refused(kind)),
            Some(_) => return Err(refused(io::ErrorKind::Other)),
        };
        self.file
            .lock()
            .unwrap()
            .bytes
            .extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.storage.check(Operation::Sync)?;
        let mut state = self.file.lock().unwrap();
        state.durable = state.bytes.clone();
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.storage.check(Operation::Other)?;
        if self.storage.state().fail_truncate {
            return Err(refused(io::ErrorKind::Other));
        }
        self.file
            .lock()
            .unwrap()
            .bytes
            .truncate(usize::try_from(length).unwrap());
        Ok(())
    }
}
