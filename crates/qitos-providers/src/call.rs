//! Tool calls as every dialect reads and writes them: ids, arguments, bounds (PRV-21 to PRV-25).

use std::sync::Arc;

use qitos_contracts::ids::CallId;
use qitos_contracts::limits::LOG_ITEM_BYTES;
use qitos_contracts::log::{ParseStatus, ToolCallPart};
use qitos_contracts::model::{RequestView, ResponsePart};
use serde_json::{Map, Value};

use crate::verdict::{Defect, Violation, is_complete_object, means_no_arguments, parse_object};

/// Most calls of one answer (PRV-60).
pub(crate) const MAX_TOOL_SLOTS: usize = qitos_contracts::limits::TOOL_SLOTS;
/// Most argument bytes of one call (PRV-60 = ARG-4).
pub(crate) const MAX_ARGUMENT_BYTES: usize = qitos_contracts::limits::ARGUMENTS_BYTES;
/// Most bytes of text, reasoning and arguments of one answer together (PRV-60).
pub(crate) const MAX_ACCUMULATED_BYTES: usize = 4 * 1024 * 1024;
/// Largest log item, in canonical bytes (session.md section 17).
const MAX_ITEM_BYTES: usize = LOG_ITEM_BYTES as usize;

/// Scope of calls that a text protocol read out of an answer (LOG-2); they were never sent as calls.
pub(crate) const TEXT_SCOPE: &str = "text";

/// One call as the provider wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// Identities and, on a stream, arguments of all calls of one answer.
///
/// A call of a stream is complete or the answer fails; a whole answer may hold one that is not, so
/// that the model can be told (PRV-22).
pub(crate) fn check_calls<'a>(
    calls: impl Iterator<Item = &'a RawCall> + Clone,
    streamed: bool,
) -> Result<(), Defect> {
    if streamed
        && !calls
            .clone()
            .all(|call| is_complete_object(&call.arguments))
    {
        return Err(Violation::IncompleteToolInput.into());
    }
    if calls
        .clone()
        .any(|call| call.id.is_empty() || call.name.is_empty())
    {
        return Err(Violation::ToolIdentityMissing.into());
    }
    let repeated = calls.clone().enumerate().any(|(position, call)| {
        calls
            .clone()
            .take(position)
            .any(|earlier| earlier.id == call.id)
    });
    if repeated {
        return Err(Violation::ToolIdentityConflict.into());
    }
    Ok(())
}

/// The assistant item must fit one log item (PRV-60). Arguments count twice: raw and parsed.
pub(crate) fn check_item_size<'a>(
    texts: impl Iterator<Item = &'a str> + Clone,
    arguments: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Defect> {
    let raw: usize = texts.clone().map(str::len).sum::<usize>()
        + 2 * arguments.clone().map(str::len).sum::<usize>();
    // An escape makes at most six bytes of one.
    if raw.saturating_mul(6) <= MAX_ITEM_BYTES {
        return Ok(());
    }
    let written: usize = texts.map(escaped_bytes).sum::<usize>()
        + arguments.map(|text| 2 * escaped_bytes(text)).sum::<usize>();
    if written > MAX_ITEM_BYTES - MAX_ITEM_BYTES / 64 {
        return Err(Violation::LimitExceeded.into());
    }
    Ok(())
}

fn escaped_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
            0..=31 => 6,
            _ => 1,
        })
        .sum()
}

/// The normal form of call number `index` of an answer to `view` (PRV-21, PRV-23, PRV-24).
pub(crate) fn normal_call(
    call: RawCall,
    index: usize,
    scope: &str,
    view: &RequestView,
) -> ResponsePart {
    let mut metadata = Map::new();
    let call_id = internal_id(&call.id, index, scope, view);
    if call_id != call.id && !call.id.is_empty() {
        metadata.insert("wire_id".to_owned(), call.id.into());
    }
    let mut raw_arguments = call.arguments;
    if means_no_arguments(&raw_arguments) {
        metadata.insert("wire_arguments_empty".to_owned(), true.into());
        raw_arguments = "{}".to_owned();
    }
    let (parsed_arguments, parse_status, parse_error) = match parse_object(&raw_arguments) {
        Ok(object) => (Some(Arc::new(object)), ParseStatus::Parsed, None),
        Err(true) => (
            None,
            ParseStatus::ParsedInvalid,
            Some("arguments_not_object".into()),
        ),
        Err(false) => (
            None,
            ParseStatus::MalformedRaw,
            Some("malformed_arguments_json".into()),
        ),
    };
    ResponsePart::ToolCall {
        call_id: call_id.into(),
        name: call.name.into(),
        raw_arguments: raw_arguments.into(),
        parsed_arguments,
        parse_status,
        parse_error,
        metadata,
    }
}

/// The id under which the log keeps a call; one without a wire id gets `call_<request_id>_<index>`
/// (PRV-24, PRV-25).
///
/// Where part of the log is left out of the view, nobody can tell here whether an id was used there,
/// so every id is made unique; the wire id goes back all the same.
fn internal_id(wire_id: &str, index: usize, scope: &str, view: &RequestView) -> String {
    if wire_id.parse::<CallId>().is_err() {
        return format!("call_{}_{index}", view.request_id);
    }
    if view.source.first_item == 0 && !view.items.declares_call(scope, wire_id) {
        return wire_id.to_owned();
    }
    let unique = format!("{wire_id}@{}", view.request_id);
    if unique.parse::<CallId>().is_err() {
        return format!("call_{}_{index}", view.request_id);
    }
    unique
}

/// The id that the provider used: a renamed id is `<id>@<request_id>`, its batch `batch_<request_id>` (PRV-24).
///
/// Derived from the result's own fields, so that call and result agree without looking at each other.
pub(crate) fn wire_id<'a>(call_id: &'a str, batch_id: &str) -> &'a str {
    batch_id
        .strip_prefix("batch_")
        .and_then(|request| call_id.strip_suffix(request))
        .and_then(|rest| rest.strip_suffix('@'))
        .filter(|id| !id.is_empty())
        .unwrap_or(call_id)
}

/// Servers parse what they get back, so text that is no JSON object is sent as an empty one.
pub(crate) fn replayable_arguments(call: &ToolCallPart) -> &str {
    if call.parsed_arguments.is_some()
        || is_complete_object(&call.raw_arguments) && !means_no_arguments(&call.raw_arguments)
    {
        &call.raw_arguments
    } else {
        "{}"
    }
}

/// `[A-Za-z0-9_-]{1,128}` (PRV-43).
pub(crate) fn is_plain_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A text field of an answer: absent and null mean empty, any other type is malformed.
pub(crate) fn take_text(object: &mut Map<String, Value>, key: &str) -> Result<String, Defect> {
    match object.remove(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Defect::Malformed),
    }
}
