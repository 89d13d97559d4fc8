//! One writer at a time (TRJ-44).

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::Path;

use crate::error::JournalError;

/// The system's lock on the file `LOCK`.
///
/// The kernel releases it when the process dies, however it dies; it is never broken by age. The file is
/// opened close-on-exec, as the standard library opens every file.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes the lock at once or refuses.
    ///
    /// # Errors
    /// `journal_locked` with the owner's process id, never with a path; `journal_open_failed`.
    pub(crate) fn acquire(directory: &Path) -> Result<Self, JournalError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("LOCK"))
            .map_err(JournalError::open("open the lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = (&mut file).take(20).read_to_string(&mut text);
                return Err(JournalError::Locked {
                    owner: text.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(error)) => {
                return Err(JournalError::open("take the lock")(error));
            }
        }
        // The number helps people only; the lock is the kernel's, so a failed write costs nothing.
        let _ = file.set_len(0);
        let _ = writeln!(file, "{}", std::process::id());
        Ok(WriterLock { _file: file })
    }
}
