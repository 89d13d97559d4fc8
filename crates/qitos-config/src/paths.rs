//! Paths as written to paths that can be opened (CFG-10).

use std::path::{Component, Path, PathBuf};

/// What relative paths and `~/` stand for; settled once, when the configuration is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    directory: PathBuf,
    home: Option<PathBuf>,
}

impl Base {
    /// `directory` is made absolute and is all that relative paths depend on from now on.
    pub(crate) fn new(directory: &Path) -> std::io::Result<Self> {
        Ok(Base {
            directory: std::path::absolute(directory)?,
            home: std::env::home_dir().filter(|home| home.is_absolute()),
        })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The absolute path that `written` stands for; nothing when it needs a home directory that is not known.
    pub(crate) fn resolve(&self, written: &str) -> Option<PathBuf> {
        let joined = match written.strip_prefix("~/") {
            Some(rest) => self.home.as_ref()?.join(rest),
            None if written == "~" => self.home.clone()?,
            None => self.directory.join(written),
        };
        // Only `.` is dropped: `..` behind a symbolic link means what the file system says.
        Some(
            joined
                .components()
                .filter(|component| !matches!(component, Component::CurDir))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_stand_beside_the_file_and_home_only_at_the_start() {
        // CFG-10
        let base = Base {
            directory: "/project".into(),
            home: Some("/home/me".into()),
        };
        for (written, expected) in [
            (".", "/project"),
            ("./a/./b", "/project/a/b"),
            ("/abs", "/abs"),
            ("~/x", "/home/me/x"),
            ("~", "/home/me"),
            ("a/~/b", "/project/a/~/b"),
            ("~other/x", "/project/~other/x"),
        ] {
            assert_eq!(base.resolve(written).as_deref(), Some(Path::new(expected)));
        }
        let homeless = Base {
            directory: "/project".into(),
            home: None,
        };
        assert_eq!(homeless.resolve("~/x"), None);
    }
}
