//! A result is cut once, when it is recorded, and what is cut is kept as an artifact (PRJ-1, PRJ-5).
//!
//! What spills and how it is shown is decided by the contract ([`model_view`]); here the bodies are stored.

use qitos_contracts::artifact::{ArtifactRef, ArtifactStore};
use qitos_contracts::error::ContractError;
use qitos_contracts::limits::MODEL_VIEW_LEAST_CHARS;
use qitos_contracts::tool::Returned;
use qitos_contracts::tool::model_view::{self, SpillOutcome};
use qitos_contracts::tool::result::ToolResult;
use serde_json::Value;

/// Stores what `returned` needs in the artifact store; most results need nothing and come back as they are.
pub(super) async fn spill(
    returned: Returned,
    limit: usize,
    store: Option<&dyn ArtifactStore>,
) -> Returned {
    let result = match returned {
        Returned::Value(value) if is_small(&value) => return Returned::Value(value),
        Returned::Value(value) => match ToolResult::success(value.clone()) {
            Ok(result) => result,
            Err(_) => return Returned::Value(value),
        },
        Returned::Result(result) => *result,
    };
    let mut outcomes = Vec::new();
    for spill in model_view::spills(&result, limit) {
        let stored = match store {
            None => Err("artifact_store_missing".to_owned()),
            Some(store) => {
                let reference =
                    ArtifactRef::of_body(store.resolver_key(), spill.media_type, &spill.body);
                match store.put(&reference, &spill.body).await {
                    Ok(()) => Ok(reference),
                    Err(error) => Err(error.code().to_owned()),
                }
            }
        };
        outcomes.push(SpillOutcome {
            part: spill.part,
            stored,
        });
    }
    Returned::Result(Box::new(model_view::settle(result, limit, outcomes)))
}

/// Whether a value is certainly shown whole, without writing it out.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() < MODEL_VIEW_LEAST_CHARS,
        Value::Array(_) | Value::Object(_) => estimate(value, MODEL_VIEW_LEAST_CHARS) > 0,
    }
}

/// What is left of `room` after writing `value`; 0 once it is used up.
fn estimate(value: &Value, room: usize) -> usize {
    match value {
        Value::String(text) => room.saturating_sub(text.len() * 2 + 2),
        Value::Array(items) => items.iter().fold(room.saturating_sub(2), |room, item| {
            if room == 0 {
                0
            } else {
                estimate(item, room).saturating_sub(1)
            }
        }),
        Value::Object(map) => map
            .iter()
            .fold(room.saturating_sub(2), |room, (key, item)| {
                if room == 0 {
                    0
                } else {
                    estimate(item, room).saturating_sub(key.len() * 2 + 4)
                }
            }),
        _ => room.saturating_sub(24),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_small_value_stays_as_it_is_and_a_large_one_says_what_is_missing() {
        // PRJ-5: without a store the omission is stated, not hidden.
        let small = spill(Returned::Value(json!({"a": 1})), 1_000, None).await;
        assert!(matches!(small, Returned::Value(_)));
        let text = "x".repeat(5_000);
        let Returned::Result(result) = spill(Returned::Value(json!(text)), 1_000, None).await
        else {
            panic!("a large value is recorded as a result");
        };
        let view = model_view::project(&result, 1_000);
        assert!(
            view.omissions
                .is_some_and(|omissions| omissions.characters > 0)
        );
    }
}
