//! Walking a whole stored snapshot, with memory for its frontier only (STO-51).

use serde_json::{Map, Value};

use super::artifact_refs::{ArtifactRefs, artifact_id};
use super::chunk::{Chunk, ChunkKind, ChunkReference};
use super::component::ComponentRegistry;
use super::error::SnapshotError;
use super::keyed_log::LiveRecords;
use super::log_tree::{LogEntry, LogFrontier, Node, kind_at, leaf_items, leaf_matches};
use super::map::{MapChunk, insert_part};
use super::root::{Layout, Root};
use crate::canonical_json;
use crate::digest::Digest;

/// Chunks asked for at once.
const BATCH: usize = 64;

/// What the items of a log must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items {
    Any,
    Keyed,
    ArtifactRefs,
}

/// What a reference says of the chunk that it names.
#[derive(Clone, Debug)]
enum Expected {
    Payload {
        bytes: u64,
    },
    Blob {
        bytes: u64,
    },
    Map {
        bytes: u64,
        component: usize,
    },
    Log {
        bytes: u64,
        items: Items,
    },
    Entry {
        level: usize,
        entry: LogEntry,
        items: Items,
    },
}

impl Expected {
    const fn kind(&self) -> ChunkKind {
        match self {
            Expected::Payload { .. } | Expected::Blob { .. } => ChunkKind::Blob,
            Expected::Map { .. } => ChunkKind::Map,
            Expected::Log { .. } => ChunkKind::Log,
            Expected::Entry { level, .. } => kind_at(*level),
        }
    }
}

/// What a deep verification counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedTotals {
    /// Chunk references followed.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Log items.
    pub items: u64,
}

/// Verifies everything below a root: digests, canonical bytes, sums, shapes.
///
/// Sans I/O: while [`DeepVerification::need`] is not empty, read those chunks and
/// [`DeepVerification::feed`] them. Chunks are not kept; memory does not grow with the snapshot. That keys and
/// artifact ids do not repeat across leaves is not checked here, for it takes memory.
#[derive(Clone, Debug)]
pub struct DeepVerification {
    /// For each component, whether each of its logs is keyed: none without a registry.
    specs: Vec<super::ComponentSpec>,
    pending: Vec<(Digest, Expected)>,
    asked: Vec<(Digest, Expected)>,
    totals: VerifiedTotals,
}

impl DeepVerification {
    /// A verification of what is below `root`, by a store that knows no codec.
    #[must_use]
    pub fn new(root: &Root) -> Self {
        let mut pending = Vec::new();
        for (component, entry) in root.components().iter().enumerate() {
            let bytes = entry.bytes;
            let expected = match entry.layout {
                Layout::Inline => continue,
                Layout::Blob => Expected::Payload { bytes },
                Layout::Map => Expected::Map { bytes, component },
            };
            pending.push((entry.digest, expected));
        }
        if let ArtifactRefs::Log(log) = root.artifact_refs() {
            let expected = Expected::Log {
                bytes: log.bytes,
                items: Items::ArtifactRefs,
            };
            pending.push((log.digest, expected));
        }
        DeepVerification {
            specs: Vec::new(),
            pending,
            asked: Vec::new(),
            totals: VerifiedTotals::default(),
        }
    }

    /// As [`DeepVerification::new`], with the codecs, so that items of keyed logs are checked too.
    ///
    /// # Errors
    /// `unknown_component_owner`, `unsupported_component_schema`, `missing_required_component`.
    pub fn with_codecs(root: &Root, registry: &ComponentRegistry) -> Result<Self, SnapshotError> {
        Ok(DeepVerification {
            specs: root.resolve_components(registry)?,
            ..DeepVerification::new(root)
        })
    }

    /// The next chunks to read, at most 64; none when everything is verified.
    pub fn need(&mut self) -> Vec<Digest> {
        if self.asked.is_empty() {
            let rest = self.pending.len().saturating_sub(BATCH);
            self.asked = self.pending.split_off(rest);
        }
        self.asked.iter().map(|(digest, _)| *digest).collect()
    }

    /// The same with the kind of each chunk.
    #[must_use]
    pub fn need_references(&self) -> Vec<ChunkReference> {
        let reference = |(digest, expected): &(Digest, Expected)| (expected.kind(), *digest);
        self.asked.iter().map(reference).collect()
    }

    /// Takes the chunks that were needed, in any order.
    ///
    /// # Errors
    /// `corrupt_snapshot`, naming the first chunk that is absent or is not what the reference to it says.
    pub fn feed(&mut self, chunks: &[Chunk]) -> Result<(), SnapshotError> {
        for (digest, expected) in std::mem::take(&mut self.asked) {
            let chunk = chunks
                .iter()
                .find(|chunk| chunk.digest() == digest && chunk.kind() == expected.kind())
                .ok_or_else(|| SnapshotError::chunk("it is missing").at(digest))?;
            self.totals.chunks += 1;
            self.totals.bytes += chunk.bytes().len() as u64;
            self.check(chunk, &expected)
                .map_err(|error| error.at(digest))?;
        }
        Ok(())
    }

    /// References found and not asked for yet.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What was verified so far.
    #[must_use]
    pub const fn totals(&self) -> VerifiedTotals {
        self.totals
    }

    fn check(&mut self, chunk: &Chunk, expected: &Expected) -> Result<(), SnapshotError> {
        match expected {
            Expected::Payload { bytes } => {
                check_size(chunk, *bytes)?;
                if chunk.bytes().first() != Some(&b'{') {
                    return Err(SnapshotError::component("a payload is not an object"));
                }
                chunk.check()
            }
            Expected::Blob { bytes } => {
                check_size(chunk, *bytes)?;
                chunk.check()
            }
            Expected::Map { bytes, component } => self.check_map(chunk, *bytes, *component),
            Expected::Log { bytes, items } => {
                let log = LogFrontier::parse(chunk.bytes())?;
                if log.bytes() != *bytes {
                    return Err(wrong_size());
                }
                for (level, _, entry) in log.in_order() {
                    self.expect_entry(level, *entry, *items);
                }
                Ok(())
            }
            Expected::Entry {
                level: 0,
                entry,
                items,
            } => {
                leaf_matches(chunk.bytes(), entry)?;
                self.totals.items += entry.count;
                check_items(chunk.bytes(), *items)
            }
            Expected::Entry {
                level,
                entry,
                items,
            } => {
                let node = Node::parse(chunk.bytes())?;
                node.matches(*level, entry)?;
                for child in node.children {
                    self.expect_entry(*level - 1, child, *items);
                }
                Ok(())
            }
        }
    }

    fn expect_entry(&mut self, level: usize, entry: LogEntry, items: Items) {
        let expected = Expected::Entry {
            level,
            entry,
            items,
        };
        self.pending.push((entry.digest, expected));
    }

    fn check_map(
        &mut self,
        chunk: &Chunk,
        bytes: u64,
        component: usize,
    ) -> Result<(), SnapshotError> {
        let map = MapChunk::parse(chunk.bytes())?;
        if map.bytes_underneath(chunk.bytes().len()) != Some(bytes) {
            return Err(wrong_size());
        }
        let Ok(Value::Object(mut payload)) = canonical_json::read_canonical(&map.rest) else {
            return Err(SnapshotError::chunk("the rest of a map is not an object"));
        };
        for (pointer, part) in &map.parts {
            insert_part(&mut payload, pointer, Value::Object(Map::new()))?;
            let spec = self.specs.get(component);
            let bytes = part.bytes;
            let expected = match part.kind {
                ChunkKind::Log => Expected::Log {
                    bytes,
                    items: match spec {
                        Some(spec) if spec.is_keyed(pointer) => Items::Keyed,
                        _ => Items::Any,
                    },
                },
                _ => Expected::Blob { bytes },
            };
            self.pending.push((part.digest, expected));
        }
        Ok(())
    }
}

fn check_items(leaf: &[u8], items: Items) -> Result<(), SnapshotError> {
    if items == Items::Any {
        return Ok(());
    }
    for place in leaf_items(leaf)? {
        let item = leaf.get(place).unwrap_or_default();
        match items {
            Items::Keyed => LiveRecords::check(item)?,
            _ if artifact_id(item).is_none() => {
                return Err(SnapshotError::chunk("an artifact reference has no id"));
            }
            _ => {}
        }
    }
    Ok(())
}

const fn wrong_size() -> SnapshotError {
    SnapshotError::chunk("a reference states another size")
}

fn check_size(chunk: &Chunk, bytes: u64) -> Result<(), SnapshotError> {
    if chunk.bytes().len() as u64 == bytes {
        Ok(())
    } else {
        Err(wrong_size())
    }
}
