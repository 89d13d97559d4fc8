//! What is below a stored root: its references, and whether all of it is intact (STO-50, STO-51, STO-22).
//!
//! A store offers [`SnapshotSource`]; the walking is done here, once for all stores.

use super::{StoreError, StoredSnapshot, Verification, VerifyDepth};
use crate::digest::Digest;
use crate::ids::{SessionId, SnapshotId};
use crate::snapshot::{Chunk, DeepVerification, KnownReferences, Root, SnapshotReader};

/// What verification reads; synchronous, because it runs where the store's connection is.
pub trait SnapshotSource {
    /// A snapshot, its bytes not yet verified.
    ///
    /// # Errors
    /// As [`CheckpointStore::snapshot`](super::CheckpointStore::snapshot).
    fn snapshot(&mut self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError>;

    /// A chunk of the family of the snapshots asked for, hashed.
    ///
    /// # Errors
    /// `corrupt_snapshot` when it is missing or does not have its digest.
    fn chunk(&mut self, digest: &Digest) -> Result<Chunk, StoreError>;

    /// The newest retained snapshot of a session below a generation.
    ///
    /// # Errors
    /// Those of a read.
    fn older(
        &mut self,
        session: &SessionId,
        generation: u64,
    ) -> Result<Option<SnapshotId>, StoreError>;
}

/// What a stored root, its maps and its logs reference: what a child commit may build upon (STO-50).
///
/// Reads the maps and logs, nothing below them.
///
/// # Errors
/// Those of `read`; `corrupt_snapshot` when a map or log does not parse.
pub fn known_references(
    root: &Root,
    mut read: impl FnMut(&Digest) -> Result<Chunk, StoreError>,
) -> Result<KnownReferences, StoreError> {
    SnapshotReader::without_codecs(root.clone())
        .resolve(SnapshotReader::known_references, |digests| {
            digests.iter().map(&mut read).collect()
        })
}

/// Verifies a snapshot; after damage names the newest older one that is intact at the same depth (STO-22).
///
/// # Errors
/// `snapshot_not_found`; errors of the source that are no damage.
pub fn verify_snapshot(
    source: &mut dyn SnapshotSource,
    snapshot: &SnapshotId,
    depth: VerifyDepth,
) -> Result<Verification, StoreError> {
    let Some(mut found) = verify_one(source, snapshot, depth)? else {
        return Err(StoreError::SnapshotNotFound {
            snapshot: snapshot.clone(),
        });
    };
    if found.verification.damage.is_none() {
        return Ok(found.verification);
    }
    let mut before = found.place;
    while let Some((session, generation)) = before {
        let Some(older) = source.older(&session, generation)? else {
            break;
        };
        match verify_one(source, &older, depth)? {
            Some(candidate) if candidate.verification.intact() => {
                found.verification.newest_intact = Some(older);
                break;
            }
            // The row's own generation may be what is damaged: a search that would not descend ends.
            Some(candidate) => {
                before = candidate.place.filter(|(_, older)| *older < generation);
            }
            None => break,
        }
    }
    Ok(found.verification)
}

struct Found {
    verification: Verification,
    /// Where it stands in its session; none when the row itself does not decode.
    place: Option<(SessionId, u64)>,
}

fn is_damage(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::CorruptSnapshot { .. }
            | StoreError::Undecodable { .. }
            | StoreError::MissingChunk { .. }
            | StoreError::UnsupportedSnapshotSchema { .. }
            | StoreError::InvalidIdentityRelationship { .. }
            | StoreError::SizeLimitExceeded { .. }
    )
}

fn verify_one(
    source: &mut dyn SnapshotSource,
    snapshot: &SnapshotId,
    depth: VerifyDepth,
) -> Result<Option<Found>, StoreError> {
    let mut verification = Verification {
        snapshot_id: snapshot.clone(),
        root_digest: Digest::ZERO,
        chunks: 0,
        bytes: 0,
        damage: None,
        newest_intact: None,
    };
    let mut place = None;
    let outcome = match source.snapshot(snapshot) {
        Ok(None) => return Ok(None),
        Ok(Some(stored)) => {
            verification.root_digest = stored.root_digest;
            verification.bytes = stored.root.len() as u64;
            place = Some((stored.session_id.clone(), stored.generation));
            stored.verified().and_then(|root| match depth {
                VerifyDepth::Root => Ok(()),
                VerifyDepth::Deep => walk(source, &root, &mut verification),
            })
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => {}
        Err(error) if is_damage(&error) => {
            verification.damage = Some(error.in_snapshot(snapshot));
        }
        Err(error) => return Err(error),
    }
    Ok(Some(Found {
        verification,
        place,
    }))
}

/// Reads, hashes and checks everything below a root, a batch at a time.
fn walk(
    source: &mut dyn SnapshotSource,
    root: &Root,
    verification: &mut Verification,
) -> Result<(), StoreError> {
    let mut walk = DeepVerification::new(root);
    loop {
        let needed = walk.need();
        if needed.is_empty() {
            return Ok(());
        }
        let mut chunks = Vec::with_capacity(needed.len());
        for digest in &needed {
            let chunk = source.chunk(digest)?;
            verification.chunks += 1;
            verification.bytes += chunk.bytes().len() as u64;
            chunks.push(chunk);
        }
        walk.feed(&chunks)?;
    }
}
