//! `xml_decision_v1`: one `<decision>` element, at most one call.

use qitos_contracts::decision::{Action, Decision, ToolListing};
use serde_json::{Map, Value};

use super::grammar::{Grammar, Reading, Refusal, is_tool_name};
use super::tool_listing::listing;
use super::xml_reader::{Event, XmlFault, XmlReader};

const REPAIR: &str = "Write exactly one <decision> element with either one <action> or one <final_answer>; write <, > \
                      and & in values as &lt;, &gt; and &amp;.";
const SHAPE: &str = "<decision mode=\"act\"><think>why</think><action name=\"tool_name\"><arg name=\"key\">value</arg>\
                     </action></decision>\n\nor\n\n<decision mode=\"final\"><think>why</think><final_answer>the answer\
                     </final_answer></decision>";

#[derive(Debug)]
pub(super) struct XmlDecision;

fn malformed(summary: impl Into<String>) -> Refusal {
    Refusal::malformed(summary, REPAIR)
}

fn fault(fault: XmlFault) -> Refusal {
    malformed(fault.to_string())
}

impl Grammar for XmlDecision {
    fn protocol_id(&self) -> &'static str {
        "xml_decision_v1"
    }

    fn parser_name(&self) -> &'static str {
        "xml_decision"
    }

    fn allows_many_calls(&self) -> bool {
        false
    }

    fn values_are_text(&self) -> bool {
        true
    }

    fn expected_shape(&self) -> &'static str {
        SHAPE
    }

    fn read(&self, text: &str) -> Result<Reading, Refusal> {
        let text = text.trim();
        let Some(first) = text.find("<decision") else {
            return Err(Refusal::none("no <decision> element", REPAIR));
        };
        if text
            .get(..first)
            .is_some_and(|before| before.contains("<!"))
        {
            return Err(fault(XmlFault::Forbidden));
        }
        let end = text.rfind('>').map_or(text.len(), |last| last + 1);
        let span = text.get(first..end).unwrap_or_default();
        let decision = read_decision(span)?;
        Ok(Reading {
            decision,
            salvaged: span.len() < text.len(),
        })
    }

    fn instructions(&self, tools: &[ToolListing<'_>]) -> String {
        format!(
            "Answer with exactly one XML element and nothing else:\n\n{SHAPE}\n\nValues are plain text; numbers, \
             booleans, lists and objects are written as JSON. Write <, > and & in values as &lt;, &gt; and &amp;. \
             Never write an action and a final answer in one message, and never write a tool's result \
             yourself.\n\n{}",
            listing(tools)
        )
    }
}

#[derive(Debug, Default)]
struct Parts {
    thought: Option<String>,
    actions: Vec<Action>,
    answers: Vec<String>,
}

fn read_decision(span: &str) -> Result<Decision, Refusal> {
    let mut reader = XmlReader::new(span);
    let (mode, closed) = match reader.next().map_err(fault)? {
        Event::Open {
            name: "decision",
            attributes,
            closed,
        } => (only_attribute(attributes, "mode", "a decision")?, closed),
        _ => return Err(malformed("no <decision> element")),
    };
    let mut parts = Parts::default();
    let mut open = !closed;
    while open {
        match reader.next().map_err(fault)? {
            Event::Text(text) if text.trim().is_empty() => {}
            Event::Close { name: "decision" } => open = false,
            Event::Open {
                name,
                attributes,
                closed,
            } => {
                read_child(&mut reader, &mut parts, name, attributes, closed)?;
            }
            Event::Text(_) => return Err(malformed("loose text in the decision")),
            Event::Close { .. } | Event::End => {
                return Err(malformed("an element that is not closed"));
            }
        }
    }
    if reader.next().map_err(fault)? != Event::End {
        return Err(malformed("something after the decision"));
    }
    assemble(mode.as_deref(), parts)
}

fn read_child(
    reader: &mut XmlReader<'_>,
    parts: &mut Parts,
    name: &str,
    attributes: Vec<(&str, String)>,
    closed: bool,
) -> Result<(), Refusal> {
    match name {
        "think" | "final_answer" => {
            if !attributes.is_empty() {
                return Err(malformed("an unknown attribute"));
            }
            let text = if closed {
                String::new()
            } else {
                read_text(reader, name)?
            };
            let text = text.trim();
            if name == "final_answer" {
                parts.answers.push(text.to_owned());
            } else if !text.is_empty() {
                let thought = parts.thought.get_or_insert_default();
                if !thought.is_empty() {
                    thought.push('\n');
                }
                thought.push_str(text);
            }
        }
        "action" => {
            let name = only_attribute(attributes, "name", "an action")?
                .filter(|name| is_tool_name(name))
                .ok_or_else(|| malformed("an action whose name is no tool name"))?;
            let args = if closed {
                Map::new()
            } else {
                read_arguments(reader)?
            };
            parts.actions.push(Action::new(name, Value::Object(args)));
        }
        _ => return Err(malformed("an unknown element")),
    }
    Ok(())
}

fn read_arguments(reader: &mut XmlReader<'_>) -> Result<Map<String, Value>, Refusal> {
    let mut args = Map::new();
    loop {
        match reader.next().map_err(fault)? {
            Event::Text(text) if text.trim().is_empty() => {}
            Event::Close { name: "action" } => return Ok(args),
            Event::Open {
                name: "arg",
                attributes,
                closed,
            } => {
                let key = only_attribute(attributes, "name", "an argument")?
                    .filter(|key| !key.is_empty())
                    .ok_or_else(|| malformed("an argument without a name"))?;
                let value = if closed {
                    String::new()
                } else {
                    read_text(reader, "arg")?
                };
                if args.insert(key, Value::String(value)).is_some() {
                    return Err(malformed("a repeated argument"));
                }
            }
            _ => return Err(malformed("something other than an argument in the action")),
        }
    }
}

/// The text up to the closing tag of `name`.
fn read_text(reader: &mut XmlReader<'_>, name: &str) -> Result<String, Refusal> {
    let mut text = String::new();
    loop {
        match reader.next().map_err(fault)? {
            Event::Text(piece) => text.push_str(&piece),
            Event::Close { name: found } if found == name => return Ok(text),
            Event::Open { .. } => return Err(malformed("markup inside a text")),
            Event::Close { .. } | Event::End => {
                return Err(malformed("an element that is not closed"));
            }
        }
    }
}

fn only_attribute(
    attributes: Vec<(&str, String)>,
    wanted: &str,
    element: &str,
) -> Result<Option<String>, Refusal> {
    let mut found = None;
    for (key, value) in attributes {
        if key != wanted {
            return Err(malformed(format!("{element} with an unknown attribute")));
        }
        found = Some(value);
    }
    Ok(found)
}

fn assemble(mode: Option<&str>, parts: Parts) -> Result<Decision, Refusal> {
    let Parts {
        thought,
        mut actions,
        mut answers,
    } = parts;
    if actions.len() > 1 {
        return Err(malformed("more than one action"));
    }
    if answers.len() > 1 {
        return Err(malformed("more than one final answer"));
    }
    // The shape shows an empty <final_answer/> beside an action: an empty answer is none.
    let answer = answers.pop().filter(|answer| !answer.is_empty());
    let decision = match (mode, actions.pop(), answer) {
        (_, Some(_), Some(_)) => return Err(Refusal::ambiguous()),
        (None | Some("act"), Some(action), None) => Decision::act(vec![action]),
        (None | Some("final"), None, Some(answer)) => Decision::final_answer(answer),
        (Some("wait"), None, None) => Decision::wait(
            thought.as_deref().unwrap_or("the model asked to wait"),
            None,
        ),
        (Some("act"), None, _) => return Err(malformed("mode \"act\" without an action")),
        (Some("final"), _, _) => return Err(malformed("mode \"final\" without an answer")),
        (Some("wait"), _, _) => {
            return Err(malformed("mode \"wait\" beside an action or an answer"));
        }
        (Some(_), _, _) => return Err(malformed("an unknown mode")),
        (None, None, None) => return Err(malformed("neither an action nor a final answer")),
    };
    Ok(match thought {
        Some(thought) => decision.with_rationale(thought),
        None => decision,
    })
}
