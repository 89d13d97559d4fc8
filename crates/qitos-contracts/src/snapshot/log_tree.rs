//! Logs: append-only sequences stored as a base-4 counter of leaves and nodes (section 18).
//!
//! ```text
//! level 2   [ n ]                 16 leaves        order of items: highest level first,
//! level 1   [ n n ]                8 leaves        left to right
//! level 0   [ l l l ]              3 leaves
//! ```
//! An append makes one leaf; four entries of a level become one node a level up. So a commit writes its new
//! leaf, on average a third of a node, and the frontier, which grows with the logarithm of the log.

use std::ops::Range;
use std::sync::Arc;

use super::chunk::{Chunk, ChunkKind, ChunkReference};
use super::cursor::{Cursor, Malformed};
use super::error::SnapshotError;
use super::limits::{MAXIMUM_LEAF_BYTES, MAXIMUM_LEAF_ITEMS};
use crate::canonical_json::write_u64;
use crate::digest::Digest;

/// Entries of one level that become a node of the next.
pub(crate) const FANOUT: usize = 4;
/// Levels that a log may have: 4^32 leaves are more than a counter of items can hold.
const MAXIMUM_LEVELS: usize = 32;

/// A leaf or node below, with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The chunk.
    pub digest: Digest,
    /// Items underneath.
    pub count: u64,
    /// Canonical leaf bytes underneath.
    pub bytes: u64,
}

impl LogEntry {
    fn write(&self, buffer: &mut Vec<u8>) {
        buffer.push(b'[');
        write_digest(&self.digest, buffer);
        buffer.push(b',');
        write_u64(self.count, buffer);
        buffer.push(b',');
        write_u64(self.bytes, buffer);
        buffer.push(b']');
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.literal("[")?;
        let digest = cursor.digest()?;
        cursor.literal(",")?;
        let count = cursor.u64()?;
        cursor.literal(",")?;
        let bytes = cursor.u64()?;
        cursor.literal("]")?;
        if count == 0 {
            return Err(Malformed("an entry of a log holds no item"));
        }
        Ok(LogEntry {
            digest,
            count,
            bytes,
        })
    }
}

/// Writes a quoted digest.
pub(super) fn write_digest(digest: &Digest, buffer: &mut Vec<u8>) {
    let hex = |nibble: u8| match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    };
    buffer.push(b'"');
    for byte in digest.as_bytes() {
        buffer.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
    buffer.push(b'"');
}

/// The kind of the chunks that entries of a level name.
pub(super) const fn kind_at(level: usize) -> ChunkKind {
    if level == 0 {
        ChunkKind::Leaf
    } else {
        ChunkKind::Node
    }
}

/// Sums of counts and bytes; `None` when they overflow.
fn sums<'entry>(entries: impl IntoIterator<Item = &'entry LogEntry>) -> Option<(u64, u64)> {
    entries
        .into_iter()
        .try_fold((0u64, 0u64), |(count, bytes), entry| {
            Some((
                count.checked_add(entry.count)?,
                bytes.checked_add(entry.bytes)?,
            ))
        })
}

/// Four entries of the level below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// From 1.
    pub(crate) level: usize,
    /// Left to right.
    pub(crate) children: [LogEntry; FANOUT],
}

impl Node {
    fn to_bytes(&self) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(400);
        buffer.extend_from_slice(b"{\"children\":[");
        for (index, child) in self.children.iter().enumerate() {
            if index > 0 {
                buffer.push(b',');
            }
            child.write(&mut buffer);
        }
        buffer.extend_from_slice(b"],\"level\":");
        write_u64(self.level as u64, &mut buffer);
        buffer.push(b'}');
        buffer
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        Node::read(bytes).map_err(|malformed| SnapshotError::chunk(malformed.0))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes)?;
        cursor.literal("{\"children\":[")?;
        let first = LogEntry::read(&mut cursor)?;
        let mut children = [first; FANOUT];
        for child in children.iter_mut().skip(1) {
            cursor.literal(",")?;
            *child = LogEntry::read(&mut cursor)?;
        }
        cursor.literal("],\"level\":")?;
        let level = cursor.u64()?;
        cursor.literal("}")?;
        cursor.end()?;
        match usize::try_from(level) {
            Ok(level @ 1..MAXIMUM_LEVELS) => Ok(Node { level, children }),
            _ => Err(Malformed("a node has an impossible level")),
        }
    }

    /// Checks what the entry above says of this node.
    pub(crate) fn matches(&self, level: usize, entry: &LogEntry) -> Result<(), SnapshotError> {
        if self.level == level && sums(&self.children) == Some((entry.count, entry.bytes)) {
            Ok(())
        } else {
            Err(SnapshotError::chunk("a node does not hold what its entry says").at(entry.digest))
        }
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = ChunkReference> + '_ {
        let kind = kind_at(self.level - 1);
        self.children.iter().map(move |child| (kind, child.digest))
    }
}

/// Checks that `bytes` are a canonical leaf; how many items it has.
pub(crate) fn leaf_count(bytes: &[u8]) -> Result<u64, SnapshotError> {
    leaf_items(bytes).map(|items| items.len() as u64)
}

/// Where the items of a leaf stand in its bytes.
pub(crate) fn leaf_items(bytes: &[u8]) -> Result<Vec<Range<usize>>, SnapshotError> {
    read_leaf(bytes).map_err(|malformed| SnapshotError::chunk(malformed.0))
}

fn read_leaf(bytes: &[u8]) -> Result<Vec<Range<usize>>, Malformed> {
    let mut cursor = Cursor::new(bytes)?;
    cursor.literal("[")?;
    let mut items = Vec::new();
    loop {
        let start = cursor.position();
        cursor.value()?;
        items.push(start..cursor.position());
        if !cursor.another(b']')? {
            break;
        }
        if items.len() == MAXIMUM_LEAF_ITEMS {
            return Err(Malformed("a leaf holds more than 256 items"));
        }
    }
    cursor.end()?;
    if items.len() > 1 && bytes.len() > MAXIMUM_LEAF_BYTES {
        return Err(Malformed("a leaf of several items exceeds 256 KiB"));
    }
    Ok(items)
}

/// Checks what the entry above says of a leaf.
pub(crate) fn leaf_matches(bytes: &[u8], entry: &LogEntry) -> Result<(), SnapshotError> {
    if leaf_count(bytes).map_err(|error| error.at(entry.digest))? == entry.count
        && bytes.len() as u64 == entry.bytes
    {
        Ok(())
    } else {
        Err(SnapshotError::chunk("a leaf does not hold what its entry says").at(entry.digest))
    }
}

/// The content of a `log` chunk: at most three entries of each level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFrontier {
    count: u64,
    bytes: u64,
    levels: Vec<Vec<LogEntry>>,
}

impl LogFrontier {
    /// Items of the log.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Canonical leaf bytes of the log.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries in the order of their items, each with its level and the position of its first item.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (usize, u64, &LogEntry)> {
        let mut start = 0;
        self.levels
            .iter()
            .enumerate()
            .rev()
            .flat_map(|(level, entries)| entries.iter().map(move |entry| (level, entry)))
            .map(move |(level, entry)| {
                let first = start;
                start += entry.count;
                (level, first, entry)
            })
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = ChunkReference> + '_ {
        self.in_order()
            .map(|(level, _, entry)| (kind_at(level), entry.digest))
    }

    pub(crate) fn contains(&self, level: usize, entry: &LogEntry) -> bool {
        self.levels
            .get(level)
            .is_some_and(|entries| entries.contains(entry))
    }

    /// Adds a leaf; nodes that become full are given to `out`.
    fn push(&mut self, leaf: LogEntry, out: &mut Vec<Chunk>) {
        self.count += leaf.count;
        self.bytes += leaf.bytes;
        let mut entry = leaf;
        let mut level = 0;
        loop {
            if self.levels.len() == level {
                self.levels.push(Vec::with_capacity(FANOUT));
            }
            let Some(entries) = self.levels.get_mut(level) else {
                return;
            };
            entries.push(entry);
            let Ok(children) = <[LogEntry; FANOUT]>::try_from(entries.as_slice()) else {
                return;
            };
            entries.clear();
            level += 1;
            let (count, bytes) = sums(&children).unwrap_or_default();
            let node = Chunk::new(ChunkKind::Node, Node { level, children }.to_bytes().into());
            entry = LogEntry {
                digest: node.digest(),
                count,
                bytes,
            };
            out.push(node);
        }
    }

    /// The canonical bytes of the `log` chunk.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(96 + self.levels.len() * 160);
        buffer.extend_from_slice(b"{\"bytes\":");
        write_u64(self.bytes, &mut buffer);
        buffer.extend_from_slice(b",\"count\":");
        write_u64(self.count, &mut buffer);
        buffer.extend_from_slice(b",\"fanout\":4,\"levels\":[");
        for (index, entries) in self.levels.iter().enumerate() {
            if index > 0 {
                buffer.push(b',');
            }
            buffer.push(b'[');
            for (index, entry) in entries.iter().enumerate() {
                if index > 0 {
                    buffer.push(b',');
                }
                entry.write(&mut buffer);
            }
            buffer.push(b']');
        }
        buffer.extend_from_slice(b"]}");
        buffer
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        LogFrontier::read(bytes).map_err(|malformed| SnapshotError::chunk(malformed.0))
    }

    fn read(text: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(text)?;
        cursor.literal("{\"bytes\":")?;
        let bytes = cursor.u64()?;
        cursor.literal(",\"count\":")?;
        let count = cursor.u64()?;
        cursor.literal(",\"fanout\":4,\"levels\":[")?;
        let mut levels: Vec<Vec<LogEntry>> = Vec::new();
        if !cursor.take_if("]") {
            loop {
                if levels.len() == MAXIMUM_LEVELS {
                    return Err(Malformed("a log has too many levels"));
                }
                levels.push(read_level(&mut cursor)?);
                if !cursor.another(b']')? {
                    break;
                }
            }
        }
        cursor.literal("}")?;
        cursor.end()?;
        if levels.last().is_some_and(Vec::is_empty) {
            return Err(Malformed("the last level of a log is empty"));
        }
        if sums(levels.iter().flatten()) != Some((count, bytes)) {
            return Err(Malformed("a log does not hold what it says"));
        }
        Ok(LogFrontier {
            count,
            bytes,
            levels,
        })
    }
}

fn read_level(cursor: &mut Cursor<'_>) -> Result<Vec<LogEntry>, Malformed> {
    cursor.literal("[")?;
    let mut entries = Vec::with_capacity(FANOUT);
    if cursor.take_if("]") {
        return Ok(entries);
    }
    loop {
        if entries.len() == FANOUT - 1 {
            return Err(Malformed("a level of a log has more than three entries"));
        }
        entries.push(LogEntry::read(cursor)?);
        if !cursor.another(b']')? {
            return Ok(entries);
        }
    }
}

/// A log that is written: its frontier and the leaves of the commit under way.
#[derive(Clone, Debug, Default)]
pub(super) struct LogWriter {
    frontier: LogFrontier,
    /// Leaves and nodes made since the last seal.
    made: Vec<Chunk>,
    /// The open leaf: `[` and items, without the closing bracket.
    leaf: Vec<u8>,
    leaf_items: usize,
}

impl LogWriter {
    pub(super) fn from_frontier(frontier: LogFrontier) -> Self {
        LogWriter {
            frontier,
            ..LogWriter::default()
        }
    }

    /// Items, those of the commit under way included.
    pub(super) fn count(&self) -> u64 {
        self.frontier.count + self.leaf_items as u64
    }

    pub(super) const fn frontier(&self) -> &LogFrontier {
        &self.frontier
    }

    /// Appends the canonical bytes of one item.
    pub(super) fn push(&mut self, item: &[u8]) {
        let bytes_after = self.leaf.len() + item.len() + 2;
        if self.leaf_items == MAXIMUM_LEAF_ITEMS
            || (self.leaf_items > 0 && bytes_after > MAXIMUM_LEAF_BYTES)
        {
            self.close_leaf();
        }
        self.leaf
            .push(if self.leaf_items == 0 { b'[' } else { b',' });
        self.leaf.extend_from_slice(item);
        self.leaf_items += 1;
    }

    fn close_leaf(&mut self) {
        if self.leaf_items == 0 {
            return;
        }
        self.leaf.push(b']');
        let leaf = Chunk::new(ChunkKind::Leaf, Arc::from(self.leaf.as_slice()));
        self.leaf.clear();
        let entry = LogEntry {
            digest: leaf.digest(),
            count: self.leaf_items as u64,
            bytes: leaf.bytes().len() as u64,
        };
        self.leaf_items = 0;
        self.made.push(leaf);
        self.frontier.push(entry, &mut self.made);
    }

    /// Ends the commit: gives its leaves, nodes and the log itself to `out`.
    pub(super) fn seal(&mut self, out: &mut Vec<Chunk>) -> Chunk {
        self.close_leaf();
        out.append(&mut self.made);
        Chunk::new(ChunkKind::Log, self.frontier.to_bytes().into())
    }

    /// Forgets every item, stored or not.
    pub(super) fn clear(&mut self) {
        *self = LogWriter::default();
    }
}

/// A cut of a stored log after its first `keep` items (STO-48).
///
/// Sans I/O: while [`LogCut::need`] names a chunk, read it and [`LogCut::feed`] it; at most one chunk per
/// level. Then the writer applies it.
#[derive(Clone, Debug)]
pub struct LogCut {
    frontier: LogFrontier,
    /// The entry that the cut goes through, its level, and how many of its items are kept.
    through: Option<(usize, LogEntry, u64)>,
    /// The kept items of the leaf that was cut, as a leaf of its own.
    kept_of_leaf: Vec<Vec<u8>>,
}

impl LogCut {
    pub(super) fn new(log: &LogFrontier, keep: u64) -> Self {
        let mut cut = LogCut {
            frontier: LogFrontier::default(),
            through: None,
            kept_of_leaf: Vec::new(),
        };
        for (level, start, entry) in log.in_order() {
            if start >= keep {
                break;
            }
            cut.take(level, entry, keep - start);
        }
        cut
    }

    /// Keeps the first `keep` items of `entry`.
    fn take(&mut self, level: usize, entry: &LogEntry, keep: u64) {
        if keep < entry.count {
            self.through = Some((level, *entry, keep));
            return;
        }
        self.frontier.count += entry.count;
        self.frontier.bytes += entry.bytes;
        if self.frontier.levels.len() <= level {
            self.frontier.levels.resize(level + 1, Vec::new());
        }
        if let Some(entries) = self.frontier.levels.get_mut(level) {
            entries.push(*entry);
        }
    }

    /// The chunk that must be read next.
    #[must_use]
    pub fn need(&self) -> Option<ChunkReference> {
        self.through
            .map(|(level, entry, _)| (kind_at(level), entry.digest))
    }

    /// Takes the chunk that [`LogCut::need`] named.
    ///
    /// # Errors
    /// `corrupt_snapshot` if it is another one, or does not hold what its entry says.
    pub fn feed(&mut self, chunk: &Chunk) -> Result<(), SnapshotError> {
        let Some((level, entry, keep)) = self.through else {
            return Err(SnapshotError::chunk("no chunk was asked for"));
        };
        if chunk.kind() != kind_at(level) || chunk.digest() != entry.digest {
            return Err(SnapshotError::chunk("another chunk was asked for").at(entry.digest));
        }
        self.through = None;
        if level == 0 {
            leaf_matches(chunk.bytes(), &entry)?;
            let items = leaf_items(chunk.bytes())?;
            let keep = usize::try_from(keep).unwrap_or(usize::MAX);
            self.kept_of_leaf = items
                .into_iter()
                .take(keep)
                .map(|item| chunk.bytes().get(item).unwrap_or_default().to_vec())
                .collect();
            return Ok(());
        }
        let node = Node::parse(chunk.bytes())?;
        node.matches(level, &entry)?;
        let mut start = 0;
        for child in &node.children {
            if start >= keep {
                break;
            }
            self.take(level - 1, child, keep - start);
            start += child.count;
        }
        Ok(())
    }

    /// The log up to the cut.
    pub(super) fn finish(mut self) -> Result<LogWriter, SnapshotError> {
        if let Some((_, entry, _)) = self.through {
            return Err(SnapshotError::missing(vec![entry.digest]));
        }
        while self.frontier.levels.last().is_some_and(Vec::is_empty) {
            self.frontier.levels.pop();
        }
        let mut log = LogWriter::from_frontier(self.frontier);
        for item in &self.kept_of_leaf {
            log.push(item);
        }
        Ok(log)
    }
}
