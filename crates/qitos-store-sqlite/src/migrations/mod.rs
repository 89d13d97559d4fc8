//! The store's own schema and how a file gets it (STO-37, STO-38).

use rusqlite::Connection;

use crate::fault_point::{Faults, Point};

/// `QTOS`: what the file's header says it is (STO-37).
pub(crate) const APPLICATION_ID: i32 = 0x5154_4F53;

/// The schema this build writes.
pub(crate) const STORE_SCHEMA: u32 = 1;

/// One step each, from the schema of its index to the next.
const STEPS: [&str; STORE_SCHEMA as usize] = [include_str!("0001_initial.sql")];

/// Brings the file to [`STORE_SCHEMA`] in one exclusive transaction.
///
/// Safe when N processes open together: whoever comes second finds the work done. Crash-safe between any two
/// statements: identity, version and tables become visible in one commit, which is made before the file is
/// switched to a write-ahead log, so that not even the loss of that log leaves a file of ours without its tables.
pub(crate) fn migrate(connection: &Connection, faults: &Faults) -> rusqlite::Result<()> {
    faults.pass(Point::MigrationBegin);
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    let done = migrate_in_transaction(connection, faults);
    match done {
        Ok(()) => {
            faults.pass(Point::MigrationCommit);
            connection.execute_batch("COMMIT")
        }
        Err(error) => {
            // The first error is the one to report; a failed rollback ends with the connection.
            let _ = connection.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

fn migrate_in_transaction(connection: &Connection, faults: &Faults) -> rusqlite::Result<()> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if found == 0 && tables > 0 {
        // Somebody else's tables appeared since the header was read.
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB),
            None,
        ));
    }
    for (version, step) in STEPS.iter().enumerate().skip(found as usize) {
        connection.execute_batch(step)?;
        faults.pass(Point::MigrationStep);
        connection.pragma_update(None, "user_version", version as u32 + 1)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    Ok(())
}
