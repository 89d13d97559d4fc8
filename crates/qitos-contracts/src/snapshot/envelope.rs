//! The facts around the components: identities, times, parent (section 4).

use std::sync::Arc;

use super::cursor::{Cursor, Malformed};
use super::error::SnapshotError;
use super::lifecycle::Lifecycle;
use super::resolver_reference::ResolverReferences;
use crate::canonical_json::ObjectWriter;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::{CheckpointId, InvalidIdentity, SessionId, SnapshotId};

/// When the snapshot was captured, and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// When the components were captured.
    pub captured_at: Timestamp,
    /// When a pause was asked for; written for `pausing` and `paused` only.
    pub pause_requested_at: Option<Timestamp>,
    /// When the safe boundary was reached; written for `paused` only.
    pub safe_boundary_at: Option<Timestamp>,
}

impl Timing {
    /// Captured now, with no pause.
    #[must_use]
    pub const fn captured(captured_at: Timestamp) -> Self {
        Timing {
            captured_at,
            pause_requested_at: None,
            safe_boundary_at: None,
        }
    }

    /// Without the facts that a snapshot in `lifecycle` does not carry.
    #[must_use]
    pub const fn of(self, lifecycle: Lifecycle) -> Self {
        let pausing = matches!(lifecycle, Lifecycle::Pausing | Lifecycle::Paused);
        let paused = matches!(lifecycle, Lifecycle::Paused);
        Timing {
            captured_at: self.captured_at,
            pause_requested_at: if pausing {
                self.pause_requested_at
            } else {
                None
            },
            safe_boundary_at: if paused { self.safe_boundary_at } else { None },
        }
    }
}

/// The snapshot before, which makes history tamper-evident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRef {
    /// Its snapshot.
    pub snapshot_id: SnapshotId,
    /// The commit that persisted it.
    pub checkpoint_id: CheckpointId,
    /// Its root digest.
    pub root_digest: Digest,
}

/// An artifact that this commit is the first of the session to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArtifactRef {
    /// Its `artifact_id`; naming one again is ignored.
    pub artifact_id: Arc<str>,
    /// The canonical bytes of the whole reference (a JSON object).
    pub canonical: Arc<[u8]>,
}

/// What a commit says besides its components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeHeader {
    /// The identity of the snapshot that is sealed.
    pub snapshot_id: SnapshotId,
    /// The session.
    pub session_id: SessionId,
    /// The generation that this commit creates.
    pub head_generation: u64,
    /// The lifecycle after this commit.
    pub lifecycle: Lifecycle,
    /// When the session was created.
    pub created_at: Timestamp,
    /// When this snapshot was captured.
    pub timing: Timing,
    /// What a restoring process must resolve.
    pub resolver_references: ResolverReferences,
    /// Artifacts named for the first time; earlier ones are kept by the writer.
    pub artifact_refs: Vec<NewArtifactRef>,
    /// The snapshot before; `None` at generation 0.
    pub parent: Option<ParentRef>,
}

pub(super) fn write_identity(
    object: &mut ObjectWriter<'_>,
    key: &'static str,
    kind: &str,
    value: &str,
) {
    let mut identity = object.key(key).object();
    identity.key("kind").str(kind);
    identity.key("value").str(value);
    identity.end();
}

/// Reads the `{kind, value}` that stands after `key` (SES-1).
pub(super) fn read_identity<Id: std::str::FromStr<Err = InvalidIdentity>>(
    cursor: &mut Cursor<'_>,
    field: &'static str,
    wanted: &'static str,
) -> Result<Id, SnapshotError> {
    let invalid = |_: Malformed| SnapshotError::InvalidIdentity { field };
    cursor.literal("{\"kind\":").map_err(invalid)?;
    let kind = cursor.string().map_err(invalid)?;
    cursor.literal(",\"value\":").map_err(invalid)?;
    let value = cursor.string().map_err(invalid)?;
    cursor.literal("}").map_err(invalid)?;
    if kind != wanted {
        return Err(SnapshotError::InvalidIdentity { field });
    }
    value
        .parse()
        .map_err(|_| SnapshotError::InvalidIdentity { field })
}

pub(super) fn write_optional_time(
    object: &mut ObjectWriter<'_>,
    key: &'static str,
    time: Option<Timestamp>,
) {
    match time {
        Some(time) => object.key(key).str(&time.to_string()),
        None => object.key(key).null(),
    }
}

pub(super) fn read_time(cursor: &mut Cursor<'_>) -> Result<Timestamp, SnapshotError> {
    let invalid = SnapshotError::root("a time is not RFC 3339 with an offset");
    let text = cursor.plain().map_err(|_| invalid.clone())?;
    text.parse().map_err(|_| invalid)
}

pub(super) fn read_optional_time(
    cursor: &mut Cursor<'_>,
) -> Result<Option<Timestamp>, SnapshotError> {
    if cursor.take_if("null") {
        Ok(None)
    } else {
        read_time(cursor).map(Some)
    }
}
