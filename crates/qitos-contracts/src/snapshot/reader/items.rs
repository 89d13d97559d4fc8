//! Items and records of logs: which chunks hold them, and where.

use std::ops::{Deref, Range};
use std::sync::Arc;

use super::{Read, SnapshotReader};
use crate::snapshot::component::ComponentSpec;
use crate::snapshot::error::SnapshotError;
use crate::snapshot::keyed_log::LiveRecords;
use crate::snapshot::log_tree::{LogEntry, LogFrontier, Node, kind_at, leaf_items, leaf_matches};

/// A key and its record, in the order of a keyed log.
pub type KeyedRecord = (String, Arc<[u8]>);

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

impl SnapshotReader {
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

    /// Items `range` of `log`, in order; nothing while chunks are missing.
    pub(super) fn items(
        &mut self,
        log: &LogFrontier,
        range: Range<u64>,
    ) -> Result<Option<Vec<LogItem>>, SnapshotError> {
        let mut leaves = Vec::new();
        for (level, start, entry) in log.in_order() {
            self.leaves(level, start, entry, &range, &mut leaves)?;
        }
        if !self.wanted.order.is_empty() {
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

pub(super) fn live_records(items: &[LogItem]) -> Result<Vec<KeyedRecord>, SnapshotError> {
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
