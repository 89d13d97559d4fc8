//! Bad, foreign and newer data (section 14, F17 to F19, K45 to K48).

use std::path::Path;

use qitos_contracts::checkpoint::{CheckpointStore, VerifyDepth};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;
use qitos_store_sqlite::{OpenOptions, SqliteStore};

use crate::subject::{File, block_on, commit, refused, running};

fn open_error(path: &Path, options: OpenOptions) -> String {
    let before = std::fs::read(path).unwrap();
    let error = SqliteStore::open_blocking(path, options).unwrap_err();
    assert_eq!(std::fs::read(path).unwrap(), before, "the file was touched");
    error.code().to_owned()
}

fn siblings(path: &Path) -> usize {
    std::fs::read_dir(path.parent().unwrap()).unwrap().count()
}

#[test]
fn what_is_not_ours_is_refused_and_not_touched() {
    // K47
    let create = OpenOptions::default().create();
    for bytes in [
        &b"a text"[..],
        b"SQLite format 3\0",
        &[0; 4_096],
        b"SQLite format 4\0 and more than a hundred bytes of something else, so that the header seems whole ........",
    ] {
        let file = File::new();
        std::fs::write(file.path(), bytes).unwrap();
        assert_eq!(open_error(file.path(), create), "store_foreign");
        assert_eq!(siblings(file.path()), 1);
    }
    for (id, mode) in [(0, "DELETE"), (7, "DELETE"), (0, "WAL")] {
        let file = File::new();
        file.by_hand(&format!(
            "PRAGMA journal_mode = {mode}; PRAGMA application_id = {id}; CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)"
        ));
        assert_eq!(open_error(file.path(), create), "store_foreign");
        assert_eq!(siblings(file.path()), 1);
    }
    let file = File::new();
    std::fs::write(file.path(), b"").unwrap();
    assert_eq!(
        open_error(file.path(), OpenOptions::default()),
        "store_foreign"
    );
    SqliteStore::open_blocking(file.path(), create).unwrap();
}

#[test]
fn a_newer_schema_is_refused_or_only_read() {
    // STO-37, K48
    let file = File::new();
    let session = running(&file.open(), 1);
    file.by_hand("UPDATE meta SET value = '2' WHERE key = 'writer_min'; PRAGMA user_version = 2");
    let store = file.open();
    let head = block_on(store.head(session.session_id())).unwrap().unwrap();
    assert_eq!(head.generation, 1);
    let next = session.clone().commit(Lifecycle::Running, "x").unwrap();
    assert_eq!(refused(&store, &next).code(), "store_schema_newer");
    drop(store);
    file.by_hand("UPDATE meta SET value = '2' WHERE key = 'reader_min'");
    let error = SqliteStore::open_blocking(file.path(), OpenOptions::default()).unwrap_err();
    assert_eq!(error.code(), "store_schema_newer");
}

/// A session with chunks of every kind, and a neighbour.
fn two_sessions(file: &File) -> (ScriptedSession, ScriptedSession) {
    let store = file.open();
    let mut session = running(&store, 1);
    for turn in 0..20 {
        commit(
            &store,
            &session
                .commit(Lifecycle::Running, &format!("turn {turn}"))
                .unwrap(),
        );
    }
    (session, running(&store, 2))
}

#[track_caller]
fn is_intact(store: &SqliteStore, session: &ScriptedSession) {
    let snapshot = &session.parent().unwrap().snapshot_id;
    let access = store.groups().chunk_access().unwrap();
    let found = block_on(access.verify(snapshot, VerifyDepth::Deep)).unwrap();
    assert!(found.intact(), "{found:?}");
}

#[test]
fn a_flipped_bit_in_any_chunk_is_found_and_its_neighbours_are_fine() {
    // F17, K45, STO-22
    let file = File::new();
    let (session, neighbour) = two_sessions(&file);
    let snapshot = session.parent().unwrap().snapshot_id.clone();
    let store = file.open();
    let connection = rusqlite::Connection::open(file.path()).unwrap();
    let rows: Vec<(i64, String, Vec<u8>)> = connection
        .prepare("SELECT chunk_no, kind, body FROM chunk WHERE family_no = 1")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let access = store.groups().chunk_access().unwrap();
    let mut kinds = std::collections::BTreeMap::new();
    for (chunk_no, kind, body) in rows {
        let write = |bytes: &[u8]| {
            connection
                .execute(
                    "UPDATE chunk SET body = ?2 WHERE chunk_no = ?1",
                    rusqlite::params![chunk_no, bytes],
                )
                .unwrap();
        };
        for at in [0, body.len() / 2, body.len() - 1] {
            let mut flipped = body.clone();
            flipped[at] ^= 4;
            write(&flipped);
            let found = block_on(access.verify(&snapshot, VerifyDepth::Deep)).unwrap();
            if let Some(damage) = &found.damage {
                assert_eq!(damage.code(), "corrupt_snapshot", "{kind}");
                assert_eq!(damage.metadata()["snapshot_id"], snapshot.as_str());
                *kinds.entry(kind.clone()).or_insert(0) += 1;
            }
            write(&body);
        }
        // Shorter, empty, zeroed.
        for damaged in [&body[..body.len() - 1], &[][..], &vec![0; body.len()]] {
            write(damaged);
            block_on(access.verify(&snapshot, VerifyDepth::Deep)).unwrap();
            write(&body);
        }
    }
    // The live snapshot reaches chunks of every kind.
    assert_eq!(
        kinds.keys().map(String::as_str).collect::<Vec<_>>(),
        ["blob", "leaf", "log", "map", "node"]
    );
    is_intact(&store, &session);
    is_intact(&store, &neighbour);
}

#[test]
fn a_damaged_root_is_found_and_the_newest_intact_snapshot_is_named() {
    // F17, STO-3, STO-22
    let file = File::new();
    let (session, neighbour) = two_sessions(&file);
    let snapshot = session.parent().unwrap().snapshot_id.clone();
    let store = file.open();
    let access = store.groups().chunk_access().unwrap();
    let whole = "UPDATE snapshot SET root = (SELECT root FROM kept), lifecycle = 'running', generation = 21,
        root_digest = (SELECT root_digest FROM kept) WHERE snapshot_no = (SELECT snapshot_no FROM kept)";
    file.by_hand(&format!(
        "CREATE TABLE kept AS SELECT * FROM snapshot WHERE snapshot_id = '{snapshot}'"
    ));
    for damage in [
        "root = zeroblob(length(root))",
        "root = substr(root, 1, length(root) - 1)",
        "root = x''",
        "root = cast(root || ' ' AS BLOB)",
        "root_codec = 9",
        "root_digest = zeroblob(32)",
        "root_digest = x'00'",
        "lifecycle = 'paused'",
        "lifecycle = 'superseded'",
        "generation = 99",
    ] {
        file.by_hand(&format!(
            "UPDATE snapshot SET {damage} WHERE snapshot_id = '{snapshot}'"
        ));
        let error = block_on(store.snapshot(&snapshot)).unwrap_err();
        assert_eq!(error.code(), "corrupt_snapshot", "{damage}");
        assert!(!error.recoverable());
        let found = block_on(access.verify(&snapshot, VerifyDepth::Root)).unwrap();
        assert_eq!(found.damage.unwrap().code(), "corrupt_snapshot", "{damage}");
        // The head is readable, the neighbour fine, and a commit of the neighbour goes through.
        assert!(
            block_on(store.head(session.session_id()))
                .unwrap()
                .is_some()
        );
        is_intact(&store, &neighbour);
        if damage.starts_with("root = zero") {
            let intact = found.newest_intact.unwrap();
            let stored = block_on(store.snapshot(&intact)).unwrap().unwrap();
            assert_eq!(stored.generation, 20);
        }
        file.by_hand(&format!("{whole}, root_codec = (SELECT root_codec FROM kept)").replace(
            " WHERE snapshot_no = (SELECT snapshot_no FROM kept), root_codec = (SELECT root_codec FROM kept)",
            ", root_codec = (SELECT root_codec FROM kept) WHERE snapshot_no = (SELECT snapshot_no FROM kept)",
        ));
        is_intact(&store, &session);
    }
}

#[test]
fn a_missing_chunk_row_is_named_and_a_commit_that_needs_it_is_refused() {
    // F18, K46
    let file = File::new();
    let (mut session, mut neighbour) = two_sessions(&file);
    let snapshot = session.parent().unwrap().snapshot_id.clone();
    file.by_hand("DELETE FROM chunk WHERE family_no = 1 AND kind = 'map'");
    let store = file.open();
    let access = store.groups().chunk_access().unwrap();
    let found = block_on(access.verify(&snapshot, VerifyDepth::Deep)).unwrap();
    let damage = found.damage.unwrap();
    assert_eq!(damage.code(), "corrupt_snapshot");
    assert_eq!(damage.metadata()["layer"], "chunk");
    assert!(damage.metadata().contains_key("digest"));
    let next = session.commit(Lifecycle::Running, "x").unwrap();
    assert_eq!(refused(&store, &next).code(), "missing_chunk");
    commit(&store, &neighbour.commit(Lifecycle::Running, "x").unwrap());
}

#[test]
fn a_head_without_its_snapshot_is_corrupt_not_new() {
    let file = File::new();
    let (mut session, _) = two_sessions(&file);
    let snapshot = session.parent().unwrap().snapshot_id.clone();
    file.by_hand(&format!(
        "DELETE FROM snapshot WHERE snapshot_id = '{snapshot}'"
    ));
    let store = file.open();
    assert!(
        block_on(store.head(session.session_id()))
            .unwrap()
            .is_some()
    );
    assert_eq!(block_on(store.snapshot(&snapshot)).unwrap(), None);
    let next = session.commit(Lifecycle::Running, "x").unwrap();
    assert_eq!(refused(&store, &next).code(), "corrupt_snapshot");
}

#[test]
fn a_cut_file_is_never_a_new_store() {
    // F19, K47: cut at every page and in the middle of some.
    let file = File::new();
    let (session, _) = two_sessions(&file);
    file.by_hand("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(file.path()).unwrap();
    let head = block_on(file.open().head(session.session_id())).unwrap();
    assert!(head.is_some());
    let mut lengths: Vec<usize> = (1..whole.len() / 4_096).map(|page| page * 4_096).collect();
    lengths.extend([1, 99, 100, 512, 5_000, whole.len() - 1]);
    for length in lengths {
        let cut = File::new();
        std::fs::write(cut.path(), &whole[..length]).unwrap();
        let opened = SqliteStore::open_blocking(cut.path(), OpenOptions::default().create());
        let code = match opened {
            Err(error) => error.code().to_owned(),
            Ok(store) => match block_on(store.head(session.session_id())) {
                Err(error) => error.code().to_owned(),
                Ok(found) => {
                    assert_eq!(found, head, "cut at {length}");
                    continue;
                }
            },
        };
        assert!(
            ["store_corrupt", "store_foreign"].contains(&code.as_str()),
            "cut at {length}: {code}"
        );
        assert_eq!(
            std::fs::metadata(cut.path()).unwrap().len(),
            length as u64,
            "the file was touched"
        );
    }
}

#[test]
fn without_its_log_a_file_shows_an_earlier_whole_head() {
    // F19
    let file = File::new();
    let (session, _) = two_sessions(&file);
    let bytes = std::fs::read(file.path()).unwrap();
    let alone = File::new();
    std::fs::write(alone.path(), bytes).unwrap();
    let store = SqliteStore::open_blocking(alone.path(), OpenOptions::default()).unwrap();
    if let Some(head) = block_on(store.head(session.session_id())).unwrap() {
        assert!(head.generation <= 21);
        let access = store.groups().chunk_access().unwrap();
        assert!(
            block_on(access.verify(&head.snapshot_id, VerifyDepth::Deep))
                .unwrap()
                .intact()
        );
    }
}

#[test]
fn damage_anywhere_in_the_file_is_an_error_or_harmless_and_never_a_panic() {
    let file = File::new();
    let (session, _) = two_sessions(&file);
    file.by_hand("PRAGMA wal_checkpoint(TRUNCATE)");
    let whole = std::fs::read(file.path()).unwrap();
    let snapshot = session.parent().unwrap().snapshot_id.clone();
    for at in (0..whole.len()).step_by(1_009) {
        let damaged = File::new();
        let mut bytes = whole.clone();
        let end = (at + 64).min(bytes.len());
        bytes[at..end].fill(0);
        std::fs::write(damaged.path(), bytes).unwrap();
        let Ok(store) = SqliteStore::open_blocking(damaged.path(), OpenOptions::default()) else {
            continue;
        };
        let access = store.groups().chunk_access().unwrap();
        if let Ok(found) = block_on(access.verify(&snapshot, VerifyDepth::Deep))
            && found.intact()
        {
            assert_eq!(found.root_digest, session.parent().unwrap().root_digest);
        }
        let _ = block_on(store.head(session.session_id()));
        let _ = block_on(store.commit(session.clone().commit(Lifecycle::Running, "x").unwrap()));
    }
}
