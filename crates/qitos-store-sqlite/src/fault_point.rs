//! Where a test may stop or break the store; nothing here exists for users.
//!
//! A store opened the ordinary way carries no fault plan, and passing a point costs one branch.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qitos_contracts::digest::Digest;
use qitos_contracts::ids::SnapshotId;
use rusqlite::Connection;
use rusqlite::types::Value;

/// A place on the way of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// Before the exclusive transaction of a migration.
    MigrationBegin,
    /// After one step of a migration.
    MigrationStep,
    /// Before a migration becomes visible.
    MigrationCommit,
    /// Before BEGIN IMMEDIATE.
    BeforeBegin,
    /// After BEGIN IMMEDIATE.
    AfterBegin,
    /// After the chunks are inserted.
    AfterChunks,
    /// After the snapshot row is inserted.
    AfterSnapshot,
    /// After the head has moved.
    AfterHead,
    /// Before COMMIT.
    BeforeCommit,
    /// After COMMIT, before any reply.
    AfterCommit,
    /// After the replies.
    AfterReply,
}

impl Point {
    /// The points of one commit, in the order in which they are passed.
    pub const OF_A_COMMIT: [Point; 8] = [
        Point::BeforeBegin,
        Point::AfterBegin,
        Point::AfterChunks,
        Point::AfterSnapshot,
        Point::AfterHead,
        Point::BeforeCommit,
        Point::AfterCommit,
        Point::AfterReply,
    ];

    /// The words for the points of one commit, as a conformance suite names them.
    #[must_use]
    pub fn names_of_a_commit() -> Vec<String> {
        Self::OF_A_COMMIT.iter().map(|p| format!("{p:?}")).collect()
    }

    /// The point of one commit with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Point> {
        Self::OF_A_COMMIT
            .into_iter()
            .find(|point| format!("{point:?}") == name)
    }
}

/// What the store is made to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The engine reports a full disk.
    DiskFull,
    /// COMMIT reports an I/O error although the transaction became durable.
    CommitErrorAfter,
    /// COMMIT reports an I/O error and the transaction is gone.
    CommitErrorBefore,
}

/// A test's plan.
pub trait FaultPlan: fmt::Debug + Send + Sync + 'static {
    /// Called at each point; may end the process, may ask for a fault.
    fn reached(&self, point: Point) -> Option<InjectedFault>;
}

/// A plan that ends the process at a point.
#[derive(Debug)]
pub struct AbortAt(pub Point);

impl FaultPlan for AbortAt {
    fn reached(&self, point: Point) -> Option<InjectedFault> {
        if point == self.0 {
            std::process::abort();
        }
        None
    }
}

/// A store file in `folder` for a place of a conformance suite.
#[must_use]
pub fn file_of_place(folder: &Path, place: &str) -> PathBuf {
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() {
            letter
        } else {
            '_'
        }
    };
    let name: String = place.chars().map(plain).collect();
    folder.join(name).with_extension("db")
}

/// Flips one bit of a stored root; `position` counts bits and starts again at the end.
///
/// # Errors
/// The text of the engine's error, also if there is no such root.
pub fn flip_root_bit(file: &Path, snapshot: &SnapshotId, position: u64) -> Result<(), String> {
    let key = Value::Text(snapshot.to_string());
    flip(file, ("snapshot", "root", "snapshot_id"), &key, position)
        .map_err(|error| error.to_string())
}

/// Flips one bit of a stored chunk; `position` counts bits and starts again at the end.
///
/// # Errors
/// The text of the engine's error, also if there is no such chunk.
pub fn flip_chunk_bit(file: &Path, chunk: &Digest, position: u64) -> Result<(), String> {
    let key = Value::Blob(chunk.as_bytes().to_vec());
    flip(file, ("chunk", "body", "digest"), &key, position).map_err(|error| error.to_string())
}

/// Removes a stored chunk that snapshots still name.
///
/// # Errors
/// The text of the engine's error.
pub fn remove_chunk(file: &Path, chunk: &Digest) -> Result<(), String> {
    unchecked(file)
        .and_then(|connection| {
            connection.execute("DELETE FROM chunk WHERE digest = ?1", [chunk.as_bytes()])
        })
        .map(drop)
        .map_err(|error| error.to_string())
}

fn unchecked(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA busy_timeout = 5000")?;
    Ok(connection)
}

fn flip(
    file: &Path,
    (table, column, id): (&str, &str, &str),
    key: &Value,
    position: u64,
) -> rusqlite::Result<()> {
    let connection = unchecked(file)?;
    let mut bytes: Vec<u8> = connection.query_row(
        &format!("SELECT {column} FROM {table} WHERE {id} = ?1"),
        [key],
        |row| row.get(0),
    )?;
    let bit = position % (bytes.len() as u64 * 8).max(1);
    let byte = usize::try_from(bit / 8).unwrap_or_default();
    if let Some(byte) = bytes.get_mut(byte) {
        *byte ^= 1 << (bit % 8);
    }
    let update = format!("UPDATE {table} SET {column} = ?2 WHERE {id} = ?1");
    connection
        .execute(&update, rusqlite::params![key, bytes])
        .map(drop)
}

/// The plan of one store, usually none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Option<Arc<dyn FaultPlan>>);

impl Faults {
    pub(crate) fn planned(plan: Arc<dyn FaultPlan>) -> Self {
        Faults(Some(plan))
    }

    pub(crate) fn reached(&self, point: Point) -> Option<InjectedFault> {
        self.0.as_ref().and_then(|plan| plan.reached(point))
    }

    pub(crate) fn pass(&self, point: Point) {
        let _ = self.reached(point);
    }
}
