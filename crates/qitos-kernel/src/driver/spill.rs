//! A tool output is cut once, when it is recorded, and what is cut is kept as an artifact (PRJ-1, PRJ-5).

use qitos_contracts::artifact::{ArtifactRef, ArtifactStore};
use qitos_contracts::tool::result::{End, ToolResult};
use qitos_contracts::tool::{Returned, ToolSpec};
use qitos_contracts::{canonical_json, limits};
use serde_json::{Value, json};

/// Keeps small outputs as they are; stores the body of large ones and keeps its reference.
///
/// Without a store, or when it refuses, the output stays inline up to what a log item may hold.
pub(super) async fn spill(value: Value, spec: &ToolSpec, store: Option<&dyn ArtifactStore>) -> End {
    let Ok(body) = canonical_json::to_bytes(&value) else {
        return End::Returned(Returned::Value(value));
    };
    if body.len() <= limits::INLINE_OUTPUT_BYTES {
        return End::Returned(Returned::Value(value));
    }
    let Some(store) = store else {
        return End::Returned(Returned::Value(value));
    };
    let reference = ArtifactRef::of_body(store.resolver_key(), "application/json", &body);
    if store.put(&reference, &body).await.is_err() {
        return End::Returned(Returned::Value(value));
    }
    let limit = spec
        .result_max_chars
        .map_or(limits::MODEL_VIEW_CHARS, |chars| {
            usize::try_from(chars)
                .unwrap_or(usize::MAX)
                .min(limits::MODEL_VIEW_CHARS)
        });
    let text = match &value {
        Value::String(text) => text.clone(),
        _ => String::from_utf8_lossy(&body).into_owned(),
    };
    let shown = head_and_tail(&text, limit, &reference.artifact_id);
    let result = ToolResult::success(json!({"artifact": reference}))
        .and_then(|result| result.with_model_output(Value::String(shown)))
        .and_then(|result| result.with_artifact(reference));
    match result {
        Ok(result) => End::Returned(Returned::Result(Box::new(result))),
        Err(_) => End::Returned(Returned::Value(value)),
    }
}

/// 70 % head, 30 % tail, cut between scalars, one marker line with both counts and the artifact (PRJ-4).
fn head_and_tail(text: &str, limit: usize, artifact_id: &str) -> String {
    let total = text.chars().count();
    if total <= limit {
        return text.to_owned();
    }
    let marker = format!(
        "\n[... {total} characters, {limit} shown, the whole is artifact {artifact_id} ...]\n"
    );
    let room = limit.saturating_sub(marker.chars().count());
    let (head, tail) = (room * 7 / 10, room - room * 7 / 10);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(total - tail).collect();
    format!("{first}{marker}{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_is_as_long_as_allowed_and_says_what_is_missing() {
        // PRJ-4, TCK-28 at limit-1, limit, limit+1 and 10 times
        for length in [999, 1_000, 1_001, 10_000] {
            let text: String = std::iter::repeat_n('é', length).collect();
            let shown = head_and_tail(&text, 1_000, "sha256:x");
            assert!(shown.chars().count() <= 1_000, "{length}");
            assert_eq!(shown.contains("sha256:x"), length > 1_000, "{length}");
        }
    }
}
