//! What the model sees of a result (PRJ-1 to PRJ-9).
//!
//! A result is cut once, when it is recorded. The recorder asks [`spills`] which bodies have to be in the
//! artifact store first, stores them, and hands what became of them to [`settle`]; the settled result is what
//! the log keeps. From then on [`project`] gives the same view for the same result and limit, so building
//! a request needs no store.
//!
//! ```text
//! ToolResult ── spills ──► bodies ──► artifact store
//!      └──────── settle ◄── references or refusals
//!                   └──► settled ToolResult (log) ── project ──► ModelView ── codec
//! ```

mod cut;
mod redact;
mod source;
mod spill;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::result::{EffectState, TerminalStatus, ToolResult};
use crate::artifact::ArtifactRef;
use crate::canonical_json::{CanonicalError, ObjectWriter};
use crate::limits::{MODEL_VIEW_BATCH_CHARS, MODEL_VIEW_CHARS, MODEL_VIEW_LEAST_CHARS};

pub use redact::Redactions;
pub use spill::{Spill, SpillOutcome, SpillPart, settle, spills};

use redact::{redacted_map, redacted_string, redacted_text};
use source::Shown;

/// Schema id of every view.
pub const VIEW_SCHEMA: &str = "qitos.tool_result.model_view/v1";

/// What a view says when nobody knows whether the effect happened (PRJ-8).
pub const UNKNOWN_WARNING: &str =
    "The effect of this call may have happened. Check before repeating it.";

/// The characters that one result of a batch may show (PRJ-2).
///
/// The batch's 200,000 are dealt in declaration order to its `slots`, at least 512 and at most 50,000 each,
/// before any size is known: so parallel results are cut the same way whichever ends first. `tightened`
/// holds further limits, such as `result_max_chars` and that of CTX-40; they only lower it.
#[must_use]
pub fn result_limit(slots: usize, index: usize, tightened: &[Option<u64>]) -> usize {
    let slots = slots.max(1);
    let share =
        MODEL_VIEW_BATCH_CHARS / slots + usize::from(index < MODEL_VIEW_BATCH_CHARS % slots);
    let limit = share.clamp(MODEL_VIEW_LEAST_CHARS, MODEL_VIEW_CHARS);
    tightened.iter().flatten().fold(limit, |limit, tighter| {
        limit.min(usize::try_from(*tighter).unwrap_or(usize::MAX))
    })
}

/// What a view leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omissions {
    /// Characters of the redacted text that are not shown.
    pub characters: u64,
    /// Where all of it can be read.
    pub artifact_id: Option<Arc<str>>,
    /// Why it is not shown, or why it cannot be read.
    pub reason: Arc<str>,
}

/// What was cut, for the event of PRJ-6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Characters before.
    pub original: u64,
    /// Characters shown, the marker line not counted.
    pub shown: u64,
}

/// What the model sees of one result (PRJ-3).
///
/// Plain facts of the result; no metadata, provenance, request, host path or secret.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// How the call ended.
    pub status: TerminalStatus,
    /// Canonical tool name.
    pub tool_name: Option<Arc<str>>,
    /// The call's id.
    pub action_id: Option<Arc<str>>,
    /// The text or value to show (PRJ-4).
    pub model_output: Value,
    /// What went wrong.
    pub error: Option<Arc<str>>,
    /// The stable code of the error.
    pub error_code: Option<Arc<str>>,
    /// Whether repeating the call may succeed.
    pub recoverable: bool,
    /// What could be done, and the warning of PRJ-8.
    pub recovery_hint: Option<Arc<str>>,
    /// Advice `{name, args?, action_id?}`.
    pub next_action: Option<Map<String, Value>>,
    /// Whether the effect may have happened (RES-5).
    pub outcome_unknown: bool,
    /// What is known about the effect.
    pub effect_state: EffectState,
    /// The artifacts of the result; only six of their keys are written.
    pub artifacts: Vec<ArtifactRef>,
    /// What is not shown.
    pub omissions: Option<Omissions>,
    /// What was cut; not part of the written view.
    pub cut: Option<Cut>,
    /// What was redacted; not part of the written view.
    pub redactions: Redactions,
}

/// Projects a settled result (PRJ-3, PRJ-4, PRJ-8, PRJ-9).
///
/// Pure and deterministic. `limit` bounds the characters of `model_output`, the marker line included; it is the
/// one that the result was [settled](settle) with.
#[must_use]
pub fn project(result: &ToolResult, limit: usize) -> ModelView {
    let mut redactions = Redactions::default();
    let mut shown = Shown::of(result, &mut redactions);
    let recorded = spill::recorded_omission(result);
    let cut = shown.cut_to(limit, || match &recorded {
        Some(omissions) => (omissions.artifact_id.clone(), Arc::clone(&omissions.reason)),
        None => (None, "not_recorded".into()),
    });
    let (cut, omissions) = match cut {
        Some((cut, omissions)) => (Some(cut), Some(omissions)),
        None => (None, recorded),
    };
    let mut text = |text: Option<&str>| text.map(|text| redacted_text(text, &mut redactions));
    let error = text(result.error());
    let hint = text(result.recovery_hint());
    let next_action = result
        .next_action()
        .map(|action| redacted_map(action, &mut redactions));
    let artifacts = result
        .artifact_refs()
        .iter()
        .map(|reference| {
            let mut reference = reference.clone();
            reference.model_summary = reference
                .model_summary
                .map(|summary| redacted_string(&summary, &mut redactions));
            reference
        })
        .collect();
    ModelView {
        status: result.status(),
        tool_name: result.tool_name().map(Into::into),
        action_id: result.action_id().map(Into::into),
        model_output: shown.into_value(),
        error,
        error_code: result.error_code().map(Into::into),
        recoverable: result.recoverable(),
        recovery_hint: with_warning(hint, result.outcome_unknown()),
        next_action,
        outcome_unknown: result.outcome_unknown(),
        effect_state: result.effect_state(),
        artifacts,
        omissions,
        cut,
        redactions,
    }
}

/// PRJ-8: an unknown outcome read as "failed" invites a second payment.
fn with_warning(hint: Option<Arc<str>>, outcome_unknown: bool) -> Option<Arc<str>> {
    if !outcome_unknown {
        return hint;
    }
    Some(match hint {
        Some(hint) => format!("{UNKNOWN_WARNING} {hint}").into(),
        None => UNKNOWN_WARNING.into(),
    })
}

impl ModelView {
    /// Appends the canonical object of 14 keys.
    ///
    /// # Errors
    /// None for a view that [`project`] made: what it shows was checked when the result was made.
    pub fn write_canonical(&self, buffer: &mut Vec<u8>) -> Result<(), CanonicalError> {
        let mut object = ObjectWriter::new(buffer);
        object
            .key("action_id")
            .optional_str(self.action_id.as_deref());
        let mut artifacts = object.key("artifacts").array();
        for reference in &self.artifacts {
            let mut entry = artifacts.item().object();
            entry.key("artifact_id").str(&reference.artifact_id);
            entry.key("byte_length").u64(reference.byte_length);
            entry.key("media_type").str(&reference.media_type);
            entry
                .key("model_summary")
                .optional_str(reference.model_summary.as_deref());
            entry.key("required").bool(reference.required);
            entry.key("sha256").digest(&reference.sha256);
            entry.end();
        }
        artifacts.end();
        object.key("effect_state").str(self.effect_state.as_str());
        object.key("error").optional_str(self.error.as_deref());
        object
            .key("error_code")
            .optional_str(self.error_code.as_deref());
        object.key("model_output").value(&self.model_output)?;
        match &self.next_action {
            Some(action) => object.key("next_action").map(action)?,
            None => object.key("next_action").null(),
        }
        match &self.omissions {
            Some(omissions) => {
                let mut entry = object.key("omissions").object();
                entry
                    .key("artifact_id")
                    .optional_str(omissions.artifact_id.as_deref());
                entry.key("characters").u64(omissions.characters);
                entry.key("reason").str(&omissions.reason);
                entry.end();
            }
            None => object.key("omissions").null(),
        }
        object.key("outcome_unknown").bool(self.outcome_unknown);
        object.key("recoverable").bool(self.recoverable);
        object
            .key("recovery_hint")
            .optional_str(self.recovery_hint.as_deref());
        object.key("schema_version").str(VIEW_SCHEMA);
        object.key("status").str(self.status.as_str());
        object
            .key("tool_name")
            .optional_str(self.tool_name.as_deref());
        object.end();
        Ok(())
    }

    /// The canonical object, for providers that take a result as one text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut buffer = Vec::with_capacity(1024);
        let written = self.write_canonical(&mut buffer);
        debug_assert_eq!(written, Ok(()));
        String::from_utf8(buffer).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
