//! Keyed logs: the last record of a key wins, keys stand in the order of their first appearance (section 18).
//!
//! An item is `{"key":K,"record":R}` or, to remove a key, `{"deleted":true,"key":K}`. A removed key that
//! comes back stands last, so rewriting the log without its history changes nothing that a reader sees.

use std::collections::HashMap;
use std::sync::Arc;

use super::cursor::{Cursor, Malformed};
use super::error::SnapshotError;
use super::limits::MAXIMUM_ITEM_BYTES;
use super::log_tree::{LogFrontier, LogWriter};
use crate::canonical_json::write_str;

/// A change of one key: its new canonical record, or `None` to remove it.
pub type KeyedChange<'text> = (&'text str, Option<&'text [u8]>);

fn write_item(key: &str, record: Option<&[u8]>, buffer: &mut Vec<u8>) {
    match record {
        Some(record) => {
            buffer.extend_from_slice(b"{\"key\":");
            write_str(key, buffer);
            buffer.extend_from_slice(b",\"record\":");
            buffer.extend_from_slice(record);
        }
        None => {
            buffer.extend_from_slice(b"{\"deleted\":true,\"key\":");
            write_str(key, buffer);
        }
    }
    buffer.push(b'}');
}

/// The key and, unless it was removed, the record of an item.
fn read_item(item: &[u8]) -> Result<(String, Option<&[u8]>), Malformed> {
    let mut cursor = Cursor::new(item)?;
    let read = if cursor.take_if("{\"deleted\":true,\"key\":") {
        (cursor.string()?.into_owned(), None)
    } else {
        cursor.literal("{\"key\":")?;
        let key = cursor.string()?.into_owned();
        cursor.literal(",\"record\":")?;
        (key, Some(cursor.value()?.0))
    };
    cursor.literal("}")?;
    cursor.end()?;
    Ok(read)
}

/// The live records of a keyed log.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveRecords {
    records: HashMap<Box<str>, (u64, Arc<[u8]>)>,
    next: u64,
}

impl LiveRecords {
    /// The given records, in their order.
    pub(super) fn of<'text>(records: impl IntoIterator<Item = (&'text str, &'text [u8])>) -> Self {
        let mut live = LiveRecords::default();
        for (key, record) in records {
            live.change(key, Some(record));
        }
        live
    }

    /// Applies an item of the log.
    pub(super) fn apply(&mut self, item: &[u8]) -> Result<(), SnapshotError> {
        let (key, record) =
            read_item(item).map_err(|malformed| SnapshotError::chunk(malformed.0))?;
        self.change(&key, record);
        Ok(())
    }

    /// Whether the bytes are an item of a keyed log at all.
    pub(super) fn check(item: &[u8]) -> Result<(), SnapshotError> {
        read_item(item)
            .map(|_| ())
            .map_err(|malformed| SnapshotError::chunk(malformed.0))
    }

    fn change(&mut self, key: &str, record: Option<&[u8]>) {
        match (record, self.records.get_mut(key)) {
            (None, _) => {
                self.records.remove(key);
            }
            (Some(record), Some((_, known))) => *known = record.into(),
            (Some(record), None) => {
                self.records.insert(key.into(), (self.next, record.into()));
                self.next += 1;
            }
        }
    }

    /// Whether the change would change nothing.
    fn has(&self, key: &str, record: Option<&[u8]>) -> bool {
        self.records.get(key).map(|(_, known)| known.as_ref()) == record
    }

    /// Keys and records in the order of their first appearance.
    pub(super) fn in_order(&self) -> Vec<(&str, &Arc<[u8]>)> {
        let mut records: Vec<_> = self.records.iter().collect();
        records.sort_unstable_by_key(|(_, (order, _))| *order);
        records
            .into_iter()
            .map(|(key, (_, record))| (key.as_ref(), record))
            .collect()
    }
}

/// A keyed log that is written.
///
/// Its live records stay in memory, so that it can rewrite itself. After a restore they are unknown until
/// somebody loads them; until then every change is appended and nothing is rewritten.
#[derive(Clone, Debug)]
pub(super) struct KeyedWriter {
    pub(super) log: LogWriter,
    live: LiveRecords,
    /// Whether `live` holds every live record, not only those changed since the restore.
    complete: bool,
    item: Vec<u8>,
}

impl KeyedWriter {
    pub(super) fn new() -> Self {
        KeyedWriter::from_frontier(LogFrontier::default())
    }

    pub(super) fn from_frontier(frontier: LogFrontier) -> Self {
        KeyedWriter {
            complete: frontier.count() == 0,
            log: LogWriter::from_frontier(frontier),
            live: LiveRecords::default(),
            item: Vec::new(),
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes the live records as a reader found them in the log that this writer continues.
    pub(super) fn load(&mut self, live: LiveRecords) {
        self.live = live;
        self.complete = true;
    }

    /// Appends the change, unless it changes nothing; whether it did.
    pub(super) fn upsert(
        &mut self,
        key: &str,
        record: Option<&[u8]>,
    ) -> Result<bool, SnapshotError> {
        let known = self.complete || self.live.records.contains_key(key);
        if known && self.live.has(key, record) {
            return Ok(false);
        }
        self.item.clear();
        write_item(key, record, &mut self.item);
        SnapshotError::bound("bytes of a log item", self.item.len(), MAXIMUM_ITEM_BYTES)?;
        self.live.change(key, record);
        let live = self.live.records.len() as u64;
        if self.complete && self.log.count() + 1 > 4 * live + 64 {
            self.rewrite();
        } else {
            self.log.push(&self.item);
        }
        Ok(true)
    }

    /// Starts the log again with its live records alone.
    fn rewrite(&mut self) {
        self.log.clear();
        for (key, record) in self.live.in_order() {
            self.item.clear();
            write_item(key, Some(record), &mut self.item);
            self.log.push(&self.item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_round_trip_with_any_key() {
        for key in ["", "a", "é\"\\\n\u{0}", "\u{1f600}"] {
            for record in [None, Some(&b"{\"a\":1}"[..]), Some(b"null")] {
                let mut item = Vec::new();
                write_item(key, record, &mut item);
                assert_eq!(read_item(&item), Ok((key.to_owned(), record)));
            }
        }
        for item in [
            &b"{\"deleted\":false,\"key\":\"a\"}"[..],
            b"{\"key\":\"a\"}",
            b"{\"key\":\"a\",\"more\":1,\"record\":1}",
            b"{\"key\":1,\"record\":1}",
            b"{\"key\":\"a\",\"record\":1} ",
        ] {
            assert!(read_item(item).is_err());
        }
    }

    #[test]
    fn a_keyed_log_is_rewritten_above_four_times_its_live_records_and_64() {
        // One live record: 68 items stay, the 69th makes the log start again.
        let mut keyed = KeyedWriter::new();
        for value in 0..68u32 {
            keyed
                .upsert("a", Some(value.to_string().as_bytes()))
                .unwrap();
            assert_eq!(keyed.log.count(), u64::from(value) + 1);
        }
        assert_eq!(keyed.upsert("a", Some(b"68")), Ok(true));
        assert_eq!(keyed.log.count(), 1);
        assert_eq!(keyed.upsert("a", Some(b"68")), Ok(false));
        assert_eq!(keyed.log.count(), 1);
    }

    #[test]
    fn a_removed_key_comes_back_last() {
        let mut live = LiveRecords::default();
        for (key, record) in [
            ("a", Some("1")),
            ("b", Some("2")),
            ("a", None),
            ("a", Some("3")),
        ] {
            let mut item = Vec::new();
            write_item(key, record.map(str::as_bytes), &mut item);
            live.apply(&item).unwrap();
        }
        let keys: Vec<_> = live.in_order().iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["b", "a"]);
    }
}
