//! K28 to K30 and K42: taking a head over, at the level of the store (SES-30 to SES-33, SES-47, SES-48).

use std::time::Duration;

use qitos_contracts::checkpoint::{LeaseTerms, StoreError};
use qitos_contracts::error::ContractError;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{checked, open, persist, present_head, refused, unexpected};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K28.restore_fences_old",
            "after a claim every commit of the old owner fails, whatever it carries",
            &["SES-32", "SES-47"],
            restore_fences_old,
        ),
        Check::new(
            "K29.n_restores_one_winner",
            "of 16 simultaneous claims exactly one wins and the rest leave no effect",
            &["SES-48"],
            n_restores_one_winner,
        ),
        Check::new(
            "K30.fenced_steer",
            "a fenced owner cannot steer, pause or renew its lease, even if it guesses the new generation",
            &["SES-30", "SES-47"],
            fenced_steer,
        ),
        Check::new(
            "K42.cas_storm",
            "16 writers that claim one session again and again: winners and generations are the same number",
            &["SES-28", "SES-48", "STO-26"],
            cas_storm,
        )
        .within(Duration::from_secs(600)),
    ]
}

/// A paused session, and the position its owner holds.
async fn paused(
    stage: &Stage<dyn StoreSubject>,
    place: &str,
    name: &str,
) -> Result<History, Failure> {
    let store = open(stage, place).await?;
    let mut history = History::new(name);
    for lifecycle in [Lifecycle::Created, Lifecycle::Running, Lifecycle::Paused] {
        persist(&*store, history.commit(Step::to(lifecycle).with_items(1))?).await?;
    }
    Ok(history)
}

async fn restore_fences_old(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K28").await?;
    let old = paused(&stage, "K28", "K28").await?;
    let mut new = old.clone();
    new.change_owner("new run");
    persist(&*store, new.commit(Step::to(Lifecycle::Restoring))?).await?;
    for (salt, lifecycle) in [
        ("run", Lifecycle::Restoring),
        ("stay", Lifecycle::Paused),
        ("cancel", Lifecycle::Cancelled),
    ] {
        let request = old.clone().commit(Step::to(lifecycle).salted(salt))?;
        refused(&*store, &checked(request)?, "generation_conflict").await?;
    }
    persist(&*store, new.commit(Step::to(Lifecycle::Running))?).await?;
    let head = present_head(&*store, new.session()).await?;
    ensure!(
        head.owner_run_id == *new.owner(),
        "the head is not the new owner's"
    );
    Ok(())
}

const CLAIMANTS: usize = 16;

async fn n_restores_one_winner(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K29").await?;
    let old = paused(&stage, "K29", "K29").await?;
    let session = old.session().clone();
    let before = old.position()?.generation;
    let outcomes = stage.on_threads(CLAIMANTS, move |number, stage| {
        let mut claim = old.clone();
        async move {
            let store = open(&stage, "K29").await?;
            let name = format!("claimant {number}");
            claim.change_owner(&name);
            let commit = checked(claim.commit(Step::to(Lifecycle::Restoring).salted(&name))?)?;
            match store.commit(commit).await {
                Ok(receipt) => Ok(Some(receipt)),
                Err(StoreError::GenerationConflict { .. }) => Ok(None),
                Err(error) => Err(unexpected("a losing claim", &error)),
            }
        }
    })?;
    let winners: Vec<_> = outcomes.into_iter().flatten().collect();
    let [winner] = winners.as_slice() else {
        return Err(Failure::new(format!(
            "{} of {CLAIMANTS} claims won",
            winners.len()
        )));
    };
    let head = present_head(&*store, &session).await?;
    ensure!(
        head.generation == before + 1 && head.owner_run_id == winner.owner_run_id,
        "the head is not the winner's: {head:?}"
    );
    Ok(())
}

async fn fenced_steer(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K30").await?;
    let old = paused(&stage, "K30", "K30").await?;
    let mut new = old.clone();
    new.change_owner("new run");
    persist(&*store, new.commit(Step::to(Lifecycle::Restoring))?).await?;
    // The steering of a fenced handle is a commit from its own last receipt.
    let steer = old
        .clone()
        .commit(Step::to(Lifecycle::Paused).with_items(1).salted("steer"))?;
    refused(&*store, &checked(steer)?, "generation_conflict").await?;
    // Reading the head to find out the expectations does not help while the owner is its own.
    let mut guessing = new.clone();
    guessing.change_owner_silently(old.owner());
    let mut guess = guessing.commit(Step::to(Lifecycle::Running).salted("guess"))?;
    if let Some(expected) = &mut guess.expected {
        expected.owner_run_id = old.owner().clone();
    }
    refused(&*store, &checked(guess)?, "owner_conflict").await?;
    if let Some(leases) = store.groups().leases {
        let head = present_head(&*store, new.session()).await?;
        let terms = LeaseTerms {
            session_id: new.session().clone(),
            owner_run_id: old.owner().clone(),
            generation: head.generation,
            duration_ms: 60_000,
        };
        match leases.renew(&terms).await {
            Ok(_) => return Err(Failure::new("a fenced owner renewed its lease")),
            Err(error) => ensure!(
                error.code() == "owner_conflict",
                "renewing gave {}",
                error.code()
            ),
        }
    }
    Ok(())
}

async fn cas_storm(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K42").await?;
    let attempts = stage.subject().effort().of(500);
    let mut history = History::new("K42");
    let session = history.session().clone();
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let start = history.position()?.generation;
    let wins = stage.on_threads(CLAIMANTS, move |number, stage| {
        let origin = history.clone();
        async move {
            let store = open(&stage, "K42").await?;
            let mut won = 0u64;
            for attempt in 0..attempts {
                // A claim takes its expectations from the head it read first, as restore does.
                let head = present_head(&*store, origin.session()).await?;
                let stored = store
                    .snapshot(&head.snapshot_id)
                    .await
                    .map_err(|error| unexpected("snapshot", &error))?
                    .ok_or_else(|| Failure::new("the head's snapshot is missing"))?;
                let mut claim = origin.at(&head, &stored)?;
                let name = format!("claimant {number} attempt {attempt}");
                claim.change_owner(&name);
                let commit = checked(claim.commit(Step::to(Lifecycle::Running).salted(&name))?)?;
                match store.commit(commit).await {
                    Ok(_) => won += 1,
                    Err(StoreError::GenerationConflict { .. }) => {}
                    Err(error) => return Err(unexpected("a losing claim", &error)),
                }
            }
            Ok(won)
        }
    })?;
    let won: u64 = wins.iter().sum();
    let head = present_head(&*store, &session).await?;
    ensure!(
        head.generation == start + won,
        "{won} claims won, the head moved by {}",
        head.generation - start
    );
    ensure!(won > 0, "nobody ever won");
    Ok(())
}
