//! Envelope schema 2: a whole snapshot in one canonical object (section 4, STO-49, STO-54).

use super::artifact_refs::read_inline_artifact_refs;
use super::component::{ComponentRegistry, ComponentSpec, is_name, is_schema_id};
use super::cursor::{Cursor, Malformed};
use super::envelope::{
    EnvelopeHeader, Timing, read_identity, read_time, write_identity, write_optional_time,
};
use super::error::SnapshotError;
use super::lifecycle::Lifecycle;
use super::limits::{MAXIMUM_COMMIT_BYTES, MAXIMUM_COMPONENTS};
use super::resolver_reference::ResolverReferences;
use super::root::{FLAT_SCHEMA, Root, check_payload, read_lifecycle, read_timing, schema_version};
use crate::canonical_json::ObjectWriter;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{SessionId, SnapshotId};

/// A component of a flat snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatComponent {
    /// Who encodes and decodes it.
    pub owner: Box<str>,
    /// Its place in the snapshot.
    pub slot: Box<str>,
    /// The id of its payload's schema.
    pub schema: Box<str>,
    /// Whether a reader without its codec must refuse the snapshot.
    pub required: bool,
    /// The canonical payload.
    pub payload: Vec<u8>,
}

impl FlatComponent {
    /// A component of a registered kind.
    #[must_use]
    pub fn new(spec: &ComponentSpec, canonical_payload: Vec<u8>) -> Self {
        FlatComponent {
            owner: spec.owner.into(),
            slot: spec.slot.into(),
            schema: spec.schema.into(),
            required: spec.required,
            payload: canonical_payload,
        }
    }

    fn place(&self) -> (&str, &str) {
        (&self.owner, &self.slot)
    }
}

/// A snapshot of schema 2, for stores without the incremental capability and for export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatSnapshot {
    /// The snapshot.
    pub snapshot_id: SnapshotId,
    /// The session.
    pub session_id: SessionId,
    /// The generation that its commit creates.
    pub head_generation: u64,
    /// The lifecycle after its commit.
    pub lifecycle: Lifecycle,
    /// When the session was created.
    pub created_at: Timestamp,
    /// When the snapshot was captured.
    pub timing: Timing,
    /// What a restoring process must resolve.
    pub resolver_references: ResolverReferences,
    /// The canonical bytes of each artifact reference.
    pub artifact_refs: Vec<Box<[u8]>>,
    /// The components.
    pub components: Vec<FlatComponent>,
}

impl FlatSnapshot {
    /// A snapshot from a header and its components, which it sorts by owner and slot.
    ///
    /// `artifact_refs` are all of the session; those of the header are not looked at.
    #[must_use]
    pub fn new(
        header: &EnvelopeHeader,
        artifact_refs: Vec<Box<[u8]>>,
        mut components: Vec<FlatComponent>,
    ) -> Self {
        components.sort_by(|left, right| left.place().cmp(&right.place()));
        FlatSnapshot {
            snapshot_id: header.snapshot_id.clone(),
            session_id: header.session_id.clone(),
            head_generation: header.head_generation,
            lifecycle: header.lifecycle,
            created_at: header.created_at,
            timing: header.timing.of(header.lifecycle),
            resolver_references: header.resolver_references.clone(),
            artifact_refs,
            components,
        }
    }

    pub(super) fn of_root(
        root: &Root,
        artifact_refs: Vec<Box<[u8]>>,
        components: Vec<FlatComponent>,
    ) -> Self {
        FlatSnapshot {
            snapshot_id: root.snapshot_id().clone(),
            session_id: root.session_id().clone(),
            head_generation: root.head_generation(),
            lifecycle: root.lifecycle(),
            created_at: root.created_at(),
            timing: *root.timing(),
            resolver_references: root.resolver_references().clone(),
            artifact_refs,
            components,
        }
    }

    /// The canonical bytes, with `sha256` integrity over all other fields.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut before = Vec::new();
        let mut object = ObjectWriter::new(&mut before);
        let mut array = object.key("artifact_refs").array();
        for reference in &self.artifact_refs {
            array.item().raw(reference);
        }
        array.end();
        let mut array = object.key("components").array();
        for component in &self.components {
            let mut entry = array.item().object();
            entry.key("digest").digest(&Digest::of(&component.payload));
            entry.key("owner").str(&component.owner);
            entry.key("payload").raw(&component.payload);
            entry.key("required").bool(component.required);
            entry.key("schema_version").str(&component.schema);
            entry.key("slot").str(&component.slot);
            entry.end();
        }
        array.end();
        object.key("created_at").str(&self.created_at.to_string());
        object.key("head_generation").u64(self.head_generation);
        object.end();
        // The second half goes on where the first one ended.
        before.pop();

        let mut after = Vec::new();
        let mut object = ObjectWriter::new(&mut after);
        object.key("lifecycle").str(self.lifecycle.as_str());
        object
            .key("resolver_references")
            .raw(self.resolver_references.canonical());
        object.key("schema_version").u64(FLAT_SCHEMA);
        write_identity(
            &mut object,
            "session_id",
            SessionId::KIND,
            self.session_id.as_str(),
        );
        write_identity(
            &mut object,
            "snapshot_id",
            SnapshotId::KIND,
            self.snapshot_id.as_str(),
        );
        let mut timing = object.key("timing").object();
        timing
            .key("captured_at")
            .str(&self.timing.captured_at.to_string());
        write_optional_time(
            &mut timing,
            "pause_requested_at",
            self.timing.pause_requested_at,
        );
        write_optional_time(
            &mut timing,
            "safe_boundary_at",
            self.timing.safe_boundary_at,
        );
        timing.end();
        object.end();
        if let Some(first) = after.first_mut() {
            *first = b',';
        }

        let digest = Digest::of_parts(&[&before, &after]);
        before.extend_from_slice(b",\"integrity\":");
        let mut integrity = ObjectWriter::new(&mut before);
        integrity.key("algorithm").str("sha256");
        integrity.key("digest").digest(&digest);
        integrity.end();
        before.extend_from_slice(&after);
        before
    }

    /// Reads schema 2 strictly, and verifies its digest and that of every payload.
    ///
    /// # Errors
    /// `corrupt_snapshot`, `component_digest_mismatch`, `unsupported_snapshot_schema`,
    /// `invalid_identity_relationship`, `size_limit_exceeded`.
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        SnapshotError::bound(
            "bytes of a flat snapshot",
            bytes.len(),
            MAXIMUM_COMMIT_BYTES,
        )?;
        read_flat(bytes).map_err(|error| match schema_version(bytes) {
            Ok(FLAT_SCHEMA) => error,
            Ok(schema_version) => SnapshotError::UnsupportedSnapshotSchema { schema_version },
            Err(unreadable) => unreadable,
        })
    }

    /// Checks owners, schemas and presence of the components (SES-16).
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
        registry.require(self.components.iter().map(FlatComponent::place))?;
        Ok(specs)
    }

    /// The canonical payload of one component.
    #[must_use]
    pub fn payload(&self, spec: &ComponentSpec) -> Option<&[u8]> {
        self.components
            .iter()
            .find(|component| component.place() == spec.place())
            .map(|component| component.payload.as_slice())
    }
}

fn read_flat(bytes: &[u8]) -> Result<FlatSnapshot, SnapshotError> {
    let mut cursor = Cursor::new(bytes)?;
    let cursor = &mut cursor;
    cursor.literal("{\"artifact_refs\":")?;
    let artifact_refs = read_inline_artifact_refs(cursor)?;
    cursor.literal(",\"components\":[")?;
    let (components, digests) = read_components(cursor)?;
    cursor.literal(",\"created_at\":")?;
    let created_at = read_time(cursor)?;
    cursor.literal(",\"head_generation\":")?;
    let head_generation = cursor.u64()?;
    let before = cursor.position();
    cursor.literal(",\"integrity\":{\"algorithm\":\"sha256\",\"digest\":")?;
    let digest = cursor.digest()?;
    cursor.literal("}")?;
    let after = cursor.position();
    cursor.literal(",\"lifecycle\":")?;
    let lifecycle = read_lifecycle(cursor)?;
    cursor.literal(",\"resolver_references\":")?;
    let resolver_references = ResolverReferences::read(cursor)?;
    cursor.literal(",\"schema_version\":")?;
    let schema_version = cursor.u64()?;
    if schema_version != FLAT_SCHEMA {
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
    let halves = [
        bytes.get(..before).unwrap_or_default(),
        bytes.get(after..).unwrap_or_default(),
    ];
    if Digest::of_parts(&halves) != digest {
        return Err(SnapshotError::root("its bytes do not have its digest").at(digest));
    }
    for (component, digest) in components.iter().zip(digests) {
        if Digest::of(&component.payload) != digest {
            return Err(SnapshotError::ComponentDigestMismatch {
                owner: component.owner.to_string(),
                slot: component.slot.to_string(),
            });
        }
    }
    Ok(FlatSnapshot {
        snapshot_id,
        session_id,
        head_generation,
        lifecycle,
        created_at,
        timing,
        resolver_references,
        artifact_refs,
        components,
    })
}

fn read_components(
    cursor: &mut Cursor<'_>,
) -> Result<(Vec<FlatComponent>, Vec<Digest>), SnapshotError> {
    let mut components: Vec<FlatComponent> = Vec::new();
    let mut digests = Vec::new();
    if cursor.take_if("]") {
        return Ok((components, digests));
    }
    loop {
        let (component, digest) =
            read_component(cursor).map_err(|malformed| SnapshotError::component(malformed.0))?;
        if components
            .iter()
            .any(|other| other.place() == component.place())
        {
            return Err(SnapshotError::root("a component stands twice"));
        }
        components.push(component);
        digests.push(digest);
        SnapshotError::bound("components", components.len(), MAXIMUM_COMPONENTS)?;
        if !cursor.another(b']')? {
            return Ok((components, digests));
        }
    }
}

fn read_component(cursor: &mut Cursor<'_>) -> Result<(FlatComponent, Digest), Malformed> {
    cursor.literal("{\"digest\":")?;
    let digest = cursor.digest()?;
    cursor.literal(",\"owner\":")?;
    let owner = cursor.plain()?;
    cursor.literal(",\"payload\":")?;
    let payload = check_payload(cursor)?.to_vec();
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
    Ok((
        FlatComponent {
            owner: owner.into(),
            slot: slot.into(),
            schema: schema.into(),
            required,
            payload,
        },
        digest,
    ))
}
