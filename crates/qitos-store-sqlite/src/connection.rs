//! Opening connections: what the file is, which settings took, what that proves (STO-25 to STO-30, STO-37).

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use qitos_contracts::checkpoint::{DurabilityClass, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::fault_point::Faults;
use crate::filesystem;
use crate::map_error::{is_busy, map_error};
use crate::migrations::{APPLICATION_ID, STORE_SCHEMA, migrate};
use crate::options::OpenOptions;

/// 3.51.3, the first release without the corruption under concurrent write and checkpoint (STO-27).
const OLDEST_ENGINE: i32 = 3_051_003;
const BUSY_TIMEOUT_MS: u32 = 5_000;
const STATEMENTS_CACHED: usize = 64;

/// What opening found out.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The writer's connection; none when the schema lets this build only read.
    pub(crate) writer: Option<Connection>,
    pub(crate) class: DurabilityClass,
    /// What a refused commit reports, when there is no writer.
    pub(crate) writer_min: u32,
}

/// Opens, identifies, migrates and configures.
pub(crate) fn open(
    path: &Path,
    options: &OpenOptions,
    faults: &Faults,
) -> Result<Opened, StoreError> {
    if rusqlite::version_number() < OLDEST_ENGINE {
        return Err(StoreError::StoreEngineUnsupported {
            detail: format!("sqlite {}", rusqlite::version()),
        });
    }
    let mut class = options.class.max(DurabilityClass::ProcessCrash);
    if let Some(found) = filesystem::unsupported(path) {
        if !options.local_filesystem_asserted {
            return Err(StoreError::UnsupportedFilesystem { found });
        }
        class = class.min(DurabilityClass::ProcessCrash);
    }
    let deadline = Deadline::after(options.busy_bound);
    let fresh = identify(path, options)?;
    if options.read_only {
        return open_read_only(path, class, &deadline);
    }
    if fresh {
        create_file(path)?;
    }
    let writer = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(|error| map_error("open", &error))?;
    configure(&writer, class)?;
    let version = deadline
        .retry(|| writer.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)))?;
    if version < STORE_SCHEMA {
        // Only an empty database takes this setting; a migrated one has it already.
        writer
            .execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
            .map_err(|error| map_error("configure", &error))?;
        deadline.retry(|| migrate(&writer, faults))?;
    }
    let (reader_min, writer_min) = deadline.retry(|| schema_bounds(&writer))?;
    if reader_min > STORE_SCHEMA {
        return Err(StoreError::StoreSchemaNewer {
            needed: reader_min.into(),
            known: STORE_SCHEMA.into(),
        });
    }
    if writer_min > STORE_SCHEMA {
        return Ok(Opened {
            writer: None,
            class,
            writer_min,
        });
    }
    let mode: String = deadline
        .retry(|| writer.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(not_taken("journal_mode"));
    }
    Ok(Opened {
        writer: Some(writer),
        class,
        writer_min,
    })
}

/// Looks whether this build can read the store; leaves every file as it is.
fn open_read_only(
    path: &Path,
    class: DurabilityClass,
    deadline: &Deadline,
) -> Result<Opened, StoreError> {
    let reader = open_reader(path)?;
    let version = deadline
        .retry(|| reader.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)))?;
    if version < STORE_SCHEMA {
        return Err(StoreError::PersistenceFailed {
            operation: "open for reading",
            detail: format!("store schema {version} must be migrated first"),
        });
    }
    let (reader_min, writer_min) = deadline.retry(|| schema_bounds(&reader))?;
    if reader_min > STORE_SCHEMA {
        return Err(StoreError::StoreSchemaNewer {
            needed: reader_min.into(),
            known: STORE_SCHEMA.into(),
        });
    }
    Ok(Opened {
        writer: None,
        class,
        writer_min,
    })
}

/// A connection that only reads, for the pool and for `resolve`.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let reader = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(|error| map_error("open", &error))?;
    reader
        .busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS.into()))
        .and_then(|()| {
            reader.execute_batch(
                "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA query_only = ON",
            )
        })
        .map_err(|error| map_error("configure", &error))?;
    keep_plans(&reader).map_err(|error| map_error("configure", &error))?;
    Ok(reader)
}

/// Statements are parsed and planned once per connection.
///
/// Without the engine's guarantee of stable plans a statement whose plan may depend on the value of a parameter is
/// parsed and planned again when a new value is bound; a profile of the writer showed a seventh of its samples there.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map(drop)
}

/// Reads the file's header without the engine, which might touch a file that is not ours; true when it is to be made.
fn identify(path: &Path, options: &OpenOptions) -> Result<bool, StoreError> {
    let io = |error: std::io::Error| StoreError::PersistenceFailed {
        operation: "open",
        detail: error.kind().to_string(),
    };
    let foreign = |found: &str| StoreError::StoreForeign {
        found: found.into(),
    };
    let mut header = Vec::with_capacity(HEADER_BYTES);
    match std::fs::File::open(path) {
        Ok(file) => file
            .take(HEADER_BYTES as u64)
            .read_to_end(&mut header)
            .map_err(io)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && options.create => {
            return Ok(true);
        }
        Err(error) => return Err(io(error)),
    };
    if header.is_empty() || holds_nothing(&header) {
        return if options.create {
            Ok(true)
        } else {
            Err(foreign("an empty file"))
        };
    }
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(foreign("not a database"));
    }
    let application = header
        .get(68..72)
        .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok())
        .map(i32::from_be_bytes);
    match application {
        Some(APPLICATION_ID) => Ok(false),
        Some(other) => Err(foreign(&format!("application id {other}"))),
        None => Err(foreign("a cut header")),
    }
}

/// The file's header and the head of its first page.
const HEADER_BYTES: usize = 108;

/// A database of one page without a table, not in write-ahead mode and nobody's: what a creation that was killed
/// leaves, because setting `auto_vacuum` writes the first page before the transaction that makes the tables.
fn holds_nothing(header: &[u8]) -> bool {
    let is = |at: std::ops::Range<usize>, bytes: &[u8]| header.get(at) == Some(bytes);
    header.starts_with(b"SQLite format 3\0")
        && is(18..20, &[1, 1])
        && is(28..32, &[0, 0, 0, 1])
        && is(60..64, &[0; 4])
        && is(68..72, &[0; 4])
        && is(100..101, &[13])
        && is(103..105, &[0, 0])
}

/// Makes the file before the engine does, with the mode that the engine then gives `-wal` and `-shm` too (STO-30).
fn create_file(path: &Path) -> Result<(), StoreError> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
        .open(path)
        .map(drop)
        .map_err(|error| StoreError::PersistenceFailed {
            operation: "create the file",
            detail: error.kind().to_string(),
        })
}

/// Sets and reads back: a setting that did not take fails the opening (STO-25).
fn configure(writer: &Connection, class: DurabilityClass) -> Result<(), StoreError> {
    let synchronous = if class >= DurabilityClass::PowerLoss {
        2
    } else {
        1
    };
    let settings: [(&'static str, i64); 9] = [
        ("busy_timeout", BUSY_TIMEOUT_MS.into()),
        ("synchronous", synchronous),
        ("foreign_keys", 1),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("wal_autocheckpoint", 1_000),
        ("journal_size_limit", 64 * 1024 * 1024),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
    ];
    let failed = |error: rusqlite::Error| map_error("configure", &error);
    for (name, value) in settings {
        writer
            .execute_batch(&format!("PRAGMA {name} = {value}"))
            .map_err(failed)?;
        let taken: i64 = writer
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(failed)?;
        if taken != value {
            return Err(not_taken(name));
        }
    }
    // No mapping on writers; the cache grows to 64 MiB only as it is used.
    writer
        .execute_batch(
            "PRAGMA mmap_size = 0; PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY",
        )
        .map_err(failed)?;
    keep_plans(writer).map_err(failed)
}

fn not_taken(setting: &'static str) -> StoreError {
    StoreError::StoreEngineUnsupported {
        detail: format!("the setting {setting} did not take"),
    }
}

fn schema_bounds(connection: &Connection) -> rusqlite::Result<(u32, u32)> {
    let read = |key: &str| {
        connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| {
            let value = row.get_ref(0)?.as_str()?;
            Ok(value.parse().unwrap_or(u32::MAX))
        })
    };
    Ok((read("reader_min")?, read("writer_min")?))
}

/// How long to go on trying while another process holds the file.
#[derive(Debug)]
pub(crate) struct Deadline {
    started: Instant,
    bound: Duration,
    random: RandomState,
}

impl Deadline {
    pub(crate) fn after(bound: Duration) -> Self {
        Deadline {
            started: Instant::now(),
            bound,
            random: RandomState::new(),
        }
    }

    /// Repeats a busy operation with jitter, so that waiting processes do not move in step (STO-26).
    pub(crate) fn retry<T>(
        &self,
        mut operation: impl FnMut() -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        for attempt in 0u64.. {
            match operation() {
                Ok(value) => return Ok(value),
                Err(error) if is_busy(&error) && self.started.elapsed() < self.bound => {
                    let spread = 1 + self.random.hash_one(attempt) % 8;
                    std::thread::sleep(Duration::from_millis(spread));
                }
                Err(error) if is_busy(&error) => break,
                Err(error) => return Err(map_error("open", &error)),
            }
        }
        Err(StoreError::StoreBusy {
            waited_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}
