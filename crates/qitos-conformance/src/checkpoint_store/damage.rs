//! K45 and K46: damaged and missing bytes (section 14, F17, F18).

use qitos_contracts::checkpoint::{CheckpointStore, ChunkAccess, StoreError, VerifyDepth};
use qitos_contracts::digest::Digest;
use qitos_contracts::error::ContractError;
use qitos_contracts::ids::SnapshotId;
use qitos_contracts::snapshot::{Chunk, ChunkKind, Lifecycle, Root, references};

use super::expect::{
    checked, head_is_whole, open, persist, persist_commit, present_head, unexpected, whole_snapshot,
};
use super::history::{History, Step};
use super::subject::{Damage, DamageLayer, StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    vec![
        Check::new(
            "K45.bitflip_each_layer",
            "a flipped bit in any layer is corrupt_snapshot, never a shorter or older answer; neighbours work",
            &["STO-22", "STO-51", "SES-20"],
            bitflip_each_layer,
        )
        .needing(needs::DAMAGE),
        Check::new(
            "K46.missing_chunk_row",
            "a missing chunk is named as corrupt_snapshot, and neighbours work",
            &["STO-22", "STO-51"],
            missing_chunk_row,
        )
        .needing(needs::DAMAGE),
    ]
}

fn hook(stage: &Stage<dyn StoreSubject>) -> Result<&dyn Damage, Failure> {
    stage
        .subject()
        .damage()
        .ok_or_else(|| Failure::new("the damage hook is gone"))
}

fn access(store: &dyn CheckpointStore) -> Result<&dyn ChunkAccess, Failure> {
    store
        .groups()
        .chunk_access
        .ok_or_else(|| Failure::new("the store has no chunk group to read damaged chunks with"))
}

/// Every chunk below a snapshot.
pub(super) async fn chunks_below(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
    root: &Root,
) -> Result<Vec<Chunk>, Failure> {
    let access = access(store)?;
    let mut wanted: Vec<Digest> = root.references().map(|(_, digest)| digest).collect();
    let mut found: Vec<Chunk> = Vec::new();
    while !wanted.is_empty() {
        let rest = wanted.split_off(wanted.len().min(256));
        let read = access
            .get_chunks(snapshot, &wanted)
            .await
            .map_err(|error| unexpected("get_chunks", &error))?;
        wanted = rest;
        for chunk in read {
            let below = references(chunk.kind(), chunk.bytes())
                .map_err(|error| Failure::new(format!("a stored chunk does not parse: {error}")))?;
            wanted.extend(below.into_iter().map(|(_, digest)| digest));
            found.push(chunk);
        }
    }
    Ok(found)
}

/// A session with leaves, nodes, a log, maps and a blob, at `place`.
async fn layered(
    stage: &Stage<dyn StoreSubject>,
    place: &str,
) -> Result<(History, Vec<Chunk>), Failure> {
    let store = open(stage, place).await?;
    let mut history = History::new(place);
    let mut neighbour = History::new(&format!("{place} neighbour"));
    for _ in 0..6 {
        let next = history.next_lifecycle();
        persist(&*store, history.commit(Step::to(next).with_items(2))?).await?;
        persist(&*store, neighbour.commit(Step::to(next).with_items(1))?).await?;
    }
    let head = present_head(&*store, history.session()).await?;
    let (_, root) = whole_snapshot(&*store, &head.snapshot_id).await?;
    let chunks = chunks_below(&*store, &head.snapshot_id, &root).await?;
    for kind in [
        ChunkKind::Leaf,
        ChunkKind::Node,
        ChunkKind::Log,
        ChunkKind::Map,
        ChunkKind::Blob,
    ] {
        ensure!(
            chunks.iter().any(|chunk| chunk.kind() == kind),
            "the session has no {kind:?} chunk to damage"
        );
    }
    Ok((history, chunks))
}

/// Neighbours are untouched: they are read, verified and advanced.
async fn neighbour_works(stage: &Stage<dyn StoreSubject>, place: &str) -> Verdict {
    let store = open(stage, place).await?;
    let name = format!("{place} neighbour");
    let session = History::new(&name).session().clone();
    head_is_whole(&*store, &session).await?;
    let mut fresh = History::new(&format!("{place} fresh"));
    persist(
        &*store,
        fresh.commit(Step::to(Lifecycle::Created).with_items(1))?,
    )
    .await?;
    Ok(())
}

fn is_corrupt(error: &StoreError, operation: &str) -> Verdict {
    ensure!(
        error.code() == "corrupt_snapshot",
        "{operation} of damaged bytes gave {}",
        error.code()
    );
    Ok(())
}

/// Deep verification reports the damage and never calls the snapshot intact.
async fn verification_finds(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
    depth: VerifyDepth,
) -> Verdict {
    match access(store)?.verify(snapshot, depth).await {
        Ok(found) => match &found.damage {
            None => Err(Failure::new("verification calls a damaged snapshot intact")),
            Some(damage) => is_corrupt(damage, "verification"),
        },
        Err(error) => is_corrupt(&error, "verification"),
    }
}

async fn bitflip_each_layer(stage: Stage<dyn StoreSubject>) -> Verdict {
    let hook = hook(&stage)?;
    // The root.
    for position in [0u64, 7, 400, 1_000_003] {
        let place = format!("K45 root {position}");
        let (history, _) = layered(&stage, &place).await?;
        let snapshot = history.position()?.snapshot_id;
        hook.flip_bit(&place, &snapshot, DamageLayer::Root, position)
            .map_err(Failure::new)?;
        let store = open(&stage, &place).await?;
        present_head(&*store, history.session()).await?;
        match store.snapshot(&snapshot).await {
            Ok(_) => return Err(Failure::new("a damaged root was read without an error")),
            Err(error) => is_corrupt(&error, "reading the root")?,
        }
        verification_finds(&*store, &snapshot, VerifyDepth::Root).await?;
        neighbour_works(&stage, &place).await?;
    }
    // One chunk of each kind.
    for kind in [
        ChunkKind::Leaf,
        ChunkKind::Node,
        ChunkKind::Log,
        ChunkKind::Map,
        ChunkKind::Blob,
    ] {
        let place = format!("K45 {kind:?}");
        let (history, chunks) = layered(&stage, &place).await?;
        let snapshot = history.position()?.snapshot_id;
        let damaged = chunks
            .iter()
            .find(|chunk| chunk.kind() == kind)
            .ok_or_else(|| Failure::new("no such chunk"))?
            .digest();
        hook.flip_bit(&place, &snapshot, DamageLayer::Chunk(damaged), 5)
            .map_err(Failure::new)?;
        let store = open(&stage, &place).await?;
        match access(&*store)?.get_chunks(&snapshot, &[damaged]).await {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "a damaged {kind:?} chunk was read without an error"
                )));
            }
            Err(error) => is_corrupt(&error, "get_chunks")?,
        }
        verification_finds(&*store, &snapshot, VerifyDepth::Deep).await?;
        neighbour_works(&stage, &place).await?;
    }
    Ok(())
}

async fn missing_chunk_row(stage: Stage<dyn StoreSubject>) -> Verdict {
    let place = "K46";
    let (history, chunks) = layered(&stage, place).await?;
    let snapshot = history.position()?.snapshot_id;
    let missing = chunks
        .iter()
        .find(|chunk| chunk.kind() == ChunkKind::Leaf)
        .ok_or_else(|| Failure::new("no leaf"))?
        .digest();
    hook(&stage)?
        .remove_chunk(place, &missing)
        .map_err(Failure::new)?;
    let store = open(&stage, place).await?;
    match access(&*store)?.get_chunks(&snapshot, &[missing]).await {
        Ok(_) => return Err(Failure::new("a missing chunk was read without an error")),
        Err(error) => {
            is_corrupt(&error, "get_chunks")?;
            let named = matches!(
                &error,
                StoreError::CorruptSnapshot { digest: Some(digest), .. } if *digest == missing
            );
            ensure!(
                named,
                "the error does not name the missing chunk: {error:?}"
            );
        }
    }
    verification_finds(&*store, &snapshot, VerifyDepth::Deep).await?;
    head_is_whole(&*store, history.session()).await?;
    neighbour_works(&stage, place).await?;
    // The rest of the snapshot is still read.
    let other = chunks
        .iter()
        .find(|chunk| chunk.kind() == ChunkKind::Blob)
        .ok_or_else(|| Failure::new("no blob"))?;
    access(&*store)?
        .get_chunks(&snapshot, &[other.digest()])
        .await
        .map_err(|error| unexpected("reading an intact chunk", &error))?;
    let fresh = checked(History::new("K46 other").commit(Step::to(Lifecycle::Created))?)?;
    persist_commit(&*store, &fresh).await?;
    Ok(())
}
