//! Bodies that have to be in the artifact store before a result is recorded (PRJ-1, PRJ-5).

use std::sync::Arc;

use serde_json::{Value, json};

use super::Omissions;
use super::redact::Redactions;
use super::source::{Shown, Source};
use crate::artifact::ArtifactRef;
use crate::error::ContractError;
use crate::tool::result::{ToolResult, check_reference};

/// The key under `metadata` where a settled result says what its view leaves out.
const OMISSION_KEY: &str = "model_view_omission";

/// Why a view leaves something out that can be read elsewhere.
const OVER_LIMIT: &str = "over_limit";

/// Characters that redaction may make of one, in the worst case: `/a/` becomes `[REDACTED_PATH]`.
const REDACTION_GROWTH: usize = 16;

/// What a spilled body is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpillPart {
    /// The canonical output, which is too large to stand in the log (PRJ-1).
    Output,
    /// What the view shows, which is longer than the view may be (PRJ-5).
    Shown,
    /// Both: the view shows the output.
    OutputShown,
}

/// One body for the artifact store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spill {
    /// What it is of.
    pub part: SpillPart,
    /// `text/plain; charset=utf-8` for a text, else `application/json`.
    pub media_type: &'static str,
    /// The whole body, nothing redacted.
    pub body: Vec<u8>,
}

/// What became of one body: its reference, or the code with which the store refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillOutcome {
    /// What the body is of.
    pub part: SpillPart,
    /// The reference, or why there is none.
    pub stored: Result<ArtifactRef, String>,
}

/// The bodies that a result needs in the artifact store before it is recorded; most need none.
///
/// The threshold at which a view is cut is the threshold at which its body is stored, so nothing is lost between
/// tool and model (PRJ-5).
#[must_use]
pub fn spills(result: &ToolResult, limit: usize) -> Vec<Spill> {
    let source = Source::of(result);
    let shows_output = source.is_whole_output(result);
    let output_leaves = result.must_spill_output();
    let cuts = is_cut(result, source, limit) || result.must_spill_model_output();
    let spill = |part, source: Source<'_>| {
        let (media_type, body) = source.body();
        Spill {
            part,
            media_type,
            body,
        }
    };
    let mut spills = Vec::new();
    match (output_leaves, cuts && shows_output) {
        (true, true) => spills.push(spill(SpillPart::OutputShown, source)),
        (true, false) => spills.push(spill(SpillPart::Output, Source::value(result.output()))),
        (false, true) => spills.push(spill(SpillPart::Shown, source)),
        (false, false) => {}
    }
    if cuts && !shows_output {
        spills.push(spill(SpillPart::Shown, source));
    }
    spills
}

fn is_cut(result: &ToolResult, source: Source<'_>, limit: usize) -> bool {
    if let Source::Text(text) = source
        && text.len().saturating_mul(REDACTION_GROWTH) <= limit
    {
        return false;
    }
    let mut shown = Shown::of(result, &mut Redactions::default());
    shown.cut_to(limit, || (None, OVER_LIMIT.into())).is_some()
}

/// The result as the log keeps it, once the bodies of [`spills`] are stored or refused.
///
/// An output too large for the log becomes `{"artifact": <reference>}`, and what the view shows of it becomes
/// `model_output`. What the view leaves out is noted under `metadata`, so that
/// [`project`](super::project) needs no store. An output that the store refused stays if a log item can hold it;
/// else it is counted under `omitted` and gone.
#[must_use]
pub fn settle(result: ToolResult, limit: usize, outcomes: Vec<SpillOutcome>) -> ToolResult {
    if outcomes.is_empty() {
        return result;
    }
    let mut result = result;
    let mut output_leaves = false;
    let mut whereabouts: (Option<Arc<str>>, Arc<str>) = (None, "not_recorded".into());
    let source_leaves = Source::of(&result).is_in_output(&result);
    let shown_leaves = result.must_spill_model_output();
    let mut shown = Shown::of(&result, &mut Redactions::default());
    for outcome in outcomes {
        let stored = outcome
            .stored
            .and_then(|reference| match check_reference(&reference) {
                Ok(()) => Ok(reference),
                Err(error) => Err(error.code().to_owned()),
            });
        if outcome.part != SpillPart::Output {
            whereabouts = match &stored {
                Ok(reference) => (
                    Some(reference.artifact_id.as_str().into()),
                    OVER_LIMIT.into(),
                ),
                Err(code) => (None, code.as_str().into()),
            };
        }
        if outcome.part == SpillPart::Shown {
            result = match stored {
                Ok(reference) => result.clone().with_artifact(reference).unwrap_or(result),
                Err(_) => result,
            };
        } else {
            output_leaves = true;
            result = match stored {
                Ok(reference) => result
                    .clone()
                    .with_artifact_output(reference)
                    .unwrap_or(result),
                Err(_) => result.without_refused_output(),
            };
        }
    }
    let cut = shown.cut_to(limit, || whereabouts);
    if let Some((_, omissions)) = &cut {
        let note = json!({
            "artifact_id": omissions.artifact_id.as_deref(),
            "characters": omissions.characters,
            "reason": &*omissions.reason,
        });
        result = result.with_metadata(OMISSION_KEY, note);
    }
    // What stays in the log is cut anew by each projection, always the same way.
    if (output_leaves && source_leaves) || shown_leaves {
        let excerpt = Value::String(shown.into_text());
        result = result.clone().with_model_output(excerpt).unwrap_or(result);
    }
    result
}

/// What a settled result says about what its view leaves out.
pub(super) fn recorded_omission(result: &ToolResult) -> Option<Omissions> {
    let note = result.metadata().get(OMISSION_KEY)?;
    Some(Omissions {
        characters: note.get("characters")?.as_u64()?,
        artifact_id: note.get("artifact_id")?.as_str().map(Into::into),
        reason: note.get("reason")?.as_str()?.into(),
    })
}
