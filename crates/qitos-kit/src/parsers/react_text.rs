//! `react_text_v1`: labelled lines, at most one call.

use qitos_contracts::decision::{Action, Decision, ToolListing};
use serde_json::Value;

use super::grammar::{Grammar, Reading, Refusal, folded};
use super::react_call::read_call;
use super::tool_listing::listing;

const REPAIR: &str = "Write each label at the start of its line, and either one action with named arguments or one \
                      final answer.";
const SHAPE: &str = "Thought: why\nAction: tool_name(number=1, text=\"text\")\n\nor\n\nThought: why\n\
                     Final Answer: the answer";

#[derive(Debug)]
pub(super) struct ReactText;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Thought,
    Reflection,
    Action,
    FinalAnswer,
}

#[derive(Debug)]
struct Block<'text> {
    label: Label,
    text: &'text str,
}

/// The label at the very start of `line` and the byte after its colon.
fn label_of(line: &str) -> Option<(Label, usize)> {
    // A letter and at most 40 more, then a number, then the colon.
    let colon = line.bytes().take(52).position(|byte| byte == b':')?;
    let head = line.get(..colon)?;
    let stem = head.trim_end_matches(|last: char| last.is_ascii_digit());
    let well_formed = stem.starts_with(|first: char| first.is_ascii_alphabetic())
        && stem.len() <= 41
        && stem
            .bytes()
            .all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b' ' | b'_' | b'-'));
    if !well_formed {
        return None;
    }
    let label = match folded(stem).as_str() {
        "thought" | "thinking" | "think" | "rationale" => Label::Thought,
        "reflection" | "reflect" | "selfreflection" => Label::Reflection,
        "action" | "tool" | "call" => Label::Action,
        "finalanswer" | "final" | "answer" => Label::FinalAnswer,
        _ => return None,
    };
    (stem.len() == head.len() || label == Label::Action).then_some((label, colon + 1))
}

/// Cuts the text into the part before the first label, and the labelled blocks.
fn split_blocks(text: &str) -> (&str, Vec<Block<'_>>) {
    let mut starts = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        if let Some((label, offset)) = label_of(line) {
            starts.push((label, line_start, line_start + offset));
        }
        line_start += line.len();
    }
    let preamble_end = starts.first().map_or(text.len(), |(_, start, _)| *start);
    let ends = starts
        .iter()
        .skip(1)
        .map(|(_, start, _)| *start)
        .chain(std::iter::once(text.len()));
    let blocks = starts
        .iter()
        .zip(ends)
        .map(|((label, _, from), to)| Block {
            label: *label,
            text: text.get(*from..to).unwrap_or_default().trim(),
        })
        .collect();
    (text.get(..preamble_end).unwrap_or_default().trim(), blocks)
}

/// Whether a line would be an action or answer if its decoration were removed.
fn has_decorated_label(text: &str) -> bool {
    text.lines().any(|line| {
        let bare = line.trim_start_matches(['*', '_', '#', '>', '-', '`', ' ', '\t']);
        bare.len() < line.len()
            && label_of(bare)
                .is_some_and(|(label, _)| matches!(label, Label::Action | Label::FinalAnswer))
    })
}

/// Whether an action label is followed by something like `name(` (TXT-10).
pub(super) fn looks_like_a_call(text: &str) -> bool {
    let (_, blocks) = split_blocks(text);
    blocks
        .iter()
        .filter(|block| block.label == Label::Action)
        .any(|block| {
            block
                .text
                .split_once('(')
                .is_some_and(|(name, _)| super::grammar::is_tool_name(name.trim_end()))
        })
}

impl Grammar for ReactText {
    fn protocol_id(&self) -> &'static str {
        "react_text_v1"
    }

    fn parser_name(&self) -> &'static str {
        "react_text"
    }

    fn allows_many_calls(&self) -> bool {
        false
    }

    fn expected_shape(&self) -> &'static str {
        SHAPE
    }

    fn read(&self, text: &str) -> Result<Reading, Refusal> {
        let (preamble, blocks) = split_blocks(text);
        if blocks.is_empty() {
            return Err(if has_decorated_label(text) {
                Refusal::malformed("a label that is not at the start of its line", REPAIR)
            } else {
                Refusal::none("no labelled line", REPAIR)
            });
        }
        let of = |wanted: Label| blocks.iter().filter(move |block| block.label == wanted);
        let decision = match (of(Label::Action).count(), of(Label::FinalAnswer).count()) {
            (0, 0) => {
                return Err(Refusal::malformed(
                    "neither an action nor a final answer",
                    REPAIR,
                ));
            }
            (1, 0) => read_action(
                of(Label::Action)
                    .map(|block| block.text)
                    .collect::<String>()
                    .as_str(),
            )?,
            (0, 1) => Decision::final_answer(
                of(Label::FinalAnswer)
                    .map(|block| block.text)
                    .collect::<String>(),
            ),
            (_, 0) => return Err(Refusal::malformed("more than one action", REPAIR)),
            (0, _) => return Err(Refusal::malformed("more than one final answer", REPAIR)),
            (_, _) => return Err(Refusal::ambiguous()),
        };
        let reasons: Vec<&str> = std::iter::once(preamble)
            .chain(
                blocks
                    .iter()
                    .filter(|block| matches!(block.label, Label::Thought | Label::Reflection))
                    .map(|block| block.text),
            )
            .filter(|reason| !reason.is_empty())
            .collect();
        let decision = if reasons.is_empty() {
            decision
        } else {
            decision.with_rationale(reasons.join("\n"))
        };
        Ok(Reading {
            decision,
            salvaged: !preamble.is_empty(),
        })
    }

    fn instructions(&self, tools: &[ToolListing<'_>]) -> String {
        format!(
            "Answer in labelled lines. Each label starts its line. To use a tool, write one action and stop; its \
             result comes in the next message:\n\nThought: why\nAction: tool_name(number=1, text=\"text\")\n\n\
             Arguments are named, and values are JSON (numbers, \"text\", true, false, null, lists, objects). When \
             you are done:\n\nThought: why\nFinal Answer: the answer\n\nNever write an action and a final answer in \
             one message, and never write a tool's result yourself.\n\n{}",
            listing(tools)
        )
    }
}

fn read_action(text: &str) -> Result<Decision, Refusal> {
    match read_call(text) {
        Ok((name, arguments)) => Ok(Decision::act(vec![
            Action::new(name, Value::Object(arguments)).with_raw(text),
        ])),
        Err(fault) => Err(Refusal::malformed(fault.to_string(), REPAIR)),
    }
}
