//! The root record: envelope schema 3, which names every component and chunk of a snapshot (sections 4, 18).

mod decode;

use std::ops::Range;
use std::sync::Arc;

pub(super) use self::decode::{check_payload, read_lifecycle, read_timing};
use super::artifact_refs::ArtifactRefs;
use super::chunk::{ChunkKind, ChunkReference};
use super::component::{ComponentRegistry, ComponentSpec};
use super::envelope::{EnvelopeHeader, ParentRef, Timing, write_identity, write_optional_time};
use super::error::SnapshotError;
use super::lifecycle::Lifecycle;
use super::limits::MAXIMUM_ROOT_BYTES;
use super::resolver_reference::ResolverReferences;
use crate::canonical_json::{self, ObjectWriter, write_u64};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{CheckpointId, SessionId, SnapshotId};

/// The envelope schema of root records.
pub const ROOT_SCHEMA: u64 = 3;
/// The envelope schema of flat snapshots.
pub const FLAT_SCHEMA: u64 = 2;
const ROOT_ALGORITHM: &str = "sha256-tree/v1";

/// SHA-256(`qitos.snapshot/v3` ‖ 0 ‖ canonical root without `integrity`), given in two pieces.
fn root_digest(before: &[u8], after: &[u8]) -> Digest {
    Digest::of_parts(&[b"qitos.snapshot/v3\0", before, after])
}

/// Where a component's payload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// In the root record itself; at most 4 KiB.
    Inline,
    /// In one chunk.
    Blob,
    /// In a map chunk and its parts.
    Map,
}

impl Layout {
    /// The word of the descriptor.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Layout::Inline => "inline",
            Layout::Blob => "blob",
            Layout::Map => "map",
        }
    }

    /// The kind of the chunk that the digest names.
    #[must_use]
    pub const fn chunk_kind(self) -> Option<ChunkKind> {
        match self {
            Layout::Inline => None,
            Layout::Blob => Some(ChunkKind::Blob),
            Layout::Map => Some(ChunkKind::Map),
        }
    }
}

/// The descriptor of a component in a root record (SES-15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentEntry {
    /// Who encodes and decodes it.
    pub owner: Box<str>,
    /// Its place in the snapshot.
    pub slot: Box<str>,
    /// The id of its payload's schema.
    pub schema: Box<str>,
    /// Whether a reader without its codec must refuse the snapshot.
    pub required: bool,
    /// Where its payload stands.
    pub layout: Layout,
    /// Inline: SHA-256 of the payload; else the chunk digest.
    pub digest: Digest,
    /// Stored bytes underneath: of the payload, of the blob, or of the map and its parts.
    pub bytes: u64,
    /// Where the payload stands in the root record.
    payload: Range<usize>,
}

impl ComponentEntry {
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.owner, &self.slot)
    }

    /// The chunk that holds the payload, unless the root does.
    #[must_use]
    pub fn reference(&self) -> Option<ChunkReference> {
        self.layout.chunk_kind().map(|kind| (kind, self.digest))
    }
}

/// Writes a descriptor; `payload` is given for inline components only.
pub(super) fn write_entry(
    spec: &ComponentSpec,
    layout: Layout,
    digest: &Digest,
    bytes: u64,
    payload: Option<&[u8]>,
) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(320 + payload.map_or(0, <[u8]>::len));
    let mut entry = ObjectWriter::new(&mut buffer);
    entry.key("bytes").u64(bytes);
    entry.key("digest").digest(digest);
    entry.key("layout").str(layout.as_str());
    entry.key("owner").str(spec.owner);
    if let Some(payload) = payload {
        entry.key("payload").raw(payload);
    }
    entry.key("required").bool(spec.required);
    entry.key("schema_version").str(spec.schema);
    entry.key("slot").str(spec.slot);
    entry.end();
    buffer
}

/// A root record, parsed strictly and with its digest verified.
#[derive(Clone, Debug)]
pub struct Root {
    bytes: Arc<[u8]>,
    digest: Digest,
    snapshot_id: SnapshotId,
    session_id: SessionId,
    head_generation: u64,
    lifecycle: Lifecycle,
    created_at: Timestamp,
    timing: Timing,
    components: Vec<ComponentEntry>,
    resolver_references: ResolverReferences,
    artifact_refs: ArtifactRefs,
    parent: Option<ParentRef>,
}

impl Root {
    /// Reads a root record and verifies its digest, and that of every inline payload; O(root).
    ///
    /// Component owners and schemas are checked against a registry by [`Root::resolve_components`].
    ///
    /// # Errors
    /// `corrupt_snapshot`, `component_digest_mismatch`, `unsupported_snapshot_schema`,
    /// `invalid_identity_relationship`, `size_limit_exceeded`.
    pub fn parse(bytes: Arc<[u8]>) -> Result<Self, SnapshotError> {
        SnapshotError::bound("bytes of a root record", bytes.len(), MAXIMUM_ROOT_BYTES)?;
        match decode::read_root(&bytes) {
            Ok(root) => Ok(Root { bytes, ..root }),
            Err(error) => Err(match schema_version(&bytes) {
                Ok(ROOT_SCHEMA) => error,
                Ok(schema_version) => SnapshotError::UnsupportedSnapshotSchema { schema_version },
                Err(unreadable) => unreadable,
            }),
        }
    }

    /// Reads a root record that must have the digest which a receipt or an event carried (STO-51).
    ///
    /// # Errors
    /// As [`Root::parse`]; `corrupt_snapshot` for another digest.
    pub fn parse_expecting(bytes: Arc<[u8]>, digest: &Digest) -> Result<Self, SnapshotError> {
        let root = Root::parse(bytes)?;
        if root.digest == *digest {
            Ok(root)
        } else {
            Err(SnapshotError::root("it is not the root that was expected").at(*digest))
        }
    }

    /// The canonical bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The root digest, which names the whole snapshot.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The snapshot.
    #[must_use]
    pub const fn snapshot_id(&self) -> &SnapshotId {
        &self.snapshot_id
    }

    /// The session.
    #[must_use]
    pub const fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// The generation that its commit creates.
    #[must_use]
    pub const fn head_generation(&self) -> u64 {
        self.head_generation
    }

    /// The lifecycle after its commit.
    #[must_use]
    pub const fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    /// When the session was created.
    #[must_use]
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When the snapshot was captured.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The descriptors, sorted by owner and slot.
    #[must_use]
    pub fn components(&self) -> &[ComponentEntry] {
        &self.components
    }

    /// The descriptor of one component.
    #[must_use]
    pub fn component(&self, owner: &str, slot: &str) -> Option<&ComponentEntry> {
        self.components
            .iter()
            .find(|entry| entry.place() == (owner, slot))
    }

    /// The canonical payload of an inline component of this root.
    #[must_use]
    pub fn inline_payload(&self, entry: &ComponentEntry) -> Option<&[u8]> {
        if entry.layout == Layout::Inline {
            self.bytes.get(entry.payload.clone())
        } else {
            None
        }
    }

    /// What a restoring process must resolve.
    #[must_use]
    pub const fn resolver_references(&self) -> &ResolverReferences {
        &self.resolver_references
    }

    /// The artifact references, or the log that holds them.
    #[must_use]
    pub const fn artifact_refs(&self) -> &ArtifactRefs {
        &self.artifact_refs
    }

    /// The snapshot before.
    #[must_use]
    pub const fn parent(&self) -> Option<&ParentRef> {
        self.parent.as_ref()
    }

    /// What a child of this root names as its parent, committed as `checkpoint_id`.
    #[must_use]
    pub fn as_parent(&self, checkpoint_id: CheckpointId) -> ParentRef {
        ParentRef {
            snapshot_id: self.snapshot_id.clone(),
            checkpoint_id,
            root_digest: self.digest,
        }
    }

    /// The chunks that the root names directly.
    pub fn references(&self) -> impl Iterator<Item = ChunkReference> + '_ {
        let artifact_log = match &self.artifact_refs {
            ArtifactRefs::Inline(_) => None,
            ArtifactRefs::Log(log) => Some((log.kind, log.digest)),
        };
        self.components
            .iter()
            .filter_map(ComponentEntry::reference)
            .chain(artifact_log)
    }

    /// The codec of every component, in their order (SES-16).
    ///
    /// # Errors
    /// `unknown_component_owner`, `unsupported_component_schema`, `missing_required_component`.
    pub fn resolve_components(
        &self,
        registry: &ComponentRegistry,
    ) -> Result<Vec<ComponentSpec>, SnapshotError> {
        let specs = self
            .components
            .iter()
            .map(|entry| registry.resolve(&entry.owner, &entry.slot, &entry.schema, entry.required))
            .collect::<Result<_, _>>()?;
        registry.require(self.components.iter().map(ComponentEntry::place))?;
        Ok(specs)
    }
}

/// The number in `schema_version` of an envelope, whatever else it holds.
///
/// # Errors
/// `corrupt_snapshot` if the bytes are not a canonical object with such a number.
pub fn schema_version(envelope: &[u8]) -> Result<u64, SnapshotError> {
    let value = canonical_json::read_canonical(envelope)
        .map_err(|_| SnapshotError::root("its bytes are not canonical JSON"))?;
    value
        .get("schema_version")
        .and_then(serde_json::Value::as_u64)
        .ok_or(SnapshotError::root("it has no schema version"))
}

/// Writes a root record: its bytes and its digest.
///
/// `components` are the descriptors in order, joined by commas; `artifact_refs` is the value of that field.
pub(super) fn write_root(
    header: &EnvelopeHeader,
    components: &[u8],
    artifact_refs: &[u8],
) -> (Vec<u8>, Digest) {
    let mut before = Vec::with_capacity(components.len() + artifact_refs.len() + 1024);
    before.extend_from_slice(b"{\"artifact_refs\":");
    before.extend_from_slice(artifact_refs);
    before.extend_from_slice(b",\"components\":[");
    before.extend_from_slice(components);
    before.extend_from_slice(b"],\"created_at\":\"");
    before.extend_from_slice(header.created_at.to_string().as_bytes());
    before.extend_from_slice(b"\",\"head_generation\":");
    write_u64(header.head_generation, &mut before);

    let mut after = Vec::with_capacity(1024 + header.resolver_references.canonical().len());
    let mut rest = ObjectWriter::new(&mut after);
    rest.key("lifecycle").str(header.lifecycle.as_str());
    match &header.parent {
        None => rest.key("parent").null(),
        Some(parent) => {
            let mut object = rest.key("parent").object();
            write_identity(
                &mut object,
                "checkpoint_id",
                CheckpointId::KIND,
                parent.checkpoint_id.as_str(),
            );
            object.key("root_digest").digest(&parent.root_digest);
            write_identity(
                &mut object,
                "snapshot_id",
                SnapshotId::KIND,
                parent.snapshot_id.as_str(),
            );
            object.end();
        }
    }
    rest.key("resolver_references")
        .raw(header.resolver_references.canonical());
    rest.key("schema_version").u64(ROOT_SCHEMA);
    write_identity(
        &mut rest,
        "session_id",
        SessionId::KIND,
        header.session_id.as_str(),
    );
    write_identity(
        &mut rest,
        "snapshot_id",
        SnapshotId::KIND,
        header.snapshot_id.as_str(),
    );
    let timing = header.timing.of(header.lifecycle);
    let mut object = rest.key("timing").object();
    object
        .key("captured_at")
        .str(&timing.captured_at.to_string());
    write_optional_time(&mut object, "pause_requested_at", timing.pause_requested_at);
    write_optional_time(&mut object, "safe_boundary_at", timing.safe_boundary_at);
    object.end();
    rest.end();
    // The writer opened an object of its own; here its keys go on with the first half.
    if let Some(first) = after.first_mut() {
        *first = b',';
    }

    let digest = root_digest(&before, &after);
    before.extend_from_slice(b",\"integrity\":");
    let mut integrity = ObjectWriter::new(&mut before);
    integrity.key("algorithm").str(ROOT_ALGORITHM);
    integrity.key("digest").digest(&digest);
    integrity.end();
    before.extend_from_slice(&after);
    (before, digest)
}
