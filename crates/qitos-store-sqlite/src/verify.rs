//! Verification over one connection (STO-51).

use qitos_contracts::checkpoint::verify_snapshot::{SnapshotSource, verify_snapshot};
use qitos_contracts::checkpoint::{StoreError, StoredSnapshot, Verification, VerifyDepth};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{SessionId, SnapshotId};
use qitos_contracts::snapshot::Chunk;

use crate::keys::Keys;
use crate::readers::Reading;
use crate::rows;

struct Source<'reader> {
    connection: &'reader rusqlite::Connection,
    keys: &'reader Keys,
    family_no: i64,
}

impl SnapshotSource for Source<'_> {
    fn snapshot(&mut self, snapshot: &SnapshotId) -> Result<Option<StoredSnapshot>, StoreError> {
        Ok(rows::snapshot(self.connection, self.keys, snapshot)?.map(|(stored, _)| stored))
    }

    fn chunk(&mut self, digest: &Digest) -> Result<Chunk, StoreError> {
        rows::required_chunk(self.connection, self.keys, self.family_no, digest)
    }

    fn older(
        &mut self,
        session: &SessionId,
        generation: u64,
    ) -> Result<Option<SnapshotId>, StoreError> {
        let entries = rows::lineage(self.connection, session, Some(generation), 1)?;
        Ok(entries.into_iter().next().map(|entry| entry.snapshot_id))
    }
}

/// Verifies a snapshot; while it runs, what it reads may grow but not change.
pub(crate) fn verify(
    reading: &Reading,
    snapshot: &SnapshotId,
    depth: VerifyDepth,
) -> Result<Verification, StoreError> {
    let connection = &reading.connection;
    let keys = &*reading.keys()?;
    let family_no = rows::family_of(connection, keys, snapshot)?.ok_or_else(|| {
        StoreError::SnapshotNotFound {
            snapshot: snapshot.clone(),
        }
    })?;
    let mut source = Source {
        connection,
        keys,
        family_no,
    };
    verify_snapshot(&mut source, snapshot, depth)
}
