//! The strict reader of records (TRJ-1 to TRJ-4, TRJ-9, TRJ-10, TRJ-12, TRJ-13, TRJ-15).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::loss::LossEntry;
use super::span::{digest_without, object_members};
use super::{
    Loss, PrivacyView, Record, RecordError, RecordKind, RecordRole, RecordTime, SealedRecord,
    TRAJECTORY_SCHEMA,
};
use crate::artifact::ArtifactRef;
use crate::canonical_json::{ReadError, read_canonical};
use crate::digest::Digest;

const MAXIMUM_SUMMARY_CHARACTERS: usize = 1_024;
const ARTIFACT_REFERENCE_KEYS: usize = 11;

impl From<ReadError> for RecordError {
    fn from(error: ReadError) -> Self {
        RecordError::PayloadNotJson {
            reason: error.reason.as_str(),
        }
    }
}

impl SealedRecord {
    /// Reads one record from its stored bytes and keeps them as they are.
    ///
    /// The digest is verified over the bytes without the digest member, which nothing writes again
    /// (TRJ-12). A record of an older writer with fewer keys is read if its digest fits (TRJ-3); a key
    /// that is none of the 40 is refused. The rules for new identities are not enforced (TRJ-5).
    ///
    /// # Errors
    /// `payload_not_json`, `record_integrity_mismatch`, `unsupported_trajectory_schema`,
    /// `unknown_record_field`, `invalid_record_field`, `loss_inconsistent`.
    pub fn read(bytes: &[u8]) -> Result<Arc<SealedRecord>, RecordError> {
        let Value::Object(members) = read_canonical(bytes)? else {
            return Err(RecordError::PayloadNotJson {
                reason: "not_an_object",
            });
        };
        let mut fields = Fields { members };
        fields.schema()?;
        let stored = fields.digest()?;
        let spans = object_members(bytes).ok_or(RecordError::PayloadNotJson {
            reason: "not_an_object",
        })?;
        if digest_without(bytes, &spans, &[b"digest"]) != stored {
            return Err(RecordError::IntegrityMismatch);
        }
        let record = fields.record()?;
        let sequence = record
            .sequence
            .ok_or(RecordError::InvalidField { field: "sequence" })?;
        if fields.members.is_empty() {
            Ok(Arc::new(SealedRecord {
                record,
                sequence,
                digest: stored,
                bytes: bytes.into(),
            }))
        } else {
            Err(RecordError::UnknownField)
        }
    }
}

/// The members not taken yet; what is left at the end is unknown.
struct Fields {
    members: Map<String, Value>,
}

impl Fields {
    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.members.remove(field).filter(|value| !value.is_null())
    }

    fn schema(&mut self) -> Result<(), RecordError> {
        match self.take("schema_version") {
            Some(Value::String(schema)) if schema == TRAJECTORY_SCHEMA => Ok(()),
            _ => Err(RecordError::UnsupportedSchema),
        }
    }

    fn digest(&mut self) -> Result<Digest, RecordError> {
        self.required_text("digest")?
            .parse()
            .map_err(|_| RecordError::InvalidField { field: "digest" })
    }

    /// Blank optional text reads as null (TRJ-4).
    fn optional_text(&mut self, field: &'static str) -> Result<Option<Arc<str>>, RecordError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.into())),
            Some(_) => Err(RecordError::InvalidField { field }),
        }
    }

    fn required_text(&mut self, field: &'static str) -> Result<Arc<str>, RecordError> {
        self.optional_text(field)?
            .ok_or(RecordError::InvalidField { field })
    }

    fn number(&mut self, field: &'static str) -> Result<Option<u64>, RecordError> {
        match self.take(field) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or(RecordError::InvalidField { field }),
        }
    }

    fn object(&mut self, field: &'static str) -> Result<Map<String, Value>, RecordError> {
        match self.take(field) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(RecordError::InvalidField { field }),
        }
    }

    fn time(&mut self, field: &'static str) -> Result<Option<RecordTime>, RecordError> {
        self.optional_text(field)?
            .map(|text| {
                text.parse()
                    .map_err(|_| RecordError::InvalidField { field })
            })
            .transpose()
    }

    fn word<Word: std::str::FromStr>(
        &mut self,
        field: &'static str,
    ) -> Result<Option<Word>, RecordError> {
        self.optional_text(field)?
            .map(|text| {
                text.parse()
                    .map_err(|_| RecordError::InvalidField { field })
            })
            .transpose()
    }

    fn record(&mut self) -> Result<Record, RecordError> {
        let kind: RecordKind = self
            .word("kind")?
            .ok_or(RecordError::InvalidField { field: "kind" })?;
        let role: RecordRole = self
            .word("role")?
            .ok_or(RecordError::InvalidField { field: "role" })?;
        let occurred_at = self.time("occurred_at")?.ok_or(RecordError::InvalidField {
            field: "occurred_at",
        })?;
        Ok(Record {
            record_id: self.required_text("record_id")?,
            sequence: self.number("sequence")?,
            kind,
            role,
            privacy_view: self
                .word("privacy_view")?
                .unwrap_or(PrivacyView::RawPrivate),
            payload: self.object("payload")?,
            loss: self.take("loss").map_or(Ok(Loss::none()), read_loss)?,
            occurred_at,
            recorded_at: self.time("recorded_at")?,
            monotonic_ns: self.number("monotonic_ns")?,
            session_id: self.optional_text("session_id")?,
            run_id: self.optional_text("run_id")?,
            work_item_id: self.optional_text("work_item_id")?,
            step_id: self.number("step_id")?,
            phase: self.optional_text("phase")?,
            agent_id: self.optional_text("agent_id")?,
            snapshot_id: self.optional_text("snapshot_id")?,
            checkpoint_ref: self.optional_text("checkpoint_ref")?,
            exchange_id: self.optional_text("exchange_id")?,
            tool_call_id: self.optional_text("tool_call_id")?,
            attempt_id: self.optional_text("attempt_id")?,
            attempt: self.number("attempt")?,
            owner_id: self.optional_text("owner_id")?,
            owner_generation: self.number("owner_generation")?,
            operation_id: self.optional_text("operation_id")?,
            lifecycle_state: self.optional_text("lifecycle_state")?,
            provider_transaction_id: self.optional_text("provider_transaction_id")?,
            effect_id: self.optional_text("effect_id")?,
            sandbox_id: self.optional_text("sandbox_id")?,
            artifact_refs: self
                .take("artifact_refs")
                .map_or(Ok(Vec::new()), read_references)?,
            source_session_id: self.optional_text("source_session_id")?,
            source_work_item_id: self.optional_text("source_work_item_id")?,
            causation_id: self.optional_text("causation_id")?,
            correlation_id: self.optional_text("correlation_id")?,
            parent_run_id: self.optional_text("parent_run_id")?,
            parent_work_item_id: self.optional_text("parent_work_item_id")?,
            producer_authority: self.optional_text("producer_authority")?,
            record_provenance: self.object("record_provenance")?,
        })
    }
}

const LOSS: RecordError = RecordError::InvalidField { field: "loss" };

fn read_loss(value: Value) -> Result<Loss, RecordError> {
    let Value::Object(mut members) = value else {
        return Err(LOSS);
    };
    let Some(Value::String(policy_id)) = members.remove("policy_id") else {
        return Err(LOSS);
    };
    let Some(Value::Bool(is_lossless)) = members.remove("is_lossless") else {
        return Err(LOSS);
    };
    let Some(Value::Array(entries)) = members.remove("entries") else {
        return Err(LOSS);
    };
    if !members.is_empty() {
        return Err(LOSS);
    }
    if is_lossless != entries.is_empty() {
        return Err(RecordError::LossInconsistent);
    }
    let entries = entries
        .into_iter()
        .map(read_loss_entry)
        .collect::<Result<_, _>>()?;
    Ok(Loss::from_stored(policy_id, entries))
}

fn read_loss_entry(value: Value) -> Result<LossEntry, RecordError> {
    let Value::Object(mut members) = value else {
        return Err(LOSS);
    };
    let mut text = |key| match members.remove(key) {
        Some(Value::String(text)) => Ok(text.into()),
        _ => Err(LOSS),
    };
    let (code, scope, consequence) = (text("code")?, text("scope")?, text("consequence")?);
    let count = members
        .remove("count")
        .as_ref()
        .and_then(Value::as_u64)
        .ok_or(LOSS)?;
    if members.is_empty() {
        Ok(LossEntry {
            code,
            scope,
            consequence,
            count,
        })
    } else {
        Err(LOSS)
    }
}

const REFERENCES: RecordError = RecordError::InvalidField {
    field: "artifact_refs",
};

fn read_references(value: Value) -> Result<Vec<ArtifactRef>, RecordError> {
    let Value::Array(items) = value else {
        return Err(REFERENCES);
    };
    items
        .into_iter()
        .map(|item| {
            if item.as_object().map(Map::len) != Some(ARTIFACT_REFERENCE_KEYS) {
                return Err(REFERENCES);
            }
            let reference: ArtifactRef = serde_json::from_value(item).map_err(|_| REFERENCES)?;
            check_reference(&reference)?;
            Ok(reference)
        })
        .collect()
}

/// TRJ-15: a pointer with fixed words, never a body or a host path; the value is not echoed.
pub(super) fn check_reference(reference: &ArtifactRef) -> Result<(), RecordError> {
    let is_token = |text: &str| {
        (1..=256).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte))
    };
    // A media type has one slash and may carry parameters.
    let is_media_type = |text: &str| {
        text.len() <= 256
            && !text.starts_with('/')
            && text.split('/').count() == 2
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"/._+-;= \"".contains(&byte))
    };
    let summary_fits = reference
        .model_summary
        .as_deref()
        .is_none_or(|text| text.chars().count() <= MAXIMUM_SUMMARY_CHARACTERS);
    if reference.schema_version == ArtifactRef::SCHEMA
        && reference.encoding == "binary"
        && is_token(&reference.artifact_id)
        && is_token(&reference.resolver_key)
        && is_media_type(&reference.media_type)
        && summary_fits
    {
        Ok(())
    } else {
        Err(REFERENCES)
    }
}
