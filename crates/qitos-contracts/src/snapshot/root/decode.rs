//! Reading a root record strictly, without a tree.

use std::sync::Arc;

use super::{ComponentEntry, Layout, ROOT_SCHEMA, Root, root_digest};
use crate::digest::Digest;
use crate::ids::{CheckpointId, SessionId, SnapshotId};
use crate::snapshot::artifact_refs::read_artifact_refs;
use crate::snapshot::component::{is_name, is_schema_id};
use crate::snapshot::cursor::{Cursor, Malformed};
use crate::snapshot::envelope::{ParentRef, Timing, read_identity, read_optional_time, read_time};
use crate::snapshot::error::SnapshotError;
use crate::snapshot::lifecycle::Lifecycle;
use crate::snapshot::limits::{
    ENVELOPE_DEPTH, MAXIMUM_COMPONENTS, MAXIMUM_DEPTH, MAXIMUM_INLINE_BYTES,
};
use crate::snapshot::resolver_reference::ResolverReferences;

/// Reads everything; `bytes` of the result is empty.
pub(super) fn read_root(bytes: &[u8]) -> Result<Root, SnapshotError> {
    let mut cursor = Cursor::new(bytes)?;
    let cursor = &mut cursor;
    cursor.literal("{\"artifact_refs\":")?;
    let artifact_refs = read_artifact_refs(cursor)?;
    cursor.literal(",\"components\":[")?;
    let components = read_components(cursor)?;
    cursor.literal(",\"created_at\":")?;
    let created_at = read_time(cursor)?;
    cursor.literal(",\"head_generation\":")?;
    let head_generation = cursor.u64()?;
    let before = cursor.position();
    cursor.literal(",\"integrity\":{\"algorithm\":\"sha256-tree/v1\",\"digest\":")?;
    let digest = cursor.digest()?;
    cursor.literal("}")?;
    let after = cursor.position();
    cursor.literal(",\"lifecycle\":")?;
    let lifecycle = read_lifecycle(cursor)?;
    cursor.literal(",\"parent\":")?;
    let parent = read_parent(cursor)?;
    cursor.literal(",\"resolver_references\":")?;
    let resolver_references = ResolverReferences::read(cursor)?;
    cursor.literal(",\"schema_version\":")?;
    let schema_version = cursor.u64()?;
    if schema_version != ROOT_SCHEMA {
        return Err(SnapshotError::UnsupportedSnapshotSchema { schema_version });
    }
    cursor.literal(",\"session_id\":")?;
    let session_id = read_identity(cursor, "session_id", SessionId::KIND)?;
    cursor.literal(",\"snapshot_id\":")?;
    let snapshot_id = read_identity(cursor, "snapshot_id", SnapshotId::KIND)?;
    cursor.literal(",\"timing\":")?;
    let timing = read_timing(cursor, lifecycle)?;
    cursor.literal("}")?;
    cursor.end()?;

    let halves = (
        bytes.get(..before).unwrap_or_default(),
        bytes.get(after..).unwrap_or_default(),
    );
    if root_digest(halves.0, halves.1) != digest {
        return Err(SnapshotError::root("its bytes do not have its digest").at(digest));
    }
    for entry in &components {
        let payload = bytes.get(entry.payload.clone()).unwrap_or_default();
        if entry.layout == Layout::Inline && Digest::of(payload) != entry.digest {
            return Err(SnapshotError::ComponentDigestMismatch {
                owner: entry.owner.to_string(),
                slot: entry.slot.to_string(),
            });
        }
    }
    Ok(Root {
        bytes: Arc::new([]),
        digest,
        snapshot_id,
        session_id,
        head_generation,
        lifecycle,
        created_at,
        timing,
        components,
        resolver_references,
        artifact_refs,
        parent,
    })
}

pub(in crate::snapshot) fn read_lifecycle(
    cursor: &mut Cursor<'_>,
) -> Result<Lifecycle, SnapshotError> {
    cursor
        .plain()?
        .parse()
        .map_err(|_| SnapshotError::root("its lifecycle is none that is persisted"))
}

fn read_parent(cursor: &mut Cursor<'_>) -> Result<Option<ParentRef>, SnapshotError> {
    if cursor.take_if("null") {
        return Ok(None);
    }
    cursor.literal("{\"checkpoint_id\":")?;
    let checkpoint_id = read_identity(cursor, "parent.checkpoint_id", CheckpointId::KIND)?;
    cursor.literal(",\"root_digest\":")?;
    let root_digest = cursor.digest()?;
    cursor.literal(",\"snapshot_id\":")?;
    let snapshot_id = read_identity(cursor, "parent.snapshot_id", SnapshotId::KIND)?;
    cursor.literal("}")?;
    Ok(Some(ParentRef {
        snapshot_id,
        checkpoint_id,
        root_digest,
    }))
}

pub(in crate::snapshot) fn read_timing(
    cursor: &mut Cursor<'_>,
    lifecycle: Lifecycle,
) -> Result<Timing, SnapshotError> {
    cursor.literal("{\"captured_at\":")?;
    let captured_at = read_time(cursor)?;
    cursor.literal(",\"pause_requested_at\":")?;
    let pause_requested_at = read_optional_time(cursor)?;
    cursor.literal(",\"safe_boundary_at\":")?;
    let safe_boundary_at = read_optional_time(cursor)?;
    cursor.literal("}")?;
    let timing = Timing {
        captured_at,
        pause_requested_at,
        safe_boundary_at,
    };
    if timing == timing.of(lifecycle) {
        Ok(timing)
    } else {
        Err(SnapshotError::root("its times do not fit its lifecycle"))
    }
}

/// The descriptors after the opening bracket.
fn read_components(cursor: &mut Cursor<'_>) -> Result<Vec<ComponentEntry>, SnapshotError> {
    let mut components: Vec<ComponentEntry> = Vec::with_capacity(12);
    if cursor.take_if("]") {
        return Ok(components);
    }
    loop {
        let entry =
            read_entry(cursor).map_err(|malformed| SnapshotError::component(malformed.0))?;
        if components
            .last()
            .is_some_and(|last| last.place() >= entry.place())
        {
            return Err(SnapshotError::root(
                "its components are not sorted or not unique",
            ));
        }
        components.push(entry);
        SnapshotError::bound("components", components.len(), MAXIMUM_COMPONENTS)?;
        if !cursor.another(b']')? {
            return Ok(components);
        }
    }
}

fn read_entry(cursor: &mut Cursor<'_>) -> Result<ComponentEntry, Malformed> {
    cursor.literal("{\"bytes\":")?;
    let bytes = cursor.u64()?;
    cursor.literal(",\"digest\":")?;
    let digest = cursor.digest()?;
    cursor.literal(",\"layout\":")?;
    let layout = match cursor.plain()? {
        "inline" => Layout::Inline,
        "blob" => Layout::Blob,
        "map" => Layout::Map,
        _ => return Err(Malformed("the layout of a component is not known")),
    };
    cursor.literal(",\"owner\":")?;
    let owner = cursor.plain()?;
    let mut payload = 0..0;
    if layout == Layout::Inline {
        cursor.literal(",\"payload\":")?;
        let start = cursor.position();
        check_payload(cursor)?;
        payload = start..cursor.position();
        if payload.len() > MAXIMUM_INLINE_BYTES || payload.len() as u64 != bytes {
            return Err(Malformed("an inline payload does not have its size"));
        }
    }
    cursor.literal(",\"required\":")?;
    let required = cursor.bool()?;
    cursor.literal(",\"schema_version\":")?;
    let schema = cursor.plain()?;
    cursor.literal(",\"slot\":")?;
    let slot = cursor.plain()?;
    cursor.literal("}")?;
    if !(is_name(owner) && is_name(slot) && is_schema_id(schema)) {
        return Err(Malformed(
            "a component has an invalid owner, slot or schema",
        ));
    }
    Ok(ComponentEntry {
        owner: owner.into(),
        slot: slot.into(),
        schema: schema.into(),
        required,
        layout,
        digest,
        bytes,
        payload,
    })
}

/// A payload is an object, nested no deeper than its envelope may be.
pub(in crate::snapshot) fn check_payload<'text>(
    cursor: &mut Cursor<'text>,
) -> Result<&'text [u8], Malformed> {
    if cursor.peek() != Some(b'{') {
        return Err(Malformed("a payload is not an object"));
    }
    let (payload, depth) = cursor.value()?;
    if depth + ENVELOPE_DEPTH > MAXIMUM_DEPTH {
        return Err(Malformed("a payload is nested too deep"));
    }
    Ok(payload)
}
