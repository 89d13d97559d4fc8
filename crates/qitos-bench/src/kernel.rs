//! W1: a scripted agent in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use qitos::{History, RunOptions};

use crate::agent::{BenchModel, Position, engine};
use crate::report::{Report, median};
use crate::{Outcome, floor, memory};

/// Step times of one run.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) total_us: f64,
    pub(crate) first_us: f64,
    pub(crate) middle_us: f64,
    pub(crate) last_us: f64,
}

impl Pace {
    /// From the times at which the requests came.
    pub(crate) fn of(times: &[Instant]) -> Self {
        let count = times.len().saturating_sub(1);
        let tenth = (count / 10).max(1);
        let mean = |from: usize, until: usize| match (times.get(from), times.get(until)) {
            (Some(start), Some(end)) if until > from => {
                end.duration_since(*start).as_secs_f64() * 1e6 / (until - from) as f64
            }
            _ => 0.0,
        };
        let middle = (count.saturating_sub(tenth)) / 2;
        Pace {
            total_us: mean(0, count),
            first_us: mean(0, tenth.min(count)),
            middle_us: mean(middle, (middle + tenth).min(count)),
            last_us: mean(count.saturating_sub(tenth), count),
        }
    }
}

/// Runs W1 once in memory and gives its pace.
pub(crate) fn once(steps: u64, history: History) -> Outcome<Pace> {
    let model = BenchModel::new(steps, Position::Counted(AtomicU64::new(0)), Duration::ZERO)?;
    let model = Arc::new(model);
    let engine = engine(&model, history, false)?.build()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let result = runtime.block_on(async {
        let session = engine.session("run").await?;
        session
            .run(RunOptions::default())
            .await
            .map_err(Box::<dyn std::error::Error>::from)
    })?;
    if result.final_result.as_deref() != Some("done") || result.usage.tool_calls != steps {
        return Err(format!("the run did not end as it should: {result:?}").into());
    }
    Ok(Pace::of(&model.request_times()))
}

pub(crate) fn run(steps: u64, history: History, runs: u32) -> Outcome<Report> {
    let steps = steps.max(1);
    let mut paces = Vec::new();
    let mut floors = Vec::new();
    for _ in 0..runs {
        floors.push(floor::message_loop_us(steps));
        paces.push(once(steps, history)?);
    }
    let of = |field: fn(&Pace) -> f64| median(paces.iter().map(field));
    let floor_us = median(floors.iter().copied());
    let total = of(|pace| pace.total_us);
    let mut report = Report::new("kernel");
    report.parameter("steps", steps);
    match history {
        History::Full => report.parameter("history", "full"),
        History::Window(items) => report.parameter("history", format!("window:{items}")),
    }
    report.parameter("runs", runs);
    report.parameter("executor", "current_thread");
    report.figure("step_us", total);
    report.figure("steps_per_s", 1e6 / total);
    report.figure("first_tenth_us", of(|pace| pace.first_us));
    report.figure("middle_tenth_us", of(|pace| pace.middle_us));
    report.figure("last_tenth_us", of(|pace| pace.last_us));
    let slope = of(|pace| pace.last_us - pace.first_us) / (0.9 * steps as f64);
    report.figure("slope_us_per_step_held", slope);
    report.figure("peak_memory_bytes", memory::peak_bytes() as f64);
    report.figure("floor_step_us", floor_us);
    report.ratio("step_to_floor", total / floor_us);
    report.ratio(
        "last_to_first_tenth",
        of(|pace| pace.last_us / pace.first_us),
    );
    match history {
        History::Full if steps >= 1_000 => {
            report.at_most("slope_us_per_step_held", 0.03);
            let least = if steps >= 10_000 { 8_000.0 } else { 20_000.0 };
            report.at_least("steps_per_s", least);
        }
        History::Window(_) if steps >= 1_000 => {
            report.at_least("steps_per_s", 40_000.0);
            report.at_most("last_to_first_tenth", 1.2);
        }
        _ => {}
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use qitos::History;

    use super::{Pace, once};

    #[test]
    fn the_scripted_agent_ends_with_its_answer_under_both_histories() {
        for history in [History::Full, History::Window(24)] {
            assert!(once(30, history).unwrap().total_us > 0.0);
        }
    }

    #[test]
    fn a_pace_compares_tenths() {
        let start = Instant::now();
        let mut times = vec![start];
        for index in 0..20u64 {
            let last = *times.last().unwrap();
            times.push(last + Duration::from_micros(if index < 18 { 10 } else { 30 }));
        }
        let pace = Pace::of(&times);
        assert!((pace.first_us - 10.0).abs() < 0.01);
        assert!((pace.last_us - 30.0).abs() < 0.01);
        assert!((pace.total_us - 12.0).abs() < 0.01);
    }
}
