//! W4: a whole process that runs one step.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use qitos::History;

use crate::report::{Report, median};
use crate::{Outcome, kernel, memory};

/// Processes per run of the workload.
const PROCESSES: u32 = 20;

/// What the child does: one step, then its peak memory in bytes.
pub(crate) fn child() -> Outcome<()> {
    kernel::once(1, History::Full)?;
    writeln!(std::io::stdout(), "{}", memory::peak_bytes())?;
    Ok(())
}

/// Output of this program as a child, and how long it took as a whole.
pub(crate) fn spawn(arguments: &[&str]) -> Outcome<(String, f64)> {
    let started = Instant::now();
    let output = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let elapsed = started.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(format!("the child failed: {}", output.status).into());
    }
    Ok((String::from_utf8(output.stdout)?.trim().to_owned(), elapsed))
}

pub(crate) fn run(runs: u32) -> Outcome<Report> {
    let mut times = Vec::new();
    let mut peaks = Vec::new();
    let mut floors = Vec::new();
    for _ in 0..runs * PROCESSES {
        let started = Instant::now();
        Command::new("true").stdin(Stdio::null()).output()?;
        floors.push(started.elapsed().as_secs_f64() * 1e3);
        let (peak, seconds) = spawn(&["child"])?;
        times.push(seconds * 1e3);
        peaks.push(peak.parse::<f64>()?);
    }
    let binary = std::fs::metadata(std::env::current_exe()?)?.len();
    let mut report = Report::new("start");
    report.parameter("processes", runs * PROCESSES);
    let wall = median(times);
    let floor = median(floors);
    report.figure("wall_ms", wall);
    report.figure("floor_empty_process_ms", floor);
    report.figure("peak_memory_bytes", median(peaks));
    report.figure("binary_bytes", binary as f64);
    report.ratio("wall_to_empty_process", wall / floor);
    report.at_most("wall_ms", 10.0);
    report.at_most("peak_memory_bytes", 16.0 * 1_024.0 * 1_024.0);
    Ok(report)
}
