//! The script of a configuration, played as `react_text_v1` text.

use qitos_contracts::model::WirePayload;
use serde_json::{Map, Value};

use super::step::{Answer, Step};

/// Why a script in a configuration is not valid; never its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// Not a non-empty list.
    #[error("extra_body.script is a list with at least one item")]
    NotAList,
    /// An item is neither `{{tool, args}}` nor `{{final}}`.
    #[error("item {index} of extra_body.script is neither {{tool, args}} nor {{final}}")]
    Item {
        /// Which one, from 0.
        index: usize,
    },
    /// The model has no name or its options are not valid.
    #[error("the scripted model's name or options are not valid")]
    Model,
}

/// The items as text.
#[derive(Debug)]
pub(crate) struct ReactScript {
    texts: Vec<String>,
    ends: bool,
}

impl ReactScript {
    pub(crate) fn read(script: &Value) -> Result<Self, ScriptError> {
        let items = script
            .as_array()
            .filter(|items| !items.is_empty())
            .ok_or(ScriptError::NotAList)?;
        let mut texts = Vec::with_capacity(items.len());
        let mut ends = false;
        for (index, item) in items.iter().enumerate() {
            let item = item.as_object().ok_or(ScriptError::Item { index })?;
            ends = item.contains_key("final");
            texts.push(item_text(item).ok_or(ScriptError::Item { index })?);
        }
        Ok(ReactScript { texts, ends })
    }

    /// The item that answers this conversation.
    pub(crate) fn step_for(&self, payload: &WirePayload) -> Option<Step> {
        let answers: usize = payload
            .fragments()
            .map(|fragment| count_answers(fragment))
            .sum();
        let index = if self.ends {
            answers.checked_rem(self.texts.len())?
        } else {
            answers
        };
        let text = self.texts.get(index)?;
        Some(Step::answer(Answer::text(text.as_str())))
    }
}

/// Quotes inside strings are escaped, so these bytes can only be the role of a message.
fn count_answers(fragment: &[u8]) -> usize {
    memchr::memmem::find_iter(fragment, br#""role":"assistant""#).count()
}

fn item_text(item: &Map<String, Value>) -> Option<String> {
    let thought = match item.get("thought") {
        None => None,
        Some(thought) => Some(thought.as_str().filter(|text| !text.contains('\n'))?),
    };
    let allowed = |keys: &[&str]| item.keys().all(|key| keys.contains(&key.as_str()));
    if let Some(answer) = item.get("final") {
        let answer = answer.as_str().filter(|_| allowed(&["final", "thought"]))?;
        let thought = thought.map(|text| format!("Thought: {text}\n"));
        return Some(format!(
            "{}Final Answer: {answer}",
            thought.unwrap_or_default()
        ));
    }
    let tool = item
        .get("tool")?
        .as_str()
        .filter(|_| allowed(&["tool", "args", "thought"]))
        .filter(|tool| is_identifier(tool))?;
    let arguments = match item.get("args") {
        None => String::new(),
        Some(arguments) => {
            let pairs = arguments
                .as_object()?
                .iter()
                .map(|(key, value)| is_identifier(key).then(|| format!("{key}={value}")));
            pairs.collect::<Option<Vec<_>>>()?.join(", ")
        }
    };
    let thought = thought.unwrap_or("the script says so.");
    Some(format!("Thought: {thought}\nAction: {tool}({arguments})"))
}

fn is_identifier(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
