//! Prints what a commit costs while a session grows: `cargo run --release -p qitos-contracts --example
//! snapshot_growth [STEPS]`.
//!
//! Each step appends one item of 1 KiB and changes the small components that an engine changes. Costs at step
//! 1,000 and at the end (100,000 by default) are compared; section 18 of the session specification bounds them.
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use qitos_contracts::clock::{CountingIds, Timestamp};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{CheckpointId, SessionId, SnapshotId};
use qitos_contracts::snapshot::{
    Chunk, ChunkKind, ComponentRegistry, ComponentSpec, DeepVerification, EnvelopeHeader,
    KnownReferences, Lifecycle, ResolverReferences, Root, SnapshotError, SnapshotReader,
    SnapshotWriter, Timing, check_closure,
};

const ITEMS: &str = "/exchange_log/items";
const WINDOW: usize = 512;

struct Cost {
    bytes: usize,
    new_data: usize,
    seal_ns: u64,
    check_ns: u64,
}

/// Leaves and nodes of the whole session, other chunks of its newest commits.
#[derive(Default)]
struct Chunks {
    kept: HashMap<Digest, Chunk>,
    recent: VecDeque<Vec<Chunk>>,
}

impl Chunks {
    fn add(&mut self, chunks: &[Chunk], first: bool) {
        let mut others = Vec::new();
        for chunk in chunks {
            if first || matches!(chunk.kind(), ChunkKind::Leaf | ChunkKind::Node) {
                self.kept.insert(chunk.digest(), chunk.clone());
            } else {
                others.push(chunk.clone());
            }
        }
        self.recent.push_back(others);
        if self.recent.len() > 8 {
            self.recent.pop_front();
        }
    }

    fn get(&self, digest: &Digest) -> Option<Chunk> {
        let recent = || self.recent.iter().flatten();
        self.kept
            .get(digest)
            .or_else(|| recent().find(|chunk| chunk.digest() == *digest))
            .cloned()
    }

    fn all(&self, digests: &[Digest]) -> Result<Vec<Chunk>, SnapshotError> {
        Ok(digests
            .iter()
            .filter_map(|digest| self.get(digest))
            .collect())
    }
}

fn step(writer: &mut SnapshotWriter, index: u64, item: &[u8]) -> Result<(), SnapshotError> {
    let digest = Digest::of(&index.to_le_bytes());
    let conversation = ComponentSpec::CONVERSATION;
    writer.append(&conversation, ITEMS, [item])?;
    writer.map_rest(
        &conversation,
        format!("{{\"exchange_log\":{{\"next\":{index}}},\"log_chain\":\"{digest}\"}}")
            .into_bytes(),
    )?;
    let view = format!("{{\"runs\":[[0,{index}]],\"view_digest\":\"{digest}\"}}");
    writer.map_blob(
        &conversation,
        "/last_request_view",
        view.into_bytes().into(),
    )?;
    writer.map_rest(
        &ComponentSpec::ENGINE_PROGRESS,
        format!("{{\"next_step\":{index},\"pause_safety\":null}}").into_bytes(),
    )?;
    writer.replace(
        &ComponentSpec::BUDGET_CAPABILITY,
        format!("{{\"max_steps\":100000,\"model_requests_consumed\":{index}}}").into_bytes(),
    )?;
    writer.replace(
        &ComponentSpec::TOOL_BATCH,
        format!("{{\"batch\":{{\"id\":\"{digest}\",\"slots\":[{{\"state\":\"closed\"}}]}}}}")
            .into_bytes(),
    )
}

fn begin(writer: &mut SnapshotWriter) -> Result<(), SnapshotError> {
    let text = "x".repeat(600);
    let blob = |text: &str| Arc::<[u8]>::from(format!("\"{text}\"").into_bytes());
    for pointer in [
        "/task",
        "/engine_config",
        "/execution_options",
        "/runtime_composition",
    ] {
        writer.map_blob(&ComponentSpec::ENGINE_PROGRESS, pointer, blob(&text))?;
    }
    for pointer in [
        "/steering_receipts",
        "/continuation_refs",
        "/compaction_receipts",
    ] {
        writer.upsert(&ComponentSpec::CONVERSATION, pointer, [])?;
    }
    let state = format!("{{\"agent_id\":\"agent\",\"state\":\"{text}\"}}");
    writer.replace(&ComponentSpec::AGENT_STATE, state.into_bytes())?;
    writer.replace(
        &ComponentSpec::TRACE_LINEAGE,
        b"{\"parent_run_id\":null,\"run_id\":\"run\",\"trace_complete\":true}".to_vec(),
    )
}

fn header(
    ids: &CountingIds,
    session: &SessionId,
    parent: Option<&Root>,
    generation: u64,
) -> EnvelopeHeader {
    EnvelopeHeader {
        snapshot_id: SnapshotId::generate(ids),
        session_id: session.clone(),
        head_generation: generation,
        lifecycle: Lifecycle::Running,
        created_at: Timestamp::from_micros(0),
        timing: Timing::captured(Timestamp::from_micros(1)),
        resolver_references: ResolverReferences::none(),
        artifact_refs: Vec::new(),
        parent: parent.map(|root| root.as_parent(CheckpointId::generate(ids))),
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn print_window(name: &str, costs: &[Cost]) -> (f64, f64) {
    let count = costs.len().max(1) as f64;
    let mean = |value: fn(&Cost) -> f64| costs.iter().map(value).sum::<f64>() / count;
    let median = |value: fn(&Cost) -> u64| {
        let mut values: Vec<u64> = costs.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0) as f64 / 1_000.0
    };
    let extra = mean(|cost| (cost.bytes - cost.new_data) as f64);
    let largest = costs.iter().map(|cost| cost.bytes - cost.new_data).max();
    println!(
        "{name}: {:.0} bytes per commit, {extra:.0} beyond the new data (at most {}); \
         p50 changes and seal {:.1} µs, p50 parse and closure {:.1} µs",
        mean(|cost| cost.bytes as f64),
        largest.unwrap_or(0),
        median(|cost| cost.seal_ns),
        median(|cost| cost.check_ns),
    );
    (mean(|cost| cost.bytes as f64), median(|cost| cost.seal_ns))
}

fn main() -> Result<(), Box<dyn Error>> {
    let steps: u64 = match std::env::args().nth(1) {
        Some(steps) => steps.parse()?,
        None => 100_000,
    };
    let ids = CountingIds::new(1);
    let session = SessionId::generate(&ids);
    let mut writer = SnapshotWriter::new();
    begin(&mut writer)?;
    let mut known = KnownReferences::none();
    let mut chunks = Chunks::default();
    let mut head: Option<Root> = None;
    let mut costs: VecDeque<Cost> = VecDeque::new();
    let mut early = (0.0, 0.0);
    for index in 0..steps {
        let item = format!("{{\"i\":{index},\"text\":\"{}\"}}", "x".repeat(1_000));
        let header = header(&ids, &session, head.as_ref(), index);
        let start = Instant::now();
        step(&mut writer, index, item.as_bytes())?;
        let sealed = writer.seal(&header)?;
        let seal_ns = nanoseconds(start);
        let start = Instant::now();
        let root = Root::parse(Arc::clone(&sealed.root))?;
        known = check_closure(&root, &sealed.chunks, &known)?;
        let check_ns = nanoseconds(start);
        chunks.add(&sealed.chunks, index == 0);
        head = Some(root);
        costs.push_back(Cost {
            bytes: sealed.total_bytes(),
            new_data: item.len(),
            seal_ns,
            check_ns,
        });
        if costs.len() > WINDOW {
            costs.pop_front();
        }
        if index + 1 == 1_000 {
            early = print_window("to 1,000", costs.make_contiguous());
        }
    }
    let late = print_window(&format!("to {steps}"), costs.make_contiguous());
    println!(
        "ratio of bytes {:.3}, of time {:.3}",
        late.0 / early.0,
        late.1 / early.1
    );

    let head = head.ok_or("no step was made")?;
    let mut reader = SnapshotReader::open(head.clone(), &ComponentRegistry::standard())?;
    let mut reads = 0;
    let start = Instant::now();
    let tail = reader.resolve(
        |reader| reader.log_tail(&ComponentSpec::CONVERSATION, ITEMS, 200),
        |digests| {
            reads += digests.len();
            chunks.all(digests)
        },
    )?;
    println!(
        "tail of {} items: {reads} chunks, {} µs",
        tail.len(),
        nanoseconds(start) / 1_000
    );

    let start = Instant::now();
    let mut child = reader.resolve(SnapshotWriter::from_root, |digests| chunks.all(digests))?;
    child.replace(
        &ComponentSpec::TRACE_LINEAGE,
        b"{\"run_id\":\"child\"}".to_vec(),
    )?;
    child.replace(
        &ComponentSpec::FORK_LINEAGE,
        b"{\"attempt_id\":\"child\"}".to_vec(),
    )?;
    child.map_rest(
        &ComponentSpec::ENGINE_PROGRESS,
        b"{\"next_step\":0}".to_vec(),
    )?;
    let fork = child.seal(&self::header(&ids, &SessionId::generate(&ids), None, 0))?;
    println!(
        "fork: {} chunks, {} bytes, {} µs",
        fork.chunks.len(),
        fork.total_bytes(),
        nanoseconds(start) / 1_000
    );

    let start = Instant::now();
    let mut verification = DeepVerification::new(&head);
    loop {
        let need = verification.need();
        if need.is_empty() {
            break;
        }
        // A store hands out chunks that it hashed as it read them.
        let read: Vec<Chunk> = chunks
            .all(&need)?
            .into_iter()
            .map(|chunk| Chunk::new(chunk.kind(), Arc::clone(chunk.bytes())))
            .collect();
        verification.feed(&read)?;
    }
    let totals = verification.totals();
    println!(
        "deep verification: {} items, {} chunks, {} MiB in {} ms",
        totals.items,
        totals.chunks,
        totals.bytes >> 20,
        nanoseconds(start) / 1_000_000
    );
    Ok(())
}
