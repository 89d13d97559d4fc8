use std::future::Future;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;

use qitos_contracts::error::ContractError as _;

use super::super::MemoryArtifactStore;
use super::*;

/// Lets the n-th file operation of a `put` fail; by default none.
#[derive(Debug)]
pub(super) struct FailAt(AtomicI64);

impl Default for FailAt {
    fn default() -> Self {
        FailAt(AtomicI64::new(-1))
    }
}

impl FailAt {
    pub(super) fn is_now(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) == 0
    }

    fn set(&self, operation: i64) {
        self.0.store(operation, Ordering::SeqCst);
    }
}

/// Runs a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the store waited"),
    }
}

fn reference(body: &[u8]) -> ArtifactRef {
    ArtifactRef::of_body(DEFAULT_RESOLVER_KEY, "text/plain", body)
}

struct Place {
    _folder: tempfile::TempDir,
    directory: PathBuf,
    store: FileArtifactStore,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("artifacts");
    let store = FileArtifactStore::open(&directory).unwrap();
    Place {
        _folder: folder,
        directory,
        store,
    }
}

impl Place {
    fn path_of(&self, body: &[u8]) -> PathBuf {
        self.directory.join(reference(body).sha256.to_hex())
    }

    fn names(&self) -> Vec<String> {
        std::fs::read_dir(&self.directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_body_comes_back_and_its_file_is_private() {
    // ART-1, ART-2
    let place = place();
    let body = b"hello".as_slice();
    assert_eq!(place.store.resolver_key(), "tool-result-output");
    assert_eq!(now(place.store.probe(&reference(body))), Ok(false));
    assert_eq!(
        place.store.put_body(&reference(body), body),
        Ok(Put::Written)
    );
    assert_eq!(now(place.store.resolve(&reference(body))).unwrap(), body);
    assert_eq!(now(place.store.probe(&reference(body))), Ok(true));
    assert_eq!(mode_of(&place.directory), 0o700);
    assert_eq!(mode_of(&place.path_of(body)), 0o600);
    let empty = b"".as_slice();
    now(place.store.put(&reference(empty), empty)).unwrap();
    assert_eq!(now(place.store.resolve(&reference(empty))).unwrap(), empty);
    let again = FileArtifactStore::open(&place.directory).unwrap();
    assert_eq!(now(again.resolve(&reference(body))).unwrap(), body);
}

#[test]
fn an_open_directory_is_made_private() {
    // ART-2
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    FileArtifactStore::open(folder.path()).unwrap();
    assert_eq!(mode_of(folder.path()), 0o700);
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(FileArtifactStore::open(&file).is_err());
}

#[test]
fn the_same_body_twice_is_success_and_writes_nothing_new() {
    // ART-2
    use std::os::unix::fs::MetadataExt as _;
    let place = place();
    let body = b"same".as_slice();
    place.store.put_body(&reference(body), body).unwrap();
    let before = std::fs::metadata(place.path_of(body)).unwrap();
    assert_eq!(
        place.store.put_body(&reference(body), body),
        Ok(Put::Present)
    );
    let after = std::fs::metadata(place.path_of(body)).unwrap();
    assert_eq!(
        (before.ino(), before.mtime_nsec()),
        (after.ino(), after.mtime_nsec())
    );
    assert_eq!(place.names().len(), 1);
}

#[test]
fn a_body_that_is_not_what_its_reference_says_is_not_stored() {
    // ART-3
    let place = place();
    for store in [
        &place.store as &dyn ArtifactStore,
        &MemoryArtifactStore::new(),
    ] {
        assert_eq!(
            now(store.put(&reference(b"right"), b"wrong")),
            Err(ArtifactError::DigestMismatch)
        );
        let mut longer = reference(b"right");
        longer.byte_length += 1;
        assert_eq!(
            now(store.put(&longer, b"right")),
            Err(ArtifactError::DigestMismatch)
        );
        let mut foreign = reference(b"right");
        foreign.resolver_key = "other".into();
        assert_eq!(
            now(store.put(&foreign, b"right")),
            Err(ArtifactError::ResolverMismatch)
        );
        assert_eq!(
            now(store.resolve(&foreign)),
            Err(ArtifactError::ResolverMismatch)
        );
        assert_eq!(
            now(store.probe(&foreign)),
            Err(ArtifactError::ResolverMismatch)
        );
        let mut renamed = reference(b"right");
        renamed.artifact_id = "sha256:00".into();
        assert_eq!(
            now(store.put(&renamed, b"right")),
            Err(ArtifactError::InvalidReference)
        );
        assert_eq!(
            now(store.resolve(&reference(b"right"))),
            Err(ArtifactError::Missing)
        );
    }
    assert!(place.names().is_empty());
}

#[test]
fn every_read_verifies_and_tells_damage_from_absence() {
    // ART-3, check artifact.digest_checked_on_read
    let place = place();
    let body = b"verified".as_slice();
    let missing = now(place.store.resolve(&reference(body))).unwrap_err();
    assert_eq!(missing.code(), "missing_required_artifact");
    place.store.put_body(&reference(body), body).unwrap();
    for damaged in [b"verifiex".as_slice(), b"verifie", b"verified!", b""] {
        std::fs::write(place.path_of(body), damaged).unwrap();
        let error = now(place.store.resolve(&reference(body))).unwrap_err();
        assert_eq!(error.code(), "artifact_digest_mismatch");
    }
}

#[test]
fn links_pipes_and_directories_are_neither_followed_nor_waited_for() {
    // ART-4
    let place = place();
    let body = b"special".as_slice();
    let path = place.path_of(body);
    let elsewhere = place.directory.join("elsewhere");
    std::fs::write(&elsewhere, body).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(
        now(place.store.resolve(&reference(body))),
        Err(ArtifactError::SpecialFile)
    );
    assert_eq!(now(place.store.probe(&reference(body))), Ok(false));
    std::fs::remove_file(&path).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode, 0).unwrap();
    assert_eq!(
        now(place.store.resolve(&reference(body))),
        Err(ArtifactError::SpecialFile)
    );
    // A right body takes the name over, and what the link led to stays untouched (ART-5).
    assert_eq!(
        place.store.put_body(&reference(body), body),
        Ok(Put::Repaired)
    );
    assert_eq!(now(place.store.resolve(&reference(body))).unwrap(), body);
    assert_eq!(std::fs::read(&elsewhere).unwrap(), body);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(
        now(place.store.resolve(&reference(body))),
        Err(ArtifactError::SpecialFile)
    );
    let error = place.store.put_body(&reference(body), body).unwrap_err();
    assert_eq!(error.code(), "artifact_write_failed");
}

#[test]
fn the_limit_holds_on_both_ways() {
    // ART-4: at the limit and one beside it
    let place = place();
    let file = FileArtifactStore::open(&place.directory)
        .unwrap()
        .with_limit_bytes(8);
    let memory = MemoryArtifactStore::new().with_limit_bytes(8);
    for store in [&file as &dyn ArtifactStore, &memory] {
        for (length, fits) in [(7, true), (8, true), (9, false)] {
            let body = vec![b'x'; length];
            let put = now(store.put(&reference(&body), &body));
            assert_eq!(put.is_ok(), fits, "{length}");
            if !fits {
                assert_eq!(put.unwrap_err().code(), "artifact_store_limit");
            }
        }
    }
    let long = vec![b'x'; 9];
    place.store.put_body(&reference(&long), &long).unwrap();
    let error = now(file.resolve(&reference(&long))).unwrap_err();
    assert_eq!(error.code(), "artifact_store_limit");
}

#[test]
fn a_damaged_file_does_not_block_a_right_body() {
    // ART-5
    let place = place();
    let body = b"to be repaired".as_slice();
    std::fs::write(place.path_of(body), b"to be repairex").unwrap();
    assert_eq!(
        place.store.put_body(&reference(body), body),
        Ok(Put::Repaired)
    );
    assert_eq!(place.store.repaired_count(), 1);
    assert_eq!(now(place.store.resolve(&reference(body))).unwrap(), body);
    assert_eq!(mode_of(&place.path_of(body)), 0o600);
    assert_eq!(place.names().len(), 1);
}

#[test]
fn a_failure_at_any_step_leaves_no_half_body_and_can_be_repeated() {
    // ART-2, ART-5: once for a new body, once for a damaged one
    for damaged in [false, true] {
        let mut operation = 0;
        loop {
            let place = place();
            let body = b"all or nothing".as_slice();
            if damaged {
                std::fs::write(place.path_of(body), b"all or").unwrap();
            }
            place.store.fail_at.set(operation);
            let put = place.store.put_body(&reference(body), body);
            place.store.fail_at.set(-1);
            if put.is_ok() {
                assert!(operation >= 6, "only {operation} steps were tried");
                break;
            }
            match now(place.store.resolve(&reference(body))) {
                Ok(read) => assert_eq!(read, body),
                Err(ArtifactError::Missing) => assert!(!damaged),
                Err(ArtifactError::DigestMismatch) => assert!(damaged),
                Err(error) => panic!("{error}"),
            }
            assert!(place.names().iter().all(|name| !name.starts_with('.')));
            place.store.put_body(&reference(body), body).unwrap();
            assert_eq!(now(place.store.resolve(&reference(body))).unwrap(), body);
            operation += 1;
        }
    }
}

#[test]
fn the_same_body_from_many_threads_is_stored_once() {
    // check artifact.concurrent_put
    let place = place();
    let body = b"contended".as_slice();
    let start = std::sync::Barrier::new(8);
    let puts: Vec<Put> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let store = FileArtifactStore::open(&place.directory).unwrap();
                    start.wait();
                    // Names of incoming bodies collide across stores of one process.
                    store.put_body(&reference(body), body).unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(puts.iter().filter(|put| **put == Put::Written).count(), 1);
    assert!(!puts.contains(&Put::Repaired));
    assert_eq!(place.names().len(), 1);
    assert_eq!(now(place.store.resolve(&reference(body))).unwrap(), body);
}
