//! W6: many agents at once, each five steps with a model that takes 50 ms per reply.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos::checkpoint::sqlite::{OpenOptions, SqliteStore};
use qitos::{History, RunOptions};

use crate::agent::{BenchModel, Position, engine};
use crate::report::{Report, median};
use crate::{Outcome, Store, memory, start};

/// Tool calls of each agent.
const STEPS: u64 = 5;
/// What the model takes for a reply.
const REPLY: Duration = Duration::from_millis(50);

/// Runs all agents; seconds and bytes per agent.
fn once(agents: u64, store: Option<&Path>) -> Outcome<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let model = Arc::new(BenchModel::new(STEPS, Position::FromHistory, REPLY)?);
    let mut builder = engine(&model, History::Full, false)?;
    if let Some(path) = store {
        let options = OpenOptions::default().create();
        builder = builder.store(Arc::new(SqliteStore::open_blocking(path, options)?));
    }
    let engine = builder.build()?;
    let before = memory::resident_bytes();
    let started = Instant::now();
    let finished = runtime.block_on(async {
        let tasks: Vec<_> = (0..agents)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let session = engine.session("run").await.ok()?;
                    let result = session.run(RunOptions::default()).await.ok()?;
                    (result.final_result.as_deref() == Some("done")
                        && result.usage.tool_calls == STEPS)
                        .then_some(())
                })
            })
            .collect();
        let mut finished = 0u64;
        for task in tasks {
            finished += u64::from(task.await.ok().flatten().is_some());
        }
        finished
    });
    let seconds = started.elapsed().as_secs_f64();
    if finished != agents {
        return Err(format!("only {finished} of {agents} agents ended as they should").into());
    }
    let bytes = memory::peak_bytes().saturating_sub(before);
    Ok((seconds, bytes as f64 / agents as f64))
}

/// What the child does: all agents in a fresh process, so that memory starts from nothing.
pub(crate) fn child(agents: u64) -> Outcome<()> {
    let (seconds, bytes) = once(agents, None)?;
    writeln!(std::io::stdout(), "{seconds} {bytes}")?;
    Ok(())
}

pub(crate) fn run(
    agents: u64,
    store: Store,
    directory: Option<&Path>,
    runs: u32,
) -> Outcome<Report> {
    let agents = agents.max(1);
    let temporary = std::env::temp_dir();
    let directory = directory.unwrap_or(&temporary);
    let mut walls = Vec::new();
    let mut memories = Vec::new();
    for _ in 0..runs {
        let (seconds, bytes) = match store {
            Store::None => {
                let (text, _) = start::spawn(&["child", "--agents", &agents.to_string()])?;
                let (seconds, bytes) = text.split_once(' ').ok_or("the child said nothing")?;
                (seconds.parse()?, bytes.parse()?)
            }
            Store::Sqlite => {
                let folder = tempfile::tempdir_in(directory)?;
                once(agents, Some(&folder.path().join("sessions.db")))?
            }
        };
        walls.push(seconds);
        memories.push(bytes);
    }
    let mut report = Report::new("many");
    report.parameter("agents", agents);
    report.parameter(
        "store",
        match store {
            Store::None => "none",
            Store::Sqlite => "sqlite",
        },
    );
    report.parameter("runs", runs);
    report.parameter("executor", "multi_thread:2");
    let wall = median(walls);
    let ideal = REPLY.as_secs_f64() * (STEPS + 1) as f64;
    report.figure("wall_s", wall);
    report.figure("ideal_wall_s", ideal);
    // With a store the process is the parent and later runs find memory that earlier ones gave back.
    report.figure(
        "memory_per_agent_bytes",
        memories.first().copied().unwrap_or_default(),
    );
    report.ratio("wall_to_ideal", wall / ideal);
    if store == Store::None {
        report.at_most("wall_s", if agents > 1_000 { 1.5 } else { 0.40 });
        report.at_most("memory_per_agent_bytes", 32.0 * 1_024.0);
    }
    Ok(report)
}
