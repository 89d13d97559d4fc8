//! K44: dropping a commit's future at any await (F16, STO-7).

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use qitos_contracts::checkpoint::Resolved;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{checked, head_is, head_is_whole, open, persist, unexpected};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K44.cancel_everywhere",
            "a dropped commit is whole or absent, and the store's next call works at once",
            &["STO-7", "STO-5"],
            cancel_everywhere,
        )
        .within(Duration::from_secs(300)),
    ]
}

/// Polls at most `polls` times, then drops the future; whether it was finished.
async fn poll_then_drop<T>(future: impl Future<Output = T>, polls: u64) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn cancel_everywhere(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K44").await?;
    let rounds = stage.subject().effort().of(1_000);
    let mut history = History::new("K44");
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    let mut abandoned = 0u64;
    for round in 0..rounds {
        let step = Step::to(Lifecycle::Running).with_items(1);
        let commit = checked(history.commit(step)?)?;
        // Never polled, polled once, twice …: each await of the commit is the last one some time.
        if !poll_then_drop(store.commit(Arc::clone(&commit)), round % 8).await {
            abandoned += 1;
        }
        let head = head_is_whole(&*store, history.session()).await?;
        ensure!(
            head.generation == commit.generation() || head.generation + 1 == commit.generation(),
            "after a dropped commit of generation {} the head is at {}",
            commit.generation(),
            head.generation
        );
        // The identical request settles it, whichever of the two happened.
        let receipt = store
            .commit(Arc::clone(&commit))
            .await
            .map_err(|error| unexpected("the commit after a dropped one", &error))?;
        head_is(&*store, &receipt).await?;
        match store.resolve(commit.snapshot_id()).await {
            Ok(Resolved::Committed(_)) => {}
            Ok(Resolved::NotCommitted) => {
                return Err(Failure::new("a receipted commit resolves to not committed"));
            }
            Err(error) => return Err(unexpected("resolve", &error)),
        }
        ensure!(
            history.believes(&receipt),
            "the receipt is of another commit"
        );
    }
    ensure!(abandoned > 0, "no commit was ever dropped before its end");
    Ok(())
}
