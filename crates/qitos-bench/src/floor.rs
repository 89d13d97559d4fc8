//! What the machine does without an engine.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;

/// Microseconds per step of a loop that writes the two messages of a step and copies the whole body.
pub(crate) fn message_loop_us(steps: u64) -> f64 {
    let mut history = String::new();
    let mut body: Vec<u8> = Vec::new();
    let started = Instant::now();
    for index in 1..=steps {
        let _ = write!(
            history,
            "{{\"content\":\"\",\"role\":\"assistant\",\"tool_calls\":[{{\"function\":{{\"arguments\":\"{{\\\"i\\\": \
             {index}}}\",\"name\":\"step\"}},\"id\":\"call_{index:06}\",\"type\":\"function\"}}]}},\
             {{\"content\":\"ok {index:06} xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"role\":\"tool\",\
             \"tool_call_id\":\"call_{index:06}\"}},"
        );
        body.clear();
        body.extend_from_slice(history.as_bytes());
        std::hint::black_box(&body);
    }
    started.elapsed().as_secs_f64() * 1e6 / steps as f64
}

/// Microseconds of one 4 KiB row in a commit of its own, synced, in a file under `directory`.
pub(crate) fn synced_row_us(directory: &Path, rows: u32) -> Outcome<f64> {
    let folder = tempfile::tempdir_in(directory)?;
    let connection = rusqlite::Connection::open(folder.path().join("rows.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE row (body BLOB)",
    )?;
    let body = vec![7u8; 4_096];
    let started = Instant::now();
    for _ in 0..rows {
        connection
            .prepare_cached("INSERT INTO row VALUES (?1)")?
            .execute([&body])?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(rows))
}
