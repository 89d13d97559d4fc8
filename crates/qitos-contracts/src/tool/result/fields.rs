//! The 36 keys as plain data, and how they are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::SCHEMA;
use super::batch_closure::BatchClosure;
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use crate::artifact::ArtifactRef;
use crate::canonical_json::{CanonicalError, ObjectWriter, ValueWriter};
use crate::ids::{AttemptId, EffectRef};
use crate::tool::call::ErrorKind;

/// Every key but `schema_version` and `success`, which follow from the others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    pub(super) action_id: Option<Arc<str>>,
    pub(super) artifact_refs: Vec<ArtifactRef>,
    pub(super) attempt_id: Option<AttemptId>,
    pub(super) attempts: u64,
    pub(super) batch_closure: Option<BatchClosure>,
    pub(super) complete: bool,
    pub(super) declared_effects: Vec<Map<String, Value>>,
    pub(super) effect_ref: Option<EffectRef>,
    pub(super) effect_state: EffectState,
    pub(super) error: Option<Arc<str>>,
    pub(super) error_code: Option<Arc<str>>,
    pub(super) error_kind: Option<ErrorKind>,
    pub(super) filesystem_changes: Vec<Map<String, Value>>,
    pub(super) idempotency_ref: Option<Arc<str>>,
    pub(super) late_result: bool,
    pub(super) latency_ms: Number,
    pub(super) metadata: Map<String, Value>,
    pub(super) model_output: Value,
    pub(super) next_action: Option<Map<String, Value>>,
    pub(super) normalized_request: Map<String, Value>,
    pub(super) omitted: BTreeMap<String, u64>,
    pub(super) outcome_unknown: bool,
    pub(super) output: Value,
    pub(super) owner_generation: Option<u64>,
    pub(super) provenance: Map<String, Value>,
    pub(super) reconciliation_required: bool,
    pub(super) recoverable: bool,
    pub(super) recovery_hint: Option<Arc<str>>,
    pub(super) retry_disposition: RetryDisposition,
    pub(super) stale_owner: bool,
    pub(super) status: TerminalStatus,
    pub(super) tool_name: Option<Arc<str>>,
    pub(super) truncated: bool,
    pub(super) worker_still_running: bool,
}

impl Fields {
    /// A call of `status` about which nothing else is known.
    pub(super) fn blank(status: TerminalStatus) -> Self {
        Fields {
            action_id: None,
            artifact_refs: Vec::new(),
            attempt_id: None,
            attempts: 0,
            batch_closure: None,
            complete: status == TerminalStatus::Success,
            declared_effects: Vec::new(),
            effect_ref: None,
            effect_state: EffectState::NoEffectDeclared,
            error: None,
            error_code: None,
            error_kind: None,
            filesystem_changes: Vec::new(),
            idempotency_ref: None,
            late_result: false,
            latency_ms: Number::from(0u64),
            metadata: Map::new(),
            model_output: Value::Null,
            next_action: None,
            normalized_request: Map::new(),
            omitted: BTreeMap::new(),
            outcome_unknown: false,
            output: Value::Null,
            owner_generation: None,
            provenance: Map::new(),
            reconciliation_required: false,
            recoverable: false,
            recovery_hint: None,
            retry_disposition: RetryDisposition::NotEvaluated,
            stale_owner: false,
            status,
            tool_name: None,
            truncated: false,
            worker_still_running: false,
        }
    }

    /// Appends the canonical object; `closure` is false for the form that a `result_ref` is taken of (EXE-14).
    pub(super) fn write(&self, buffer: &mut Vec<u8>, closure: bool) -> Result<(), CanonicalError> {
        let mut object = ObjectWriter::new(buffer);
        object
            .key("action_id")
            .optional_str(self.action_id.as_deref());
        let mut refs = object.key("artifact_refs").array();
        for reference in &self.artifact_refs {
            refs.item().serialize(reference)?;
        }
        refs.end();
        let attempt_id = self.attempt_id.as_ref().map(AttemptId::as_str);
        object.key("attempt_id").optional_str(attempt_id);
        object.key("attempts").u64(self.attempts);
        match &self.batch_closure {
            Some(batch_closure) if closure => batch_closure.write(object.key("batch_closure")),
            _ => object.key("batch_closure").raw(b"{}"),
        }
        object.key("complete").bool(self.complete);
        write_maps(object.key("declared_effects"), &self.declared_effects)?;
        let effect_ref = self.effect_ref.as_ref().map(EffectRef::as_str);
        object.key("effect_ref").optional_str(effect_ref);
        object.key("effect_state").str(self.effect_state.as_str());
        object.key("error").optional_str(self.error.as_deref());
        object
            .key("error_code")
            .optional_str(self.error_code.as_deref());
        let error_kind = self.error_kind.map(ErrorKind::as_str);
        object.key("error_kind").optional_str(error_kind);
        write_maps(object.key("filesystem_changes"), &self.filesystem_changes)?;
        object
            .key("idempotency_ref")
            .optional_str(self.idempotency_ref.as_deref());
        object.key("late_result").bool(self.late_result);
        object.key("latency_ms").number(&self.latency_ms)?;
        object.key("metadata").map(&self.metadata)?;
        object.key("model_output").value(&self.model_output)?;
        match &self.next_action {
            Some(action) => object.key("next_action").map(action)?,
            None => object.key("next_action").null(),
        }
        object
            .key("normalized_request")
            .map(&self.normalized_request)?;
        let mut omitted = object.key("omitted").object();
        for (name, count) in &self.omitted {
            omitted.key(name).u64(*count);
        }
        omitted.end();
        object.key("outcome_unknown").bool(self.outcome_unknown);
        object.key("output").value(&self.output)?;
        object
            .key("owner_generation")
            .optional_u64(self.owner_generation);
        object.key("provenance").map(&self.provenance)?;
        object
            .key("reconciliation_required")
            .bool(self.reconciliation_required);
        object.key("recoverable").bool(self.recoverable);
        object
            .key("recovery_hint")
            .optional_str(self.recovery_hint.as_deref());
        object
            .key("retry_disposition")
            .str(self.retry_disposition.as_str());
        object.key("schema_version").str(SCHEMA);
        object.key("stale_owner").bool(self.stale_owner);
        object.key("status").str(self.status.as_str());
        object
            .key("success")
            .bool(self.status == TerminalStatus::Success);
        object
            .key("tool_name")
            .optional_str(self.tool_name.as_deref());
        object.key("truncated").bool(self.truncated);
        object
            .key("worker_still_running")
            .bool(self.worker_still_running);
        object.end();
        Ok(())
    }
}

fn write_maps(slot: ValueWriter<'_>, maps: &[Map<String, Value>]) -> Result<(), CanonicalError> {
    let mut array = slot.array();
    for map in maps {
        array.item().map(map)?;
    }
    array.end();
    Ok(())
}
