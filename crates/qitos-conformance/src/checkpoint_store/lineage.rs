//! K18 to K20: a session's own history, page by page (section 8).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qitos_contracts::checkpoint::{CheckpointStore, LineageEntry, LineagePage, Page, Receipt};
use qitos_contracts::ids::SessionId;
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{open, persist, unexpected};
use super::history::{History, Step};
use super::subject::StoreSubject;
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K18.lineage_order_and_pages",
            "a lineage is its own snapshots, newest generation first, in pages without gap or overlap",
            &["STO-10", "STO-11", "STO-12"],
            lineage_order_and_pages,
        ),
        Check::new(
            "K19.lineage_under_writes",
            "pages stay stable while commits go on",
            &["STO-11"],
            lineage_under_writes,
        )
        .within(Duration::from_secs(120)),
        Check::new(
            "K20.lineage_memory",
            "a long lineage is listed in pages of at most 1,000 entries, without payloads",
            &["STO-11"],
            lineage_memory,
        )
        .within(Duration::from_secs(600)),
    ]
}

async fn page(
    store: &dyn CheckpointStore,
    session: &SessionId,
    page: Page,
) -> Result<LineagePage, Failure> {
    let found = store
        .lineage(session, page)
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    ensure!(
        found.entries.len() <= page.limit() as usize,
        "a page of {} holds {} entries",
        page.limit(),
        found.entries.len()
    );
    ensure!(
        found
            .entries
            .windows(2)
            .all(|pair| matches!(pair, [newer, older] if newer.generation > older.generation)),
        "a page is not ordered by falling generation"
    );
    Ok(found)
}

/// Follows the cursors to the end.
async fn all(
    store: &dyn CheckpointStore,
    session: &SessionId,
    limit: u32,
) -> Result<Vec<LineageEntry>, Failure> {
    let mut entries: Vec<LineageEntry> = Vec::new();
    let mut next = Page::newest(limit);
    loop {
        let found = page(store, session, next).await?;
        if let (Some(last), Some(first)) = (entries.last(), found.entries.first()) {
            ensure!(
                first.generation < last.generation,
                "pages overlap at generation {}",
                first.generation
            );
        }
        let cursor = found.next_before_generation;
        let empty = found.entries.is_empty();
        entries.extend(found.entries);
        match cursor {
            Some(before) if !empty => next = Page::newest(limit).before(before),
            _ => return Ok(entries),
        }
    }
}

async fn lineage_order_and_pages(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K18").await?;
    let mut history = History::new("K18");
    let mut neighbour = History::new("K18 neighbour");
    let mut receipts: Vec<Receipt> = Vec::new();
    let path = [
        Lifecycle::Created,
        Lifecycle::Running,
        Lifecycle::Running,
        Lifecycle::Paused,
        Lifecycle::Restoring,
        Lifecycle::Running,
        Lifecycle::Completed,
    ];
    for lifecycle in path {
        if lifecycle == Lifecycle::Restoring {
            history.change_owner("second run");
        }
        receipts.push(persist(&*store, history.commit(Step::to(lifecycle).with_items(1))?).await?);
        let next = neighbour.next_lifecycle();
        persist(&*store, neighbour.commit(Step::to(next))?).await?;
    }
    let whole = all(&*store, history.session(), 100).await?;
    ensure!(
        whole.len() == receipts.len(),
        "{} commits, {} entries",
        receipts.len(),
        whole.len()
    );
    let mut parent = None;
    for (receipt, entry) in receipts.iter().zip(whole.iter().rev()) {
        ensure!(
            entry.generation == receipt.generation
                && entry.snapshot_id == receipt.snapshot_id
                && entry.checkpoint_id == receipt.checkpoint_id
                && entry.owner_run_id == receipt.owner_run_id
                && entry.lifecycle == receipt.lifecycle
                && entry.root_digest == receipt.root_digest
                && entry.parent_checkpoint_id == parent,
            "the entry of generation {} does not tell of its own commit",
            receipt.generation
        );
        parent = Some(receipt.checkpoint_id.clone());
    }
    for limit in [1, 2, 3, 6, 7, 8] {
        let paged = all(&*store, history.session(), limit).await?;
        ensure!(paged == whole, "pages of {limit} give another lineage");
    }
    let nothing = page(&*store, history.session(), Page::newest(0)).await?;
    ensure!(nothing.entries.is_empty(), "limit 0 is not empty");
    let unknown = History::new("K18 unknown");
    let nothing = page(&*store, unknown.session(), Page::default()).await?;
    ensure!(
        nothing.entries.is_empty() && nothing.next_before_generation.is_none(),
        "an unknown session has a lineage"
    );
    Ok(())
}

async fn lineage_under_writes(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K19").await?;
    let mut history = History::new("K19");
    let session = history.session().clone();
    for _ in 0..stage.subject().effort().of(200) {
        let next = history.next_lifecycle();
        persist(&*store, history.commit(Step::to(next))?).await?;
    }
    // Between any two pages the head moves on by less than a page, a page, and more.
    for commits in [1u64, 3, 5] {
        let newest = history.position()?.generation;
        let mut listed = Vec::new();
        let mut next = Page::newest(3);
        loop {
            let found = page(&*store, &session, next).await?;
            listed.extend(found.entries.iter().map(|entry| entry.generation));
            let Some(before) = found.next_before_generation else {
                break;
            };
            next = Page::newest(3).before(before);
            for _ in 0..commits {
                persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
            }
            ensure!(
                listed.len() as u64 <= newest + 1,
                "listing does not come to an end while commits go on"
            );
        }
        ensure!(
            listed.iter().copied().eq((0..=newest).rev()),
            "{} entries were listed below generation {newest} while commits went on",
            listed.len()
        );
    }
    // The same with a writer of its own.
    let done = Arc::new(AtomicBool::new(false));
    stage.on_threads(2, move |number, stage| {
        let (done, session, mut history) = (Arc::clone(&done), session.clone(), history.clone());
        async move {
            let store = open(&stage, "K19").await?;
            if number == 0 {
                let read = async {
                    for _ in 0..5 {
                        let listed = all(&*store, &session, 7).await?;
                        let newest = listed.first().map_or(0, |entry| entry.generation);
                        ensure!(
                            listed.len() as u64 == newest + 1,
                            "{} entries below generation {newest} while another commits",
                            listed.len()
                        );
                    }
                    Ok(())
                }
                .await;
                done.store(true, Ordering::SeqCst);
                return read;
            }
            // Bounded, in case the reader never ends.
            for _ in 0..10_000u32 {
                persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
            Ok(())
        }
    })?;
    Ok(())
}

async fn lineage_memory(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K20").await?;
    let commits = stage.subject().effort().of(10_000).max(1_001);
    let mut history = History::new("K20");
    for _ in 0..commits {
        let next = history.next_lifecycle();
        let step = Step::to(next).with_items(1).of_bytes(4 * 1024);
        persist(&*store, history.commit(step)?).await?;
    }
    for (limit, expected) in [
        (999, 999),
        (1_000, 1_000),
        (1_001, 1_000),
        (u32::MAX, 1_000),
    ] {
        let found = page(&*store, history.session(), Page::newest(limit)).await?;
        ensure!(
            found.entries.len() == expected,
            "a page of {limit} holds {} entries instead of {expected}",
            found.entries.len()
        );
    }
    let listed = all(&*store, history.session(), 1_000).await?;
    ensure!(
        listed.len() as u64 == commits,
        "{} of {commits} snapshots listed",
        listed.len()
    );
    Ok(())
}
