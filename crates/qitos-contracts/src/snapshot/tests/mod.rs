//! Behaviour of snapshots as a whole, against a store that only keeps chunks.

mod bounds;
mod closed;
mod damage;
mod envelopes;
mod growth;
mod model;
mod rewrite;
mod vectors;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::canonical_json;
use crate::clock::{CountingIds, Timestamp};
use crate::digest::Digest;
use crate::error::ContractError as _;
use crate::ids::{CheckpointId, SessionId, SnapshotId};

const ITEMS: &str = "/exchange_log/items";
const RECEIPTS: &str = "/steering_receipts";

fn canonical(value: &Value) -> Vec<u8> {
    canonical_json::to_bytes(value).unwrap()
}

/// `{"i":index}`, the items of the published vectors.
fn item(index: u64) -> Vec<u8> {
    format!("{{\"i\":{index}}}").into_bytes()
}

fn code<T: std::fmt::Debug>(result: Result<T, SnapshotError>) -> String {
    result.unwrap_err().code().to_owned()
}

/// A registry in which nothing must be present.
fn registry() -> ComponentRegistry {
    ComponentSpec::STANDARD
        .into_iter()
        .fold(ComponentRegistry::empty(), |registry, spec| {
            registry.with(ComponentSpec {
                presence: Presence::WhenUsed,
                ..spec
            })
        })
}

/// Keeps chunks and the newest root, and refuses what a store must refuse.
#[derive(Debug)]
struct TestStore {
    ids: CountingIds,
    session: SessionId,
    chunks: HashMap<Digest, Chunk>,
    roots: Vec<Root>,
    known: KnownReferences,
    /// Nodes read to check the closure of the last commit.
    path_reads: usize,
    /// Chunks handed to readers.
    reads: usize,
}

impl TestStore {
    fn new() -> Self {
        let ids = CountingIds::new(1);
        TestStore {
            session: SessionId::generate(&ids),
            ids,
            chunks: HashMap::new(),
            roots: Vec::new(),
            known: KnownReferences::none(),
            path_reads: 0,
            reads: 0,
        }
    }

    fn header(&self) -> EnvelopeHeader {
        EnvelopeHeader {
            snapshot_id: SnapshotId::generate(&self.ids),
            session_id: self.session.clone(),
            head_generation: self.roots.len() as u64,
            lifecycle: Lifecycle::Running,
            created_at: Timestamp::from_micros(1_767_225_600_000_000),
            timing: Timing::captured(Timestamp::from_micros(
                1_767_225_600_000_010 + self.roots.len() as i64,
            )),
            resolver_references: ResolverReferences::none(),
            artifact_refs: Vec::new(),
            parent: self
                .roots
                .last()
                .map(|root| root.as_parent(CheckpointId::generate(&self.ids))),
        }
    }

    fn commit(&mut self, writer: &mut SnapshotWriter) -> SealedSnapshot {
        let header = self.header();
        let sealed = writer.seal(&header).unwrap();
        self.accept(&sealed).unwrap();
        sealed
    }

    fn accept(&mut self, sealed: &SealedSnapshot) -> Result<(), SnapshotError> {
        let root = Root::parse(Arc::clone(&sealed.root))?;
        assert_eq!(root.digest(), sealed.root_digest);
        for chunk in &sealed.chunks {
            chunk.check()?;
        }
        let mut path = Vec::new();
        let known = loop {
            match check_closure_with(&root, &sealed.chunks, &self.known, &path)? {
                Closure::Closed(known) => break known,
                Closure::Need(nodes) => {
                    for (kind, digest) in nodes {
                        let chunk = self.chunks[&digest].clone();
                        assert_eq!(chunk.kind(), kind);
                        path.push(chunk);
                    }
                }
            }
        };
        self.path_reads = path.len();
        self.known = known;
        for chunk in &sealed.chunks {
            self.chunks.insert(chunk.digest(), chunk.clone());
        }
        self.roots.push(root);
        Ok(())
    }

    fn reader(&self) -> SnapshotReader {
        SnapshotReader::open(self.roots.last().unwrap().clone(), &registry()).unwrap()
    }

    fn fetch(&mut self, digests: &[Digest]) -> Result<Vec<Chunk>, SnapshotError> {
        self.reads += digests.len();
        let chunks = &self.chunks;
        Ok(digests
            .iter()
            .filter_map(|digest| chunks.get(digest).cloned())
            .collect())
    }

    fn resolve<T>(
        &mut self,
        reader: &mut SnapshotReader,
        ask: impl FnMut(&mut SnapshotReader) -> Result<Read<T>, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        reader.resolve(ask, |digests| self.fetch(digests))
    }

    fn flat(&mut self) -> FlatSnapshot {
        let mut reader = self.reader();
        self.resolve(&mut reader, SnapshotReader::materialise)
            .unwrap()
    }

    fn payload(&mut self, spec: &ComponentSpec) -> Option<Value> {
        let mut reader = self.reader();
        self.resolve(&mut reader, |reader| reader.component(spec))
            .unwrap()
    }

    fn writer(&mut self) -> SnapshotWriter {
        let mut reader = self.reader();
        self.resolve(&mut reader, SnapshotWriter::from_root)
            .unwrap()
    }

    fn deep_verify(&mut self) -> Result<VerifiedTotals, SnapshotError> {
        let root = self.roots.last().unwrap();
        let mut verification = DeepVerification::with_codecs(root, &registry())?;
        loop {
            let need = verification.need();
            if need.is_empty() {
                return Ok(verification.totals());
            }
            let chunks = self.fetch(&need)?;
            verification.feed(&chunks)?;
        }
    }
}

fn append(writer: &mut SnapshotWriter, items: impl IntoIterator<Item = u64>) {
    writer
        .append(
            &ComponentSpec::CONVERSATION,
            ITEMS,
            items.into_iter().map(item),
        )
        .unwrap();
}
