//! Reading a snapshot without I/O: the reader says which chunks it needs and is fed.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde_json::Value;

use super::chunk::{Chunk, ChunkKind};
use super::closure::KnownReferences;
use super::component::{ComponentRegistry, ComponentSpec};
use super::error::SnapshotError;
use super::flat::{FlatComponent, FlatSnapshot};
use super::keyed_log::LiveRecords;
use super::log_tree::{LogEntry, LogFrontier, Node, kind_at, leaf_items, leaf_matches};
use super::map::{MapChunk, insert_part};
use super::root::{ArtifactRefs, ComponentEntry, Layout, Root, artifact_id};
use super::writer::{Continued, SnapshotWriter};
use crate::canonical_json;
use crate::digest::Digest;

/// The answer of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Read<T> {
    /// What was asked for.
    Ready(T),
    /// Feed the reader these chunks and ask again.
    Need(Vec<Digest>),
}

/// The canonical bytes of a log item, inside the chunk that holds it.
#[derive(Clone)]
pub struct LogItem {
    leaf: Arc<[u8]>,
    range: Range<usize>,
}

impl Deref for LogItem {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.leaf.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for LogItem {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for LogItem {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for LogItem {}

impl std::fmt::Debug for LogItem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "LogItem({} bytes)", self.range.len())
    }
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

/// A key and its record, in the order of a keyed log.
pub type KeyedRecord = (String, Arc<[u8]>);

/// Reads one snapshot. Sans I/O, so the same code serves every store, blocking or not.
///
/// ```text
/// let tail = loop {
///     match reader.log_tail(&spec, pointer, 200)? {
///         Read::Ready(items) => break items,
///         Read::Need(digests) => reader.feed(store.get_chunks(&session, &digests).await?)?,
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
    wanted: Vec<(ChunkKind, Digest)>,
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
            wanted: Vec::new(),
        })
    }

    /// A reader for a store, which knows no codec: it cannot materialise or continue the snapshot.
    #[must_use]
    pub fn without_codecs(root: Root) -> Self {
        SnapshotReader {
            specs: Vec::new(),
            root,
            chunks: HashMap::new(),
            wanted: Vec::new(),
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
        self.wanted.iter().map(|(_, digest)| *digest).collect()
    }

    /// Takes the chunks that were needed; others are ignored.
    ///
    /// # Errors
    /// `corrupt_snapshot` when one that was needed is absent or of another kind: a store that holds the root
    /// holds all of them (STO-50).
    pub fn feed(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Result<(), SnapshotError> {
        for chunk in chunks {
            let wanted = (chunk.kind(), chunk.digest());
            if self.wanted.contains(&wanted) {
                self.chunks.insert(chunk.digest(), chunk);
            }
        }
        let absent = self
            .wanted
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
        if held.is_none() && !self.wanted.contains(&(kind, digest)) {
            self.wanted.push((kind, digest));
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
            Some(answer) if self.wanted.is_empty() => Ok(Read::Ready(answer)),
            _ => Ok(Read::Need(self.need())),
        }
    }

    /// The payload of a component; `None` if the snapshot has none.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn component(
        &mut self,
        spec: &ComponentSpec,
    ) -> Result<Read<Option<Value>>, SnapshotError> {
        let place = self.entry(spec).cloned();
        let spec = *spec;
        self.ask(|reader| match place {
            None => Ok(Some(None)),
            Some(entry) => Ok(reader.payload(&spec, &entry)?.map(Some)),
        })
    }

    /// The whole payload of a component.
    fn payload(
        &mut self,
        spec: &ComponentSpec,
        entry: &ComponentEntry,
    ) -> Result<Option<Value>, SnapshotError> {
        match entry.layout {
            Layout::Inline => {
                let payload = self.root.inline_payload(entry).unwrap_or_default();
                parse_value(payload, None).map(Some)
            }
            Layout::Blob => {
                let Some(blob) = self.blob(entry.digest, entry.bytes)? else {
                    return Ok(None);
                };
                if blob.first() != Some(&b'{') {
                    return Err(SnapshotError::component("a payload is not an object"));
                }
                parse_value(&blob, Some(entry.digest)).map(Some)
            }
            Layout::Map => self.mapped_payload(spec, entry),
        }
    }

    fn mapped_payload(
        &mut self,
        spec: &ComponentSpec,
        entry: &ComponentEntry,
    ) -> Result<Option<Value>, SnapshotError> {
        let Some(map) = self.map_of(entry)? else {
            return Ok(None);
        };
        let Value::Object(mut payload) = parse_value(&map.rest, Some(entry.digest))? else {
            return Err(SnapshotError::component("a payload is not an object"));
        };
        let mut whole = true;
        for (pointer, part) in &map.parts {
            let value = if part.kind == ChunkKind::Blob {
                match self.blob(part.digest, part.bytes)? {
                    Some(blob) => Some(parse_value(&blob, Some(part.digest))?),
                    None => None,
                }
            } else {
                self.log_value(spec.is_keyed(pointer), part.digest, part.bytes)?
            };
            match value {
                Some(value) => insert_part(&mut payload, pointer, value)?,
                None => whole = false,
            }
        }
        Ok(whole.then_some(Value::Object(payload)))
    }

    /// The array that a log stands for.
    fn log_value(
        &mut self,
        keyed: bool,
        digest: Digest,
        bytes: u64,
    ) -> Result<Option<Value>, SnapshotError> {
        let Some(log) = self.frontier(digest, bytes)? else {
            return Ok(None);
        };
        let Some(items) = self.items(&log, 0..log.count())? else {
            return Ok(None);
        };
        let values: Result<Vec<Value>, SnapshotError> = if keyed {
            live_records(&items)?
                .iter()
                .map(|(_, record)| parse_value(record, None))
                .collect()
        } else {
            items.iter().map(|item| parse_value(item, None)).collect()
        };
        values.map(Value::Array).map(Some)
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
    ) -> Result<Option<Option<super::PartReference>>, SnapshotError> {
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

    /// How many items the log at `pointer` has; of a keyed log, those that were overwritten included.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn log_count(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<Read<Option<u64>>, SnapshotError> {
        self.ask(|reader| {
            let log = reader.log_at(spec, pointer)?;
            Ok(log.map(|log| log.map(|log| log.count())))
        })
    }

    /// Items `range` of the log at `pointer`, as far as it has them; none if there is no log.
    ///
    /// Reads the leaves of these items and the nodes above them.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn log_items(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        range: Range<u64>,
    ) -> Result<Read<Vec<LogItem>>, SnapshotError> {
        self.ask(|reader| match reader.log_at(spec, pointer)? {
            Some(Some(log)) => reader.items(&log, range),
            Some(None) => Ok(Some(Vec::new())),
            None => Ok(None),
        })
    }

    /// The last `count` items of the log at `pointer` (SES-55); reads do not depend on what is before them.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn log_tail(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
        count: u64,
    ) -> Result<Read<Vec<LogItem>>, SnapshotError> {
        self.ask(|reader| match reader.log_at(spec, pointer)? {
            Some(Some(log)) => {
                let range = log.count().saturating_sub(count)..log.count();
                reader.items(&log, range)
            }
            Some(None) => Ok(Some(Vec::new())),
            None => Ok(None),
        })
    }

    /// The live records of the keyed log at `pointer`, in the order of their first appearance.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn keyed_records(
        &mut self,
        spec: &ComponentSpec,
        pointer: &str,
    ) -> Result<Read<Vec<KeyedRecord>>, SnapshotError> {
        self.ask(|reader| match reader.log_at(spec, pointer)? {
            Some(Some(log)) => match reader.items(&log, 0..log.count())? {
                Some(items) => live_records(&items).map(Some),
                None => Ok(None),
            },
            Some(None) => Ok(Some(Vec::new())),
            None => Ok(None),
        })
    }

    /// The canonical bytes of every artifact reference, in the order of their first appearance.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn artifact_refs(&mut self) -> Result<Read<Vec<Box<[u8]>>>, SnapshotError> {
        self.ask(SnapshotReader::all_artifact_refs)
    }

    fn all_artifact_refs(&mut self) -> Result<Option<Vec<Box<[u8]>>>, SnapshotError> {
        let reference = match self.root.artifact_refs() {
            ArtifactRefs::Inline(references) => return Ok(Some(references.clone())),
            ArtifactRefs::Log(reference) => *reference,
        };
        let Some(log) = self.frontier(reference.digest, reference.bytes)? else {
            return Ok(None);
        };
        let Some(items) = self.items(&log, 0..log.count())? else {
            return Ok(None);
        };
        let mut first: HashMap<String, usize> = HashMap::new();
        let mut references: Vec<Box<[u8]>> = Vec::new();
        for item in &items {
            let id =
                artifact_id(item).ok_or(SnapshotError::chunk("an artifact reference has no id"))?;
            match first.get(&id).and_then(|at| references.get(*at)) {
                None => {
                    first.insert(id, references.len());
                    references.push(item.as_ref().into());
                }
                // A process that did not know the log may have named the artifact again.
                Some(known) if **known == **item => {}
                Some(_) => {
                    return Err(SnapshotError::chunk("an artifact id names two references"));
                }
            }
        }
        Ok(Some(references))
    }

    /// The same snapshot in envelope schema 2 (STO-49); reads everything.
    ///
    /// # Errors
    /// `corrupt_snapshot`.
    pub fn materialise(&mut self) -> Result<Read<FlatSnapshot>, SnapshotError> {
        self.check_registered()?;
        let places: Vec<_> = self
            .specs
            .iter()
            .copied()
            .zip(self.root.components().to_vec())
            .collect();
        self.ask(|reader| {
            let mut components = Vec::with_capacity(places.len());
            for (spec, entry) in &places {
                if let Some(payload) = reader.payload(spec, entry)? {
                    let canonical = canonical_json::to_bytes(&payload)
                        .map_err(|_| SnapshotError::component("a payload is nested too deep"))?;
                    components.push(FlatComponent::new(spec, canonical));
                }
            }
            let Some(artifact_refs) = reader.all_artifact_refs()? else {
                return Ok(None);
            };
            Ok((components.len() == places.len())
                .then(|| FlatSnapshot::of_root(&reader.root, artifact_refs, components)))
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

    /// Items `range` of `log`, in order; nothing while chunks are missing.
    fn items(
        &mut self,
        log: &LogFrontier,
        range: Range<u64>,
    ) -> Result<Option<Vec<LogItem>>, SnapshotError> {
        let mut leaves = Vec::new();
        for (level, start, entry) in log.in_order() {
            self.leaves(level, start, entry, &range, &mut leaves)?;
        }
        if !self.wanted.is_empty() {
            return Ok(None);
        }
        let mut items = Vec::new();
        for (start, leaf) in leaves {
            for (place, position) in leaf_items(&leaf)?.into_iter().zip(start..) {
                if range.contains(&position) {
                    items.push(LogItem {
                        leaf: Arc::clone(&leaf),
                        range: place,
                    });
                }
            }
        }
        Ok(Some(items))
    }

    /// The leaves below `entry` that hold items of `range`, with the position of their first item.
    fn leaves(
        &mut self,
        level: usize,
        start: u64,
        entry: &LogEntry,
        range: &Range<u64>,
        leaves: &mut Vec<(u64, Arc<[u8]>)>,
    ) -> Result<(), SnapshotError> {
        let end = start.saturating_add(entry.count);
        if end <= range.start || start >= range.end {
            return Ok(());
        }
        let Some(chunk) = self.chunk(kind_at(level), entry.digest) else {
            return Ok(());
        };
        if level == 0 {
            leaf_matches(chunk.bytes(), entry)?;
            leaves.push((start, Arc::clone(chunk.bytes())));
            return Ok(());
        }
        let node = Node::parse(chunk.bytes()).map_err(|error| error.at(entry.digest))?;
        node.matches(level, entry)?;
        let mut start = start;
        for child in &node.children {
            self.leaves(level - 1, start, child, range, leaves)?;
            start += child.count;
        }
        Ok(())
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
            let inline = match reader.root.artifact_refs() {
                ArtifactRefs::Inline(references) => references
                    .iter()
                    .map(|reference| Arc::from(reference.as_ref()))
                    .collect(),
                ArtifactRefs::Log(_) => Vec::new(),
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
                inline,
                frontiers.artifacts,
            )))
        })
    }
}

fn live_records(items: &[LogItem]) -> Result<Vec<KeyedRecord>, SnapshotError> {
    let mut live = LiveRecords::default();
    for item in items {
        live.apply(item)?;
    }
    Ok(live
        .in_order()
        .into_iter()
        .map(|(key, record)| (key.to_owned(), Arc::clone(record)))
        .collect())
}

fn parse_value(canonical: &[u8], digest: Option<Digest>) -> Result<Value, SnapshotError> {
    canonical_json::read_canonical(canonical).map_err(|_| {
        let error = SnapshotError::component("its bytes are not canonical");
        match digest {
            Some(digest) => error.at(digest),
            None => error,
        }
    })
}
