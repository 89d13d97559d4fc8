//! What is judged: a selection of records, seen through a privacy view, complete or saying what is missing.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::EvaluationError;
use crate::digest::Digest;
use crate::ids::{RunId, SessionId, WorkItemId};
use crate::record::{Loss, PrivacyView, ProjectedRecord};

/// Exactly one of a run, a session or a work item (EVA-1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub enum EvaluationSelection {
    /// One run.
    Run(RunId),
    /// One session with all its runs.
    Session(SessionId),
    /// One work item with all its attempts.
    WorkItem(WorkItemId),
}

/// The written form: always the three keys.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(deserialize_with = "present")]
    run_id: Option<String>,
    #[serde(deserialize_with = "present")]
    session_id: Option<String>,
    #[serde(deserialize_with = "present")]
    work_item_id: Option<String>,
}

/// Absent is an error, `null` is none.
pub(super) fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Option::deserialize(deserializer)
}

impl EvaluationSelection {
    /// The selection of three optional texts, as files and command lines give them; blank counts as absent.
    ///
    /// # Errors
    /// `selection_not_exactly_one`: none, several, or one that is no identity of its kind.
    pub fn exactly_one(
        run_id: Option<&str>,
        session_id: Option<&str>,
        work_item_id: Option<&str>,
    ) -> Result<Self, EvaluationError> {
        let given = |text: Option<&str>| {
            text.map(str::trim)
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        let invalid = |_| EvaluationError::SelectionNotExactlyOne;
        match (given(run_id), given(session_id), given(work_item_id)) {
            (Some(run), None, None) => run.parse().map(EvaluationSelection::Run).map_err(invalid),
            (None, Some(session), None) => session
                .parse()
                .map(EvaluationSelection::Session)
                .map_err(invalid),
            (None, None, Some(item)) => item
                .parse()
                .map(EvaluationSelection::WorkItem)
                .map_err(invalid),
            _ => Err(EvaluationError::SelectionNotExactlyOne),
        }
    }
}

impl From<EvaluationSelection> for Wire {
    fn from(selection: EvaluationSelection) -> Wire {
        let mut wire = Wire {
            run_id: None,
            session_id: None,
            work_item_id: None,
        };
        match selection {
            EvaluationSelection::Run(id) => wire.run_id = Some(id.to_string()),
            EvaluationSelection::Session(id) => wire.session_id = Some(id.to_string()),
            EvaluationSelection::WorkItem(id) => wire.work_item_id = Some(id.to_string()),
        }
        wire
    }
}

impl TryFrom<Wire> for EvaluationSelection {
    type Error = EvaluationError;

    fn try_from(wire: Wire) -> Result<Self, EvaluationError> {
        EvaluationSelection::exactly_one(
            wire.run_id.as_deref(),
            wire.session_id.as_deref(),
            wire.work_item_id.as_deref(),
        )
    }
}

/// Where the records of a view come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewProvenance {
    /// The reader.
    pub reader_id: String,
    /// What it read, such as `journal` or `export`.
    pub source_kind: String,
    /// Schema id of what it read.
    pub source_schema: String,
    /// The newest sequence that was there when the view was made (EVA-23).
    pub watermark: Option<u64>,
}

/// What is judged. Immutable; cloning shares.
#[derive(Clone, Debug)]
pub struct EvaluationView {
    records: Arc<[ProjectedRecord]>,
    selection: EvaluationSelection,
    provenance: ViewProvenance,
    privacy: PrivacyView,
    loss: Loss,
    view_digest: Digest,
}

impl EvaluationView {
    /// How many records a view holds unless said otherwise (EVA-3).
    pub const DEFAULT_LIMIT: usize = 10_000;

    /// A view of the first `limit` matching records; what is left out is declared as loss
    /// `evaluation_view_truncated` (EVA-3).
    ///
    /// # Errors
    /// `selection_empty` without records (EVA-4); `evaluation_limit_invalid` for a limit of zero.
    pub fn new(
        mut records: Vec<ProjectedRecord>,
        selection: EvaluationSelection,
        provenance: ViewProvenance,
        privacy: PrivacyView,
        mut loss: Loss,
        limit: usize,
    ) -> Result<Self, EvaluationError> {
        if limit == 0 {
            return Err(EvaluationError::LimitInvalid);
        }
        if records.is_empty() {
            return Err(EvaluationError::SelectionEmpty);
        }
        let left_out = records.len().saturating_sub(limit);
        if left_out > 0 {
            records.truncate(limit);
            loss.add(
                "evaluation_view_truncated",
                "records",
                "information_unavailable",
                left_out as u64,
            );
        }
        let mut digests = Vec::with_capacity(records.len() * 32);
        for record in &records {
            digests.extend_from_slice(record.digest().as_bytes());
        }
        Ok(EvaluationView {
            view_digest: Digest::of(&digests),
            records: records.into(),
            selection,
            provenance,
            privacy,
            loss,
        })
    }

    /// The records in order of their sequence.
    #[must_use]
    pub fn records(&self) -> &[ProjectedRecord] {
        &self.records
    }

    /// What was selected.
    #[must_use]
    pub fn selection(&self) -> &EvaluationSelection {
        &self.selection
    }

    /// Where the records come from.
    #[must_use]
    pub fn provenance(&self) -> &ViewProvenance {
        &self.provenance
    }

    /// Through which privacy view they are seen; `redacted_public` unless the caller asked for more (EVA-5).
    #[must_use]
    pub fn privacy(&self) -> PrivacyView {
        self.privacy
    }

    /// What is missing; results carry all of it (EVA-14).
    #[must_use]
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// SHA-256 over the record digests in order (EVA-2).
    #[must_use]
    pub fn view_digest(&self) -> Digest {
        self.view_digest
    }

    /// The record with this id, if the view holds it.
    #[must_use]
    pub fn record(&self, record_id: &str) -> Option<&ProjectedRecord> {
        self.records
            .iter()
            .find(|record| *record.record().record_id == *record_id)
    }
}
