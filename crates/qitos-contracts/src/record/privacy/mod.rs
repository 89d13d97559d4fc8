//! Privacy views: what of a record others may see (TRJ-20 to TRJ-31).
//!
//! One pure function decides, [`project_record`]; everything that leaves through a view passes it or its
//! siblings for single values ([`project_value`]) and texts ([`project_text`]). It is linear in the size
//! of its input, bounded by the limits of the view, and idempotent: projecting again changes nothing.
//!
//! Not built: look-alike folding in keys and values, the opt-in policy `spans`.

mod assignment;
mod base64;
mod key_rule;
mod normalize;
mod redact_text;
pub(super) mod value_rule;
mod walk;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::identity::is_admissible;
use super::{Loss, PrivacyView, Record, RecordError, SealedRecord};
use crate::artifact::Sensitivity;
use crate::digest::Digest;
use walk::{REDACTED_PUBLIC, SAFE_DIAGNOSTIC, ViewLimits, Walk};

pub use redact_text::{RedactionCounts, redact_text};

/// Stands for a value that was redacted.
pub const REDACTED: &str = "__redacted__";
/// Stands for a value that was left out.
pub const OMITTED: &str = "__omitted__";

const NOT_EXACT: &str = "projection_not_exact";

fn is_marker_text(text: &str) -> bool {
    text == REDACTED || text == OMITTED
}

/// Why something was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FindingCode {
    /// The key says that the value is a secret.
    SensitiveKey,
    /// The text holds a secret.
    SecretValue,
    /// The text names a path of the host.
    HostPath,
    /// The text names a local endpoint.
    LocalEndpoint,
    /// What a provider sent, as it was sent.
    ProviderRawPayload,
    /// The body of an artifact.
    ArtifactBody,
    /// Deeper than the view admits.
    DepthLimit,
    /// More members than the view admits.
    MappingItemLimit,
    /// More items than the view admits.
    SequenceItemLimit,
    /// More characters than the view admits.
    StringLengthLimit,
    /// More values than the view admits.
    TotalNodeLimit,
    /// A body inside a text.
    InlineBlob,
    /// An identity outside its alphabet.
    IdentityRedacted,
    /// The summary of an artifact that is not for everybody.
    ArtifactSummary,
}

impl FindingCode {
    /// The code as it stands in loss entries.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FindingCode::SensitiveKey => "sensitive_key",
            FindingCode::SecretValue => "secret_value",
            FindingCode::HostPath => "host_path",
            FindingCode::LocalEndpoint => "local_endpoint",
            FindingCode::ProviderRawPayload => "provider_raw_payload",
            FindingCode::ArtifactBody => "artifact_body",
            FindingCode::DepthLimit => "depth_limit",
            FindingCode::MappingItemLimit => "mapping_item_limit",
            FindingCode::SequenceItemLimit => "sequence_item_limit",
            FindingCode::StringLengthLimit => "string_length_limit",
            FindingCode::TotalNodeLimit => "total_node_limit",
            FindingCode::InlineBlob => "inline_blob",
            FindingCode::IdentityRedacted => "identity_redacted",
            FindingCode::ArtifactSummary => "artifact_summary",
        }
    }
}

/// What was done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingAction {
    /// The value became [`REDACTED`].
    Redacted,
    /// The value became [`OMITTED`], or its marker form.
    Omitted,
    /// The key was renamed.
    Renamed,
    /// Items behind the limit were dropped.
    Dropped,
    /// The text was cut.
    Cut,
}

/// One thing that was taken out; never the key, the value or the matched text (TRJ-25).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Why.
    pub code: FindingCode,
    /// Where, by position: `$.field[2].item[0]`.
    pub location: String,
    /// What was done.
    pub action: FindingAction,
    /// How often; above 1 for dropped items only.
    pub count: u64,
}

fn limits_of(view: PrivacyView) -> Option<ViewLimits> {
    match view {
        PrivacyView::RawPrivate => None,
        PrivacyView::RedactedPublic => Some(REDACTED_PUBLIC),
        PrivacyView::SafeDiagnostic => Some(SAFE_DIAGNOSTIC),
    }
}

/// Whether `value` under the name `key` is a secret by the key rule (TRJ-30).
#[must_use]
pub fn is_sensitive_key(key: &str, value: &Value) -> bool {
    key_rule::is_sensitive(key, key_rule::Shape::of(value))
}

/// Projects one JSON value; `raw_private` changes nothing.
///
/// The value is borrowed as long as nothing in it has to change.
#[must_use]
pub fn project_value(value: &Value, view: PrivacyView) -> (Cow<'_, Value>, Vec<Finding>) {
    let Some(limits) = limits_of(view) else {
        return (Cow::Borrowed(value), Vec::new());
    };
    let mut walk = Walk::new(limits);
    let projected = walk.value(value).map_or(Cow::Borrowed(value), Cow::Owned);
    (projected, walk.findings)
}

/// Projects one text that leaves on its own: an error message, a summary line (TRJ-21).
#[must_use]
pub fn project_text(text: &str, view: PrivacyView) -> (Cow<'_, str>, BTreeSet<FindingCode>) {
    match limits_of(view) {
        Some(limits) => walk::text(text, limits),
        None => (Cow::Borrowed(text), BTreeSet::new()),
    }
}

/// A record as a sink may see it; only [`project_record`] makes one.
///
/// Cloning shares: in the view `raw_private`, and wherever a projection changes nothing, it is the sealed
/// record itself.
#[derive(Clone, Debug)]
pub struct ProjectedRecord(Arc<SealedRecord>);

impl ProjectedRecord {
    /// The facts that the view shows.
    #[must_use]
    pub fn record(&self) -> &Record {
        self.0.record()
    }

    /// Its place in the order; the same for every sink (TRJ-8).
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.0.sequence()
    }

    /// Digest of the projected record.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest()
    }

    /// Canonical bytes of the projected record.
    #[must_use]
    pub fn canonical_bytes(&self) -> &[u8] {
        self.0.canonical_bytes()
    }

    /// What a sink gets of a record that is larger than it declared: the same identities, the size in
    /// the place of payload and provenance, and a loss entry `record_payload_omitted` (SNK-16).
    ///
    /// # Errors
    /// `payload_not_json`, which the bytes of an existing record do not cause.
    pub fn without_payload(&self) -> Result<ProjectedRecord, RecordError> {
        let mut stub = self.record().clone();
        stub.payload.clear();
        stub.record_provenance.clear();
        stub.artifact_refs.clear();
        stub.payload
            .insert("omitted_bytes".into(), self.canonical_bytes().len().into());
        stub.loss
            .add("record_payload_omitted", "payload", NOT_EXACT, 1);
        stub.seal_in_place(self.sequence()).map(ProjectedRecord)
    }

    /// The record with its bytes, as stores compare and keep it.
    #[must_use]
    pub fn sealed(&self) -> &Arc<SealedRecord> {
        &self.0
    }
}

/// Projects a record to `view` (TRJ-20 to TRJ-22).
///
/// Identities, sequence, times, kind and role stay; payload, provenance, free texts, artifact summaries,
/// malformed old identities and loss words are projected, loss is merged, the digest is computed anew.
/// The label of the record is not trusted: what is mislabelled is redacted all the same.
///
/// # Errors
/// `view_widening_refused` if `view` shows more than the record's own view; `payload_not_json`.
pub fn project_record(
    record: &Arc<SealedRecord>,
    view: PrivacyView,
) -> Result<ProjectedRecord, RecordError> {
    let own = record.record().privacy_view;
    if own.widens_to(view) {
        return Err(RecordError::ViewWideningRefused {
            from: own.as_str(),
            to: view.as_str(),
        });
    }
    let Some(limits) = limits_of(view) else {
        return Ok(ProjectedRecord(Arc::clone(record)));
    };
    let mut projection = Projection {
        limits,
        view,
        loss: Loss::under(""),
        changed: None,
    };
    projection.objects(record.record());
    projection.references(record.record());
    projection.identities(record.record());
    projection.loss(record.record());
    if projection.changed.is_none() && own == view {
        return Ok(ProjectedRecord(Arc::clone(record)));
    }
    let mut projected = projection
        .changed
        .unwrap_or_else(|| record.record().clone());
    projected.privacy_view = view;
    projected
        .seal_in_place(record.sequence())
        .map(ProjectedRecord)
}

/// Projects a free object that accompanies records, such as trajectory metadata, and adds to its loss.
#[must_use]
pub fn project_members(
    members: &Map<String, Value>,
    view: PrivacyView,
    scope: &'static str,
    loss: &mut Loss,
) -> Option<Map<String, Value>> {
    let mut walk = Walk::new(limits_of(view)?);
    let projected = walk.members(members);
    for finding in walk.findings {
        loss.add(finding.code.as_str(), scope, NOT_EXACT, finding.count);
    }
    projected
}

struct Projection {
    limits: ViewLimits,
    view: PrivacyView,
    loss: Loss,
    changed: Option<Record>,
}

impl Projection {
    fn change<'own>(&'own mut self, record: &Record) -> &'own mut Record {
        self.changed.get_or_insert_with(|| record.clone())
    }

    fn found(&mut self, code: FindingCode, scope: &'static str) {
        self.loss.add(code.as_str(), scope, NOT_EXACT, 1);
    }

    fn objects(&mut self, record: &Record) {
        if let Some(payload) =
            project_members(&record.payload, self.view, "payload", &mut self.loss)
        {
            self.change(record).payload = payload;
        }
        if let Some(provenance) = project_members(
            &record.record_provenance,
            self.view,
            "record_provenance",
            &mut self.loss,
        ) {
            self.change(record).record_provenance = provenance;
        }
    }

    /// TRJ-21: a summary goes if it discloses or belongs to a body that is not for everybody.
    fn references(&mut self, record: &Record) {
        for (index, reference) in record.artifact_refs.iter().enumerate() {
            let Some(summary) = &reference.model_summary else {
                continue;
            };
            let withheld = matches!(
                reference.sensitivity,
                Sensitivity::Confidential | Sensitivity::Restricted
            );
            if withheld || value_rule::finding_in(summary).is_some() {
                self.found(FindingCode::ArtifactSummary, "artifact_refs");
                if let Some(changed) = self.change(record).artifact_refs.get_mut(index) {
                    changed.model_summary = None;
                }
            }
        }
    }

    fn identities(&mut self, record: &Record) {
        for (field, text) in record.identities() {
            let Some(text) = text else { continue };
            if !is_marker_text(text) && !is_admissible(text, false) {
                self.found(FindingCode::IdentityRedacted, field);
                self.change(record).redact_field(field);
            }
        }
        for (field, text) in record.texts() {
            let Some(text) = text else { continue };
            let (projected, codes) = walk::text(text, self.limits);
            if codes.is_empty() {
                continue;
            }
            // A text field has no room for a cut form: whatever was found, the marker stands there.
            drop(projected);
            for code in codes {
                self.found(code, field);
            }
            self.change(record).redact_field(field);
        }
    }

    /// Merges what was found into the record's own loss, whose words are projected too (TRJ-25).
    fn loss(&mut self, record: &Record) {
        let mut merged = Loss::under("");
        merged.merge(&projected_words(&record.loss));
        merged.add_policy(self.view.loss_policy().unwrap_or_default());
        let found = std::mem::replace(&mut self.loss, Loss::under(""));
        merged.merge(&found);
        if merged != record.loss {
            self.change(record).loss = merged;
        }
    }
}

fn projected_words(loss: &Loss) -> Loss {
    let safe = |text: &str| -> String {
        if value_rule::finding_in(text).is_some() {
            REDACTED.into()
        } else {
            text.into()
        }
    };
    let mut projected = Loss::under("");
    for policy in loss.policy_id().split('+') {
        projected.add_policy(&safe(policy));
    }
    for entry in loss.entries() {
        projected.add(
            safe(&entry.code),
            safe(&entry.scope),
            safe(&entry.consequence),
            entry.count,
        );
    }
    projected
}

impl Record {
    /// Puts the marker in the place of an identity or a free text.
    fn redact_field(&mut self, field: &str) {
        let marker: Arc<str> = REDACTED.into();
        let slot = match field {
            "record_id" => {
                self.record_id = marker;
                return;
            }
            "session_id" => &mut self.session_id,
            "run_id" => &mut self.run_id,
            "work_item_id" => &mut self.work_item_id,
            "snapshot_id" => &mut self.snapshot_id,
            "exchange_id" => &mut self.exchange_id,
            "tool_call_id" => &mut self.tool_call_id,
            "attempt_id" => &mut self.attempt_id,
            "owner_id" => &mut self.owner_id,
            "operation_id" => &mut self.operation_id,
            "provider_transaction_id" => &mut self.provider_transaction_id,
            "effect_id" => &mut self.effect_id,
            "sandbox_id" => &mut self.sandbox_id,
            "source_session_id" => &mut self.source_session_id,
            "source_work_item_id" => &mut self.source_work_item_id,
            "causation_id" => &mut self.causation_id,
            "correlation_id" => &mut self.correlation_id,
            "parent_run_id" => &mut self.parent_run_id,
            "parent_work_item_id" => &mut self.parent_work_item_id,
            "phase" => &mut self.phase,
            "lifecycle_state" => &mut self.lifecycle_state,
            "producer_authority" => &mut self.producer_authority,
            "agent_id" => &mut self.agent_id,
            "checkpoint_ref" => &mut self.checkpoint_ref,
            _ => return,
        };
        *slot = Some(marker);
    }
}

#[cfg(test)]
mod tests;
