//! K57 to K61: a commit costs what changed, and every snapshot is whole by itself (section 18).

use std::sync::Arc;
use std::time::{Duration, Instant};

use qitos_contracts::checkpoint::{CheckpointStore, Page, StoreError, VerifyDepth};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::SnapshotId;
use qitos_contracts::snapshot::{
    ComponentRegistry, ComponentSpec, Lifecycle, Read, SnapshotError, SnapshotReader,
};

use super::expect::{
    checked, open, persist, persist_commit, present_head, refused, unexpected, whole_snapshot,
};
use super::history::{History, ITEMS, Step};
use super::subject::{Effort, StoreSubject, needs};
use crate::check::{Check, Failure, Stage, Verdict, ensure};

pub(super) fn checks() -> Vec<Check<dyn StoreSubject>> {
    let long = Duration::from_secs(1_800);
    vec![
        Check::new(
            "K57.growth_law",
            "the cost of a commit does not grow with the history before it",
            &["STO-47", "STO-52"],
            growth_law,
        )
        .needing(needs::INCREMENTAL)
        .within(long),
        Check::new(
            "K58.fork_constant",
            "a fork costs the same whatever the length of the history",
            &["STO-53"],
            fork_constant,
        )
        .needing(FORK_AND_CHUNKS)
        .within(long),
        Check::new(
            "K59.materialise_equals_flat",
            "what is read back through the store is the flat snapshot of the same content, byte for byte",
            &["STO-49", "STO-47"],
            materialise_equals_flat,
        )
        .needing(needs::INCREMENTAL)
        .within(Duration::from_secs(300)),
        Check::new(
            "K60.closure_refused",
            "a commit that references a chunk neither sent nor held is refused, naming it, and writes nothing",
            &["STO-50", "STO-46"],
            closure_refused,
        )
        .needing(needs::INCREMENTAL),
        Check::new(
            "K61.rewrite_suffix",
            "rewriting the end of a log costs the changed suffix and verifies",
            &["STO-48", "STO-51"],
            rewrite_suffix,
        )
        .needing(needs::INCREMENTAL),
    ]
}

const FORK_AND_CHUNKS: &[crate::check::Need] = &[
    crate::check::Need::Claim("checkpoint.session.atomic_fork/v1"),
    crate::check::Need::Claim("checkpoint.session.incremental/v1"),
];

/// New data per step, as in the table of section 18.
const STEP_BYTES: usize = 1_024;
const WINDOW: u64 = 512;
const EARLY: u64 = 1_000;

/// How long the histories are.
fn late(stage: &Stage<dyn StoreSubject>) -> u64 {
    match stage.subject().effort() {
        Effort::Quick => 3_000,
        Effort::Full => 100_000,
    }
}

#[derive(Default)]
struct Window {
    bytes: u64,
    times: Vec<Duration>,
    largest: u64,
}

impl Window {
    fn median(&mut self) -> Duration {
        self.times.sort_unstable();
        self.times
            .get(self.times.len() / 2)
            .copied()
            .unwrap_or_default()
    }
}

async fn growth_law(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K57").await?;
    let last = late(&stage);
    let mut history = History::new("K57");
    let (mut early, mut end) = (Window::default(), Window::default());
    for step in 0..last {
        let next = history.next_lifecycle();
        let request = history.commit(Step::to(next).with_items(1).of_bytes(STEP_BYTES))?;
        let commit = checked(request)?;
        let begun = Instant::now();
        let receipt = persist_commit(&*store, &commit).await?;
        let time = begun.elapsed();
        ensure!(
            receipt.bytes_written <= commit.sent_bytes(),
            "commit {step} sent {} bytes, the receipt says {} were written",
            commit.sent_bytes(),
            receipt.bytes_written
        );
        let window = match step {
            step if (EARLY..EARLY + WINDOW).contains(&step) => &mut early,
            step if step >= last - WINDOW => &mut end,
            _ => continue,
        };
        window.bytes += receipt.bytes_written;
        window.largest = window.largest.max(receipt.bytes_written);
        window.times.push(time);
    }
    let new_data = (STEP_BYTES as u64) * WINDOW;
    let mean_extra = end.bytes.saturating_sub(new_data) / WINDOW;
    ensure!(
        mean_extra <= 8 * 1_024,
        "a commit writes {mean_extra} bytes beyond its new data, 8 KiB are allowed"
    );
    ensure!(
        end.largest <= 32 * 1_024 + STEP_BYTES as u64,
        "one commit wrote {} bytes, 32 KiB beyond its new data are allowed",
        end.largest
    );
    ensure!(
        end.bytes * 100 <= early.bytes * 125,
        "the last {WINDOW} of {last} commits wrote {} bytes, those at {EARLY} {}: more than 1.25 times",
        end.bytes,
        early.bytes
    );
    let (early_time, late_time) = (early.median(), end.median());
    // Short runs on shared machines prove nothing about time.
    if stage.subject().effort() == Effort::Full {
        ensure!(
            late_time * 2 <= early_time * 3,
            "the median commit took {late_time:?} at {last} and {early_time:?} at {EARLY}: more than 1.5 times"
        );
    }
    let listed = store
        .lineage(history.session(), Page::newest(1))
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    ensure!(
        listed
            .entries
            .first()
            .is_some_and(|entry| entry.bytes <= end.largest),
        "the lineage tells of more bytes than the receipt"
    );
    Ok(())
}

/// Bytes that the first commit of a fork at this length added.
async fn fork_bytes(
    store: &dyn CheckpointStore,
    name: &str,
    length: u64,
) -> Result<(u64, usize), Failure> {
    let mut history = History::new(name);
    for step in 0..length {
        let next = if step + 1 == length {
            Lifecycle::Paused
        } else {
            history.next_lifecycle()
        };
        persist(
            store,
            history.commit(Step::to(next).with_items(1).of_bytes(256))?,
        )
        .await?;
    }
    let request = history.fork_here(&History::operation(name))?;
    let chunks = request.child_commit.chunks().len();
    let fork = store
        .groups()
        .fork
        .ok_or_else(|| Failure::new("fork is claimed without its group"))?;
    let receipt = fork
        .fork(Arc::new(request))
        .await
        .map_err(|error| unexpected("a valid fork", &error))?;
    let listed = store
        .lineage(&receipt.child_session_id, Page::newest(1))
        .await
        .map_err(|error| unexpected("lineage", &error))?;
    let entry = listed
        .entries
        .first()
        .ok_or_else(|| Failure::new("the child has no lineage"))?;
    Ok((entry.bytes, chunks))
}

async fn fork_constant(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K58").await?;
    let last = late(&stage) / 3;
    let (short, short_chunks) = fork_bytes(&*store, "K58 short", 100).await?;
    let (long, long_chunks) = fork_bytes(&*store, "K58 long", last).await?;
    ensure!(
        long * 2 <= short * 3,
        "a fork after {last} commits adds {long} bytes, after 100 {short}: more than 1.5 times"
    );
    ensure!(
        long_chunks == short_chunks && long_chunks <= 4,
        "a fork sends {long_chunks} chunks after {last} commits and {short_chunks} after 100; 4 are allowed"
    );
    Ok(())
}

/// Asks a reader until it has its answer from the store.
async fn read_through<T>(
    store: &dyn CheckpointStore,
    snapshot: &SnapshotId,
    reader: &mut SnapshotReader,
    mut ask: impl FnMut(&mut SnapshotReader) -> Result<Read<T>, SnapshotError>,
) -> Result<T, Failure> {
    let access = store
        .groups()
        .chunk_access
        .ok_or_else(|| Failure::new("incremental is claimed without its group"))?;
    let damaged = |error| Failure::new(format!("reading a snapshot back: {error}"));
    loop {
        match ask(reader).map_err(damaged)? {
            Read::Ready(answer) => return Ok(answer),
            Read::Need(digests) => {
                let mut chunks = Vec::with_capacity(digests.len());
                for wanted in digests.chunks(1_024) {
                    let read = access.get_chunks(snapshot, wanted).await;
                    chunks.extend(read.map_err(|error| unexpected("get_chunks", &error))?);
                }
                reader.feed(chunks).map_err(damaged)?;
            }
        }
    }
}

/// Small, repeatable, and not meant to be good (the seed is printed with every failure).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

async fn materialise_equals_flat(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K59").await?;
    let sequences = stage.subject().effort().of(1_000);
    for seed in 1..=sequences {
        random_sequence(&*store, seed)
            .await
            .map_err(|failure| Failure::new(format!("seed {seed}: {failure}")))?;
    }
    Ok(())
}

async fn random_sequence(store: &dyn CheckpointStore, seed: u64) -> Verdict {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut history = History::new(&format!("K59 {seed}"));
    let steps = 1 + dice.roll(8);
    for _ in 0..steps {
        let next = history.next_lifecycle();
        let mut step = Step::to(next);
        let items: Vec<Vec<u8>> = (0..dice.roll(5))
            .map(|number| format!("{{\"n\":{number},\"r\":{}}}", dice.roll(1_000)).into_bytes())
            .collect();
        step = step.with_raw_items(items);
        if dice.roll(3) == 0 {
            let length = usize::try_from(dice.roll(6_000)).unwrap_or(0);
            step =
                step.with_state(format!("{{\"state\":\"{}\"}}", "s".repeat(length)).into_bytes());
        }
        persist(store, history.commit(step)?).await?;
    }
    let head = present_head(store, history.session()).await?;
    let (_, root) = whole_snapshot(store, &head.snapshot_id).await?;
    let mut reader = SnapshotReader::open(root, &ComponentRegistry::standard())
        .map_err(|error| Failure::new(format!("opening a snapshot: {error}")))?;
    let flat = read_through(store, &head.snapshot_id, &mut reader, |reader| {
        reader.materialise()
    })
    .await?;
    let expected = history.flat()?;
    ensure!(
        flat.to_bytes() == expected.to_bytes(),
        "the snapshot read back is not the flat snapshot of its content"
    );
    Ok(())
}

async fn closure_refused(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K60").await?;
    let mut history = History::new("K60");
    // A neighbour holds the same content in its own family; that does not count.
    let mut neighbour = History::new("K60 neighbour");
    let shared = || vec![b"{\"shared\":true}".to_vec()];
    let same = Step::to(Lifecycle::Created).with_raw_items(shared());
    persist(&*store, neighbour.commit(same)?).await?;
    for round in 0..3 {
        let next = history.next_lifecycle();
        let step = Step::to(next).with_raw_items(shared()).with_items(round);
        let complete = history.commit(step)?;
        for missing in 0..complete.chunks.len() {
            let mut request = complete.clone();
            let chunk = request.chunks.remove(missing);
            let error = refused(&*store, &checked(request)?, "missing_chunk")
                .await
                .map_err(|failure| {
                    Failure::new(format!("without a {:?} chunk: {failure}", chunk.kind()))
                })?;
            let named = matches!(
                &error,
                StoreError::MissingChunk { digests } if digests.contains(&chunk.digest())
            );
            ensure!(
                named,
                "the error does not name the missing chunk: {error:?}"
            );
        }
        // Nothing of the refused ones was kept that would let the next one through.
        let mut bare = complete.clone();
        bare.chunks.clear();
        refused(&*store, &checked(bare)?, "missing_chunk").await?;
        persist(&*store, complete).await?;
    }
    Ok(())
}

async fn rewrite_suffix(stage: Stage<dyn StoreSubject>) -> Verdict {
    let store = open(&stage, "K61").await?;
    for keep in [0u64, 1, 15, 16, 17, 63, 64, 99, 100] {
        let mut history = History::new(&format!("K61 {keep}"));
        for _ in 0..100 {
            let next = history.next_lifecycle();
            persist(&*store, history.commit(Step::to(next).with_items(1))?).await?;
        }
        let before = history.position()?.snapshot_id;
        let access = store
            .groups()
            .chunk_access
            .ok_or_else(|| Failure::new("incremental is claimed without its group"))?;
        let mut cut = history.begin_cut(keep)?;
        let mut reads = 0u32;
        while let Some((_, digest)) = cut.need() {
            let wanted: [Digest; 1] = [digest];
            let chunks = access
                .get_chunks(&before, &wanted)
                .await
                .map_err(|error| unexpected("get_chunks", &error))?;
            for chunk in &chunks {
                cut.feed(chunk)
                    .map_err(|error| Failure::new(format!("cutting the log: {error}")))?;
            }
            reads += 1;
        }
        // 4 · log₄ 100, rounded up.
        ensure!(
            reads <= 16,
            "cutting 100 items at {keep} took {reads} reads"
        );
        history.apply_cut(cut)?;
        let request = history.commit(
            Step::to(Lifecycle::Running).with_raw_items(vec![b"{\"rewritten\":true}".to_vec()]),
        )?;
        let receipt = persist(&*store, request)
            .await
            .map_err(|failure| Failure::new(format!("rewriting after {keep}: {failure}")))?;
        for snapshot in [&before, &receipt.snapshot_id] {
            let found = access
                .verify(snapshot, VerifyDepth::Deep)
                .await
                .map_err(|error| unexpected("verify", &error))?;
            ensure!(
                found.intact(),
                "after a rewrite at {keep} a snapshot is damaged: {:?}",
                found.damage
            );
        }
        let (_, root) = whole_snapshot(&*store, &receipt.snapshot_id).await?;
        let mut reader = SnapshotReader::open(root, &ComponentRegistry::standard())
            .map_err(|error| Failure::new(format!("opening a snapshot: {error}")))?;
        let items = read_through(&*store, &receipt.snapshot_id, &mut reader, |reader| {
            reader.log_items(&ComponentSpec::CONVERSATION, ITEMS, 0..u64::MAX)
        })
        .await?;
        ensure!(
            items.len() as u64 == keep + 1
                && items
                    .last()
                    .is_some_and(|item| item[..] == b"{\"rewritten\":true}"[..]),
            "after keeping {keep} items and adding one the log holds {}",
            items.len()
        );
    }
    Ok(())
}
