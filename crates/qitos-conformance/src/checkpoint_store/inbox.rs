//! K68: the inbox, where others than the owner write (SES-63).

use qitos_contracts::checkpoint::{
    CheckpointStore, Inbox, InboxAppend, InboxEntry, InboxKind, InboxReceipt,
};
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::{ItemId, SessionId};
use qitos_contracts::snapshot::Lifecycle;

use super::expect::{checked, open, persist, persist_commit, present_head, refused, unexpected};
use super::history::{History, Step};
use super::subject::{StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K68.inbox_once",
            "two appenders, an owner that dies: each entry is kept once, in sequence, until a commit consumes it",
            &["SES-63"],
            inbox_once,
        )
        .needing(needs::INBOX),
    ]
}

const ENTRIES: u64 = 40;

fn inbox(store: &dyn CheckpointStore) -> Result<&dyn Inbox, Failure> {
    store
        .groups()
        .inbox
        .ok_or_else(|| Failure::new("the inbox is claimed without its group"))
}

fn entry(appender: usize, number: u64, text: &str) -> Result<InboxAppend, Failure> {
    let item: ItemId = format!("item-{appender}-{number}")
        .parse()
        .map_err(|error| Failure::new(format!("an item id: {error}")))?;
    let payload = format!("{{\"text\":\"{text} \u{0}{number}\"}}");
    let kind = if number.is_multiple_of(2) {
        InboxKind::Steering
    } else {
        InboxKind::Wake
    };
    InboxAppend::new(item, kind, payload.into_bytes())
        .map_err(|error| unexpected("building an inbox entry", &error))
}

async fn append(
    store: &dyn CheckpointStore,
    session: &SessionId,
    entry: &InboxAppend,
) -> Result<InboxReceipt, Failure> {
    inbox(store)?
        .append(session, entry.clone())
        .await
        .map_err(|error| unexpected("append", &error))
}

async fn take(
    store: &dyn CheckpointStore,
    session: &SessionId,
    limit: u32,
) -> Result<Vec<InboxEntry>, Failure> {
    inbox(store)?
        .take(session, limit)
        .await
        .map_err(|error| unexpected("take", &error))
}

async fn append_refused(
    store: &dyn CheckpointStore,
    session: &SessionId,
    entry: InboxAppend,
    code: &str,
) -> Verdict {
    match inbox(store)?.append(session, entry).await {
        Ok(_) => Err(Failure::new(format!(
            "an entry was appended instead of {code}"
        ))),
        Err(error) => {
            ensure!(
                error.code() == code,
                "expected {code}, the inbox said {}",
                error.code()
            );
            Ok(())
        }
    }
}

async fn inbox_once(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K68").await?;
    let mut history = History::new("K68");
    let session = history.session().clone();
    append_refused(
        &*store,
        &session,
        entry(9, 0, "early")?,
        "session_not_found",
    )
    .await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Created))?).await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let head_before = present_head(&*store, &session).await?;

    // Two appenders, each of which says everything twice.
    let target = session.clone();
    let receipts = stage.on_threads(2, move |appender, stage| {
        let session = target.clone();
        async move {
            let store = open(&stage, "K68").await?;
            let mut sequences = Vec::new();
            for number in 0..ENTRIES {
                let entry = entry(appender, number, "x")?;
                let first = append(&*store, &session, &entry).await?;
                let second = append(&*store, &session, &entry).await?;
                ensure!(
                    !first.replayed && second.replayed && first.sequence == second.sequence,
                    "appending twice gave {first:?} and {second:?}"
                );
                sequences.push(first.sequence);
            }
            Ok(sequences)
        }
    })?;
    let mut sequences: Vec<u64> = receipts.into_iter().flatten().collect();
    sequences.sort_unstable();
    let expected: Vec<u64> = (0..2 * ENTRIES).collect();
    ensure!(
        sequences == expected,
        "the sequences are not 0 to {}: {sequences:?}",
        2 * ENTRIES - 1
    );
    ensure!(
        present_head(&*store, &session).await? == head_before,
        "appending touched the head"
    );
    append_refused(
        &*store,
        &session,
        entry(0, 0, "other")?,
        "checkpoint_conflict",
    )
    .await?;

    // The owner takes, dies before its commit, and another finds the same.
    let taken = take(&*store, &session, 1_000).await?;
    ensure!(
        taken
            .iter()
            .map(|entry| entry.sequence)
            .eq(expected.iter().copied()),
        "take does not give all entries in sequence"
    );
    let another = open(&stage, "K68").await?;
    ensure!(
        take(&*another, &session, 1_000).await? == taken,
        "taking without a commit lost entries"
    );
    ensure!(
        take(&*store, &session, 3).await?.len() == 3,
        "take does not keep to its limit"
    );

    // A commit that is refused consumes nothing; one that is persisted consumes exactly what it says.
    let stale = history.clone();
    persist(&*store, history.commit(Step::to(Lifecycle::Running))?).await?;
    let lost = stale
        .clone()
        .commit(Step::to(Lifecycle::Running).salted("lost").consuming(9))?;
    refused(&*store, &checked(lost)?, "generation_conflict").await?;
    ensure!(
        take(&*store, &session, 1_000).await? == taken,
        "a refused commit consumed entries"
    );
    let consuming = checked(history.commit(Step::to(Lifecycle::Running).consuming(9))?)?;
    persist_commit(&*store, &consuming).await?;
    // Again, as after a lost reply: the consumption is not done twice either.
    store
        .commit(std::sync::Arc::clone(&consuming))
        .await
        .map_err(|error| unexpected("a replay", &error))?;
    let rest = take(&*another, &session, 1_000).await?;
    ensure!(
        rest.iter().eq(taken.iter().skip(10)),
        "after consuming up to 9 the inbox gives {:?}",
        rest.iter().map(|entry| entry.sequence).collect::<Vec<_>>()
    );
    // An entry that was consumed is still known: saying it again does not bring it back.
    for kept in taken.iter().take(2) {
        let again = InboxAppend::new(kept.item_id.clone(), kept.kind, kept.payload.clone())
            .map_err(|error| unexpected("building an inbox entry", &error))?;
        let receipt = append(&*store, &session, &again).await?;
        ensure!(
            receipt.replayed && receipt.sequence == kept.sequence,
            "a consumed entry was appended anew: {receipt:?}"
        );
    }
    ensure!(
        take(&*store, &session, 1_000).await? == rest,
        "repeating a consumed entry brought it back"
    );
    // Nothing can be consumed that was never appended.
    let beyond = history.clone().commit(
        Step::to(Lifecycle::Running)
            .salted("beyond")
            .consuming(2 * ENTRIES),
    )?;
    refused(&*store, &checked(beyond)?, "corrupt_snapshot").await?;
    persist(&*store, history.commit(Step::to(Lifecycle::Completed))?).await?;
    append_refused(
        &*store,
        &session,
        entry(9, 1, "late")?,
        "invalid_lifecycle_operation",
    )
    .await
}
