//! What a commit asks for, and its checked form (section 7).

use std::sync::Arc;

use super::{Layer, StoreError};
use crate::digest::Digest;
use crate::ids::{CheckpointId, RunId, SessionId, SnapshotId};
use crate::snapshot::{
    Chunk, Lifecycle, Root,
    limits::{MAXIMUM_CHUNK_BYTES, MAXIMUM_COMMIT_BYTES, MAXIMUM_ROOT_BYTES},
};

/// What the writer believes the head to be: taken from its own last receipt, never from a fresh read (SES-30).
///
/// All three or none (SES-29): a create has no expectation at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The head's generation.
    pub generation: u64,
    /// The head's checkpoint.
    pub checkpoint_id: CheckpointId,
    /// The head's owner.
    pub owner_run_id: RunId,
}

/// A commit as its writer asks for it; [`Commit::new`] checks it.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// The session.
    pub session_id: SessionId,
    /// The new snapshot.
    pub snapshot_id: SnapshotId,
    /// The new commit.
    pub checkpoint_id: CheckpointId,
    /// The run that owns the head afterwards.
    pub owner_run_id: RunId,
    /// The lifecycle afterwards.
    pub lifecycle: Lifecycle,
    /// What the head must be; none to create the session.
    pub expected: Option<Expected>,
    /// The canonical root record.
    pub root: Arc<[u8]>,
    /// The chunks that the parent's root does not reference.
    pub chunks: Vec<Chunk>,
    /// The highest inbox sequence that this commit applies (SES-63).
    pub consumed_inbox: Option<u64>,
}

/// A commit whose bounds, bytes and identities were checked before any store is touched.
///
/// The request is immutable and its digest is computed once, so retrying it is retrying the same thing (STO-5).
#[derive(Clone, Debug)]
pub struct Commit {
    request: CommitRequest,
    root: Root,
    request_digest: Digest,
    sent_bytes: u64,
}

impl Commit {
    /// Checks a request (row 10 of section 7).
    ///
    /// # Errors
    /// `size_limit_exceeded` above 64 KiB of root, 8 MiB of one chunk or 64 MiB in all; `corrupt_snapshot` when
    /// the root is no strict canonical root record or its session, snapshot, generation or lifecycle are not those
    /// of the request (STO-3, SES-10); `unsupported_snapshot_schema` for another envelope.
    pub fn new(request: CommitRequest) -> Result<Self, StoreError> {
        within(
            "bytes of a root record",
            MAXIMUM_ROOT_BYTES,
            request.root.len(),
        )?;
        let mut sent_bytes = request.root.len();
        for chunk in &request.chunks {
            within("bytes of a chunk", MAXIMUM_CHUNK_BYTES, chunk.bytes().len())?;
            sent_bytes = sent_bytes.saturating_add(chunk.bytes().len());
        }
        within("bytes of a commit", MAXIMUM_COMMIT_BYTES, sent_bytes)?;

        let root = Root::parse(request.root.clone()).map_err(StoreError::from)?;
        // A generation must also fit the signed integers of every store.
        let generation = match &request.expected {
            None => Some(0),
            Some(expected) => expected
                .generation
                .checked_add(1)
                .filter(|next| i64::try_from(*next).is_ok()),
        };
        let agrees = generation == Some(root.head_generation())
            && *root.session_id() == request.session_id
            && *root.snapshot_id() == request.snapshot_id
            && root.lifecycle() == request.lifecycle
            && (request.expected.is_some() || root.parent().is_none())
            && request
                .consumed_inbox
                .is_none_or(|sequence| i64::try_from(sequence).is_ok());
        if !agrees {
            return Err(StoreError::CorruptSnapshot {
                snapshot: Some(request.snapshot_id),
                layer: Layer::Root,
                reason: "the root record and the request do not agree",
                digest: Some(root.digest()),
            });
        }
        let request_digest = request_digest(&request, &root.digest());
        Ok(Commit {
            request,
            root,
            request_digest,
            sent_bytes: sent_bytes as u64,
        })
    }

    /// The session.
    #[must_use]
    pub fn session_id(&self) -> &SessionId {
        &self.request.session_id
    }

    /// The new snapshot.
    #[must_use]
    pub fn snapshot_id(&self) -> &SnapshotId {
        &self.request.snapshot_id
    }

    /// The new commit.
    #[must_use]
    pub fn checkpoint_id(&self) -> &CheckpointId {
        &self.request.checkpoint_id
    }

    /// The run that owns the head afterwards.
    #[must_use]
    pub fn owner_run_id(&self) -> &RunId {
        &self.request.owner_run_id
    }

    /// The lifecycle afterwards.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.request.lifecycle
    }

    /// What the head must be; none to create the session.
    #[must_use]
    pub fn expected(&self) -> Option<&Expected> {
        self.request.expected.as_ref()
    }

    /// The generation this commit creates.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.root.head_generation()
    }

    /// The canonical root record.
    #[must_use]
    pub fn root_bytes(&self) -> &Arc<[u8]> {
        &self.request.root
    }

    /// The root record, parsed.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The sent chunks.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.request.chunks
    }

    /// The highest inbox sequence that this commit applies.
    #[must_use]
    pub fn consumed_inbox(&self) -> Option<u64> {
        self.request.consumed_inbox
    }

    /// SHA-256 of the canonical request with root and chunks replaced by their digests.
    #[must_use]
    pub fn request_digest(&self) -> Digest {
        self.request_digest
    }

    /// Bytes of the root and of all sent chunks.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

fn within(what: &'static str, limit: usize, actual: usize) -> Result<(), StoreError> {
    if actual <= limit {
        return Ok(());
    }
    Err(StoreError::SizeLimitExceeded {
        what,
        limit: limit as u64,
        actual: actual as u64,
    })
}

/// Writes the canonical request and hashes it.
///
/// Written field by field in sorted order: identities, digests and lifecycle words need no escaping, so these are
/// the bytes the canonical writer would give, at a fraction of the cost.
fn request_digest(request: &CommitRequest, root_digest: &Digest) -> Digest {
    let mut sent: Vec<Digest> = request.chunks.iter().map(Chunk::digest).collect();
    sent.sort_unstable();
    let mut text = String::with_capacity(1_024 + sent.len() * 67);
    let identity = |text: &mut String, name: &str, kind: &str, value: &str| {
        text.push('"');
        text.push_str(name);
        text.push_str("\":{\"kind\":\"");
        text.push_str(kind);
        text.push_str("\",\"value\":\"");
        text.push_str(value);
        text.push_str("\"},");
    };
    text.push('{');
    identity(
        &mut text,
        "checkpoint_id",
        CheckpointId::KIND,
        request.checkpoint_id.as_str(),
    );
    text.push_str("\"chunks\":[");
    for (index, digest) in sent.iter().enumerate() {
        text.push_str(if index == 0 { "\"" } else { ",\"" });
        text.push_str(&digest.to_hex());
        text.push('"');
    }
    text.push_str("],\"consumed_inbox\":");
    match request.consumed_inbox {
        Some(sequence) => text.push_str(&sequence.to_string()),
        None => text.push_str("null"),
    }
    text.push(',');
    match &request.expected {
        Some(expected) => {
            identity(
                &mut text,
                "expected_checkpoint_id",
                CheckpointId::KIND,
                expected.checkpoint_id.as_str(),
            );
            text.push_str("\"expected_generation\":");
            text.push_str(&expected.generation.to_string());
            text.push(',');
            identity(
                &mut text,
                "expected_owner_run_id",
                RunId::KIND,
                expected.owner_run_id.as_str(),
            );
        }
        None => text.push_str(
            "\"expected_checkpoint_id\":null,\"expected_generation\":null,\"expected_owner_run_id\":null,",
        ),
    }
    text.push_str("\"lifecycle\":\"");
    text.push_str(request.lifecycle.as_str());
    text.push_str("\",");
    identity(
        &mut text,
        "owner_run_id",
        RunId::KIND,
        request.owner_run_id.as_str(),
    );
    text.push_str("\"root\":\"");
    text.push_str(&root_digest.to_hex());
    text.push_str("\",");
    identity(
        &mut text,
        "session_id",
        SessionId::KIND,
        request.session_id.as_str(),
    );
    text.push_str("\"snapshot_id\":{\"kind\":\"");
    text.push_str(SnapshotId::KIND);
    text.push_str("\",\"value\":\"");
    text.push_str(request.snapshot_id.as_str());
    text.push_str("\"}}");
    Digest::of(text.as_bytes())
}
