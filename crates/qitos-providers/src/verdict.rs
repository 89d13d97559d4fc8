//! Why an answer is no success, before it becomes a typed failure.
//!
//! Dialects decide defects from bytes alone; target, counts and redaction are added where the
//! failure is built ([`crate::classify_failure`]).

use qitos_contracts::model::TokenUsage;
use serde_json::Value;

use crate::classify_failure::ProviderFault;

/// The closed list of stream violations (PRV-42).
pub(crate) use qitos_contracts::model::Violation;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The dialect's rules are broken.
    Violation(Violation),
    /// The provider declined to answer (PRV-28).
    Refusal,
    /// The provider reported a fault inside a 200 answer (PRV-41).
    Fault(ProviderFault),
    /// The provider declared its answer cut short; not a success of its dialect (PRV-R9, PRV-R10).
    Incomplete,
    /// A non-streamed answer has a shape that is none of the dialect's.
    Malformed,
    /// A non-streamed answer is JSON but no object.
    Envelope,
    /// A non-streamed answer is not JSON.
    NotJson,
}

impl From<Violation> for Defect {
    fn from(violation: Violation) -> Self {
        Defect::Violation(violation)
    }
}

/// Text of an argument string that means "no arguments" (PRV-23).
pub(crate) fn means_no_arguments(arguments: &str) -> bool {
    arguments.trim().is_empty()
}

/// Whether `arguments` are one complete JSON object, or mean none.
pub(crate) fn is_complete_object(arguments: &str) -> bool {
    means_no_arguments(arguments)
        || (arguments.trim_start().starts_with('{')
            && serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok())
}

/// The object that `arguments` hold; `Err(true)` if they are valid JSON of another type (PRV-21).
pub(crate) fn parse_object(arguments: &str) -> Result<Value, bool> {
    if means_no_arguments(arguments) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(true),
        Err(_) => Err(false),
    }
}

/// How much of a failed answer had arrived, in Unicode scalar values (PRV-43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartialCounts {
    pub(crate) text_characters: u64,
    pub(crate) reasoning_characters: u64,
    pub(crate) tool_calls: u64,
}

/// A defect with what had arrived before it (PRV-43, PRV-75).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedAnswer {
    pub(crate) defect: Defect,
    pub(crate) counts: PartialCounts,
    /// The last usage known; never final.
    pub(crate) usage: Option<TokenUsage>,
}

impl From<Defect> for FailedAnswer {
    /// A defect before anything was read.
    fn from(defect: Defect) -> Self {
        FailedAnswer {
            defect,
            counts: PartialCounts::default(),
            usage: None,
        }
    }
}
