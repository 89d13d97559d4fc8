//! Trajectory records: what the runtime tells about a run, and what of it others may see.
//!
//! A [`Record`] is filled in by its producer, [sealed](Record::seal) once with its place in the order,
//! and from then on only shared: a [`SealedRecord`] owns its canonical bytes and its digest. Sinks never
//! get it but a [`ProjectedRecord`], which only the [privacy projection](privacy) can make.
//!
//! Section 1 of the trajectory specification (TRJ-1 to TRJ-18).

mod error;
mod identity;
mod kind;
mod loss;
pub mod privacy;
mod read;
pub mod span;
mod time;
mod write;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::artifact::ArtifactRef;
use crate::clock::Timestamp;
use crate::digest::Digest;

pub use error::RecordError;
pub use kind::{PrivacyView, RecordKind, RecordRole, UnknownWord};
pub use loss::{DEFAULT_CONSEQUENCE, DEFAULT_SCOPE, Loss, LossEntry, NO_LOSS_POLICY};
pub use privacy::ProjectedRecord;
pub use time::RecordTime;

/// Schema id of a record and of a trajectory (TRJ-1); the word candidate is frozen spelling.
pub const TRAJECTORY_SCHEMA: &str = "qitos.trajectory/candidate-1";
/// Schema id of an export document (TRJ-1).
pub const EXPORT_SCHEMA: &str = "qitos.trajectory-export/candidate-1";
/// Schema id of a trajectory store (TRJ-1).
pub const STORE_SCHEMA: &str = "qitos.trajectory-store/candidate-1";
/// Schema id of the text journal, also of the frames of ours (TRJ-1, TRJ-40).
pub const JOURNAL_SCHEMA: &str = "qitos.trajectory-journal/candidate-1";
/// Schema id of an index of a journal (TRJ-1).
pub const INDEX_SCHEMA: &str = "qitos.trajectory-index/candidate-1";

/// One fact of a trajectory, before it has its place in the order.
///
/// The fields are the 40 wire keys but `schema_version` (fixed) and `digest` (computed when sealed); an
/// absent fact is `None` and is written as `null` (TRJ-2). Numbers are at least 0 by type (TRJ-4).
///
/// Plain data for producers: nothing is checked until [`Record::seal`].
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Unique among all records; `{snapshot_id}:{index}` for a record that reports a commit (TRJ-4).
    pub record_id: Arc<str>,
    /// Place in the order, 0-based; set by sealing (TRJ-7).
    pub sequence: Option<u64>,
    /// What the record tells about.
    pub kind: RecordKind,
    /// Who vouches for it; stated by the producer (TRJ-6).
    pub role: RecordRole,
    /// How much of it is shown; the label alone is never trusted (TRJ-22).
    pub privacy_view: PrivacyView,
    /// The fact itself; its relied-upon keys per kind are those of the specification's table.
    pub payload: Map<String, Value>,
    /// What the record does not hold any more.
    pub loss: Loss,

    /// When it happened; for a record that reports a commit the commit's `captured_at`.
    pub occurred_at: RecordTime,
    /// When it got its sequence; set by sealing.
    pub recorded_at: Option<RecordTime>,
    /// Nanoseconds of a monotonic clock, comparable within one process only (TRJ-9).
    pub monotonic_ns: Option<u64>,

    /// The session.
    pub session_id: Option<Arc<str>>,
    /// The run.
    pub run_id: Option<Arc<str>>,
    /// The work item.
    pub work_item_id: Option<Arc<str>>,
    /// The step, 0-based.
    pub step_id: Option<u64>,
    /// The phase of the step; free text without disclosure (TRJ-5).
    pub phase: Option<Arc<str>>,
    /// The agent; free text without disclosure (TRJ-5).
    pub agent_id: Option<Arc<str>>,

    /// The snapshot of the commit that the record reports.
    pub snapshot_id: Option<Arc<str>>,
    /// The checkpoint of that commit; free text without disclosure (TRJ-5).
    pub checkpoint_ref: Option<Arc<str>>,
    /// The exchange of the log.
    pub exchange_id: Option<Arc<str>>,

    /// The call, as the provider or we in its place named it (decision 2).
    pub tool_call_id: Option<Arc<str>>,
    /// The slot's attempt in `tool_*` records (decision 3).
    pub attempt_id: Option<Arc<str>>,
    /// Number of the attempt.
    pub attempt: Option<u64>,
    /// Who owns the head or the work item.
    pub owner_id: Option<Arc<str>>,
    /// Which ownership of that owner.
    pub owner_generation: Option<u64>,
    /// The operation, for facts that a retry must not repeat.
    pub operation_id: Option<Arc<str>>,
    /// The lifecycle state told about; free text without disclosure (TRJ-5).
    pub lifecycle_state: Option<Arc<str>>,

    /// Pairs what belongs to one model request.
    pub provider_transaction_id: Option<Arc<str>>,
    /// Pairs what belongs to one effect.
    pub effect_id: Option<Arc<str>>,
    /// The sandbox.
    pub sandbox_id: Option<Arc<str>>,
    /// Bodies that the fact refers to (TRJ-15).
    pub artifact_refs: Vec<ArtifactRef>,

    /// The session that this one was forked from.
    pub source_session_id: Option<Arc<str>>,
    /// The work item that this one came from.
    pub source_work_item_id: Option<Arc<str>>,
    /// The record that caused this one.
    pub causation_id: Option<Arc<str>>,
    /// What groups records across runs.
    pub correlation_id: Option<Arc<str>>,
    /// The run that started this one.
    pub parent_run_id: Option<Arc<str>>,
    /// The work item above.
    pub parent_work_item_id: Option<Arc<str>>,

    /// The component that stated the fact; free text without disclosure (TRJ-5).
    pub producer_authority: Option<Arc<str>>,
    /// Where the record itself came from; empty for records of this runtime.
    pub record_provenance: Map<String, Value>,
}

impl Record {
    /// A `raw_private` `canonical_runtime_fact` with every other fact absent.
    ///
    /// A producer of anything but a fact that the runtime saw states another [`role`](Record::role)
    /// (TRJ-6); sealing refuses a `step` record that is no `derived_view`.
    #[must_use]
    pub fn new(
        kind: RecordKind,
        record_id: impl Into<Arc<str>>,
        occurred_at: impl Into<RecordTime>,
    ) -> Self {
        Record {
            record_id: record_id.into(),
            sequence: None,
            kind,
            role: RecordRole::CanonicalRuntimeFact,
            privacy_view: PrivacyView::RawPrivate,
            payload: Map::new(),
            loss: Loss::none(),
            occurred_at: occurred_at.into(),
            recorded_at: None,
            monotonic_ns: None,
            session_id: None,
            run_id: None,
            work_item_id: None,
            step_id: None,
            phase: None,
            agent_id: None,
            snapshot_id: None,
            checkpoint_ref: None,
            exchange_id: None,
            tool_call_id: None,
            attempt_id: None,
            attempt: None,
            owner_id: None,
            owner_generation: None,
            operation_id: None,
            lifecycle_state: None,
            provider_transaction_id: None,
            effect_id: None,
            sandbox_id: None,
            artifact_refs: Vec::new(),
            source_session_id: None,
            source_work_item_id: None,
            causation_id: None,
            correlation_id: None,
            parent_run_id: None,
            parent_work_item_id: None,
            producer_authority: None,
            record_provenance: Map::new(),
        }
    }

    /// The record that stands in a copy for the records it missed (SNK-12, decision 68).
    ///
    /// It is to be sealed with the sequence after `last`, the last missed one. A journal takes such a
    /// jump, and no other, as a continuation (TRJ-7, SNK-20).
    #[must_use]
    pub fn sink_gap(
        record_id: impl Into<Arc<str>>,
        occurred_at: impl Into<RecordTime>,
        sink_id: &str,
        first: u64,
        last: u64,
    ) -> Self {
        let mut record = Record::new(RecordKind::Loss, record_id, occurred_at);
        let payload = &mut record.payload;
        payload.insert("code".into(), SINK_GAP.into());
        payload.insert("scope".into(), sink_id.into());
        payload.insert(
            "count".into(),
            last.saturating_sub(first).saturating_add(1).into(),
        );
        payload.insert("consequence".into(), "sink_copy_incomplete".into());
        payload.insert("first_sequence".into(), first.into());
        payload.insert("last_sequence".into(), last.into());
        record
    }

    /// The first and last missed sequence that this record announces, if it is a [`Record::sink_gap`].
    #[must_use]
    pub fn announced_gap(&self) -> Option<(u64, u64)> {
        if self.kind != RecordKind::Loss
            || self.payload.get("code").and_then(Value::as_str) != Some(SINK_GAP)
        {
            return None;
        }
        let number = |key| self.payload.get(key).and_then(Value::as_u64);
        let (first, last) = (number("first_sequence")?, number("last_sequence")?);
        (first <= last).then_some((first, last))
    }

    /// Fixes the record: checks it as a new one, gives it its place, writes its bytes once and hashes
    /// them (TRJ-7, TRJ-10).
    ///
    /// # Errors
    /// `record_identity_invalid` (TRJ-5), `missing_event_identity` (TRJ-16), `record_identity_missing`
    /// (TRJ-18), `invalid_record_field` (a `step` that is no derived view, a malformed artifact
    /// reference), `payload_not_json` (TRJ-11).
    pub fn seal(
        self,
        sequence: u64,
        recorded_at: Timestamp,
    ) -> Result<Arc<SealedRecord>, RecordError> {
        self.check_new()?;
        self.seal_history(sequence, recorded_at.into())
    }

    /// Fixes a record of imported history, which need not obey the rules for new identities (TRJ-5).
    ///
    /// # Errors
    /// `payload_not_json`.
    pub fn seal_history(
        mut self,
        sequence: u64,
        recorded_at: RecordTime,
    ) -> Result<Arc<SealedRecord>, RecordError> {
        self.sequence = Some(sequence);
        self.recorded_at = Some(recorded_at);
        self.seal_in_place(sequence)
    }

    /// Writes and hashes the record as it stands.
    fn seal_in_place(mut self, sequence: u64) -> Result<Arc<SealedRecord>, RecordError> {
        self.sequence = Some(sequence);
        let (bytes, digest) = self.write_canonical()?;
        Ok(Arc::new(SealedRecord {
            record: self,
            sequence,
            digest,
            bytes: bytes.into(),
        }))
    }
}

const SINK_GAP: &str = "sink_gap";

/// A record with its sequence, its digest and its canonical bytes; immutable, shared by `Arc`.
#[derive(Debug, PartialEq)]
pub struct SealedRecord {
    record: Record,
    sequence: u64,
    digest: Digest,
    bytes: Box<[u8]>,
}

impl SealedRecord {
    /// The facts.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Its place in the order.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// SHA-256 of its bytes without the digest member (TRJ-10).
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its canonical bytes, as written or as read.
    #[must_use]
    pub fn canonical_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether `stored`, the bytes of another record, tells the same apart from `sequence`,
    /// `recorded_at` and `digest` (TRJ-42).
    #[must_use]
    pub fn same_fact(&self, stored: &[u8]) -> bool {
        const APART: [&[u8]; 3] = [b"sequence", b"recorded_at", b"digest"];
        let (Some(own), Some(other)) = (
            span::object_members(&self.bytes),
            span::object_members(stored),
        ) else {
            return false;
        };
        let facts =
            |bytes, members: &[span::Member<'_>]| span::digest_without(bytes, members, &APART);
        facts(&self.bytes, &own) == facts(stored, &other)
    }
}

#[cfg(test)]
mod tests;
