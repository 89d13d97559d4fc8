//! K11 to K14: requests that contradict themselves, the head or the lifecycle (rows 10 and 11).

use qitos_contracts::checkpoint::{Commit, CommitRequest, StoreError};
use qitos_contracts::digest::Digest;
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{checked, open, persist, refused};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K11.mixed_expectations",
            "a create carries no expectation and an advance all three; anything between is refused unseen",
            &["SES-29"],
            mixed_expectations,
        ),
        Check::new(
            "K12.payload_mismatch",
            "a root that does not say what its request says, or names another parent, is corrupt_snapshot",
            &["STO-3"],
            payload_mismatch,
        ),
        Check::new(
            "K13.illegal_transition",
            "every lifecycle step outside the table is invalid_lifecycle_operation, every one inside is persisted",
            &["SES-12", "SES-7"],
            illegal_transition,
        ),
        Check::new(
            "K14.superseded_refused",
            "no commit can carry the lifecycle superseded",
            &["SES-10"],
            superseded_refused,
        ),
    ]
}

/// A request that must not even become a commit.
fn not_a_commit(request: CommitRequest, what: &str) -> Verdict {
    match Commit::new(request) {
        Ok(_) => Err(Failure::new(format!("{what} became a commit"))),
        Err(error) => {
            ensure!(
                error.code() == "corrupt_snapshot",
                "{what} gave {}",
                error.code()
            );
            Ok(())
        }
    }
}

async fn mixed_expectations(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K11").await?;
    let mut history = History::new("K11");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let advance = history.commit(Step::to(Lifecycle::Running))?;
    // The type has one place for all three, so a mixture is a root that disagrees about being the first.
    let mut without = advance.clone();
    without.expected = None;
    not_a_commit(without, "an advance without expectations")?;
    let mut creating = History::new("K11 create").commit(Step::to(Lifecycle::Created))?;
    creating.expected = advance.expected.clone();
    not_a_commit(creating, "a create with expectations")?;
    // An expectation that no head can meet leaves no trace.
    let mut orphan = History::new("K11 orphan");
    orphan.commit(Step::to(Lifecycle::Created))?;
    let orphan = checked(orphan.commit(Step::to(Lifecycle::Running))?)?;
    refused(&*store, &orphan, "generation_conflict").await?;
    Ok(())
}

async fn payload_mismatch(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K12").await?;
    let mut history = History::new("K12");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let request = history.clone().commit(Step::to(Lifecycle::Running))?;
    let other = History::new("K12 other").commit(Step::to(Lifecycle::Created))?;
    let mut changed = request.clone();
    changed.session_id = other.session_id.clone();
    not_a_commit(changed, "a root of another session")?;
    let mut changed = request.clone();
    changed.snapshot_id = other.snapshot_id.clone();
    not_a_commit(changed, "a root of another snapshot")?;
    let mut changed = request.clone();
    changed.lifecycle = Lifecycle::Paused;
    not_a_commit(changed, "a root with another lifecycle")?;
    let mut changed = request.clone();
    if let Some(expected) = &mut changed.expected {
        expected.generation += 1;
    }
    not_a_commit(changed, "a root of another generation")?;
    // Only the store can see that the root names another parent than the head.
    let foreign = history.clone().commit(
        Step::to(Lifecycle::Running)
            .salted("foreign")
            .with_parent_digest(Digest::of(b"another root")),
    )?;
    let error = refused(&*store, &checked(foreign)?, "corrupt_snapshot").await?;
    ensure!(
        matches!(error, StoreError::CorruptSnapshot { .. }),
        "{error:?}"
    );
    persist(&*store, request).await?;
    Ok(())
}

/// How to come to each lifecycle from `created`.
fn path_to(lifecycle: Lifecycle) -> &'static [Lifecycle] {
    use Lifecycle::{
        Cancelled, Completed, Created, Failed, PauseRequested, Paused, Pausing, Restoring, Running,
        WaitingInput,
    };
    match lifecycle {
        Created => &[],
        Running => &[Running],
        PauseRequested => &[Running, PauseRequested],
        Pausing => &[Running, PauseRequested, Pausing],
        Paused => &[Running, Paused],
        WaitingInput => &[Running, WaitingInput],
        Restoring => &[Running, Paused, Restoring],
        Completed => &[Running, Completed],
        Failed => &[Running, Failed],
        Cancelled => &[Running, Cancelled],
    }
}

async fn illegal_transition(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K13").await?;
    for from in Lifecycle::ALL {
        let name = format!("K13 {}", from.as_str());
        let mut history = History::new(&name);
        persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
        for lifecycle in path_to(from) {
            persist(&*store, history.commit(Step::to(*lifecycle))?).await?;
        }
        let illegal = Lifecycle::ALL
            .into_iter()
            .filter(|to| !from.may_become_in_store(*to));
        for to in illegal {
            let request = history.clone().commit(Step::to(to).salted(to.as_str()))?;
            refused(&*store, &checked(request)?, "invalid_lifecycle_operation")
                .await
                .map_err(|failure| {
                    Failure::new(format!("{} → {}: {failure}", from.as_str(), to.as_str()))
                })?;
        }
    }
    for from in Lifecycle::ALL {
        let legal = Lifecycle::ALL
            .into_iter()
            .filter(|to| from.may_become_in_store(*to));
        for to in legal {
            let mut history = History::new(&format!("K13 {} {}", from.as_str(), to.as_str()));
            persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
            for lifecycle in path_to(from) {
                persist(&*store, history.commit(Step::to(*lifecycle))?).await?;
            }
            persist(&*store, history.commit(Step::to(to))?)
                .await
                .map_err(|failure| {
                    Failure::new(format!("{} → {}: {failure}", from.as_str(), to.as_str()))
                })?;
        }
    }
    Ok(())
}

async fn superseded_refused(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K14").await?;
    let mut history = History::new("K14");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let mut request = history.clone().commit(Step::to(Lifecycle::Running))?;
    let text = String::from_utf8_lossy(&request.root)
        .replace("\"lifecycle\":\"running\"", "\"lifecycle\":\"superseded\"");
    ensure!(
        text.contains("superseded"),
        "the root record does not hold its lifecycle as text"
    );
    request.root = text.into_bytes().into();
    not_a_commit(request, "a root with lifecycle superseded")?;
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    Ok(())
}
