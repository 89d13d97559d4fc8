//! How a configuration file is opened: once, without waiting, with its size checked on the descriptor (CFG-11).

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::describe_error::{ConfigError, ConfigErrorCode};
use crate::limits::MAX_BYTES;

fn invalid(message: &str, remediation: &str) -> ConfigError {
    ConfigError::new(
        ConfigErrorCode::ConfigSourceInvalid,
        "",
        None,
        message,
        remediation,
    )
}

fn too_long() -> ConfigError {
    ConfigError::new(
        ConfigErrorCode::ConfigSyntaxInvalid,
        "",
        None,
        "longer than 256 KiB",
        "move data out of the configuration",
    )
}

/// The bytes of a regular file of bounded size.
///
/// A FIFO is opened without waiting for a writer and then refused, so that loading never hangs.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let descriptor = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
        if error == rustix::io::Errno::NOENT {
            invalid("the file does not exist", "check the path")
        } else {
            invalid("the file cannot be opened", "check its permissions")
        }
    })?;
    let file = File::from(descriptor);
    let metadata = file
        .metadata()
        .map_err(|_| invalid("the file cannot be examined", "check its permissions"))?;
    if !metadata.is_file() {
        return Err(invalid(
            "not a regular file",
            "name a file, no directory, pipe or device",
        ));
    }
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    if metadata.len() > limit {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|_| invalid("the file cannot be read", "check the medium"))?;
    Ok(bytes)
}

/// The text of a document: UTF-8, no byte-order mark, of bounded size (CFG-1).
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str, ConfigError> {
    if bytes.len() > MAX_BYTES {
        return Err(too_long());
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(ConfigError::new(
            ConfigErrorCode::ConfigSyntaxInvalid,
            "",
            Some(crate::document::Position { line: 1, column: 1 }),
            "a byte-order mark stands at the beginning",
            "save the file as UTF-8 without a byte-order mark",
        ));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        let tail = valid
            .rsplit(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let column = String::from_utf8_lossy(tail).chars().count() + 1;
        let clamp = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        ConfigError::new(
            ConfigErrorCode::ConfigSyntaxInvalid,
            "",
            Some(crate::document::Position {
                line: clamp(line),
                column: clamp(column),
            }),
            "not UTF-8",
            "save the file as UTF-8",
        )
    })
}
