//! K1 to K7: creating, advancing, and the three expectations (rows 1 to 7 of section 7).

use qitos_contracts::checkpoint::StoreError;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{
    checked, head, head_is, head_is_whole, open, persist, refused, resolves, unexpected,
};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K1.create_zero",
            "creating a session makes a head at generation 0",
            &["SES-28", "STO-1"],
            create_zero,
        ),
        Check::new(
            "K2.create_twice",
            "creating on an existing head is a generation conflict",
            &["SES-28"],
            create_twice,
        ),
        Check::new(
            "K3.advance_chain",
            "each commit adds exactly one generation, without gaps",
            &["SES-28", "STO-1"],
            advance_chain,
        ),
        Check::new(
            "K4.stale_generation",
            "an older or newer generation, or a missing session, is a generation conflict",
            &["STO-2", "SES-31"],
            stale_generation,
        ),
        Check::new(
            "K5.stale_checkpoint",
            "an equal generation with another checkpoint is a checkpoint conflict",
            &["STO-2"],
            stale_checkpoint,
        ),
        Check::new(
            "K6.stale_owner",
            "equal generation and checkpoint with another owner is an owner conflict",
            &["STO-2", "SES-32"],
            stale_owner,
        ),
        Check::new(
            "K7.check_order",
            "the first failing check names the error: existence, generation, checkpoint, owner, lifecycle",
            &["STO-2"],
            check_order,
        ),
    ]
}

async fn create_zero(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K1").await?;
    let mut history = History::new("K1");
    let unknown = head(&*store, history.session()).await?;
    ensure!(unknown.is_none(), "an unknown session has a head");
    let request = history.commit(Step::to(Lifecycle::Created))?;
    let snapshot = request.snapshot_id.clone();
    resolves(&*store, &snapshot, None).await?;
    let receipt = persist(&*store, request).await?;
    ensure!(
        receipt.generation == 0,
        "created at generation {}",
        receipt.generation
    );
    head_is(&*store, &receipt).await?;
    head_is_whole(&*store, history.session()).await?;
    resolves(&*store, &snapshot, Some(0)).await
}

async fn create_twice(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K2").await?;
    let mut history = History::new("K2");
    let mut second = history.clone();
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let again = checked(second.commit(Step::to(Lifecycle::Created).salted("second"))?)?;
    let error = refused(&*store, &again, "generation_conflict").await?;
    ensure!(
        error
            == StoreError::GenerationConflict {
                expected: None,
                actual: Some(0)
            },
        "the conflict should say expected none, actual 0: {error:?}"
    );
    Ok(())
}

async fn advance_chain(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K3").await?;
    let mut history = History::new("K3");
    for generation in 0..20u64 {
        let lifecycle = if generation == 0 {
            Lifecycle::Created
        } else {
            Lifecycle::Running
        };
        let receipt = persist(&*store, history.commit(Step::to(lifecycle).with_items(1))?).await?;
        ensure!(
            receipt.generation == generation,
            "commit {generation} made generation {}",
            receipt.generation
        );
        head_is(&*store, &receipt).await?;
    }
    head_is_whole(&*store, history.session()).await?;
    Ok(())
}

async fn stale_generation(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K4").await?;
    let mut history = History::new("K4");
    let mut absent = History::new("K4 absent");
    absent.commit(Step::to(Lifecycle::Created))?;
    let unknown = checked(absent.commit(Step::to(Lifecycle::Running))?)?;
    let error = refused(&*store, &unknown, "generation_conflict").await?;
    ensure!(
        error
            == StoreError::GenerationConflict {
                expected: Some(0),
                actual: None
            },
        "the conflict on a missing session should say actual none: {error:?}"
    );
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let mut stale = history.clone();
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let behind = checked(stale.commit(Step::to(Lifecycle::Running).salted("stale"))?)?;
    refused(&*store, &behind, "generation_conflict").await?;
    // A writer ahead of the head, as after a fail-over to an old copy (SES-35).
    let mut ahead = history.clone();
    ahead.commit(Step::to(Lifecycle::Running).salted("lost"))?;
    let ahead = checked(ahead.commit(Step::to(Lifecycle::Running).salted("ahead"))?)?;
    let error = refused(&*store, &ahead, "generation_conflict").await?;
    ensure!(
        error
            == StoreError::GenerationConflict {
                expected: Some(2),
                actual: Some(1)
            },
        "the conflict should say expected 2, actual 1: {error:?}"
    );
    Ok(())
}

async fn stale_checkpoint(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K5").await?;
    let mut history = History::new("K5");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let mut request = history.commit(Step::to(Lifecycle::Running))?;
    let other = History::new("K5 other").commit(Step::to(Lifecycle::Created))?;
    if let Some(expected) = &mut request.expected {
        expected.checkpoint_id = other.checkpoint_id;
    }
    refused(&*store, &checked(request)?, "checkpoint_conflict").await?;
    Ok(())
}

async fn stale_owner(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K6").await?;
    let mut history = History::new("K6");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let mut request = history.commit(Step::to(Lifecycle::Running))?;
    let other = History::new("K6 other").commit(Step::to(Lifecycle::Created))?;
    if let Some(expected) = &mut request.expected {
        expected.owner_run_id = other.owner_run_id;
    }
    refused(&*store, &checked(request)?, "owner_conflict").await?;
    Ok(())
}

/// Each request breaks a rule and all later ones, too.
async fn check_order(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K7").await?;
    let mut history = History::new("K7");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let other = History::new("K7 other").commit(Step::to(Lifecycle::Created))?;
    // Running → created is illegal: the last check of all.
    let illegal = |position: &History, salt| {
        position
            .clone()
            .commit(Step::to(Lifecycle::Created).salted(salt))
    };
    let mut generation = {
        let mut ahead = history.clone();
        ahead.commit(Step::to(Lifecycle::Running).salted("lost"))?;
        illegal(&ahead, "generation")?
    };
    let mut checkpoint = illegal(&history, "checkpoint")?;
    let mut owner = illegal(&history, "owner")?;
    for request in [&mut generation, &mut checkpoint] {
        if let Some(expected) = &mut request.expected {
            expected.checkpoint_id = other.checkpoint_id.clone();
        }
    }
    for request in [&mut generation, &mut checkpoint, &mut owner] {
        if let Some(expected) = &mut request.expected {
            expected.owner_run_id = other.owner_run_id.clone();
        }
    }
    refused(&*store, &checked(generation)?, "generation_conflict").await?;
    refused(&*store, &checked(checkpoint)?, "checkpoint_conflict").await?;
    refused(&*store, &checked(owner)?, "owner_conflict").await?;
    let lifecycle = checked(illegal(&history, "lifecycle")?)?;
    refused(&*store, &lifecycle, "invalid_lifecycle_operation").await?;
    // Replay comes before everything: the first commit again, though the head moved on.
    let first = checked(History::new("K7").commit(Step::to(Lifecycle::Created))?)?;
    let replayed = store
        .commit(first)
        .await
        .map_err(|error| unexpected("a replay", &error))?;
    ensure!(replayed.replayed, "a repeated request was not a replay");
    Ok(())
}
