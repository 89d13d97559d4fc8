//! Rule: every chunk that a commit references is sent with it, or referenced by its parent (STO-50).
//!
//! The parent's root, maps and logs are known; its nodes and leaves are not read. So a commit that appends is
//! checked at the cost of what it sends. One that rewrites a log may also reuse what lies below the parent's
//! frontier, on the path of the cut: at most one node per level is read for it (STO-48).
//!
//! By induction every stored root is whole: the parent was, and what this commit adds to it is here.

use std::collections::HashMap;
use std::sync::Arc;

use super::artifact_refs::ArtifactRefs;
use super::chunk::{Chunk, ChunkKind, ChunkReference};
use super::error::SnapshotError;
use super::limits::MAXIMUM_MISSING_DIGESTS;
use super::log_tree::{LogEntry, LogFrontier, Node, kind_at, leaf_matches};
use super::map::{MapChunk, PartReference};
use super::reader::{Frontiers, MapWithLogs};
use super::root::{Layout, Root};
use crate::digest::Digest;

/// A part of a known map.
#[derive(Clone, Debug)]
struct KnownPart {
    pointer: Box<str>,
    reference: PartReference,
    /// For a log.
    frontier: Option<Arc<LogFrontier>>,
}

impl KnownPart {
    fn all_of((map, mut logs): MapWithLogs) -> Arc<[KnownPart]> {
        map.parts
            .into_iter()
            .map(|(pointer, reference)| KnownPart {
                frontier: logs.remove(&pointer).map(Arc::new),
                pointer: pointer.into(),
                reference,
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
struct KnownComponent {
    owner: Box<str>,
    slot: Box<str>,
    kind: Option<ChunkKind>,
    digest: Digest,
    bytes: u64,
    parts: Arc<[KnownPart]>,
}

/// What the root, the maps and the logs of a snapshot reference: what its child may build upon.
///
/// A store keeps one beside the head, and makes it from the stored root when it has none
/// ([`SnapshotReader::known_references`](super::SnapshotReader::known_references)). Unchanged maps and logs are
/// shared with the parent's.
#[derive(Clone, Debug, Default)]
pub struct KnownReferences {
    root_digest: Option<Digest>,
    components: Vec<KnownComponent>,
    artifacts: Option<(PartReference, Arc<LogFrontier>)>,
    log_rewritten: bool,
}

impl KnownReferences {
    /// Those of no snapshot: what a session's first commit may build upon.
    #[must_use]
    pub fn none() -> Self {
        KnownReferences::default()
    }

    /// Those of a stored snapshot.
    pub(super) fn of_stored(root: &Root, frontiers: Frontiers) -> Self {
        let components = root
            .components()
            .iter()
            .zip(frontiers.maps)
            .map(|(entry, map)| KnownComponent {
                owner: entry.owner.clone(),
                slot: entry.slot.clone(),
                kind: entry.layout.chunk_kind(),
                digest: entry.digest,
                bytes: entry.bytes,
                parts: map.map_or_else(|| Arc::from([]), KnownPart::all_of),
            })
            .collect();
        let artifacts = match (root.artifact_refs(), frontiers.artifacts) {
            (ArtifactRefs::Log(reference), Some((_, log))) => Some((*reference, Arc::new(log))),
            _ => None,
        };
        KnownReferences {
            root_digest: Some(root.digest()),
            components,
            artifacts,
            log_rewritten: false,
        }
    }

    /// The root that references them.
    #[must_use]
    pub const fn root_digest(&self) -> Option<Digest> {
        self.root_digest
    }

    /// Whether the commit whose check gave these rewrote a log (STO-48).
    #[must_use]
    pub const fn log_rewritten(&self) -> bool {
        self.log_rewritten
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<LogFrontier>> {
        self.components
            .iter()
            .flat_map(|component| component.parts.iter())
            .filter_map(|part| part.frontier.as_ref())
            .chain(self.artifacts.iter().map(|(_, frontier)| frontier))
    }

    fn component(&self, owner: &str, slot: &str) -> Option<&KnownComponent> {
        self.components
            .iter()
            .find(|component| (&*component.owner, &*component.slot) == (owner, slot))
    }

    /// The known blob with this digest: its bytes.
    fn blob(&self, digest: &Digest) -> Option<u64> {
        let whole = self
            .components
            .iter()
            .filter(|component| component.kind == Some(ChunkKind::Blob))
            .map(|component| (component.digest, component.bytes));
        let parts = self
            .components
            .iter()
            .flat_map(|component| component.parts.iter())
            .filter(|part| part.reference.kind == ChunkKind::Blob)
            .map(|part| (part.reference.digest, part.reference.bytes));
        whole
            .chain(parts)
            .find(|(known, _)| known == digest)
            .map(|(_, bytes)| bytes)
    }

    /// The known log with this digest.
    fn log(&self, digest: &Digest) -> Option<&Arc<LogFrontier>> {
        let parts = self
            .components
            .iter()
            .flat_map(|component| component.parts.iter())
            .filter_map(|part| Some((&part.reference, part.frontier.as_ref()?)));
        parts
            .chain(
                self.artifacts
                    .iter()
                    .map(|(reference, log)| (reference, log)),
            )
            .find(|(reference, _)| reference.digest == *digest)
            .map(|(_, log)| log)
    }
}

/// The outcome of a closure check that may read nodes of the parent.
#[derive(Clone, Debug)]
pub enum Closure {
    /// Every reference is sent or known.
    Closed(KnownReferences),
    /// Read these nodes of the parent's logs and ask again with them added.
    Need(Vec<ChunkReference>),
}

/// Checks the closure of a commit whose logs only grow, and the sums that its descriptors state.
///
/// `parent` are the references of the snapshot that the commit builds upon: none for a create, the source's
/// for a fork. The result is what the child of this commit may build upon. A commit that cut a log needs
/// [`check_closure_with`].
///
/// # Errors
/// `missing_chunk`, naming at most 1,000 digests; `corrupt_snapshot` when a sent chunk is not what references
/// to it say.
pub fn check_closure(
    root: &Root,
    sent: &[Chunk],
    parent: &KnownReferences,
) -> Result<KnownReferences, SnapshotError> {
    match check_closure_with(root, sent, parent, &[])? {
        Closure::Closed(references) => Ok(references),
        Closure::Need(nodes) => Err(SnapshotError::missing(
            nodes.into_iter().map(|(_, digest)| digest).collect(),
        )),
    }
}

/// As [`check_closure`], for a commit that may have cut a log; `path` are the nodes read so far.
///
/// Start with no node. Each round asks for one node per cut log, one level lower than the round before, so a
/// log of n items takes at most log₄ n rounds.
///
/// # Errors
/// As [`check_closure`].
pub fn check_closure_with(
    root: &Root,
    sent: &[Chunk],
    parent: &KnownReferences,
    path: &[Chunk],
) -> Result<Closure, SnapshotError> {
    let mut check = Check {
        sent: sent.iter().map(|chunk| (chunk.digest(), chunk)).collect(),
        path,
        parent,
        missing: Vec::new(),
        need: Vec::new(),
        log_rewritten: false,
    };
    let mut components = Vec::with_capacity(root.components().len());
    for entry in root.components() {
        components.push(KnownComponent {
            owner: entry.owner.clone(),
            slot: entry.slot.clone(),
            kind: entry.layout.chunk_kind(),
            digest: entry.digest,
            bytes: entry.bytes,
            parts: match entry.layout {
                Layout::Inline => Arc::new([]),
                Layout::Blob => {
                    check.blob(entry.digest, entry.bytes, b"{")?;
                    Arc::new([])
                }
                Layout::Map => check.map((&entry.owner, &entry.slot), entry.digest, entry.bytes)?,
            },
        });
    }
    let artifacts = match root.artifact_refs() {
        ArtifactRefs::Inline(_) => None,
        ArtifactRefs::Log(reference) => {
            let before = parent.artifacts.as_ref().map(|(_, log)| log);
            check
                .log(reference, before)?
                .map(|frontier| (*reference, frontier))
        }
    };
    if !check.missing.is_empty() {
        check.missing.truncate(MAXIMUM_MISSING_DIGESTS);
        return Err(SnapshotError::missing(check.missing));
    }
    if !check.need.is_empty() {
        return Ok(Closure::Need(check.need));
    }
    Ok(Closure::Closed(KnownReferences {
        root_digest: Some(root.digest()),
        components,
        artifacts,
        log_rewritten: check.log_rewritten,
    }))
}

struct Check<'commit> {
    sent: HashMap<Digest, &'commit Chunk>,
    path: &'commit [Chunk],
    parent: &'commit KnownReferences,
    missing: Vec<Digest>,
    need: Vec<ChunkReference>,
    log_rewritten: bool,
}

impl<'commit> Check<'commit> {
    fn sent(&self, kind: ChunkKind, digest: &Digest) -> Option<&'commit Chunk> {
        self.sent
            .get(digest)
            .copied()
            .filter(|chunk| chunk.kind() == kind)
    }

    /// `start` are the first bytes that its value must have.
    fn blob(&mut self, digest: Digest, bytes: u64, start: &[u8]) -> Result<(), SnapshotError> {
        let known = match self.sent(ChunkKind::Blob, &digest) {
            Some(chunk) => {
                chunk.check()?;
                if !chunk.bytes().starts_with(start) {
                    return Err(SnapshotError::chunk("a payload is not an object").at(digest));
                }
                Some(chunk.bytes().len() as u64)
            }
            None => self.parent.blob(&digest),
        };
        match known {
            None => self.missing.push(digest),
            Some(known) if known != bytes => return Err(wrong_bytes(digest)),
            Some(_) => {}
        }
        Ok(())
    }

    fn map(
        &mut self,
        place: (&str, &str),
        digest: Digest,
        bytes: u64,
    ) -> Result<Arc<[KnownPart]>, SnapshotError> {
        let parent = self.parent;
        let before = parent.component(place.0, place.1);
        let same =
            |known: &&KnownComponent| known.kind == Some(ChunkKind::Map) && known.digest == digest;
        let unchanged = before
            .filter(same)
            .or_else(|| parent.components.iter().find(same));
        if let Some(known) = unchanged {
            if known.bytes != bytes {
                return Err(wrong_bytes(digest));
            }
            return Ok(Arc::clone(&known.parts));
        }
        let Some(chunk) = self.sent(ChunkKind::Map, &digest) else {
            self.missing.push(digest);
            return Ok(Arc::new([]));
        };
        let map = MapChunk::parse(chunk.bytes()).map_err(|error| error.at(digest))?;
        if map.bytes_underneath(chunk.bytes().len()) != Some(bytes) {
            return Err(wrong_bytes(digest));
        }
        let mut parts = Vec::with_capacity(map.parts.len());
        for (pointer, reference) in map.parts {
            let frontier = if reference.kind == ChunkKind::Log {
                let before = before
                    .and_then(|known| known.parts.iter().find(|part| *part.pointer == *pointer))
                    .and_then(|part| part.frontier.as_ref());
                self.log(&reference, before)?
            } else {
                self.blob(reference.digest, reference.bytes, b"")?;
                None
            };
            parts.push(KnownPart {
                pointer: pointer.into(),
                reference,
                frontier,
            });
        }
        Ok(parts.into())
    }

    /// `before` is the log that stood in the same place.
    fn log(
        &mut self,
        reference: &PartReference,
        before: Option<&Arc<LogFrontier>>,
    ) -> Result<Option<Arc<LogFrontier>>, SnapshotError> {
        let digest = reference.digest;
        let parent = self.parent;
        let known = match self.sent(ChunkKind::Log, &digest) {
            None => parent.log(&digest).map(Arc::clone),
            Some(chunk) => {
                let frontier =
                    LogFrontier::parse(chunk.bytes()).map_err(|error| error.at(digest))?;
                self.entries(&frontier, before)?;
                Some(Arc::new(frontier))
            }
        };
        match &known {
            None => self.missing.push(digest),
            Some(frontier) if frontier.bytes() != reference.bytes => {
                return Err(wrong_bytes(digest));
            }
            Some(_) => {}
        }
        Ok(known)
    }

    fn entries(
        &mut self,
        frontier: &LogFrontier,
        before: Option<&Arc<LogFrontier>>,
    ) -> Result<(), SnapshotError> {
        let empty = LogFrontier::default();
        let mut walk = LogWalk {
            before: before.map_or(&empty, Arc::as_ref),
            old: Vec::new(),
            next_old: 0,
            asked: false,
        };
        walk.old = walk
            .before
            .in_order()
            .map(|(level, _, entry)| (level, *entry))
            .collect();
        for (level, start, entry) in frontier.in_order() {
            self.entry(&mut walk, level, start, entry)?;
        }
        if walk.next_old < walk.old.len() {
            self.log_rewritten = true;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &mut LogWalk<'_>,
        level: usize,
        start: u64,
        entry: &LogEntry,
    ) -> Result<(), SnapshotError> {
        // In a log that only grew, the old frontier stands in front, entry by entry, below new nodes or not.
        if walk.old.get(walk.next_old) == Some(&(level, *entry)) {
            walk.next_old += 1;
            return Ok(());
        }
        match self.sent(kind_at(level), &entry.digest) {
            Some(leaf) if level == 0 => leaf_matches(leaf.bytes(), entry),
            Some(chunk) => {
                let node = Node::parse(chunk.bytes()).map_err(|error| error.at(entry.digest))?;
                node.matches(level, entry)?;
                let mut start = start;
                for child in &node.children {
                    self.entry(walk, level - 1, start, child)?;
                    start += child.count;
                }
                Ok(())
            }
            None => self.unsent(walk, level, start, entry),
        }
    }

    /// An entry that is not sent: any log of the parent may name it, or a node on the cut path may.
    fn unsent(
        &mut self,
        walk: &mut LogWalk<'_>,
        level: usize,
        start: u64,
        entry: &LogEntry,
    ) -> Result<(), SnapshotError> {
        self.log_rewritten = true;
        let parent = self.parent;
        if walk.before.contains(level, entry) || parent.logs().any(|log| log.contains(level, entry))
        {
            return Ok(());
        }
        // Descend from the parent's frontier to where the entry would have stood.
        let found = walk
            .before
            .in_order()
            .find(|(_, first, above)| (*first..first + above.count).contains(&start));
        let Some((mut above_level, mut above_start, mut above)) =
            found.map(|(level, first, above)| (level, first, *above))
        else {
            self.missing.push(entry.digest);
            return Ok(());
        };
        while above_level > level {
            let Some(chunk) = self
                .path
                .iter()
                .find(|chunk| chunk.digest() == above.digest && chunk.kind() == ChunkKind::Node)
            else {
                if !walk.asked {
                    walk.asked = true;
                    self.need.push((ChunkKind::Node, above.digest));
                }
                return Ok(());
            };
            let node = Node::parse(chunk.bytes()).map_err(|error| error.at(above.digest))?;
            node.matches(above_level, &above)?;
            let mut first = above_start;
            for child in &node.children {
                if (first..first + child.count).contains(&start) {
                    above = *child;
                    break;
                }
                first += child.count;
            }
            above_start = first;
            above_level -= 1;
        }
        if above_level != level || above != *entry || above_start != start {
            self.missing.push(entry.digest);
        }
        Ok(())
    }
}

/// One log of the commit beside the log that stood in its place.
struct LogWalk<'parent> {
    before: &'parent LogFrontier,
    /// The frontier of `before` in the order of its items.
    old: Vec<(usize, LogEntry)>,
    /// How many of them the new log has in front so far.
    next_old: usize,
    /// Whether this round asks for a node already: entries after it lie on the same path.
    asked: bool,
}

fn wrong_bytes(digest: Digest) -> SnapshotError {
    SnapshotError::chunk("a reference states another size").at(digest)
}
