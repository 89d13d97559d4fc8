//! Runs checks one after the other, each on its own thread, within its time limit.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::check::{Check, Claims, Failure, Need, Stage, Verdict};
use crate::report::{CheckReport, Report, Status};
use crate::runtime::{Runtime, ThreadRuntime, block_on};

/// How to run a suite.
#[derive(Clone)]
#[non_exhaustive]
pub struct RunOptions {
    /// Drives the futures; [`ThreadRuntime`] by default.
    pub runtime: Arc<dyn Runtime>,
    /// Runs only checks whose id contains one of these texts; all when empty.
    pub only: Vec<String>,
    /// Multiplies every time limit; 1 by default, more on slow machines.
    pub time_factor: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            runtime: Arc::new(ThreadRuntime),
            only: Vec::new(),
            time_factor: 1,
        }
    }
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RunOptions")
            .field("only", &self.only)
            .field("time_factor", &self.time_factor)
            .finish_non_exhaustive()
    }
}

impl RunOptions {
    /// The same options with another runtime.
    #[must_use]
    pub fn on(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// The same options, for checks whose id contains the text.
    #[must_use]
    pub fn only(mut self, text: impl Into<String>) -> Self {
        self.only.push(text.into());
        self
    }

    fn selects(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| id.contains(text))
    }
}

/// Runs the selected checks and reports on each.
///
/// A check whose claim is not made or whose hook is absent is `not_claimed`; one that panics or overruns its time
/// limit has failed (its thread is abandoned).
pub fn run_checks<S>(
    mechanism: &str,
    implementation: &str,
    subject: Arc<S>,
    checks: &[Check<S>],
    options: &RunOptions,
) -> Report
where
    S: Claims + ?Sized + Send + Sync + 'static,
{
    let reports = checks
        .iter()
        .filter(|check| options.selects(check.id()))
        .map(|check| run_check(&subject, check, options))
        .collect();
    Report::new(mechanism, implementation, reports)
}

fn run_check<S>(subject: &Arc<S>, check: &Check<S>, options: &RunOptions) -> CheckReport
where
    S: Claims + ?Sized + Send + Sync + 'static,
{
    let report = |status, detail: String| {
        CheckReport::new(check.id(), status, check.rules(), check.sentence(), &detail)
    };
    match missing_need(&**subject, check.needs()) {
        Some(Missing::NotClaimed(detail)) => return report(Status::NotClaimed, detail),
        Some(Missing::Owed(detail)) => return report(Status::Fail, detail),
        None => {}
    }
    match perform(subject, check, options) {
        Ok(()) => report(Status::Pass, String::new()),
        Err(failure) => report(Status::Fail, failure.to_string()),
    }
}

enum Missing {
    NotClaimed(String),
    Owed(String),
}

/// Claims first: who does not claim owes no hook.
fn missing_need<S: Claims + ?Sized>(subject: &S, needs: &[Need]) -> Option<Missing> {
    let unclaimed = needs.iter().find_map(|need| match need {
        Need::Claim(name) if !subject.claims(name) => Some(format!("{name} is not claimed")),
        _ => None,
    });
    if let Some(detail) = unclaimed {
        return Some(Missing::NotClaimed(detail));
    }
    needs.iter().find_map(|need| match need {
        Need::Hook(name) if !subject.has_hook(name) => {
            Some(Missing::NotClaimed(format!("no hook {name}")))
        }
        Need::OwedHook(name) if !subject.has_hook(name) => Some(Missing::Owed(format!(
            "the claim cannot be proved without the hook {name}"
        ))),
        _ => None,
    })
}

fn perform<S>(subject: &Arc<S>, check: &Check<S>, options: &RunOptions) -> Verdict
where
    S: ?Sized + Send + Sync + 'static,
{
    let (sender, receiver) = channel::<Verdict>();
    let stage = Stage::new(Arc::clone(subject), Arc::clone(&options.runtime));
    let runtime = Arc::clone(&options.runtime);
    let body = check.clone();
    let thread = std::thread::Builder::new()
        .name(check.id().into())
        .spawn(move || {
            let verdict = block_on(&*runtime, body.start(stage))
                .unwrap_or_else(|| Err(Failure::new("the runtime did not finish the check")));
            // Nobody listens any more when the time limit has passed.
            let _ = sender.send(verdict);
        })
        .map_err(|error| Failure::new(format!("the check did not start: {error}")))?;
    let limit = check
        .limit()
        .saturating_mul(options.time_factor.max(1))
        .max(Duration::from_millis(1));
    match receiver.recv_timeout(limit) {
        Ok(verdict) => verdict,
        Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!(
            "not finished within {} s",
            limit.as_secs_f64()
        ))),
        Err(RecvTimeoutError::Disconnected) => {
            let message = thread.join().err().map(|payload| {
                payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| payload.downcast_ref::<String>().cloned())
                    .unwrap_or_default()
            });
            Err(Failure::new(format!(
                "panicked: {}",
                message.unwrap_or_default()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Subject;

    impl Claims for Subject {
        fn claims(&self, name: &str) -> bool {
            name == "claimed"
        }

        fn has_hook(&self, name: &str) -> bool {
            name == "hook"
        }
    }

    fn statuses(checks: &[Check<Subject>]) -> Vec<(Status, String)> {
        run_checks(
            "test",
            "subject",
            Arc::new(Subject),
            checks,
            &RunOptions::default(),
        )
        .checks()
        .iter()
        .map(|check| (check.status(), check.detail().to_owned()))
        .collect()
    }

    fn passing(needs: &'static [Need]) -> Check<Subject> {
        Check::new("a", "passes", &["X-1"], async |_| Ok(())).needing(needs)
    }

    #[test]
    fn a_claimed_capability_with_a_skipped_check_is_a_failure() {
        let outcomes = statuses(&[
            passing(&[]),
            passing(&[Need::Claim("claimed"), Need::Hook("hook")]),
            passing(&[Need::Claim("other"), Need::OwedHook("none")]),
            passing(&[Need::Hook("none")]),
            passing(&[Need::Claim("claimed"), Need::OwedHook("none")]),
        ]);
        let expected = [
            Status::Pass,
            Status::Pass,
            Status::NotClaimed,
            Status::NotClaimed,
            Status::Fail,
        ];
        assert_eq!(
            outcomes
                .iter()
                .map(|(status, _)| *status)
                .collect::<Vec<_>>(),
            expected
        );
        assert_eq!(outcomes[2].1, "other is not claimed");
    }

    #[test]
    fn failing_panicking_and_endless_checks_fail_by_name() {
        let outcomes = statuses(&[
            Check::new("a", "fails", &[], async |_| Err(Failure::new("seen 1"))),
            Check::new("b", "panics", &[], async |_| panic!("broken")),
            Check::new("c", "hangs", &[], async |_| std::future::pending().await)
                .within(Duration::from_millis(10)),
        ]);
        assert_eq!(outcomes[0], (Status::Fail, "seen 1".into()));
        assert_eq!(outcomes[1], (Status::Fail, "panicked: broken".into()));
        assert_eq!(outcomes[2].0, Status::Fail);
        assert!(outcomes[2].1.starts_with("not finished within"));
    }

    #[test]
    fn checks_are_selected_by_a_part_of_their_id() {
        let checks = [passing(&[])];
        let options = RunOptions::default().only("zzz");
        let report = run_checks("test", "subject", Arc::new(Subject), &checks, &options);
        assert!(report.checks().is_empty());
    }
}
