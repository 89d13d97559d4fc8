//! Reading a snapshot without I/O: the reader says which chunks it needs and is fed.

mod items;
mod payload;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

pub use self::items::{KeyedRecord, LogItem};
use super::artifact_refs::ArtifactRefs;
use super::chunk::{Chunk, ChunkKind};
use super::closure::KnownReferences;
use super::component::{ComponentRegistry, ComponentSpec};
use super::error::SnapshotError;
use super::log_tree::LogFrontier;
use super::map::{MapChunk, PartReference};
use super::root::{ComponentEntry, Layout, Root};
use super::writer::{Continued, SnapshotWriter};
use crate::digest::Digest;

/// The answer of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Read<T> {
    /// What was asked for.
    Ready(T),
    /// Feed the reader all of these chunks and ask again; may be more than one read of a store returns.
    Need(Vec<Digest>),
}

/// A map with the frontiers of its logs, by pointer.
pub(super) type MapWithLogs = (MapChunk, BTreeMap<String, LogFrontier>);

/// The maps and logs of a snapshot, without what is below them.
pub(super) struct Frontiers {
    /// Parallel to the root's components; for those that are maps.
    pub(super) maps: Vec<Option<MapWithLogs>>,
    /// The digest and content of the artifact log.
    pub(super) artifacts: Option<(Digest, LogFrontier)>,
}

/// Reads one snapshot. Sans I/O, so the same code serves every store, blocking or not.
///
/// ```text
/// let tail = loop {
///     match reader.log_tail(&spec, pointer, 200)? {
///         Read::Ready(items) => break items,
///         Read::Need(digests) => {
///             let mut chunks = Vec::new();
///             for part in digests.chunks(CHUNKS_PER_READ) {
///                 chunks.extend(store.get_chunks(&snapshot, part).await?);
///             }
///             reader.feed(chunks)?;
///         }
///     }
/// };
/// ```
/// Questions ask for all the chunks that they can name at once, so they take as many rounds as the tree is
/// deep. Chunks stay until [`SnapshotReader::forget_chunks`]. All of them were hashed (STO-51).
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    root: Root,
    /// Parallel to the root's components.
    specs: Vec<ComponentSpec>,
    chunks: HashMap<Digest, Chunk>,
    wanted: Wanted,
}

/// What a question could not find, in the order in which it asked.
#[derive(Clone, Debug, Default)]
struct Wanted {
    order: Vec<(ChunkKind, Digest)>,
    /// A question over a long log wants thousands.
    noted: HashSet<(ChunkKind, Digest)>,
}

impl Wanted {
    fn note(&mut self, kind: ChunkKind, digest: Digest) {
        if self.noted.insert((kind, digest)) {
            self.order.push((kind, digest));
        }
    }

    fn clear(&mut self) {
        self.order.clear();
        self.noted.clear();
    }
}

impl SnapshotReader {
    /// A reader of the snapshot below `root`, whose components must all be registered (SES-16).
    ///
    /// # Errors
    /// `unknown_component_owner`, `unsupported_component_schema`, `missing_required_component`.
    pub fn open(root: Root, registry: &ComponentRegistry) -> Result<Self, SnapshotError> {
        Ok(SnapshotReader {
            specs: root.resolve_components(registry)?,
            root,
            chunks: HashMap::new(),
            wanted: Wanted::default(),
        })
    }

    /// A reader for a store, which knows no codec: it cannot materialise or continue the snapshot.
    #[must_use]
    pub fn without_codecs(root: Root) -> Self {
        SnapshotReader {
            specs: Vec::new(),
            root,
            chunks: HashMap::new(),
            wanted: Wanted::default(),
        }
    }

    fn check_registered(&self) -> Result<(), SnapshotError> {
        if self.specs.len() == self.root.components().len() {
            Ok(())
        } else {
            Err(SnapshotError::component(
                "this reader was made without codecs",
            ))
        }
    }

    /// The root record.
    #[must_use]
    pub const fn root(&self) -> &Root {
        &self.root
    }

    /// The chunks that the last question asked for and that were not fed yet.
    #[must_use]
    pub fn need(&self) -> Vec<Digest> {
        self.wanted
            .order
            .iter()
            .map(|(_, digest)| *digest)
            .collect()
    }

    /// Takes the chunks that were needed; others are ignored.
    ///
    /// # Errors
    /// `corrupt_snapshot` when one that was needed is absent or of another kind: a store that holds the root
    /// holds all of them (STO-50).
    pub fn feed(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Result<(), SnapshotError> {
        for chunk in chunks {
            let wanted = (chunk.kind(), chunk.digest());
            if self.wanted.noted.contains(&wanted) {
                self.chunks.insert(chunk.digest(), chunk);
            }
        }
        let absent = self
            .wanted
            .order
            .iter()
            .find(|(_, digest)| !self.chunks.contains_key(digest));
        match absent {
            Some((_, digest)) => Err(SnapshotError::chunk("it is missing").at(*digest)),
            None => {
                self.wanted.clear();
                Ok(())
            }
        }
    }

    /// Drops the chunks read so far.
    pub fn forget_chunks(&mut self) {
        self.chunks.clear();
    }

    /// Asks again and again, with what `fetch` returns, until the answer is there.
    ///
    /// # Errors
    /// Those of `ask`, `fetch` and [`SnapshotReader::feed`].
    pub fn resolve<T, Error: From<SnapshotError>>(
        &mut self,
        mut ask: impl FnMut(&mut Self) -> Result<Read<T>, SnapshotError>,
        mut fetch: impl FnMut(&[Digest]) -> Result<Vec<Chunk>, Error>,
    ) -> Result<T, Error> {
        loop {
            match ask(self)? {
                Read::Ready(answer) => return Ok(answer),
                Read::Need(digests) => self.feed(fetch(&digests)?)?,
            }
        }
    }

    fn entry(&self, spec: &ComponentSpec) -> Option<&ComponentEntry> {
        self.root.component(spec.owner, spec.slot)
    }

    /// A chunk, or nothing and a note that it is wanted.
    fn chunk(&mut self, kind: ChunkKind, digest: Digest) -> Option<Chunk> {
        let held = self
            .chunks
            .get(&digest)
            .filter(|chunk| chunk.kind() == kind);
        if held.is_none() {
            self.wanted.note(kind, digest);
        }
        held.cloned()
    }

    /// Runs a question; what it could not find becomes the need.
    fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Self) -> Result<Option<T>, SnapshotError>,
    ) -> Result<Read<T>, SnapshotError> {
        self.wanted.clear();
        let answer = question(self)?;
        match answer {
            Some(answer) if self.wanted.order.is_empty() => Ok(Read::Ready(answer)),
            _ => Ok(Read::Need(self.need())),
        }
    }
    fn blob(&mut self, digest: Digest, bytes: u64) -> Result<Option<Arc<[u8]>>, SnapshotError> {
        match self.chunk(ChunkKind::Blob, digest) {
            Some(chunk) if chunk.bytes().len() as u64 != bytes => {
                Err(SnapshotError::chunk("a reference states another size").at(digest))
            }
            chunk => Ok(chunk.map(|chunk| Arc::clone(chunk.bytes()))),
        }
    }

    fn map_of(&mut self, entry: &ComponentEntry) -> Result<Option<MapChunk>, SnapshotError> {
        let Some(chunk) = self.chunk(ChunkKind::Map, entry.digest) else {
            return Ok(None);
        };
        let map = MapChunk::parse(chunk.bytes()).map_err(|error| error.at(entry.digest))?;
        if map.bytes_underneath(chunk.bytes().len()) == Some(entry.bytes) {
            Ok(Some(map))
        } else {
            Err(SnapshotError::chunk("a reference states another size").at(entry.digest))
        }
    }

    fn frontier(
        &mut self,
        digest: Digest,
        bytes: u64,
    ) -> Result<Option<LogFrontier>, SnapshotError> {
        let Some(chunk) = self.chunk(ChunkKind::Log, digest) else {
            return Ok(None);
        };
        let log = LogFrontier::parse(chunk.bytes()).map_err(|error| error.at(digest))?;
        if log.bytes() == bytes {
            Ok(Some(log))
        } else {
            Err(SnapshotError::chunk("a reference states another size").at(digest))
        }
    }

    /// The part of a mapped component at `pointer`; the inner option is empty when there is none.
    fn part_of(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<Option<Option<PartReference>>, SnapshotError> {
        match self.entry(spec).cloned() {
            Some(entry) if entry.layout == Layout::Map => Ok(self
                .map_of(&entry)?
                .map(|map| map.parts.get(pointer).copied())),
            _ => Ok(Some(None)),
        }
    }

    /// The log of a component at `pointer`; the inner option is empty when there is none.
    fn log_at(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<Option<Option<LogFrontier>>, SnapshotError> {
        match self.part_of(spec, pointer)? {
            Some(Some(part)) if part.kind == ChunkKind::Log => {
                Ok(self.frontier(part.digest, part.bytes)?.map(Some))
            }
            Some(_) => Ok(Some(None)),
            None => Ok(None),
        }
    }

    /// The canonical object that a mapped component holds besides its parts; for other layouts the payload.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn rest(&mut self, spec: &ComponentSpec) -> Result<Read<Option<Vec<u8>>>, SnapshotError> {
        let entry = self.entry(spec).cloned();
        self.ask(|reader| match entry {
            None => Ok(Some(None)),
            Some(entry) => match entry.layout {
                Layout::Inline => {
                    let payload = reader.root.inline_payload(&entry).map(<[u8]>::to_vec);
                    Ok(Some(payload))
                }
                Layout::Blob => {
                    let blob = reader.blob(entry.digest, entry.bytes)?;
                    Ok(blob.map(|blob| Some(blob.to_vec())))
                }
                Layout::Map => Ok(reader.map_of(&entry)?.map(|map| Some(map.rest))),
            },
        })
    }

    /// The canonical value of the blob of a mapped component at `pointer`; `None` if there is none.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn map_blob(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<Read<Option<Arc<[u8]>>>, SnapshotError> {
        self.ask(|reader| match reader.part_of(spec, pointer)? {
            Some(Some(part)) if part.kind == ChunkKind::Blob => {
                Ok(reader.blob(part.digest, part.bytes)?.map(Some))
            }
            Some(_) => Ok(Some(None)),
            None => Ok(None),
        })
    }

    /// What a child of this snapshot may build upon (STO-50); reads its maps and logs, not what is below.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn known_references(&mut self) -> Result<Read<KnownReferences>, SnapshotError> {
        self.ask(|reader| {
            let frontiers = reader.frontiers()?;
            Ok(frontiers.map(|frontiers| KnownReferences::of_stored(&reader.root, frontiers)))
        })
    }

    /// The maps and logs that the root names, directly or through a map.
    fn frontiers(&mut self) -> Result<Option<Frontiers>, SnapshotError> {
        let entries = self.root.components().to_vec();
        let mut maps = Vec::with_capacity(entries.len());
        let mut whole = true;
        for entry in &entries {
            if entry.layout != Layout::Map {
                maps.push(None);
                continue;
            }
            let Some(map) = self.map_of(entry)? else {
                whole = false;
                continue;
            };
            let mut logs = BTreeMap::new();
            for (pointer, part) in &map.parts {
                if part.kind == ChunkKind::Log {
                    match self.frontier(part.digest, part.bytes)? {
                        Some(log) => {
                            logs.insert(pointer.clone(), log);
                        }
                        None => whole = false,
                    }
                }
            }
            maps.push(Some((map, logs)));
        }
        let artifacts = match self.root.artifact_refs() {
            ArtifactRefs::Inline(_) => None,
            ArtifactRefs::Log(reference) => {
                let reference = *reference;
                let log = self.frontier(reference.digest, reference.bytes)?;
                whole &= log.is_some();
                log.map(|log| (reference.digest, log))
            }
        };
        Ok(whole.then_some(Frontiers { maps, artifacts }))
    }
}

impl SnapshotWriter {
    /// A writer that goes on from a stored snapshot; reads its maps and logs, not what is below (STO-52).
    ///
    /// For a restore the reader is that of the head; for a fork that of the source, whose unchanged chunks the
    /// child then shares (STO-53).
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn from_root(reader: &mut SnapshotReader) -> Result<Read<SnapshotWriter>, SnapshotError> {
        reader.check_registered()?;
        reader.ask(|reader| {
            let Some(frontiers) = reader.frontiers()? else {
                return Ok(None);
            };
            let entries = reader.root.components().iter();
            let components =
                entries
                    .zip(&reader.specs)
                    .zip(frontiers.maps)
                    .map(|((entry, spec), map)| Continued {
                        spec: *spec,
                        layout: entry.layout,
                        digest: entry.digest,
                        bytes: entry.bytes,
                        payload: reader.root.inline_payload(entry),
                        map,
                    });
            Ok(Some(SnapshotWriter::continuing(
                components,
                reader.root.artifact_refs(),
                frontiers.artifacts,
            )))
        })
    }
}
