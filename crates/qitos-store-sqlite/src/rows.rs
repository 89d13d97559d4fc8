//! Rows to values: what each table's columns mean, and what damage in them is called.

use std::str::FromStr;
use std::sync::Arc;

use qitos_contracts::checkpoint::decide_commit::{Recorded, SessionFact};
use qitos_contracts::checkpoint::{
    DurabilityClass, Head, InboxEntry, InboxKind, Layer, LineageEntry, Receipt, StoreError,
    StoredSnapshot,
};
use qitos_contracts::clock::Timestamp;
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{CheckpointId, SessionId, SnapshotId};
use qitos_contracts::snapshot::{Chunk, ChunkKind};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::keys::{self, Keys};
use crate::map_error::map_error;
use crate::pack::unpack;

const READ: &str = "read";
/// Why a chunk cannot be read that no damage explains.
pub(crate) const NOT_HELD: &str = "a chunk is not in the store";

fn read_error(error: rusqlite::Error) -> StoreError {
    map_error(READ, &error)
}

/// A value that this build wrote and cannot read back.
fn damaged(column: &'static str) -> StoreError {
    StoreError::StoreCorrupt {
        detail: format!("column {column} does not decode"),
    }
}

fn text<T: FromStr>(row: &Row<'_>, index: usize, name: &'static str) -> Result<T, StoreError> {
    row.get_ref(index)
        .ok()
        .and_then(|value| value.as_str().ok())
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| damaged(name))
}

fn optional_text<T: FromStr>(
    row: &Row<'_>,
    index: usize,
    name: &'static str,
) -> Result<Option<T>, StoreError> {
    let value = row.get_ref(index).map_err(read_error)?;
    match value.as_str_or_null() {
        Ok(None) => Ok(None),
        Ok(Some(text)) => text.parse().map(Some).map_err(|_| damaged(name)),
        Err(_) => Err(damaged(name)),
    }
}

fn number(row: &Row<'_>, index: usize, name: &'static str) -> Result<u64, StoreError> {
    row.get_ref(index)
        .ok()
        .and_then(|value| value.as_i64().ok())
        .and_then(|value| u64::try_from(value).ok())
        .ok_or_else(|| damaged(name))
}

fn digest(row: &Row<'_>, index: usize, name: &'static str) -> Result<Digest, StoreError> {
    row.get_ref(index)
        .ok()
        .and_then(|value| value.as_blob().ok())
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
        .map(Digest::from_bytes)
        .ok_or_else(|| damaged(name))
}

fn timestamp(row: &Row<'_>, index: usize, name: &'static str) -> Result<Timestamp, StoreError> {
    row.get_ref(index)
        .ok()
        .and_then(|value| value.as_i64().ok())
        .map(Timestamp::from_micros)
        .ok_or_else(|| damaged(name))
}

/// Runs a cached statement that gives at most one row.
fn one<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(read_error)?;
    let mut rows = statement.query(parameters).map_err(read_error)?;
    match rows.next().map_err(read_error)? {
        Some(row) => read(row).map(Some),
        None => Ok(None),
    }
}

/// The row that a key leads to and that `read` recognises.
fn by_key<T>(
    connection: &Connection,
    keys: &Keys,
    key: i64,
    mut read: impl FnMut(i64) -> Result<Option<T>, StoreError>,
) -> Result<Option<T>, StoreError> {
    for row_no in keys.rows(connection, key)? {
        if let Some(found) = read(row_no)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The numbers by which a session's rows are found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionNumbers {
    pub(crate) session_no: i64,
    pub(crate) family_no: i64,
}

/// A session with its head, and what a commit must know of both.
pub(crate) fn session_fact(
    connection: &Connection,
    session: &SessionId,
) -> Result<(SessionFact, Option<SessionNumbers>), StoreError> {
    let found = one(
        connection,
        "SELECT session.session_no, session.family_no, session.deleted_at, head.snapshot_id, head.checkpoint_id,
             head.generation, head.owner_run_id, head.lifecycle, head.lease_until_ms, snapshot.root_digest
         FROM session
         LEFT JOIN head USING (session_no)
         LEFT JOIN snapshot ON snapshot.snapshot_no = head.snapshot_no
         WHERE session.session_id = ?1",
        [session.as_str()],
        |row| {
            let numbers = SessionNumbers {
                session_no: row.get(0).map_err(read_error)?,
                family_no: row.get(1).map_err(read_error)?,
            };
            let deleted: Option<i64> = row.get(2).map_err(read_error)?;
            if deleted.is_some() {
                return Ok((SessionFact::Deleted, Some(numbers)));
            }
            let head = head_at(row, 3, session)?;
            let root_digest = digest(row, 9, "root_digest").map_err(|_| {
                StoreError::CorruptSnapshot {
                    snapshot: Some(head.snapshot_id.clone()),
                    layer: Layer::Root,
                    reason: "the head points to a snapshot that is not there",
                    digest: None,
                }
            })?;
            Ok((SessionFact::Known { head, root_digest }, Some(numbers)))
        },
    )?;
    Ok(found.unwrap_or((SessionFact::Unknown, None)))
}

fn head_at(row: &Row<'_>, from: usize, session: &SessionId) -> Result<Head, StoreError> {
    Ok(Head {
        session_id: session.clone(),
        snapshot_id: text(row, from, "snapshot_id")?,
        checkpoint_id: text(row, from + 1, "checkpoint_id")?,
        generation: number(row, from + 2, "generation")?,
        owner_run_id: text(row, from + 3, "owner_run_id")?,
        lifecycle: text(row, from + 4, "lifecycle")?,
        lease_until_ms: row.get(from + 5).map_err(read_error)?,
    })
}

/// The head of a session that is not deleted.
pub(crate) fn head(
    connection: &Connection,
    session: &SessionId,
) -> Result<Option<Head>, StoreError> {
    one(
        connection,
        "SELECT head.snapshot_id, head.checkpoint_id, head.generation, head.owner_run_id, head.lifecycle,
             head.lease_until_ms
         FROM session JOIN head USING (session_no)
         WHERE session.session_id = ?1 AND session.deleted_at IS NULL",
        [session.as_str()],
        |row| head_at(row, 0, session),
    )
}

/// Heads of sessions that are not deleted, newest session first, below `before` if given.
pub(crate) fn sessions(
    connection: &Connection,
    before: Option<i64>,
    lifecycle: Option<&str>,
    limit: u32,
) -> Result<Vec<(i64, Head, Timestamp)>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT head.snapshot_id, head.checkpoint_id, head.generation, head.owner_run_id, head.lifecycle,
                 head.lease_until_ms, session.session_no, session.session_id, session.created_at
             FROM session JOIN head USING (session_no)
             WHERE session.deleted_at IS NULL AND session.session_no < ?1 AND (?2 IS NULL OR head.lifecycle = ?2)
             ORDER BY session.session_no DESC LIMIT ?3",
        )
        .map_err(read_error)?;
    let mut rows = statement
        .query(rusqlite::params![
            before.unwrap_or(i64::MAX),
            lifecycle,
            limit
        ])
        .map_err(read_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        let session: SessionId = text(row, 7, "session_id")?;
        found.push((
            row.get(6).map_err(read_error)?,
            head_at(row, 0, &session)?,
            timestamp(row, 8, "created_at")?,
        ));
    }
    Ok(found)
}

/// What a receipt holds beyond the columns of its snapshot's row.
#[derive(Debug)]
pub(crate) struct ReceiptNote {
    pub(crate) bytes_written: u64,
    pub(crate) chunks_written: u64,
    pub(crate) class: DurabilityClass,
}

impl ReceiptNote {
    pub(crate) fn to_text(&self) -> String {
        format!(
            "{} {} {}",
            self.bytes_written,
            self.chunks_written,
            self.class.as_str()
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let note = ReceiptNote {
            bytes_written: parts.next()?.parse().ok()?,
            chunks_written: parts.next()?.parse().ok()?,
            class: DurabilityClass::from_word(parts.next()?)?,
        };
        parts.next().is_none().then_some(note)
    }
}

fn receipt_note(row: &Row<'_>, index: usize) -> Result<ReceiptNote, StoreError> {
    row.get_ref(index)
        .ok()
        .and_then(|value| value.as_str().ok())
        .and_then(ReceiptNote::parse)
        .ok_or_else(|| damaged("receipt"))
}

/// The recorded commit of a snapshot id, for replay and `resolve`.
pub(crate) fn recorded(
    connection: &Connection,
    keys: &Keys,
    snapshot: &SnapshotId,
    store_kind: &str,
) -> Result<Option<Recorded>, StoreError> {
    by_key(connection, keys, keys::of_snapshot(snapshot), |row_no| {
        one(
        connection,
        "SELECT session.session_id, snapshot.checkpoint_id, snapshot.generation, snapshot.owner_run_id,
             snapshot.lifecycle, snapshot.root_digest, snapshot.request_digest, snapshot.receipt
         FROM snapshot JOIN session USING (session_no)
         WHERE snapshot.snapshot_no = ?1 AND snapshot.snapshot_id = ?2",
        rusqlite::params![row_no, snapshot.as_str()],
        |row| {
            let note = receipt_note(row, 7)?;
            Ok(Recorded {
                request_digest: digest(row, 6, "request_digest")?,
                receipt: Receipt {
                    session_id: text(row, 0, "session_id")?,
                    snapshot_id: snapshot.clone(),
                    checkpoint_id: text(row, 1, "checkpoint_id")?,
                    generation: number(row, 2, "generation")?,
                    owner_run_id: text(row, 3, "owner_run_id")?,
                    lifecycle: text(row, 4, "lifecycle")?,
                    durable: note.class.is_durable(),
                    store_kind: store_kind.into(),
                    durability_class: note.class,
                    root_digest: digest(row, 5, "root_digest")?,
                    replayed: false,
                    bytes_written: note.bytes_written,
                    chunks_written: note.chunks_written,
                },
            })
        },
    )
    })
}

/// Whether any snapshot has this checkpoint id.
pub(crate) fn checkpoint_taken(
    connection: &Connection,
    keys: &Keys,
    checkpoint: &CheckpointId,
) -> Result<bool, StoreError> {
    by_key(
        connection,
        keys,
        keys::of_checkpoint(checkpoint),
        |row_no| {
            one(
                connection,
                "SELECT 1 FROM snapshot WHERE snapshot_no = ?1 AND checkpoint_id = ?2",
                rusqlite::params![row_no, checkpoint.as_str()],
                |_| Ok(()),
            )
        },
    )
    .map(|found| found.is_some())
}

/// A stored snapshot, its bytes not yet verified, and the family that holds its chunks.
pub(crate) fn snapshot(
    connection: &Connection,
    keys: &Keys,
    snapshot: &SnapshotId,
) -> Result<Option<(StoredSnapshot, i64)>, StoreError> {
    by_key(connection, keys, keys::of_snapshot(snapshot), |row_no| one(
        connection,
        "SELECT session.session_id, snapshot.checkpoint_id, snapshot.generation, snapshot.owner_run_id,
             snapshot.lifecycle, snapshot.parent_checkpoint_id, snapshot.root_digest, snapshot.captured_at,
             snapshot.root_codec, snapshot.root, session.family_no
         FROM snapshot JOIN session USING (session_no)
         WHERE snapshot.snapshot_no = ?1 AND snapshot.snapshot_id = ?2",
        rusqlite::params![row_no, snapshot.as_str()],
        |row| {
            let corrupt = |reason: &'static str| StoreError::CorruptSnapshot {
                snapshot: Some(snapshot.clone()),
                layer: Layer::Root,
                reason,
                digest: None,
            };
            let codec = number(row, 8, "root_codec").map_err(|_| corrupt("its codec is unknown"))?;
            let root = row
                .get_ref(9)
                .ok()
                .and_then(|value| value.as_blob().ok())
                .and_then(|body| unpack(codec, body))
                .ok_or_else(|| corrupt("its stored bytes do not unpack"))?;
            let stored = StoredSnapshot {
                session_id: text(row, 0, "session_id")?,
                snapshot_id: snapshot.clone(),
                checkpoint_id: text(row, 1, "checkpoint_id")?,
                generation: number(row, 2, "generation")?,
                owner_run_id: text(row, 3, "owner_run_id")?,
                lifecycle: text(row, 4, "lifecycle")?,
                parent_checkpoint_id: optional_text(row, 5, "parent_checkpoint_id")?,
                root: Arc::from(root),
                root_digest: digest(row, 6, "root_digest")?,
                captured_at: timestamp(row, 7, "captured_at")?,
            };
            Ok((stored, row.get(10).map_err(read_error)?))
        },
    ))
    .map_err(|error| match error {
        // A row that does not decode is damage of this snapshot, not of the store (section 14).
        StoreError::StoreCorrupt { detail } if detail.starts_with("column ") => {
            StoreError::CorruptSnapshot {
                snapshot: Some(snapshot.clone()),
                layer: Layer::Root,
                reason: "its row does not decode",
                digest: None,
            }
        }
        other => other,
    })
}

/// The family of a snapshot.
pub(crate) fn family_of(
    connection: &Connection,
    keys: &Keys,
    snapshot: &SnapshotId,
) -> Result<Option<i64>, StoreError> {
    by_key(connection, keys, keys::of_snapshot(snapshot), |row_no| {
        one(
            connection,
            "SELECT session.family_no FROM snapshot JOIN session USING (session_no)
         WHERE snapshot.snapshot_no = ?1 AND snapshot.snapshot_id = ?2",
            rusqlite::params![row_no, snapshot.as_str()],
            |row| row.get(0).map_err(read_error),
        )
    })
}

/// The stored length of a chunk that a family holds.
pub(crate) fn chunk_length(
    connection: &Connection,
    keys: &Keys,
    family_no: i64,
    wanted: &Digest,
) -> Result<Option<u64>, StoreError> {
    by_key(
        connection,
        keys,
        keys::of_chunk(family_no, wanted),
        |row_no| {
            one(
                connection,
                "SELECT raw_len FROM chunk WHERE chunk_no = ?1 AND family_no = ?2 AND digest = ?3",
                rusqlite::params![row_no, family_no, wanted.as_bytes()],
                |row| number(row, 0, "raw_len"),
            )
        },
    )
}

/// A chunk of a family, hashed; none when the family does not hold it.
pub(crate) fn chunk(
    connection: &Connection,
    keys: &Keys,
    family_no: i64,
    wanted: &Digest,
) -> Result<Option<Chunk>, StoreError> {
    let corrupt = |reason: &'static str| StoreError::CorruptSnapshot {
        snapshot: None,
        layer: Layer::Chunk,
        reason,
        digest: Some(*wanted),
    };
    by_key(
        connection,
        keys,
        keys::of_chunk(family_no, wanted),
        |row_no| {
            one(
                connection,
                "SELECT kind, codec, raw_len, body FROM chunk WHERE chunk_no = ?1 AND family_no = ?2 AND digest = ?3",
                rusqlite::params![row_no, family_no, wanted.as_bytes()],
                |row| {
                    let kind: ChunkKind =
                        text(row, 0, "kind").map_err(|_| corrupt("its kind is unknown"))?;
                    let codec =
                        number(row, 1, "codec").map_err(|_| corrupt("its codec is unknown"))?;
                    let length =
                        number(row, 2, "raw_len").map_err(|_| corrupt("its length is lost"))?;
                    let bytes = row
                        .get_ref(3)
                        .ok()
                        .and_then(|value| value.as_blob().ok())
                        .and_then(|body| unpack(codec, body))
                        .filter(|bytes| bytes.len() as u64 == length)
                        .ok_or_else(|| corrupt("its stored bytes do not unpack"))?;
                    Chunk::verified(kind, Arc::from(bytes), wanted).map_err(StoreError::from)
                },
            )
        },
    )
}

/// One page of a lineage, newest first, and one entry more when there is one.
pub(crate) fn lineage(
    connection: &Connection,
    session: &SessionId,
    before_generation: Option<u64>,
    rows_wanted: u32,
) -> Result<Vec<LineageEntry>, StoreError> {
    let before = before_generation
        .and_then(|generation| i64::try_from(generation).ok())
        .unwrap_or(i64::MAX);
    let mut statement = connection
        .prepare_cached(
            "SELECT snapshot.snapshot_id, snapshot.checkpoint_id, snapshot.generation, snapshot.owner_run_id,
                 snapshot.lifecycle, snapshot.parent_checkpoint_id, snapshot.root_digest, snapshot.captured_at,
                 snapshot.receipt
             FROM session JOIN snapshot USING (session_no)
             WHERE session.session_id = ?1 AND session.deleted_at IS NULL AND snapshot.generation < ?2
             ORDER BY snapshot.generation DESC LIMIT ?3",
        )
        .map_err(read_error)?;
    let mut rows = statement
        .query(rusqlite::params![session.as_str(), before, rows_wanted])
        .map_err(read_error)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        entries.push(LineageEntry {
            snapshot_id: text(row, 0, "snapshot_id")?,
            checkpoint_id: text(row, 1, "checkpoint_id")?,
            generation: number(row, 2, "generation")?,
            owner_run_id: text(row, 3, "owner_run_id")?,
            lifecycle: text(row, 4, "lifecycle")?,
            parent_checkpoint_id: optional_text(row, 5, "parent_checkpoint_id")?,
            root_digest: digest(row, 6, "root_digest")?,
            captured_at: timestamp(row, 7, "captured_at")?,
            bytes: receipt_note(row, 8)?.bytes_written,
        });
    }
    Ok(entries)
}

/// A stored text column of a row found by one text key.
pub(crate) fn fork_receipt_text(
    connection: &Connection,
    operation: &str,
) -> Result<Option<String>, StoreError> {
    connection
        .prepare_cached("SELECT receipt FROM fork WHERE operation_id = ?1")
        .and_then(|mut statement| {
            statement
                .query_row([operation], |row| row.get(0))
                .optional()
        })
        .map_err(read_error)
}

/// A chunk that must be there.
pub(crate) fn required_chunk(
    connection: &Connection,
    keys: &Keys,
    family_no: i64,
    wanted: &Digest,
) -> Result<Chunk, StoreError> {
    chunk(connection, keys, family_no, wanted)?.ok_or(StoreError::CorruptSnapshot {
        snapshot: None,
        layer: Layer::Chunk,
        reason: NOT_HELD,
        digest: Some(*wanted),
    })
}

/// The oldest entries of an inbox that no commit consumed.
pub(crate) fn waiting_entries(
    connection: &Connection,
    session: &SessionId,
    limit: u32,
) -> Result<Vec<InboxEntry>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "SELECT seq, item_id, kind, payload FROM session JOIN inbox USING (session_no)
             WHERE session.session_id = ?1 AND session.deleted_at IS NULL AND consumed_generation IS NULL
             ORDER BY seq LIMIT ?2",
        )
        .map_err(read_error)?;
    let mut rows = statement
        .query(rusqlite::params![session.as_str(), limit])
        .map_err(read_error)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(read_error)? {
        let kind: String = text(row, 2, "kind")?;
        entries.push(InboxEntry {
            sequence: number(row, 0, "seq")?,
            item_id: text(row, 1, "item_id")?,
            kind: InboxKind::from_word(&kind).ok_or_else(|| damaged("kind"))?,
            payload: row.get(3).map_err(read_error)?,
        });
    }
    Ok(entries)
}
