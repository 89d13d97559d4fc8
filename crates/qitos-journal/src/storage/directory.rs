//! A real directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::{Storage, StoredFile};

/// The files of one directory of the file system.
#[derive(Debug)]
pub struct DirectoryStorage {
    path: PathBuf,
}

impl DirectoryStorage {
    /// The directory at `path`, which need not be there yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        DirectoryStorage { path: path.into() }
    }

    /// Makes the directory if it is not there, and its name durable.
    ///
    /// # Errors
    /// The system's.
    pub fn create_directory(&self) -> io::Result<()> {
        if self.path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.path)?;
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
            _ => sync_directory(Path::new(".")),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes the entries of a directory durable; a system that cannot is not claimed to have done it.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Storage for DirectoryStorage {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // Names that are not ours cannot be a segment.
            if let Ok(name) = entry.file_name().into_string()
                && entry.file_type()?.is_file()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = File::open(self.path.join(name))?;
        Ok(Box::new(DirectoryFile { file }))
    }

    fn open_append(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(self.path.join(name))?;
        Ok(Box::new(DirectoryFile { file }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let path = self.path.join(name);
        if let Some(parent) = path.parent().filter(|parent| *parent != self.path) {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        // Append mode and truncation exclude each other when opening.
        file.set_len(0)?;
        Ok(Box::new(DirectoryFile { file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_directory(&self) -> io::Result<()> {
        let torn = self.path.join("torn");
        if torn.is_dir() {
            sync_directory(&torn)?;
        }
        sync_directory(&self.path)
    }
}

#[derive(Debug)]
struct DirectoryFile {
    file: File,
}

impl StoredFile for DirectoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    // On macOS the standard library asks for the full sync, as TRJ-45 wants.
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
}
