//! What of a result may stand in the log, and what moves to the artifact store (PRJ-1).

use serde_json::{Value, json};

use super::error::ResultError;
use super::{ToolResult, reader};
use crate::artifact::ArtifactRef;
use crate::canonical_json;
use crate::limits::INLINE_OUTPUT_BYTES;

/// Nesting above which a value leaves the log: a log item holds 64 (section 7).
pub(super) const INLINE_DEPTH: usize = 56;
/// Values above which a value leaves the log: a log item holds 100,000 (section 7).
pub(super) const INLINE_NODES: usize = 90_000;
/// Bytes that stay in the log when the artifact store refuses them; a log item holds twice as much.
pub(super) const REFUSED_OUTPUT_BYTES: usize = 4 * 1024 * 1024;

impl ToolResult {
    /// The same result with its output moved to the artifact store (PRJ-1).
    ///
    /// `output` becomes `{"artifact": <reference>}`, and the reference joins `artifact_refs`.
    ///
    /// # Errors
    /// `invalid_artifact_ref` for a reference that is not well formed.
    pub fn with_artifact_output(self, reference: ArtifactRef) -> Result<Self, ResultError> {
        let value =
            serde_json::to_value(&reference).map_err(|_| ResultError::InvalidArtifactRef)?;
        let result = self.with_artifact(reference)?;
        Ok(result.map_fields(|fields| fields.output = json!({ "artifact": value })))
    }

    /// The same result naming one more artifact; an id it names already is named once.
    ///
    /// # Errors
    /// `invalid_artifact_ref` for a reference that is not well formed.
    pub fn with_artifact(self, reference: ArtifactRef) -> Result<Self, ResultError> {
        let known = |known: &ArtifactRef| known.artifact_id == reference.artifact_id;
        if self.fields.artifact_refs.iter().any(known) {
            return Ok(self);
        }
        check_reference(&reference)?;
        Ok(self.map_fields(|fields| fields.artifact_refs.push(reference)))
    }

    /// Whether the output is too large, deep or wide to stand in the log (PRJ-1 and section 7).
    #[must_use]
    pub fn must_spill_output(&self) -> bool {
        !stands_in_log(&self.fields.output, INLINE_OUTPUT_BYTES)
    }

    /// Whether what the tool wants shown is too large, deep or wide to stand in the log.
    #[must_use]
    pub fn must_spill_model_output(&self) -> bool {
        !stands_in_log(&self.fields.model_output, INLINE_OUTPUT_BYTES)
    }

    /// The same result after the artifact store refused its output: what a log item can hold stays, else the
    /// output is gone and counted under `omitted`.
    pub(in crate::tool) fn without_refused_output(self) -> Self {
        if stands_in_log(&self.fields.output, REFUSED_OUTPUT_BYTES) {
            return self;
        }
        // The value was checked when it came in.
        let bytes = canonical_json::to_bytes(&self.fields.output).unwrap_or_default();
        self.map_fields(|fields| {
            fields.output = Value::Null;
            fields
                .omitted
                .insert("output_bytes".to_owned(), bytes.len() as u64);
            fields.complete = false;
            fields.truncated = true;
        })
    }
}

/// Whether a reference is well formed and names no host path (ART-7).
pub(in crate::tool) fn check_reference(reference: &ArtifactRef) -> Result<(), ResultError> {
    reader::check_artifact_refs(std::slice::from_ref(reference))
}

fn stands_in_log(value: &Value, limit: usize) -> bool {
    let mut nodes = INLINE_NODES;
    let mut bytes = limit;
    // The cheap bound first, so that huge values are not written to measure them.
    costs_at_most(value, INLINE_DEPTH, &mut nodes, &mut bytes)
        && canonical_json::to_bytes(value).is_ok_and(|written| written.len() <= limit)
}

/// Whether a lower bound of the cost of `value` is within the limits.
fn costs_at_most(value: &Value, depth: usize, nodes: &mut usize, bytes: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        _ => 1,
    };
    let (Some(nodes_left), Some(bytes_left)) = (nodes.checked_sub(1), bytes.checked_sub(own))
    else {
        return false;
    };
    (*nodes, *bytes) = (nodes_left, bytes_left);
    match (value, depth.checked_sub(1)) {
        (Value::Array(_) | Value::Object(_), None) => false,
        (Value::Array(items), Some(depth)) => items
            .iter()
            .all(|item| costs_at_most(item, depth, nodes, bytes)),
        (Value::Object(members), Some(depth)) => members
            .values()
            .all(|item| costs_at_most(item, depth, nodes, bytes)),
        _ => true,
    }
}
