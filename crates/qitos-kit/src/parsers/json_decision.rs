//! `json_decision_v1` and `json_decision_multi_v1`: one JSON object.

use qitos_contracts::canonical_json;
use qitos_contracts::decision::{Action, Decision, ToolListing};
use serde_json::{Map, Value};

use super::grammar::{Grammar, Reading, Refusal, folded, is_tool_name};
use super::json_document::{Document, NoDocument, find_object};
use super::tool_listing::listing;

const REPAIR: &str = "Write exactly one JSON object, alone or in one fenced block, with either \"action\" (or \
                      \"actions\") or \"final_answer\".";
const SHAPE: &str = "{\"thought\": \"why\", \"action\": {\"name\": \"tool_name\", \"args\": {\"key\": \"value\"}}}\n\nor\n\n\
                     {\"thought\": \"why\", \"final_answer\": \"the answer\"}";
const SHAPE_MULTI: &str = "{\"thought\": \"why\", \"actions\": [{\"name\": \"tool_name\", \"args\": {\"key\": \"value\"}}]}\n\n\
                           or\n\n{\"thought\": \"why\", \"final_answer\": \"the answer\"}";
const KEYS: [&str; 5] = ["thought", "mode", "action", "actions", "final_answer"];

#[derive(Debug)]
pub(super) struct JsonDecision;

#[derive(Debug)]
pub(super) struct JsonDecisionMulti;

impl Grammar for JsonDecision {
    fn protocol_id(&self) -> &'static str {
        "json_decision_v1"
    }

    fn parser_name(&self) -> &'static str {
        "json_decision"
    }

    fn allows_many_calls(&self) -> bool {
        true
    }

    fn expected_shape(&self) -> &'static str {
        SHAPE
    }

    fn read(&self, text: &str) -> Result<Reading, Refusal> {
        read(text)
    }

    fn instructions(&self, tools: &[ToolListing<'_>]) -> String {
        instructions(SHAPE, "", tools)
    }
}

impl Grammar for JsonDecisionMulti {
    fn protocol_id(&self) -> &'static str {
        "json_decision_multi_v1"
    }

    fn parser_name(&self) -> &'static str {
        "json_decision_multi"
    }

    fn allows_many_calls(&self) -> bool {
        true
    }

    fn expected_shape(&self) -> &'static str {
        SHAPE_MULTI
    }

    fn read(&self, text: &str) -> Result<Reading, Refusal> {
        read(text)
    }

    fn instructions(&self, tools: &[ToolListing<'_>]) -> String {
        instructions(
            SHAPE_MULTI,
            "Put up to 4 calls into \"actions\" when none of them needs another's result; they may run at the same \
             time. ",
            tools,
        )
    }
}

fn instructions(shape: &str, advice: &str, tools: &[ToolListing<'_>]) -> String {
    format!(
        "Answer with exactly one JSON object and nothing else:\n\n{shape}\n\n{advice}\"args\" is always an object. \
         Never write an action and a final answer in one message, and never write a tool's result yourself.\n\n{}",
        listing(tools)
    )
}

fn malformed(summary: impl Into<String>) -> Refusal {
    Refusal::malformed(summary, REPAIR)
}

fn read(text: &str) -> Result<Reading, Refusal> {
    let Document { object, salvaged } = find_object(text).map_err(|missing| match missing {
        NoDocument::Absent => Refusal::none("no JSON object", REPAIR),
        NoDocument::Different => malformed("two different JSON objects"),
        NoDocument::Unreadable if mentions_a_key(text) => malformed("not one readable JSON object"),
        NoDocument::Unreadable => Refusal::none("no JSON object", REPAIR),
    })?;
    let decision = read_object(&object)?;
    Ok(Reading { decision, salvaged })
}

/// Whether a text that is no JSON was meant as a decision.
fn mentions_a_key(text: &str) -> bool {
    text.trim_start().starts_with('{')
        || ["\"action\"", "\"actions\"", "\"final_answer\""]
            .iter()
            .any(|key| text.contains(key))
}

/// A key's value; `null` counts as absent.
fn field<'object>(object: &'object Map<String, Value>, key: &str) -> Option<&'object Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn read_object(object: &Map<String, Value>) -> Result<Decision, Refusal> {
    check_keys(object)?;
    let thought = match field(object, "thought") {
        None => None,
        Some(Value::String(thought)) => Some(thought.trim()).filter(|thought| !thought.is_empty()),
        Some(_) => return Err(malformed("\"thought\" is not a text")),
    };
    let actions = match (field(object, "action"), field(object, "actions")) {
        (Some(_), Some(Value::Array(list))) if !list.is_empty() => {
            return Err(malformed("both \"action\" and \"actions\""));
        }
        (Some(action), None | Some(Value::Array(_))) => vec![action],
        (None, Some(Value::Array(list))) => list.iter().collect(),
        (None, None) => Vec::new(),
        (_, Some(_)) => return Err(malformed("\"actions\" is not a list")),
    };
    let answer = match field(object, "final_answer") {
        // Models fill unused fields with empty text; beside an action that is no answer.
        Some(Value::String(text)) if text.is_empty() && !actions.is_empty() => None,
        other => other,
    };
    let mode = match field(object, "mode") {
        None => None,
        Some(Value::String(mode)) => Some(mode.as_str()),
        Some(_) => return Err(malformed("\"mode\" is not a text")),
    };
    let decision = match (mode, actions.is_empty(), answer) {
        (_, false, Some(_)) => return Err(Refusal::ambiguous()),
        (None | Some("act"), false, None) => Decision::act(
            actions
                .into_iter()
                .map(read_action)
                .collect::<Result<_, _>>()?,
        ),
        (None | Some("final"), true, Some(answer)) => Decision::final_answer(answer_text(answer)?),
        (Some("wait"), true, None) => {
            Decision::wait(thought.unwrap_or("the model asked to wait"), None)
        }
        (Some("act"), true, _) => return Err(malformed("mode \"act\" without an action")),
        (Some("final"), _, None) => return Err(malformed("mode \"final\" without an answer")),
        (Some("wait"), _, _) => {
            return Err(malformed("mode \"wait\" beside an action or an answer"));
        }
        (Some(_), _, _) => return Err(malformed("an unknown mode")),
        (None, true, None) => {
            return Err(if KEYS.iter().any(|key| object.contains_key(*key)) {
                malformed("neither an action nor a final answer")
            } else {
                Refusal::none("a JSON object that is no decision", REPAIR)
            });
        }
    };
    Ok(match thought {
        Some(thought) => decision.with_rationale(thought),
        None => decision,
    })
}

/// Commentary beside the decision is harmless; a key that may have meant a call or an answer is not.
fn check_keys(object: &Map<String, Value>) -> Result<(), Refusal> {
    let known: Vec<String> = KEYS.iter().map(|key| folded(key)).collect();
    let unknown = || {
        object
            .iter()
            .filter(|(key, _)| !KEYS.contains(&key.as_str()))
    };
    if unknown().any(|(key, _)| known.contains(&folded(key))) {
        return Err(malformed("a key that is nearly one of the protocol's"));
    }
    let is_decision = KEYS.iter().any(|key| object.contains_key(*key));
    if is_decision && unknown().any(|(_, value)| value.is_object() || value.is_array()) {
        return Err(malformed("an unknown key with an object or list"));
    }
    Ok(())
}

fn read_action(value: &Value) -> Result<Action, Refusal> {
    let Value::Object(action) = value else {
        return Err(malformed("an action that is not an object"));
    };
    if action.keys().any(|key| key != "name" && key != "args") {
        return Err(malformed(
            "an action with a key other than \"name\" and \"args\"",
        ));
    }
    let name = match action.get("name") {
        Some(Value::String(name)) if is_tool_name(name) => name,
        Some(_) => return Err(malformed("an action whose \"name\" is no tool name")),
        None => return Err(malformed("an action without \"name\"")),
    };
    match action.get("args") {
        Some(args @ Value::Object(_)) => Ok(Action::new(name.as_str(), args.clone())),
        Some(_) => Err(malformed("\"args\" that is not an object")),
        None => Err(malformed("an action without \"args\"")),
    }
}

/// An answer that is not a text is given as canonical JSON.
fn answer_text(answer: &Value) -> Result<String, Refusal> {
    match answer {
        Value::String(text) => Ok(text.clone()),
        other => canonical_json::to_bytes(other)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| malformed("an answer that cannot be written as JSON")),
    }
}
