//! The few file operations that the journal needs, so that tests can fail each of them.

mod directory;
#[cfg(test)]
pub(crate) mod faulty;

use std::fmt::Debug;
use std::io;

pub use directory::DirectoryStorage;

/// A flat directory of files; names may have one sub-directory, `torn/`.
pub trait Storage: Debug + Send + Sync + 'static {
    /// The names of the files directly in it, in any order.
    ///
    /// # Errors
    /// The system's; `NotFound` if the directory is not there.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Opens an existing file for reading and appending.
    ///
    /// # Errors
    /// The system's.
    fn open_append(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Makes an empty file for reading and appending, in the place of one that is there.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>>;

    /// Puts a file in the place of another, atomically.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes names durable: returns when every entry made or renamed before is on stable storage.
    ///
    /// # Errors
    /// The system's.
    fn sync_directory(&self) -> io::Result<()>;
}

/// One file.
pub trait StoredFile: Debug + Send {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Reads at a place; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// The system's.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// One write at the end of the file; may take fewer bytes than given.
    ///
    /// # Errors
    /// The system's.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Returns when the data is on stable storage.
    ///
    /// # Errors
    /// The system's. After one the state of the data is unknown (TRJ-46).
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// How far a write got.
#[derive(Debug)]
pub(crate) struct WriteFailure {
    pub(crate) bytes_written: u64,
    pub(crate) error: io::Error,
}

/// Appends all of `bytes`, however many writes it takes.
pub(crate) fn append_all(file: &mut dyn StoredFile, bytes: &[u8]) -> Result<(), WriteFailure> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let bytes_written = (bytes.len() - rest.len()) as u64;
        match file.append(rest) {
            Ok(0) => {
                let error = io::ErrorKind::WriteZero.into();
                return Err(WriteFailure {
                    bytes_written,
                    error,
                });
            }
            Ok(taken) => rest = rest.get(taken..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(WriteFailure {
                    bytes_written,
                    error,
                });
            }
        }
    }
    Ok(())
}

/// Reads exactly the range, or less at the end of the file.
pub(crate) fn read_range(file: &dyn StoredFile, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(offset + filled as u64, rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Writes a file that is there whole or not at all: temporary name, sync, rename, directory sync.
pub(crate) fn replace_file(storage: &dyn Storage, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let mut file = storage.create(&temporary)?;
    append_all(file.as_mut(), bytes).map_err(|failure| failure.error)?;
    file.sync()?;
    storage.rename(&temporary, name)?;
    storage.sync_directory()
}
