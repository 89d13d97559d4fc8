//! Credentials in a file that only its user can read (CRD-3 to CRD-5).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use qitos_config::{MAX_CREDENTIAL_FILE_BYTES, read_credential_mapping};
use qitos_contracts::secret::{
    CredentialError, CredentialFileCheck, CredentialReceipt, CredentialRequest, CredentialResolver,
    ResolvedCredential, SecretValue,
};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use zeroize::Zeroizing;

/// Resolves references from one credentials file.
///
/// # Contract
/// The file is opened once, without following a link; every check looks at the opened file and not at its name, so
/// it cannot be exchanged between check and use. It must be a regular file of the effective user with mode 0600,
/// one link and at most 64 KiB, in a directory of that user without any right for group and others, outside of the
/// repository, the workspace and the data root (CRD-3). Only the requested value is kept; the buffer is wiped.
#[derive(Clone, Debug)]
pub struct LocalCredentialFileResolver {
    path: PathBuf,
    repository_root: PathBuf,
    user: u32,
}

/// The nearest ancestor of a configuration file that holds `.git`, else the file's directory (CRD-4).
#[must_use]
pub fn repository_root_of(configuration_file: &Path) -> PathBuf {
    let absolute =
        std::path::absolute(configuration_file).unwrap_or_else(|_| configuration_file.to_owned());
    let directory = absolute.parent().unwrap_or(Path::new("/"));
    directory
        .ancestors()
        .find(|ancestor| ancestor.join(".git").symlink_metadata().is_ok())
        .unwrap_or(directory)
        .to_owned()
}

const fn fails(check: CredentialFileCheck) -> CredentialError {
    CredentialError::FileSecurityInvalid { check }
}

/// Reports `check` unless it holds.
const fn require(holds: bool, check: CredentialFileCheck) -> Result<(), CredentialError> {
    if holds { Ok(()) } else { Err(fails(check)) }
}

/// The permission bits, set-id and sticky included.
const fn mode_of(facts: &Stat) -> u32 {
    facts.st_mode & 0o7777
}

/// A file that passed every check.
struct Opened {
    file: File,
}

impl LocalCredentialFileResolver {
    /// A resolver for `path` that refuses files inside `repository_root` (see [`repository_root_of`]).
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, repository_root: impl Into<PathBuf>) -> Self {
        LocalCredentialFileResolver {
            path: path.into(),
            repository_root: repository_root.into(),
            user: rustix::process::geteuid().as_raw(),
        }
    }

    fn open(&self, excluded: &[&Path]) -> Result<Opened, CredentialError> {
        use CredentialFileCheck as Check;
        let absolute =
            std::path::absolute(&self.path).map_err(|_| fails(CredentialFileCheck::Openable))?;
        let (Some(directory), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(fails(CredentialFileCheck::Openable));
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(directory, flags | OFlags::DIRECTORY, Mode::empty())
            .map_err(|_| fails(CredentialFileCheck::Openable))?;
        let name: &OsStr = name;
        let file = rustix::fs::openat(
            &parent,
            name,
            flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY,
            Mode::empty(),
        )
        .map_err(|_| fails(CredentialFileCheck::Openable))?;
        let facts = rustix::fs::fstat(&file).map_err(|_| fails(Check::Openable))?;
        let is_regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        require(is_regular, Check::RegularFile)?;
        require(facts.st_uid == self.user, Check::Owner)?;
        require(mode_of(&facts) == 0o600, Check::Mode)?;
        require(facts.st_nlink == 1, Check::LinkCount)?;
        let fits =
            usize::try_from(facts.st_size).is_ok_and(|size| size <= MAX_CREDENTIAL_FILE_BYTES);
        require(fits, Check::Size)?;
        let around = rustix::fs::fstat(&parent).map_err(|_| fails(Check::ParentOwner))?;
        require(around.st_uid == self.user, Check::ParentOwner)?;
        require(mode_of(&around) & 0o077 == 0, Check::ParentMode)?;
        let resolved = resolved_location(directory, &around)?;
        let roots = std::iter::once(self.repository_root.as_path()).chain(excluded.iter().copied());
        for root in roots {
            let inside = [root.canonicalize(), std::path::absolute(root)]
                .into_iter()
                .flatten()
                .any(|root| resolved.starts_with(root));
            require(!inside, Check::Location)?;
        }
        Ok(Opened { file: file.into() })
    }
}

/// Where the opened directory really is: the name without links must lead to the very same directory.
fn resolved_location(directory: &Path, opened: &Stat) -> Result<PathBuf, CredentialError> {
    let resolved = directory
        .canonicalize()
        .map_err(|_| fails(CredentialFileCheck::Location))?;
    let named = rustix::fs::stat(&resolved).map_err(|_| fails(CredentialFileCheck::Location))?;
    require(
        (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
        CredentialFileCheck::Location,
    )?;
    Ok(resolved)
}

impl Opened {
    /// The whole content; the buffer never moves, so that no unwiped copy of it is left behind.
    fn read(self) -> Result<Zeroizing<Vec<u8>>, CredentialError> {
        let limit = MAX_CREDENTIAL_FILE_BYTES + 1;
        let mut buffer = Zeroizing::new(vec![0; limit]);
        let mut filled = 0;
        let mut file = self.file;
        while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
            match file.read(room) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => {
                    return Err(CredentialError::ResolutionFailed {
                        reason: "the credentials file cannot be read",
                    });
                }
            }
        }
        require(
            filled <= MAX_CREDENTIAL_FILE_BYTES,
            CredentialFileCheck::Size,
        )?;
        buffer.truncate(filled);
        Ok(buffer)
    }
}

#[async_trait::async_trait]
impl CredentialResolver for LocalCredentialFileResolver {
    async fn resolve(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<ResolvedCredential, CredentialError> {
        const MALFORMED: CredentialError = CredentialError::ResolutionFailed {
            reason: "the credentials file is not `credentials:` with names and non-empty strings",
        };
        let buffer = self.open(request.excluded_roots)?.read()?;
        let text = std::str::from_utf8(&buffer).map_err(|_| MALFORMED)?;
        let reference = request.reference;
        let found = read_credential_mapping(text, reference.as_str()).map_err(|_| MALFORMED)?;
        let value = found.ok_or_else(|| CredentialError::ReferenceMissing {
            reference: reference.clone(),
        })?;
        Ok(ResolvedCredential {
            value: SecretValue::from_zeroizing(value),
            receipt: CredentialReceipt {
                reference: reference.as_str().to_owned(),
                resolver: "local_file".to_owned(),
                compatibility: false,
                warnings: Vec::new(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use qitos_contracts::error::ContractError as _;
    use qitos_contracts::secret::CredentialRef;

    use super::*;

    const CONTENT: &str = "credentials:\n  main: sk-canary-1\n  other: sk-canary-2\n";

    struct Place {
        folder: tempfile::TempDir,
        resolver: LocalCredentialFileResolver,
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A correct file in a correct directory, beside a repository.
    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("private");
        std::fs::create_dir(&directory).unwrap();
        set_mode(&directory, 0o700);
        std::fs::create_dir(folder.path().join("repository")).unwrap();
        let path = directory.join("credentials.yaml");
        std::fs::write(&path, CONTENT).unwrap();
        set_mode(&path, 0o600);
        let resolver = LocalCredentialFileResolver::new(path, folder.path().join("repository"));
        Place { folder, resolver }
    }

    fn resolve_with(
        resolver: &LocalCredentialFileResolver,
        reference: &str,
        excluded: &[&Path],
    ) -> Result<ResolvedCredential, CredentialError> {
        let reference: CredentialRef = reference.parse().unwrap();
        let mut request = CredentialRequest::new(&reference);
        request.excluded_roots = excluded;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(resolver.resolve(request))
    }

    fn resolve(
        resolver: &LocalCredentialFileResolver,
    ) -> Result<ResolvedCredential, CredentialError> {
        resolve_with(resolver, "main", &[])
    }

    #[track_caller]
    fn check_fails(resolver: &LocalCredentialFileResolver, check: CredentialFileCheck) {
        let error = resolve(resolver).unwrap_err();
        assert_eq!(error, fails(check));
        assert_eq!(error.code(), "credential_file_security_invalid");
        assert!(!error.to_string().contains("credentials.yaml"), "{error}");
    }

    #[test]
    fn a_private_file_gives_the_requested_value_and_a_receipt() {
        // CRD-3, CRD-5, CRD-10
        let place = place();
        let resolved = resolve(&place.resolver).unwrap();
        assert_eq!(resolved.value.expose_for_authentication(), "sk-canary-1");
        assert_eq!(
            serde_json::to_string(&resolved.receipt).unwrap(),
            r#"{"ref":"main","resolver":"local_file","compatibility":false,"warnings":[]}"#
        );
        assert!(!format!("{resolved:?} {:?}", place.resolver).contains("canary"));
    }

    #[test]
    fn each_check_of_the_file_is_made() {
        // CRD-3, check crd.file_checks_each
        let spot = place();
        for mode in [0o400, 0o640, 0o604, 0o660, 0o700, 0o644, 0o4600] {
            set_mode(&spot.resolver.path, mode);
            // A file that cannot be opened at all fails earlier, unless the tests run as root.
            let error = resolve(&spot.resolver).unwrap_err();
            assert!(
                [
                    fails(CredentialFileCheck::Mode),
                    fails(CredentialFileCheck::Openable)
                ]
                .contains(&error)
            );
        }
        set_mode(&spot.resolver.path, 0o600);
        assert!(resolve(&spot.resolver).is_ok());

        let mut foreign = spot.resolver.clone();
        foreign.user = foreign.user.wrapping_add(1);
        check_fails(&foreign, CredentialFileCheck::Owner);

        let second = spot.folder.path().join("second-name");
        std::fs::hard_link(&spot.resolver.path, &second).unwrap();
        check_fails(&spot.resolver, CredentialFileCheck::LinkCount);
        std::fs::remove_file(&second).unwrap();

        let directory = spot.folder.path().join("private");
        for mode in [0o710, 0o701, 0o750, 0o707, 0o770] {
            set_mode(&directory, mode);
            check_fails(&spot.resolver, CredentialFileCheck::ParentMode);
        }
        set_mode(&directory, 0o700);

        let mut through_link = spot.resolver.clone();
        through_link.path = directory.join("link.yaml");
        symlink(&spot.resolver.path, &through_link.path).unwrap();
        check_fails(&through_link, CredentialFileCheck::Openable);

        let mut absent = spot.resolver.clone();
        absent.path = directory.join("absent.yaml");
        check_fails(&absent, CredentialFileCheck::Openable);

        let mut folder = spot.resolver.clone();
        folder.path = directory.join("folder");
        std::fs::create_dir(&folder.path).unwrap();
        check_fails(&folder, CredentialFileCheck::RegularFile);

        let mut pipe = spot.resolver.clone();
        pipe.path = directory.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe.path,
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        check_fails(&pipe, CredentialFileCheck::RegularFile);
    }

    #[test]
    fn a_file_holds_at_most_64_kib() {
        // CRD-3, at the limit and one beside it
        let place = place();
        for (size, fits) in [
            (MAX_CREDENTIAL_FILE_BYTES - 1, true),
            (MAX_CREDENTIAL_FILE_BYTES, true),
            (MAX_CREDENTIAL_FILE_BYTES + 1, false),
        ] {
            let padding = "x".repeat(size - CONTENT.len() - 1);
            std::fs::write(&place.resolver.path, format!("{CONTENT}#{padding}")).unwrap();
            match resolve(&place.resolver) {
                Ok(_) => assert!(fits),
                Err(error) => {
                    assert!(!fits);
                    assert_eq!(error, fails(CredentialFileCheck::Size));
                }
            }
        }
    }

    #[test]
    fn a_file_that_grows_after_the_check_is_still_bounded() {
        // CRD-3: the size check alone would trust a number that is already old
        let place = place();
        let opened = place.resolver.open(&[]).unwrap();
        std::fs::write(
            &place.resolver.path,
            "x".repeat(MAX_CREDENTIAL_FILE_BYTES * 2),
        )
        .unwrap();
        assert_eq!(
            opened.read().map(|bytes| bytes.len()),
            Err(fails(CredentialFileCheck::Size))
        );
    }

    #[test]
    fn a_file_exchanged_after_opening_is_not_the_one_that_is_read() {
        // CRD-3, "also swapped file during open"
        let place = place();
        let opened = place.resolver.open(&[]).unwrap();
        let other = place.folder.path().join("private/other.yaml");
        std::fs::write(&other, "credentials:\n  main: exchanged\n").unwrap();
        std::fs::rename(&other, &place.resolver.path).unwrap();
        assert_eq!(opened.read().unwrap().as_slice(), CONTENT.as_bytes());
    }

    #[test]
    fn a_file_inside_repository_workspace_or_data_root_is_refused() {
        // CRD-3: also when a link leads there
        let place = place();
        let outside = place.folder.path();
        let mut inside = place.resolver.clone();
        inside.repository_root = outside.to_owned();
        check_fails(&inside, CredentialFileCheck::Location);
        let private = outside.join("private");
        let error = resolve_with(&place.resolver, "main", &[outside, &private]).unwrap_err();
        assert_eq!(error, fails(CredentialFileCheck::Location));
        let link = outside.join("link-to-private");
        symlink(&private, &link).unwrap();
        let error = resolve_with(&place.resolver, "main", &[&link]).unwrap_err();
        assert_eq!(error, fails(CredentialFileCheck::Location));
        let mut through_link = place.resolver.clone();
        through_link.path = link.join("credentials.yaml");
        assert!(resolve(&through_link).is_ok());
        assert!(resolve_with(&through_link, "main", &[&private]).is_err());
        assert!(resolve_with(&place.resolver, "main", &[&outside.join("priv")]).is_ok());
    }

    #[test]
    fn missing_and_malformed_are_told_apart() {
        // CRD-5
        let place = place();
        let error = resolve_with(&place.resolver, "absent", &[]).unwrap_err();
        assert_eq!(error.code(), "credential_reference_missing");
        for content in [
            "main: sk-canary",
            "credentials: {main: ''}",
            "\u{0}",
            "credentials: [x]",
        ] {
            std::fs::write(&place.resolver.path, content).unwrap();
            let error = resolve(&place.resolver).unwrap_err();
            assert_eq!(error.code(), "credential_resolution_failed");
            assert!(!format!("{error} {error:?}").contains("canary"));
        }
        std::fs::write(&place.resolver.path, b"credentials: {main: \xff}").unwrap();
        assert_eq!(
            resolve(&place.resolver).unwrap_err().code(),
            "credential_resolution_failed"
        );
    }

    #[test]
    fn the_repository_is_that_of_the_configuration() {
        // CRD-4, check crd.repo_root_of_config
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let file = deep.join("agent.yaml");
        assert_eq!(repository_root_of(&file), deep);
        // A work tree of git has a file of that name.
        std::fs::write(folder.path().join("a/.git"), "gitdir: elsewhere").unwrap();
        assert_eq!(repository_root_of(&file), folder.path().join("a"));
        std::fs::create_dir(deep.join(".git")).unwrap();
        assert_eq!(repository_root_of(&file), deep);
    }
}
