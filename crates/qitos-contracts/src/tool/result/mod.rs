//! ToolResult v2: legal states by construction (RES-1 to RES-19).
//!
//! One JSON object with exactly 36 keys. Its fields are private: a result is made by the constructors that
//! are the table of RES-7 to RES-14, by a tool for itself ([`ToolResult::success`],
//! [`ToolResult::failure`]), or by the strict reader, which holds it against the tables of section 4. No
//! other combination exists, so nothing downstream has to doubt one (RES-3).

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Number, Value};

use crate::artifact::ArtifactRef;
use crate::canonical_json::{self, ReadLimits, ReadReason};
use crate::digest::Digest;
use crate::ids::{AttemptId, EffectRef};
use crate::tool::call::ErrorKind;

mod batch_closure;
mod construct;
mod error;
mod fields;
mod log_form;
mod own_result;
mod reader;
mod settle_effect;
mod table;
mod vocabulary;

pub use batch_closure::{BatchClosure, CLOSURE_SCHEMA, ClosedSlot};
pub use construct::{
    AttemptFacts, End, LostKind, Refusal, RefusalStatus, ReportedEffect, ResultIdentity,
};
pub use error::ResultError;
pub(in crate::tool) use log_form::check_reference;
pub use vocabulary::{EffectState, RetryDisposition, SlotClosure, TerminalStatus};

use fields::Fields;

/// Schema id of every result.
pub const SCHEMA: &str = "qitos.tool_result/v2";

/// How deep a result may be nested, the result itself counted.
///
/// Less than all JSON, because results are stored inside log items and components.
pub const RESULT_DEPTH: usize = canonical_json::MAXIMUM_DEPTH - 16;

/// How deep a value inside a result may be nested.
const VALUE_DEPTH: usize = RESULT_DEPTH - 2;

/// The one terminal result of a call (section 4).
///
/// Immutable; the `with_…` methods take it by value. Equal results have equal bytes.
#[derive(Clone, Debug)]
pub struct ToolResult {
    fields: Fields,
    bytes: OnceLock<Arc<[u8]>>,
}

impl PartialEq for ToolResult {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields
    }
}

impl ToolResult {
    /// Wraps fields that the caller made legal.
    fn of(fields: Fields) -> Self {
        debug_assert_eq!(
            table::check(&fields),
            Ok(()),
            "outside the tables: {fields:?}"
        );
        ToolResult {
            fields,
            bytes: OnceLock::new(),
        }
    }

    fn map_fields(self, change: impl FnOnce(&mut Fields)) -> Self {
        let mut fields = self.fields;
        change(&mut fields);
        ToolResult::of(fields)
    }

    /// Reads a result strictly from canonical or other JSON bytes (RES-1, RES-2).
    ///
    /// # Errors
    /// The codes of RES-1 and RES-2. Bad data never falls back to a lenient reader.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ResultError> {
        let value =
            canonical_json::read(bytes, ReadLimits::DEFAULT).map_err(|error| {
                match error.reason {
                    ReadReason::NotFinite | ReadReason::IntegerRange | ReadReason::TooDeep => {
                        ResultError::NotSerializable
                    }
                    _ => ResultError::InvalidPayload,
                }
            })?;
        ToolResult::from_value(value)
    }

    /// Reads a result strictly (RES-1, RES-2).
    ///
    /// # Errors
    /// As [`from_bytes`](ToolResult::from_bytes).
    pub fn from_value(value: Value) -> Result<Self, ResultError> {
        reader::read(value).map(ToolResult::of)
    }

    /// Appends the canonical bytes to `buffer` without keeping a copy.
    pub fn write_canonical(&self, buffer: &mut Vec<u8>) {
        if let Some(bytes) = self.bytes.get() {
            buffer.extend_from_slice(bytes);
        } else {
            self.write_fields(buffer, true);
        }
    }

    fn write_fields(&self, buffer: &mut Vec<u8>, closure: bool) {
        let written = self.fields.write(buffer, closure);
        // Constructors and reader let no value in that cannot be written.
        debug_assert_eq!(written, Ok(()));
    }

    /// The canonical bytes; written once and then kept.
    #[must_use]
    pub fn canonical_bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| {
            let mut buffer = Vec::with_capacity(1536);
            self.write_fields(&mut buffer, true);
            buffer.into()
        })
    }

    /// Digest of the result without its batch closure (EXE-14).
    #[must_use]
    pub fn result_digest(&self) -> Digest {
        if self.fields.batch_closure.is_none() {
            return Digest::of(self.canonical_bytes());
        }
        let mut buffer = Vec::with_capacity(1536);
        self.write_fields(&mut buffer, false);
        Digest::of(&buffer)
    }

    /// How a batch closure names this result: `result:` and its digest (EXE-14).
    #[must_use]
    pub fn result_ref(&self) -> String {
        batch_closure::reference_text(&self.result_digest())
    }

    /// Its line in the closure of its batch (EXE-14).
    #[must_use]
    pub fn closed_slot(&self) -> ClosedSlot {
        ClosedSlot {
            action_id: self.fields.action_id.clone().unwrap_or_else(|| "".into()),
            state: self.fields.status.into(),
            attempt_id: self.fields.attempt_id.clone(),
            result_ref: Some(self.result_digest()),
        }
    }

    /// The same result with the closure of its batch (EXE-14).
    #[must_use]
    pub fn with_batch_closure(self, closure: BatchClosure) -> Self {
        self.map_fields(|fields| fields.batch_closure = Some(closure))
    }

    /// The same result with the idempotency key of its effect.
    #[must_use]
    pub fn with_idempotency_ref(self, key: &str) -> Self {
        self.map_fields(|fields| fields.idempotency_ref = Some(key.into()))
    }

    /// The same result with one more fact under `provenance`; too deep a value is left out.
    #[must_use]
    pub fn with_provenance(self, key: &str, value: Value) -> Self {
        self.map_fields(|fields| insert_checked(&mut fields.provenance, key, value))
    }

    /// The same result with one more fact under `metadata` (EXE-19); too deep a value is left out.
    #[must_use]
    pub fn with_metadata(self, key: &str, value: Value) -> Self {
        self.map_fields(|fields| insert_checked(&mut fields.metadata, key, value))
    }

    /// The same result, marked as returned after its slot was closed (EXE-11).
    #[must_use]
    pub fn marked_late(self, stale_owner: bool) -> Self {
        self.map_fields(|fields| {
            fields.late_result = true;
            fields.stale_owner = stale_owner;
        })
    }
}

/// Adds a value that can be written.
fn insert_checked(map: &mut Map<String, Value>, key: &str, value: Value) {
    if canonical_json::check(&value, VALUE_DEPTH).is_ok() {
        map.insert(key.to_owned(), value);
    }
}

/// Every key of the format.
impl ToolResult {
    /// How the call ended.
    #[must_use]
    pub fn status(&self) -> TerminalStatus {
        self.fields.status
    }

    /// Whether the status is `success`.
    #[must_use]
    pub fn success_flag(&self) -> bool {
        self.fields.status == TerminalStatus::Success
    }

    /// Canonical tool name.
    #[must_use]
    pub fn tool_name(&self) -> Option<&str> {
        self.fields.tool_name.as_deref()
    }

    /// The call's id (decision 2).
    #[must_use]
    pub fn action_id(&self) -> Option<&str> {
        self.fields.action_id.as_deref()
    }

    /// The canonical value.
    #[must_use]
    pub fn output(&self) -> &Value {
        &self.fields.output
    }

    /// What the tool wants shown in its place; null for nothing.
    #[must_use]
    pub fn model_output(&self) -> &Value {
        &self.fields.model_output
    }

    /// What went wrong, in words.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.fields.error.as_deref()
    }

    /// Where the error belongs.
    #[must_use]
    pub fn error_kind(&self) -> Option<ErrorKind> {
        self.fields.error_kind
    }

    /// The stable code of the error.
    #[must_use]
    pub fn error_code(&self) -> Option<&str> {
        self.fields.error_code.as_deref()
    }

    /// Whether repeating the call may succeed.
    #[must_use]
    pub fn recoverable(&self) -> bool {
        self.fields.recoverable
    }

    /// What could be done about the error.
    #[must_use]
    pub fn recovery_hint(&self) -> Option<&str> {
        self.fields.recovery_hint.as_deref()
    }

    /// Advice `{name, args?, action_id?}`, never executed by itself.
    #[must_use]
    pub fn next_action(&self) -> Option<&Map<String, Value>> {
        self.fields.next_action.as_ref()
    }

    /// Whether the tool gave everything.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.fields.complete
    }

    /// Whether the tool cut its output.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.fields.truncated
    }

    /// What the tool left out, by name.
    #[must_use]
    pub fn omitted(&self) -> &BTreeMap<String, u64> {
        &self.fields.omitted
    }

    /// How often the tool was entered; 0 means never.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.fields.attempts
    }

    /// Milliseconds that the last attempt took.
    #[must_use]
    pub fn latency_ms(&self) -> &Number {
        &self.fields.latency_ms
    }

    /// Effects that the tool declared in its result.
    #[must_use]
    pub fn declared_effects(&self) -> &[Map<String, Value>] {
        &self.fields.declared_effects
    }

    /// Files that the tool says it changed.
    #[must_use]
    pub fn filesystem_changes(&self) -> &[Map<String, Value>] {
        &self.fields.filesystem_changes
    }

    /// Artifacts that belong to the result.
    #[must_use]
    pub fn artifact_refs(&self) -> &[ArtifactRef] {
        &self.fields.artifact_refs
    }

    /// The request as the tool understood it.
    #[must_use]
    pub fn normalized_request(&self) -> &Map<String, Value> {
        &self.fields.normalized_request
    }

    /// Where the result comes from.
    #[must_use]
    pub fn provenance(&self) -> &Map<String, Value> {
        &self.fields.provenance
    }

    /// Free facts, never shown to the model.
    #[must_use]
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.fields.metadata
    }

    /// Whether the tool's code still runs.
    #[must_use]
    pub fn worker_still_running(&self) -> bool {
        self.fields.worker_still_running
    }

    /// The attempt that gave the result.
    #[must_use]
    pub fn attempt_id(&self) -> Option<&AttemptId> {
        self.fields.attempt_id.as_ref()
    }

    /// The external effect.
    #[must_use]
    pub fn effect_ref(&self) -> Option<&EffectRef> {
        self.fields.effect_ref.as_ref()
    }

    /// What is known about the external effect.
    #[must_use]
    pub fn effect_state(&self) -> EffectState {
        self.fields.effect_state
    }

    /// The idempotency key of the effect.
    #[must_use]
    pub fn idempotency_ref(&self) -> Option<&str> {
        self.fields.idempotency_ref.as_deref()
    }

    /// Whether a later call may repeat this one.
    #[must_use]
    pub fn retry_disposition(&self) -> RetryDisposition {
        self.fields.retry_disposition
    }

    /// Whether somebody must find out what happened.
    #[must_use]
    pub fn reconciliation_required(&self) -> bool {
        self.fields.reconciliation_required
    }

    /// Whether the effect may have happened (RES-5).
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.fields.outcome_unknown
    }

    /// Whether it came after its slot was closed (EXE-11).
    #[must_use]
    pub fn late_result(&self) -> bool {
        self.fields.late_result
    }

    /// Whether its owner had been superseded (EXE-11).
    #[must_use]
    pub fn stale_owner(&self) -> bool {
        self.fields.stale_owner
    }

    /// Owner generation under which the attempt ran.
    #[must_use]
    pub fn owner_generation(&self) -> Option<u64> {
        self.fields.owner_generation
    }

    /// The closure of its batch, once that is closed.
    #[must_use]
    pub fn batch_closure(&self) -> Option<&BatchClosure> {
        self.fields.batch_closure.as_ref()
    }
}

#[cfg(test)]
mod tests;
