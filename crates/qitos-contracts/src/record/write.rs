//! Canonical bytes of a record and their digest, in one pass (TRJ-2, TRJ-10, TRJ-11).

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{Record, RecordError, TRAJECTORY_SCHEMA};
use crate::artifact::{ArtifactRef, Sensitivity};
use crate::canonical_json::{CanonicalError, ObjectWriter, ValueWriter};
use crate::digest::Digest;

impl From<CanonicalError> for RecordError {
    fn from(error: CanonicalError) -> Self {
        RecordError::PayloadNotJson {
            reason: error.reason(),
        }
    }
}

impl Record {
    /// Writes the 40 keys in order, hashes everything but the digest member, then fills the digest in.
    pub(super) fn write_canonical(&self) -> Result<(Vec<u8>, Digest), RecordError> {
        let mut buffer = Vec::with_capacity(1_536);
        let mut text = String::with_capacity(32);
        let mut object = ObjectWriter::new(&mut buffer);
        object
            .key("agent_id")
            .optional_str(self.agent_id.as_deref());
        let mut references = object.key("artifact_refs").array();
        for reference in &self.artifact_refs {
            write_reference(reference, references.item());
        }
        references.end();
        object.key("attempt").optional_u64(self.attempt);
        object
            .key("attempt_id")
            .optional_str(self.attempt_id.as_deref());
        object
            .key("causation_id")
            .optional_str(self.causation_id.as_deref());
        object
            .key("checkpoint_ref")
            .optional_str(self.checkpoint_ref.as_deref());
        object
            .key("correlation_id")
            .optional_str(self.correlation_id.as_deref());
        object.end();
        // Two writers make one object: the closing brace of the first gives way to the digest member,
        // the opening brace of the second to the comma behind it. The hexadecimal digits are filled in
        // when the bytes before and after that member are hashed.
        buffer.pop();
        buffer.push(b',');
        let before = buffer.len();
        buffer.extend_from_slice(b"\"digest\":\"");
        let hexadecimal = buffer.len();
        buffer.extend_from_slice(&[b'0'; 64]);
        buffer.push(b'"');
        let comma = buffer.len();
        let mut object = ObjectWriter::new(&mut buffer);
        object
            .key("effect_id")
            .optional_str(self.effect_id.as_deref());
        object
            .key("exchange_id")
            .optional_str(self.exchange_id.as_deref());
        object.key("kind").str(self.kind.as_str());
        object
            .key("lifecycle_state")
            .optional_str(self.lifecycle_state.as_deref());
        self.loss.write(object.key("loss"));
        object.key("monotonic_ns").optional_u64(self.monotonic_ns);
        object
            .key("occurred_at")
            .str(formatted(&mut text, &self.occurred_at));
        object
            .key("operation_id")
            .optional_str(self.operation_id.as_deref());
        object
            .key("owner_generation")
            .optional_u64(self.owner_generation);
        object
            .key("owner_id")
            .optional_str(self.owner_id.as_deref());
        object
            .key("parent_run_id")
            .optional_str(self.parent_run_id.as_deref());
        object
            .key("parent_work_item_id")
            .optional_str(self.parent_work_item_id.as_deref());
        write_map(&self.payload, object.key("payload"))?;
        object.key("phase").optional_str(self.phase.as_deref());
        object.key("privacy_view").str(self.privacy_view.as_str());
        object
            .key("producer_authority")
            .optional_str(self.producer_authority.as_deref());
        object
            .key("provider_transaction_id")
            .optional_str(self.provider_transaction_id.as_deref());
        object.key("record_id").str(&self.record_id);
        write_map(&self.record_provenance, object.key("record_provenance"))?;
        match &self.recorded_at {
            Some(time) => object.key("recorded_at").str(formatted(&mut text, time)),
            None => object.key("recorded_at").null(),
        }
        object.key("role").str(self.role.as_str());
        object.key("run_id").optional_str(self.run_id.as_deref());
        object
            .key("sandbox_id")
            .optional_str(self.sandbox_id.as_deref());
        object.key("schema_version").str(TRAJECTORY_SCHEMA);
        object.key("sequence").optional_u64(self.sequence);
        object
            .key("session_id")
            .optional_str(self.session_id.as_deref());
        object
            .key("snapshot_id")
            .optional_str(self.snapshot_id.as_deref());
        object
            .key("source_session_id")
            .optional_str(self.source_session_id.as_deref());
        object
            .key("source_work_item_id")
            .optional_str(self.source_work_item_id.as_deref());
        object.key("step_id").optional_u64(self.step_id);
        object
            .key("tool_call_id")
            .optional_str(self.tool_call_id.as_deref());
        object
            .key("work_item_id")
            .optional_str(self.work_item_id.as_deref());
        object.end();
        if let Some(brace) = buffer.get_mut(comma) {
            *brace = b',';
        }
        let head = buffer.get(..before).unwrap_or_default();
        let tail = buffer.get(comma + 1..).unwrap_or_default();
        let digest = Digest::of_parts(&[head, tail]);
        if let Some(place) = buffer.get_mut(hexadecimal..hexadecimal + 64) {
            place.copy_from_slice(digest.to_hex().as_bytes());
        }
        Ok((buffer, digest))
    }
}

fn formatted<'text>(text: &'text mut String, value: &impl std::fmt::Display) -> &'text str {
    text.clear();
    // Writing to a string does not fail.
    let _ = write!(text, "{value}");
    text
}

fn write_map(map: &Map<String, Value>, slot: ValueWriter<'_>) -> Result<(), CanonicalError> {
    let mut object = slot.object();
    if map.keys().is_sorted() {
        for (key, value) in map {
            object.key(key).value(value)?;
        }
    } else {
        let mut members: Vec<_> = map.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        for (key, value) in members {
            object.key(key).value(value)?;
        }
    }
    object.end();
    Ok(())
}

pub(super) fn sensitivity_word(sensitivity: Sensitivity) -> &'static str {
    match sensitivity {
        Sensitivity::Public => "public",
        Sensitivity::Internal => "internal",
        Sensitivity::Confidential => "confidential",
        Sensitivity::Restricted => "restricted",
    }
}

fn write_reference(reference: &ArtifactRef, slot: ValueWriter<'_>) {
    let mut object = slot.object();
    object.key("artifact_id").str(&reference.artifact_id);
    object.key("byte_length").u64(reference.byte_length);
    object.key("encoding").str(&reference.encoding);
    object.key("media_type").str(&reference.media_type);
    object
        .key("model_summary")
        .optional_str(reference.model_summary.as_deref());
    match &reference.provenance_digest {
        Some(digest) => object.key("provenance_digest").digest(digest),
        None => object.key("provenance_digest").null(),
    }
    object.key("required").bool(reference.required);
    object.key("resolver_key").str(&reference.resolver_key);
    object.key("schema_version").str(&reference.schema_version);
    object
        .key("sensitivity")
        .str(sensitivity_word(reference.sensitivity));
    object.key("sha256").digest(&reference.sha256);
    object.end();
}
