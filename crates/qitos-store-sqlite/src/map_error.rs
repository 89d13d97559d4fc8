//! Rule: which code an error of the engine becomes, before and at COMMIT (rows 13 and 14 of section 7).

use qitos_contracts::checkpoint::StoreError;
use rusqlite::ErrorCode;

/// The engine's own code, when the error came from the engine.
pub(crate) fn engine_code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => Some(failure.code),
        _ => None,
    }
}

/// Whether another connection holds a lock.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        engine_code(error),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// An error anywhere but at COMMIT: nothing was written.
///
/// The engine's message is left out: it may name paths or hold content (SES-23).
pub(crate) fn map_error(operation: &'static str, error: &rusqlite::Error) -> StoreError {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return StoreError::StoreCorrupt {
            detail: format!("a row does not decode while trying to {operation}"),
        };
    };
    let detail = format!("sqlite code {}", failure.extended_code);
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            StoreError::StoreBusy { waited_ms: 0 }
        }
        ErrorCode::DiskFull => StoreError::StorageFull,
        ErrorCode::DatabaseCorrupt => StoreError::StoreCorrupt { detail },
        ErrorCode::NotADatabase => StoreError::StoreForeign {
            found: "not a database".into(),
        },
        _ => StoreError::PersistenceFailed { operation, detail },
    }
}
