//! How fast this store commits, beside a bare loop of synced 4 KiB rows on the same disk in the same run.
//!
//! `cargo run --release -p qitos-store-sqlite --example commit_rate [FOLDER]`
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos_contracts::checkpoint::{CheckpointStore, DurabilityClass};
use qitos_contracts::snapshot::Lifecycle;
use qitos_kit::scripted_session::ScriptedSession;
use qitos_store_sqlite::{OpenOptions, SqliteStore};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let folder = match std::env::args_os().nth(1) {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for round in 0..3 {
        let bare = bare_rows(&folder.path().join(format!("bare{round}.db")), 2_000)?;
        println!("bare 4 KiB rows          {bare:8.1} per s");
        let path = folder.path().join(format!("one{round}.db"));
        let (rate, making) =
            runtime.block_on(one_session(&path, DurabilityClass::PowerLoss, 2_000))?;
        println!(
            "one session, synced      {rate:8.1} per s, {:.2} x the time of a bare row; making a commit {:.1} us",
            bare / rate,
            making.as_secs_f64() * 1e6
        );
    }
    let path = folder.path().join("unsynced.db");
    let (rate, _) = runtime.block_on(one_session(&path, DurabilityClass::ProcessCrash, 20_000))?;
    println!(
        "one session, not synced  {rate:8.1} per s, {:.1} us per commit",
        1e6 / rate
    );
    let bytes = file_bytes(&path)?;
    println!(
        "file                     {:8.1} bytes per commit",
        bytes as f64 / 20_000.0
    );
    let rate = runtime.block_on(many_sessions(&folder.path().join("many.db"), 256, 40))?;
    println!("256 sessions, synced     {rate:8.1} per s");
    Ok(())
}

fn bare_rows(path: &Path, rows: u32) -> Outcome<f64> {
    let connection = rusqlite::Connection::open(path)?;
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
    Ok(f64::from(rows) / started.elapsed().as_secs_f64())
}

/// Commits per second without the time to make them, and that time for one.
async fn one_session(
    path: &Path,
    class: DurabilityClass,
    commits: u32,
) -> Outcome<(f64, Duration)> {
    let options = OpenOptions::default().create().with_class(class);
    let store = SqliteStore::open(path, options).await?;
    let mut session = ScriptedSession::new(1);
    store
        .commit(session.commit(Lifecycle::Created, "made")?)
        .await?;
    let text = "what was said at this turn, of a usual length; ".repeat(3);
    let (mut making, mut committing) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..commits {
        let started = Instant::now();
        let next = session.commit(Lifecycle::Running, &text)?;
        making += started.elapsed();
        let started = Instant::now();
        store.commit(next).await?;
        committing += started.elapsed();
    }
    Ok((
        f64::from(commits) / committing.as_secs_f64(),
        making / commits,
    ))
}

/// All sessions commit at once, again and again: the store groups them.
async fn many_sessions(path: &Path, sessions: u32, turns: u32) -> Outcome<f64> {
    let store = Arc::new(SqliteStore::open(path, OpenOptions::default().create()).await?);
    let mut waiting: Vec<Vec<_>> = (0..turns).map(|_| Vec::new()).collect();
    for seed in 0..sessions {
        let mut session = ScriptedSession::new(u64::from(seed));
        for (turn, commits) in waiting.iter_mut().enumerate() {
            let lifecycle = if turn == 0 {
                Lifecycle::Created
            } else {
                Lifecycle::Running
            };
            commits.push(session.commit(lifecycle, "x")?);
        }
    }
    let started = Instant::now();
    for commits in waiting {
        let mut sent: Vec<_> = commits
            .into_iter()
            .map(|commit| store.commit(commit))
            .collect();
        // The first poll of each queues it.
        std::future::poll_fn(|context| {
            sent.retain_mut(|commit| commit.as_mut().poll(context).is_pending());
            if sent.is_empty() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
    Ok(f64::from(sessions * turns) / started.elapsed().as_secs_f64())
}

fn file_bytes(path: &Path) -> Outcome<u64> {
    let connection = rusqlite::Connection::open(path)?;
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(std::fs::metadata(path)?.len())
}
