//! Maps: a component whose parts stand in chunks of their own (section 18).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::chunk::{ChunkKind, ChunkReference};
use super::cursor::{Cursor, Malformed};
use super::error::SnapshotError;
use super::limits::{ENVELOPE_DEPTH, MAXIMUM_DEPTH, MAXIMUM_REST_BYTES};
use super::log_tree::write_digest;
use crate::canonical_json::{write_str, write_u64};
use crate::digest::Digest;

/// A part of a map: `[kind, digest, bytes]`.
///
/// For a log, `bytes` are the canonical leaf bytes underneath; for a blob, its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartReference {
    /// `log` or `blob`.
    pub kind: ChunkKind,
    /// The chunk.
    pub digest: Digest,
    /// Bytes underneath.
    pub bytes: u64,
}

impl PartReference {
    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(b"[\"");
        buffer.extend_from_slice(self.kind.as_str().as_bytes());
        buffer.extend_from_slice(b"\",");
        write_digest(&self.digest, buffer);
        buffer.push(b',');
        write_u64(self.bytes, buffer);
        buffer.push(b']');
    }

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        cursor.literal("[")?;
        let kind = match cursor.plain()? {
            "log" => ChunkKind::Log,
            "blob" => ChunkKind::Blob,
            _ => return Err(Malformed("a part is neither a log nor a blob")),
        };
        cursor.literal(",")?;
        let digest = cursor.digest()?;
        cursor.literal(",")?;
        let bytes = cursor.u64()?;
        cursor.literal("]")?;
        Ok(PartReference {
            kind,
            digest,
            bytes,
        })
    }
}

/// The content of a `map` chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapChunk {
    pub(crate) parts: BTreeMap<String, PartReference>,
    /// The canonical object without the parts.
    pub(crate) rest: Vec<u8>,
}

/// Writes a `map` chunk from its parts in order and its canonical rest.
pub(super) fn write_map<'part>(
    parts: impl Iterator<Item = (&'part str, PartReference)>,
    rest: &[u8],
) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(rest.len() + 512);
    buffer.extend_from_slice(b"{\"parts\":{");
    for (index, (pointer, part)) in parts.enumerate() {
        if index > 0 {
            buffer.push(b',');
        }
        write_str(pointer, &mut buffer);
        buffer.push(b':');
        part.write(&mut buffer);
    }
    buffer.extend_from_slice(b"},\"rest\":");
    buffer.extend_from_slice(rest);
    buffer.push(b'}');
    buffer
}

impl MapChunk {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        MapChunk::read(bytes).map_err(|malformed| SnapshotError::chunk(malformed.0))
    }

    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes)?;
        cursor.literal("{\"parts\":{")?;
        let mut parts = BTreeMap::new();
        if !cursor.take_if("}") {
            loop {
                let pointer = cursor.string()?.into_owned();
                let in_order = parts
                    .last_key_value()
                    .is_none_or(|(last, _): (&String, _)| *last < pointer);
                if !in_order || pointer_tokens(&pointer).is_none() {
                    return Err(Malformed(
                        "the pointers of a map are not valid or not sorted",
                    ));
                }
                cursor.literal(":")?;
                parts.insert(pointer, PartReference::read(&mut cursor)?);
                if !cursor.another(b'}')? {
                    break;
                }
            }
        }
        if parts.keys().any(|pointer| has_other_above(&parts, pointer)) {
            return Err(Malformed("a part of a map stands inside another"));
        }
        cursor.literal(",\"rest\":")?;
        if cursor.peek() != Some(b'{') {
            return Err(Malformed("the rest of a map is not an object"));
        }
        let (rest, _) = cursor.value()?;
        if rest.len() > MAXIMUM_REST_BYTES {
            return Err(Malformed("the rest of a map exceeds 16 KiB"));
        }
        cursor.literal("}")?;
        cursor.end()?;
        Ok(MapChunk {
            parts,
            rest: rest.to_vec(),
        })
    }

    pub(crate) fn references(&self) -> impl Iterator<Item = ChunkReference> + '_ {
        self.parts.values().map(|part| (part.kind, part.digest))
    }

    /// The stored bytes underneath, those of the map itself included.
    pub(crate) fn bytes_underneath(&self, own: usize) -> Option<u64> {
        self.parts
            .values()
            .try_fold(own as u64, |sum, part| sum.checked_add(part.bytes))
    }
}

/// Whether another part stands at a pointer above `pointer`.
pub(super) fn has_other_above<Part>(parts: &BTreeMap<String, Part>, pointer: &str) -> bool {
    pointer
        .char_indices()
        .skip(1)
        .filter(|(_, character)| *character == '/')
        .any(|(at, _)| {
            pointer
                .split_at_checked(at)
                .is_some_and(|(above, _)| parts.contains_key(above))
        })
}

/// The unescaped tokens of a JSON pointer that is not empty; `None` if it is not valid.
pub(super) fn pointer_tokens(pointer: &str) -> Option<Vec<String>> {
    pointer
        .strip_prefix('/')?
        .split('/')
        .map(|token| {
            let mut unescaped = String::with_capacity(token.len());
            let mut characters = token.chars();
            while let Some(character) = characters.next() {
                unescaped.push(match character {
                    '~' => match characters.next()? {
                        '0' => '~',
                        '1' => '/',
                        _ => return None,
                    },
                    other => other,
                });
            }
            Some(unescaped)
        })
        .collect()
}

/// How deep an item of the log, or the blob, at `pointer` may be nested.
pub(super) fn depth_left(pointer: &str, kind: ChunkKind) -> usize {
    let objects = pointer.matches('/').count();
    let array = usize::from(kind == ChunkKind::Log);
    MAXIMUM_DEPTH.saturating_sub(ENVELOPE_DEPTH + objects + array)
}

/// Puts a part where its pointer says, and makes the objects above it that the rest does not have.
pub(super) fn insert_part(
    payload: &mut Map<String, Value>,
    pointer: &str,
    part: Value,
) -> Result<(), SnapshotError> {
    let blocked = || SnapshotError::component("a part does not fit into the rest of its map");
    let tokens = pointer_tokens(pointer).ok_or_else(blocked)?;
    let (last, above) = tokens.split_last().ok_or_else(blocked)?;
    let mut object = payload;
    for token in above {
        object = match object
            .entry(token.as_str())
            .or_insert_with(|| Value::Object(Map::new()))
        {
            Value::Object(inner) => inner,
            _ => return Err(blocked()),
        };
    }
    if object.insert(last.clone(), part).is_some() {
        return Err(blocked());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_json_pointers_below_the_object() {
        assert_eq!(
            pointer_tokens("/a~1b/~0"),
            Some(vec!["a/b".to_owned(), "~".to_owned()])
        );
        for pointer in ["", "a", "/~", "/~2"] {
            assert_eq!(pointer_tokens(pointer), None, "{pointer}");
        }
    }

    #[test]
    fn maps_round_trip_and_refuse_overlapping_parts() {
        let part = PartReference {
            kind: ChunkKind::Blob,
            digest: Digest::ZERO,
            bytes: 4,
        };
        let parts = [("/a/b", part), ("/ab", part)];
        let bytes = write_map(parts.into_iter(), b"{\"a\":{}}");
        let map = MapChunk::parse(&bytes).unwrap();
        assert_eq!(map.parts.len(), 2);
        assert_eq!(map.bytes_underneath(10), Some(18));
        for parts in [
            [("/a", part), ("/a/b", part)],
            [("/b", part), ("/a", part)],
            [("/a", part), ("/a", part)],
            [("/a", part), ("b", part)],
        ] {
            assert!(MapChunk::parse(&write_map(parts.into_iter(), b"{}")).is_err());
        }
        assert!(MapChunk::parse(&write_map([].into_iter(), b"[]")).is_err());
    }

    #[test]
    fn parts_stand_where_their_pointers_say() {
        let mut payload = Map::new();
        insert_part(&mut payload, "/a/b", Value::from(1)).unwrap();
        insert_part(&mut payload, "/a/c~1", Value::from(2)).unwrap();
        assert_eq!(
            Value::Object(payload.clone()),
            serde_json::json!({"a": {"b": 1, "c/": 2}})
        );
        assert!(insert_part(&mut payload, "/a/b", Value::from(3)).is_err());
        assert!(insert_part(&mut payload, "/a/b/c", Value::from(3)).is_err());
    }
}
