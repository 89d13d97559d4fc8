//! The strict reader of a written result (RES-1).

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::batch_closure::BatchClosure;
use super::error::ResultError;
use super::fields::Fields;
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use super::{RESULT_DEPTH, SCHEMA, table};
use crate::artifact::ArtifactRef;
use crate::canonical_json;
use crate::tool::call::ErrorKind;

/// Reads all 36 keys and holds them against the tables.
pub(super) fn read(value: Value) -> Result<Fields, ResultError> {
    canonical_json::check(&value, RESULT_DEPTH).map_err(|_| ResultError::NotSerializable)?;
    let Value::Object(map) = value else {
        return Err(ResultError::InvalidPayload);
    };
    match map.get("schema_version") {
        None => return Err(ResultError::MissingField("schema_version")),
        Some(Value::String(version)) if version == SCHEMA => {}
        Some(_) => return Err(ResultError::UnknownVersion),
    }
    let mut keys = Keys { map };
    keys.map.remove("schema_version");
    let success = keys.bool("success")?;
    let fields = Fields {
        action_id: keys.optional_text("action_id")?,
        artifact_refs: read_artifact_refs(keys.array("artifact_refs")?)?,
        attempt_id: keys.attempt_id()?,
        attempts: keys.u64("attempts")?,
        batch_closure: keys.batch_closure()?,
        complete: keys.bool("complete")?,
        declared_effects: keys.maps("declared_effects")?,
        effect_ref: keys.parsed("effect_ref")?,
        effect_state: EffectState::parse(&keys.text("effect_state")?)
            .ok_or(ResultError::InvalidEffectState)?,
        error: keys.optional_text("error")?,
        error_code: keys.optional_text("error_code")?,
        error_kind: match keys.optional_text("error_kind")?.as_deref() {
            None => None,
            Some("semantic") => Some(ErrorKind::Semantic),
            Some("execution") => Some(ErrorKind::Execution),
            Some("policy") => Some(ErrorKind::Policy),
            Some(_) => return Err(ResultError::InvalidErrorKind),
        },
        filesystem_changes: keys.maps("filesystem_changes")?,
        idempotency_ref: keys.optional_text("idempotency_ref")?,
        late_result: keys.bool("late_result")?,
        latency_ms: keys.latency()?,
        metadata: keys.map("metadata")?,
        model_output: keys.take("model_output")?,
        next_action: keys.next_action()?,
        normalized_request: keys.map("normalized_request")?,
        omitted: keys.counts("omitted")?,
        outcome_unknown: keys.bool("outcome_unknown")?,
        output: keys.take("output")?,
        owner_generation: keys.optional_u64("owner_generation")?,
        provenance: keys.map("provenance")?,
        reconciliation_required: keys.bool("reconciliation_required")?,
        recoverable: keys.bool("recoverable")?,
        recovery_hint: keys.optional_text("recovery_hint")?,
        retry_disposition: RetryDisposition::parse(&keys.text("retry_disposition")?)
            .ok_or(ResultError::InvalidRetryDisposition)?,
        stale_owner: keys.bool("stale_owner")?,
        status: TerminalStatus::parse(&keys.text("status")?).ok_or(ResultError::InvalidStatus)?,
        tool_name: keys.optional_text("tool_name")?,
        truncated: keys.bool("truncated")?,
        worker_still_running: keys.bool("worker_still_running")?,
    };
    if !keys.map.is_empty() {
        return Err(ResultError::UnknownField);
    }
    if success != (fields.status == TerminalStatus::Success) {
        return Err(ResultError::ContradictoryOutcome("success"));
    }
    table::check(&fields)?;
    Ok(fields)
}

struct Keys {
    map: Map<String, Value>,
}

impl Keys {
    fn take(&mut self, key: &'static str) -> Result<Value, ResultError> {
        self.map.remove(key).ok_or(ResultError::MissingField(key))
    }

    fn bool(&mut self, key: &'static str) -> Result<bool, ResultError> {
        match self.take(key)? {
            Value::Bool(value) => Ok(value),
            _ => Err(ResultError::InvalidField(key)),
        }
    }

    fn text(&mut self, key: &'static str) -> Result<String, ResultError> {
        match self.take(key)? {
            Value::String(text) => Ok(text),
            _ => Err(ResultError::InvalidField(key)),
        }
    }

    fn optional_text(&mut self, key: &'static str) -> Result<Option<Arc<str>>, ResultError> {
        match self.take(key)? {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.into())),
            _ => Err(ResultError::InvalidField(key)),
        }
    }

    fn parsed<T: FromStr>(&mut self, key: &'static str) -> Result<Option<T>, ResultError> {
        match self.optional_text(key)? {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(parsed) => Ok(Some(parsed)),
                Err(_) => Err(ResultError::InvalidField(key)),
            },
        }
    }

    fn attempt_id<T: FromStr>(&mut self) -> Result<Option<T>, ResultError> {
        match self.take("attempt_id")? {
            Value::Null => Ok(None),
            Value::String(text) => match text.parse() {
                Ok(parsed) => Ok(Some(parsed)),
                Err(_) => Err(ResultError::InvalidAttemptIdentity),
            },
            _ => Err(ResultError::InvalidAttemptIdentity),
        }
    }

    fn u64(&mut self, key: &'static str) -> Result<u64, ResultError> {
        self.take(key)?
            .as_u64()
            .ok_or(ResultError::InvalidField(key))
    }

    fn optional_u64(&mut self, key: &'static str) -> Result<Option<u64>, ResultError> {
        match self.take(key)? {
            Value::Null => Ok(None),
            value => value
                .as_u64()
                .map(Some)
                .ok_or(ResultError::InvalidField(key)),
        }
    }

    fn latency(&mut self) -> Result<Number, ResultError> {
        match self.take("latency_ms")? {
            Value::Number(number) if number.as_f64().is_some_and(|value| value >= 0.0) => {
                Ok(number)
            }
            _ => Err(ResultError::InvalidField("latency_ms")),
        }
    }

    fn map(&mut self, key: &'static str) -> Result<Map<String, Value>, ResultError> {
        match self.take(key)? {
            Value::Object(map) => Ok(map),
            _ => Err(ResultError::InvalidField(key)),
        }
    }

    fn array(&mut self, key: &'static str) -> Result<Vec<Value>, ResultError> {
        match self.take(key)? {
            Value::Array(items) => Ok(items),
            _ => Err(ResultError::InvalidField(key)),
        }
    }

    fn maps(&mut self, key: &'static str) -> Result<Vec<Map<String, Value>>, ResultError> {
        let object = |item| match item {
            Value::Object(map) => Ok(map),
            _ => Err(ResultError::InvalidField(key)),
        };
        self.array(key)?.into_iter().map(object).collect()
    }

    fn counts(&mut self, key: &'static str) -> Result<BTreeMap<String, u64>, ResultError> {
        let count = |(name, value): (String, Value)| match value.as_u64() {
            Some(count) => Ok((name, count)),
            None => Err(ResultError::InvalidField(key)),
        };
        self.map(key)?.into_iter().map(count).collect()
    }

    fn next_action(&mut self) -> Result<Option<Map<String, Value>>, ResultError> {
        match self.take("next_action")? {
            Value::Null => Ok(None),
            value => read_next_action(value).map(Some),
        }
    }

    fn batch_closure(&mut self) -> Result<Option<BatchClosure>, ResultError> {
        match self.take("batch_closure")? {
            Value::Object(map) if map.is_empty() => Ok(None),
            Value::Object(map) => BatchClosure::from_map(map).map(Some),
            _ => Err(ResultError::InvalidBatchClosure),
        }
    }
}

/// `{name, args?, action_id?}`, advice that is never executed by itself.
pub(super) fn read_next_action(value: Value) -> Result<Map<String, Value>, ResultError> {
    let fits = |map: &Map<String, Value>| {
        map.get("name")
            .is_some_and(|name| name.as_str().is_some_and(|name| !name.is_empty()))
            && map.iter().all(|(key, value)| match key.as_str() {
                "name" => true,
                "args" => value.is_object(),
                "action_id" => value.is_string() || value.is_null(),
                _ => false,
            })
    };
    match value {
        Value::Object(map) if fits(&map) => Ok(map),
        _ => Err(ResultError::InvalidField("next_action")),
    }
}

/// The number of keys of an artifact reference.
const ARTIFACT_REF_KEYS: usize = 11;

fn read_artifact_refs(items: Vec<Value>) -> Result<Vec<ArtifactRef>, ResultError> {
    let mut references = Vec::with_capacity(items.len());
    for item in items {
        // A missing optional key reads as null, so the number of keys is what makes it exact.
        let exact = item
            .as_object()
            .is_some_and(|map| map.len() == ARTIFACT_REF_KEYS);
        if !exact {
            return Err(ResultError::InvalidArtifactRef);
        }
        references.push(serde_json::from_value(item).map_err(|_| ResultError::InvalidArtifactRef)?);
    }
    check_artifact_refs(&references)?;
    Ok(references)
}

/// Well-formed references without a repeated id or a host path (ART-7).
pub(super) fn check_artifact_refs(references: &[ArtifactRef]) -> Result<(), ResultError> {
    let mut seen = BTreeSet::new();
    for reference in references {
        let path_like = |text: &str| text.contains(['/', '\\']) || text.is_empty();
        let fits = reference.schema_version == ArtifactRef::SCHEMA
            && reference.encoding == "binary"
            && !path_like(&reference.artifact_id)
            && !path_like(&reference.resolver_key)
            && !reference.media_type.is_empty()
            && reference
                .model_summary
                .as_ref()
                .is_none_or(|summary| summary.chars().count() <= 1024);
        if !fits || !seen.insert(reference.artifact_id.as_str()) {
            return Err(ResultError::InvalidArtifactRef);
        }
    }
    Ok(())
}
