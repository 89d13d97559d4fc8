//! An artifact store of files: one per body, named by its digest (ART-2 to ART-5).

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use qitos_contracts::artifact::{ArtifactError, ArtifactRef, ArtifactStore};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{DEFAULT_LIMIT_BYTES, DEFAULT_RESOLVER_KEY, check_body, check_put, check_reference};

/// Keeps each body in a file of its own.
///
/// # Contract
/// The directory has mode 0700, the files 0600. A body appears whole or not at all, and is on the medium when `put`
/// returns. Every read verifies length and digest; links, pipes and devices under a body's name are never followed
/// or waited for. Several processes may use one directory.
///
/// File work is done on the calling thread: a body of the default limit takes as long as writing 16 MiB does.
#[derive(Debug)]
pub struct FileArtifactStore {
    directory: OwnedFd,
    resolver_key: String,
    limit_bytes: u64,
    incoming: AtomicU64,
    repaired: AtomicU64,
    #[cfg(test)]
    fail_at: tests::FailAt,
}

/// The directory of a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the directory of the artifact store cannot be used ({operation})")]
#[non_exhaustive]
pub struct FileArtifactStoreError {
    /// What failed.
    pub operation: &'static str,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// What storing a body came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was written.
    Written,
    /// It was there and is right; nothing was written (ART-2).
    Present,
    /// What was there was damaged and has been replaced (ART-5).
    Repaired,
}

/// What stands under a body's name.
enum Existing {
    Nothing,
    Right,
    Damaged,
}

impl FileArtifactStore {
    /// Opens the store in `directory`, which is created when missing.
    ///
    /// # Errors
    /// The directory cannot be created or opened, is none, or cannot be made private.
    ///
    /// # Durability
    /// A created directory is not on the medium before its parent is; the first `put` does not wait for that.
    pub fn open(directory: &Path) -> Result<Self, FileArtifactStoreError> {
        let failed = |operation: &'static str| {
            move |error: Errno| FileArtifactStoreError {
                operation,
                source: error.into(),
            }
        };
        let private = Mode::RWXU;
        match rustix::fs::mkdir(directory, private) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("create")(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor =
            rustix::fs::open(directory, flags, Mode::empty()).map_err(failed("open"))?;
        let facts = rustix::fs::fstat(&descriptor).map_err(failed("examine"))?;
        if Mode::from_raw_mode(facts.st_mode) != private {
            rustix::fs::fchmod(&descriptor, private).map_err(failed("make private"))?;
        }
        Ok(FileArtifactStore {
            directory: descriptor,
            resolver_key: DEFAULT_RESOLVER_KEY.to_owned(),
            limit_bytes: DEFAULT_LIMIT_BYTES,
            incoming: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            #[cfg(test)]
            fail_at: tests::FailAt::default(),
        })
    }

    /// Serves references with another key than the default.
    #[must_use]
    pub fn with_resolver_key(mut self, resolver_key: impl Into<String>) -> Self {
        self.resolver_key = resolver_key.into();
        self
    }

    /// Takes and returns bodies of at most `limit_bytes`.
    #[must_use]
    pub const fn with_limit_bytes(mut self, limit_bytes: u64) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// How many damaged bodies were replaced since the store was opened (ART-5).
    #[must_use]
    pub fn repaired_count(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }

    /// Stores a body and says what that came to; otherwise as [`ArtifactStore::put`].
    ///
    /// # Errors
    /// As [`ArtifactStore::put`].
    ///
    /// # Durability
    /// When it returns, body and name are on the medium.
    pub fn put_body(&self, reference: &ArtifactRef, body: &[u8]) -> Result<Put, ArtifactError> {
        check_put(reference, body, &self.resolver_key, self.limit_bytes)?;
        let name = reference.sha256.to_hex();
        if let Existing::Right = self.examine(reference, &name) {
            // Whoever wrote it may have died before the name was on the medium.
            self.sync_directory()?;
            return Ok(Put::Present);
        }
        let incoming = self.write_incoming(body)?;
        let placed = self.place(&incoming, reference, &name);
        // After a rename the name is gone already; a leftover is no part of any body.
        self.remove(&incoming);
        let put = placed?;
        self.sync_directory()?;
        if put == Put::Repaired {
            self.repaired.fetch_add(1, Ordering::Relaxed);
        }
        Ok(put)
    }

    /// A fault point of tests; nothing otherwise.
    fn step(&self, operation: &'static str) -> Result<(), ArtifactError> {
        #[cfg(test)]
        if self.fail_at.is_now() {
            return Err(ArtifactError::WriteFailed { operation });
        }
        let _ = operation;
        Ok(())
    }

    /// Removes a name that no reference has; failing leaves a file that nothing reads.
    fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }

    fn sync_directory(&self) -> Result<(), ArtifactError> {
        self.step("sync directory")?;
        rustix::fs::fsync(&self.directory).map_err(write_failed("sync directory"))
    }

    /// Writes and syncs the body under a name that no reference has.
    fn write_incoming(&self, body: &[u8]) -> Result<String, ArtifactError> {
        self.step("create")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let (name, descriptor) = loop {
            let count = self.incoming.fetch_add(1, Ordering::Relaxed);
            let process = std::process::id();
            let name = format!(".incoming-{process}-{count}");
            let mode = Mode::RUSR | Mode::WUSR;
            match rustix::fs::openat(&self.directory, name.as_str(), flags, mode) {
                Ok(descriptor) => break (name, descriptor),
                // A dead process of the same number left it.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(write_failed("create")(error)),
            }
        };
        let mut file = File::from(descriptor);
        let written = self
            .step("set mode")
            // The process's mask may have taken rights away from the owner.
            .and_then(|()| {
                rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(write_failed("set mode"))
            })
            .and_then(|()| self.step("write"))
            .and_then(|()| {
                file.write_all(body)
                    .map_err(|_| ArtifactError::WriteFailed { operation: "write" })
            })
            .and_then(|()| self.step("sync"))
            .and_then(|()| rustix::fs::fsync(&file).map_err(write_failed("sync")));
        match written {
            Ok(()) => Ok(name),
            Err(error) => {
                self.remove(&name);
                Err(error)
            }
        }
    }

    /// Gives the written body its name: without replacing a right one, replacing a damaged one at once.
    fn place(
        &self,
        incoming: &str,
        reference: &ArtifactRef,
        name: &str,
    ) -> Result<Put, ArtifactError> {
        self.step("link")?;
        let linked = rustix::fs::linkat(
            &self.directory,
            incoming,
            &self.directory,
            name,
            AtFlags::empty(),
        );
        match linked {
            Ok(()) => return Ok(Put::Written),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(write_failed("link")(error)),
        }
        // Somebody else may have stored the same body meanwhile.
        if let Existing::Right = self.examine(reference, name) {
            return Ok(Put::Present);
        }
        self.step("replace")?;
        rustix::fs::renameat(&self.directory, incoming, &self.directory, name)
            .map_err(write_failed("replace"))?;
        Ok(Put::Repaired)
    }

    fn examine(&self, reference: &ArtifactRef, name: &str) -> Existing {
        match self.read(reference, name) {
            Ok(_) => Existing::Right,
            Err(ArtifactError::Missing) => Existing::Nothing,
            Err(_) => Existing::Damaged,
        }
    }

    fn read(&self, reference: &ArtifactRef, name: &str) -> Result<Vec<u8>, ArtifactError> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let descriptor = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Err(ArtifactError::Missing),
            // A link, or a socket or device that cannot be opened.
            Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                return Err(ArtifactError::SpecialFile);
            }
            Err(_) => return Err(ArtifactError::DigestMismatch),
        };
        let facts = rustix::fs::fstat(&descriptor).map_err(|_| ArtifactError::DigestMismatch)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(ArtifactError::SpecialFile);
        }
        if reference.byte_length > self.limit_bytes {
            return Err(ArtifactError::Limit {
                limit_bytes: self.limit_bytes,
            });
        }
        if u64::try_from(facts.st_size) != Ok(reference.byte_length) {
            return Err(ArtifactError::DigestMismatch);
        }
        let capacity = usize::try_from(reference.byte_length).unwrap_or(0);
        let mut body = Vec::with_capacity(capacity);
        File::from(descriptor)
            .take(reference.byte_length.saturating_add(1))
            .read_to_end(&mut body)
            .map_err(|_| ArtifactError::DigestMismatch)?;
        check_body(reference, &body)?;
        Ok(body)
    }
}

fn write_failed(operation: &'static str) -> impl Fn(Errno) -> ArtifactError {
    move |_| ArtifactError::WriteFailed { operation }
}

#[async_trait]
impl ArtifactStore for FileArtifactStore {
    fn resolver_key(&self) -> &str {
        &self.resolver_key
    }

    async fn put(&self, reference: &ArtifactRef, body: &[u8]) -> Result<(), ArtifactError> {
        self.put_body(reference, body).map(|_| ())
    }

    async fn resolve(&self, reference: &ArtifactRef) -> Result<Vec<u8>, ArtifactError> {
        check_reference(reference, &self.resolver_key)?;
        self.read(reference, &reference.sha256.to_hex())
    }

    async fn probe(&self, reference: &ArtifactRef) -> Result<bool, ArtifactError> {
        check_reference(reference, &self.resolver_key)?;
        let name = reference.sha256.to_hex();
        let facts = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(facts.is_ok_and(|facts| {
            FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile
                && u64::try_from(facts.st_size) == Ok(reference.byte_length)
        }))
    }
}

#[cfg(test)]
mod tests;
