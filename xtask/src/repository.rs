//! What the checks look at: the tracked files and what `cargo metadata` says.

use std::path::{Path, PathBuf};
#[cfg(test)]
use std::process::Command;

#[cfg(test)]
use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every file below `root` with one of the extensions, hidden directories and build output left out; sorted.
pub(crate) fn files(root: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let entries = std::fs::read_dir(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let kind = entry.file_type().map_err(|error| error.to_string())?;
            if kind.is_dir() {
                let is_output = name == "target" || name == "node_modules";
                if !is_output && (!name.starts_with('.') || name == ".ci") {
                    open.push(path);
                }
            } else if extensions.iter().any(|wanted| {
                path.extension()
                    .is_some_and(|extension| extension == *wanted)
            }) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// `cargo metadata` of the workspace, without network.
#[cfg(test)]
pub(crate) fn metadata(root: &Path, arguments: &[&str]) -> Result<Value, String> {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
