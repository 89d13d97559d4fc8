//! Results that a tool makes for itself (RES-6).

use serde_json::{Map, Value};

use super::construct::fail;
use super::error::ResultError;
use super::fields::Fields;
use super::reader::read_next_action;
use super::vocabulary::{EffectState, RetryDisposition, TerminalStatus};
use super::{ToolResult, VALUE_DEPTH};
use crate::canonical_json;
use crate::tool::call::ErrorKind;

/// What a tool says in its own name; the framework adds identity, attempts and effect.
impl ToolResult {
    /// A success with `output`.
    ///
    /// # Errors
    /// `non_serializable_value` for a value that cannot be written.
    pub fn success(output: Value) -> Result<Self, ResultError> {
        canonical_json::check(&output, VALUE_DEPTH).map_err(|_| ResultError::NotSerializable)?;
        let mut fields = Fields::blank(TerminalStatus::Success);
        fields.attempts = 1;
        fields.output = output;
        fields.retry_disposition = RetryDisposition::NonRetryable;
        Ok(ToolResult::of(fields))
    }

    /// An error; a code outside `[a-z][a-z0-9_]{0,63}` is recorded as `tool_failed`.
    #[must_use]
    pub fn failure(kind: ErrorKind, code: &str, message: &str) -> Self {
        let mut fields = Fields::blank(TerminalStatus::Error);
        fields.attempts = 1;
        fail(&mut fields, kind, code, message);
        fields.retry_disposition = RetryDisposition::NonRetryable;
        ToolResult::of(fields)
    }

    /// The same result with a text or value to show in place of the output (PRJ-4).
    ///
    /// # Errors
    /// `non_serializable_value` for a value that cannot be written.
    pub fn with_model_output(self, shown: Value) -> Result<Self, ResultError> {
        canonical_json::check(&shown, VALUE_DEPTH).map_err(|_| ResultError::NotSerializable)?;
        Ok(self.map_fields(|fields| fields.model_output = shown))
    }

    /// The same error with an output beside it, such as the partial result of a failed command.
    ///
    /// # Errors
    /// `non_serializable_value` for a value that cannot be written.
    pub fn with_output(self, output: Value) -> Result<Self, ResultError> {
        canonical_json::check(&output, VALUE_DEPTH).map_err(|_| ResultError::NotSerializable)?;
        Ok(self.map_fields(|fields| fields.output = output))
    }

    /// The same error, worth repeating or not, with a hint; a success stays as it is.
    #[must_use]
    pub fn with_recovery(self, recoverable: bool, hint: Option<&str>) -> Self {
        self.map_fields(|fields| {
            if fields.status == TerminalStatus::Success || fields.outcome_unknown {
                return;
            }
            fields.recoverable = recoverable;
            fields.recovery_hint = hint.map(Into::into);
            let open = matches!(
                fields.effect_state,
                EffectState::NoEffectDeclared | EffectState::NotStarted | EffectState::Rejected
            );
            if open && !fields.worker_still_running {
                fields.retry_disposition = if recoverable {
                    RetryDisposition::Retryable
                } else {
                    RetryDisposition::NonRetryable
                };
            }
        })
    }

    /// The same result advising a next call `{name, args?, action_id?}`.
    ///
    /// # Errors
    /// `invalid_canonical_field` for another shape, `non_serializable_value` for too deep a value.
    pub fn with_next_action(self, action: Value) -> Result<Self, ResultError> {
        canonical_json::check(&action, VALUE_DEPTH).map_err(|_| ResultError::NotSerializable)?;
        let action = read_next_action(action)?;
        Ok(self.map_fields(|fields| fields.next_action = Some(action)))
    }

    /// The same result saying what the tool left out: `name` times `count`; it is then not complete.
    #[must_use]
    pub fn with_omitted(self, name: &str, count: u64) -> Self {
        self.map_fields(|fields| {
            fields.omitted.insert(name.to_owned(), count);
            fields.complete = false;
            fields.truncated = true;
        })
    }

    /// The same result naming one more file that the tool changed; too deep a value is left out.
    #[must_use]
    pub fn with_filesystem_change(self, change: Map<String, Value>) -> Self {
        self.map_fields(|fields| push_checked(&mut fields.filesystem_changes, change))
    }

    /// The same result with the request as the tool understood it; too deep a value is left out.
    #[must_use]
    pub fn with_normalized_request(self, request: Map<String, Value>) -> Self {
        self.map_fields(|fields| {
            if is_writable(&request) {
                fields.normalized_request = request;
            }
        })
    }
}

fn is_writable(map: &Map<String, Value>) -> bool {
    map.values()
        .all(|value| canonical_json::check(value, VALUE_DEPTH - 2).is_ok())
}

fn push_checked(list: &mut Vec<Map<String, Value>>, map: Map<String, Value>) {
    if is_writable(&map) {
        list.push(map);
    }
}
