//! W2: the agent of W1 with every durable point in a synced SQLite file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use qitos::checkpoint::CheckpointStore;
use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::{Budget, History, RestoreOptions, RunOptions};

use crate::agent::{BenchModel, Position, engine, unlimited};
use crate::kernel::Pace;
use crate::report::{Report, median};
use crate::{Outcome, floor, memory};

/// Rows of the floor, before and after each run.
const FLOOR_ROWS: u32 = 500;

#[derive(Debug)]
struct Measured {
    pace: Pace,
    bare_us: f64,
    commits_per_step: f64,
    file_bytes_per_step: f64,
    tail_us: f64,
    restore_us: f64,
}

async fn once(steps: u64, effectful: bool, directory: &Path) -> Outcome<Measured> {
    let folder = tempfile::tempdir_in(directory)?;
    let path = folder.path().join("sessions.db");
    let store = Arc::new(SqliteStore::open(&path, OpenOptions::default().create()).await?);
    let model = BenchModel::new(steps, Position::Counted(AtomicU64::new(0)), Duration::ZERO)?;
    let model = Arc::new(model);
    let before_us = floor::synced_row_us(directory, FLOOR_ROWS)?;
    // The last request is left for the session that is restored below.
    let budget = Budget {
        max_requests: Some(steps),
        ..unlimited()
    };
    let builder = engine(&model, History::Full, effectful)?.store(store.clone());
    let first = builder.budget(budget).build()?;
    let session = first.session("run").await?;
    let generation_before = store.head(session.id()).await?.map(|head| head.generation);
    session.run(RunOptions::default()).await?;
    let times = model.request_times();
    let id = session.id().clone();
    drop(session);
    let after_us = floor::synced_row_us(directory, FLOOR_ROWS)?;
    let generation = store.head(&id).await?.map(|head| head.generation);
    let commits = generation.unwrap_or_default() - generation_before.unwrap_or_default();

    let connection = rusqlite::Connection::open(&path)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    drop(connection);
    let file_bytes = std::fs::metadata(&path)?.len();

    let started = Instant::now();
    let items = qitos::session::log_tail(&*store, &id, 20).await?;
    let tail_us = started.elapsed().as_secs_f64() * 1e6;
    let expected = usize::try_from((2 * steps + 1).min(20))?;
    if items.len() != expected {
        return Err(format!("{} items at the end of the log", items.len()).into());
    }
    let second = engine(&model, History::Full, effectful)?
        .store(store.clone())
        .build()?;
    let options = RestoreOptions {
        accept_config_change: true,
        ..RestoreOptions::default()
    };
    let started = Instant::now();
    let restored = second.restore(&id, options).await?;
    let restore_us = started.elapsed().as_secs_f64() * 1e6;
    let result = restored.run(RunOptions::default()).await?;
    if result.final_result.as_deref() != Some("done") || result.usage.tool_calls != steps {
        return Err(format!("the run did not end as it should: {result:?}").into());
    }
    Ok(Measured {
        pace: Pace::of(&times),
        bare_us: f64::midpoint(before_us, after_us),
        commits_per_step: commits as f64 / steps as f64,
        file_bytes_per_step: file_bytes as f64 / steps as f64,
        tail_us,
        restore_us,
    })
}

pub(crate) fn run(
    steps: u64,
    effectful: bool,
    directory: Option<&Path>,
    runs: u32,
) -> Outcome<Report> {
    let steps = steps.max(2);
    let temporary = std::env::temp_dir();
    let directory = directory.unwrap_or(&temporary);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let mut all = Vec::new();
    for _ in 0..runs {
        all.push(runtime.block_on(once(steps, effectful, directory))?);
    }
    let of = |field: fn(&Measured) -> f64| median(all.iter().map(field));
    let mut report = Report::new("durable");
    report.parameter("steps", steps);
    report.parameter("effectful", effectful);
    report.parameter("runs", runs);
    report.parameter("executor", "current_thread");
    report.parameter("class", "power_loss");
    let total = of(|measured| measured.pace.total_us);
    report.figure("step_us", total);
    report.figure("steps_per_s", 1e6 / total);
    report.figure("first_tenth_us", of(|measured| measured.pace.first_us));
    report.figure("last_tenth_us", of(|measured| measured.pace.last_us));
    report.figure("bare_commit_us", of(|measured| measured.bare_us));
    report.figure(
        "file_bytes_per_step",
        of(|measured| measured.file_bytes_per_step),
    );
    report.figure("read_last_20_items_us", of(|measured| measured.tail_us));
    report.figure("restore_us", of(|measured| measured.restore_us));
    report.figure("peak_memory_bytes", memory::peak_bytes() as f64);
    report.ratio("commits_per_step", of(|measured| measured.commits_per_step));
    report.ratio(
        "step_to_bare_commit",
        of(|measured| measured.pace.total_us / measured.bare_us),
    );
    report.ratio(
        "last_to_first_tenth",
        of(|measured| measured.pace.last_us / measured.pace.first_us),
    );
    report.at_most("step_to_bare_commit", if effectful { 3.7 } else { 2.5 });
    if steps >= 100 {
        // Starting and pausing cost a few commits of their own.
        report.at_most("commits_per_step", if effectful { 3.05 } else { 2.05 });
        report.at_most("file_bytes_per_step", 8_192.0);
        report.at_most("read_last_20_items_us", 5_000.0);
    }
    if steps >= 1_000 {
        report.at_most("last_to_first_tenth", 1.2);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn a_durable_run_is_restored_and_commits_as_often_as_the_contract_says() {
        // DUR-1
        for (effectful, commits) in [(false, 2.0), (true, 3.0)] {
            let report = run(20, effectful, None, 1).unwrap();
            let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
            let measured = value["ratios"]["commits_per_step"].as_f64().unwrap();
            assert!((measured - commits).abs() <= 0.2, "{value}");
        }
    }
}
