//! Finding rows by id or digest without dirtying an index page for each of them.
//!
//! Ids and digests are random, so an index over them changes as many pages as a commit brings keys, and every changed
//! page is written twice (log, file). Here a commit adds one row to `key_log`, where all of them stand together;
//! once [`LOGGED`] commits have gathered they move, sorted, into `key_index`, a page of which then takes many at once.
//! Keys are 64 bits: what a key leads to is compared with what is looked for, so two that share one cost a look more.

use std::collections::BTreeSet;

use qitos_contracts::checkpoint::StoreError;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{CheckpointId, SnapshotId};
use rusqlite::Connection;

use crate::map_error::map_error;

/// Commits whose keys stand in the log before they are sorted into the index.
const LOGGED: i64 = 256;
/// Keys held in memory before those of long sorted commits are let go.
const HELD: usize = 32_768;
/// Key and row number of one entry.
const ENTRY_BYTES: usize = 16;

/// The key of a chunk of a family; families never share chunks (STO-46).
pub(crate) fn of_chunk(family_no: i64, digest: &Digest) -> i64 {
    // An odd factor, so that families with equal content do not share keys either.
    let family = family_no.wrapping_mul(0x1E37_79B9_7F4A_7C15);
    first_bytes(digest) ^ family
}

/// The key of a snapshot by its id.
pub(crate) fn of_snapshot(snapshot: &SnapshotId) -> i64 {
    first_bytes(&Digest::of(snapshot.as_str().as_bytes()))
}

/// The key of a snapshot by its checkpoint id.
pub(crate) fn of_checkpoint(checkpoint: &CheckpointId) -> i64 {
    first_bytes(&Digest::of(checkpoint.as_str().as_bytes()))
}

fn first_bytes(digest: &Digest) -> i64 {
    let bytes = digest.as_bytes().first_chunk::<8>().copied();
    i64::from_be_bytes(bytes.unwrap_or_default())
}

/// The keys of the log as one connection has seen it.
///
/// What it holds beyond the log does no harm, because what a key leads to is compared; what a transaction that was
/// rolled back left here must be forgotten, because its row numbers come again.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    entries: BTreeSet<(i64, i64)>,
    newest: i64,
}

impl Keys {
    /// Reads what came to the log since the last look.
    pub(crate) fn refresh(&mut self, connection: &Connection) -> Result<(), StoreError> {
        if self.entries.len() > HELD {
            self.forget();
        }
        let logged = logged(connection, self.newest, i64::MAX).map_err(failed)?;
        if let Some((log_no, _)) = logged.last() {
            self.newest = *log_no;
        }
        let new = logged.iter().flat_map(|(_, keys)| entries(keys));
        if self.entries.is_empty() {
            // Built at once: a reader's first look brings the whole log.
            self.entries = new.collect();
        } else {
            self.entries.extend(new);
        }
        Ok(())
    }

    /// After a rollback: the next look reads the whole log.
    pub(crate) fn forget(&mut self) {
        *self = Keys::default();
    }

    /// The rows that a key may lead to; the caller compares.
    pub(crate) fn rows(&self, connection: &Connection, key: i64) -> Result<Vec<i64>, StoreError> {
        let mut rows: Vec<i64> = self
            .entries
            .range((key, i64::MIN)..=(key, i64::MAX))
            .map(|(_, row_no)| *row_no)
            .collect();
        let mut statement = connection
            .prepare_cached("SELECT row_no FROM key_index WHERE key = ?1")
            .map_err(failed)?;
        let mut found = statement.query([key]).map_err(failed)?;
        while let Some(row) = found.next().map_err(failed)? {
            rows.push(row.get(0).map_err(failed)?);
        }
        Ok(rows)
    }

    /// A key that the running transaction has not logged yet.
    pub(crate) fn add(&mut self, key: i64, row_no: i64) {
        self.entries.insert((key, row_no));
    }

    /// Logs what a commit added, and sorts the log into the index when it is long.
    pub(crate) fn log(
        &mut self,
        connection: &Connection,
        added: &[(i64, i64)],
    ) -> Result<(), StoreError> {
        let mut keys = Vec::with_capacity(added.len() * ENTRY_BYTES);
        for (key, row_no) in added {
            keys.extend_from_slice(&key.to_be_bytes());
            keys.extend_from_slice(&row_no.to_be_bytes());
        }
        connection
            .prepare_cached("INSERT INTO key_log (keys) VALUES (?1)")
            .and_then(|mut statement| statement.execute([keys]))
            .map_err(failed)?;
        self.newest = connection.last_insert_rowid();
        let oldest: i64 = connection
            .prepare_cached("SELECT log_no FROM key_log ORDER BY log_no LIMIT 1")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .map_err(failed)?;
        if self.newest - oldest >= LOGGED {
            sort(connection, self.newest).map_err(failed)?;
        }
        Ok(())
    }
}

/// Moves the keys below `newest` into the index. The newest row stays: numbers of the log never come again.
fn sort(connection: &Connection, newest: i64) -> rusqlite::Result<()> {
    let mut sorted = BTreeSet::new();
    for (_, keys) in logged(connection, 0, newest)? {
        sorted.extend(entries(&keys));
    }
    let mut insert = connection
        .prepare_cached("INSERT OR IGNORE INTO key_index (key, row_no) VALUES (?1, ?2)")?;
    for (key, row_no) in sorted {
        insert.execute([key, row_no])?;
    }
    connection
        .prepare_cached("DELETE FROM key_log WHERE log_no < ?1")?
        .execute([newest])
        .map(drop)
}

fn logged(
    connection: &Connection,
    after: i64,
    before: i64,
) -> rusqlite::Result<Vec<(i64, Vec<u8>)>> {
    connection
        .prepare_cached(
            "SELECT log_no, keys FROM key_log WHERE log_no > ?1 AND log_no < ?2 ORDER BY log_no",
        )?
        .query_map([after, before], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

fn entries(keys: &[u8]) -> impl Iterator<Item = (i64, i64)> + '_ {
    keys.chunks_exact(ENTRY_BYTES).filter_map(|entry| {
        let (key, row_no) = entry.split_first_chunk::<8>()?;
        let row_no = row_no.first_chunk::<8>()?;
        Some((i64::from_be_bytes(*key), i64::from_be_bytes(*row_no)))
    })
}

fn failed(error: rusqlite::Error) -> StoreError {
    map_error("find", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("migrations/0001_initial.sql"))
            .unwrap();
        connection
    }

    fn count(connection: &Connection, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn every_key_is_found_before_while_and_after_it_is_sorted() {
        let connection = store();
        let mut writer = Keys::default();
        let mut reader = Keys::default();
        let commits = 2 * LOGGED + 3;
        for commit in 1..=commits {
            writer
                .log(&connection, &[(commit % 7, commit), (-commit, commit)])
                .unwrap();
            assert!(count(&connection, "key_log") <= LOGGED);
            if commit % 97 == 0 {
                reader.refresh(&connection).unwrap();
            }
            if commit == LOGGED {
                assert_eq!(count(&connection, "key_index"), 0);
            }
            if commit == LOGGED + 1 {
                assert_eq!(count(&connection, "key_index"), 2 * LOGGED);
                assert_eq!(count(&connection, "key_log"), 1);
            }
        }
        let mut fresh = Keys::default();
        for keys in [&mut reader, &mut fresh] {
            keys.refresh(&connection).unwrap();
            for commit in 1..=commits {
                let rows = keys.rows(&connection, -commit).unwrap();
                assert!(rows.contains(&commit), "{commit}");
                let shared = keys.rows(&connection, commit % 7).unwrap();
                assert!(shared.contains(&commit), "{commit}");
            }
            assert_eq!(keys.rows(&connection, i64::MAX).unwrap(), Vec::<i64>::new());
        }
    }

    #[test]
    fn what_a_rollback_took_back_is_not_found_once_forgotten() {
        let connection = store();
        let mut keys = Keys::default();
        connection.execute_batch("BEGIN").unwrap();
        keys.log(&connection, &[(1, 1)]).unwrap();
        keys.add(1, 1);
        connection.execute_batch("ROLLBACK").unwrap();
        keys.forget();
        keys.log(&connection, &[(2, 1)]).unwrap();
        keys.refresh(&connection).unwrap();
        let mut other = Keys::default();
        other.refresh(&connection).unwrap();
        assert_eq!(other.rows(&connection, 1).unwrap(), Vec::<i64>::new());
        assert_eq!(other.rows(&connection, 2).unwrap(), [1]);
    }

    #[test]
    fn families_with_equal_content_have_different_keys() {
        let digest = Digest::of(b"{}");
        let keys: BTreeSet<i64> = (1..1_000).map(|family| of_chunk(family, &digest)).collect();
        assert_eq!(keys.len(), 999);
    }
}
