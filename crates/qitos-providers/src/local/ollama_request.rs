//! A request view as a body of Ollama's `/api/chat` or `/api/generate` (PRV-12 to PRV-15, section 7).

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Placement};
use qitos_contracts::log::FragmentKey;
use qitos_contracts::model::{
    CodecError, CodecReport, InstructionRole, ProviderCapabilities, RequestView, WirePayload,
};
use serde_json::{Map, Value};

use super::server::OllamaMode;
use super::settings::LocalOptions;
use super::transcript::message_of;
use crate::openai_chat::write_message;
use crate::request_rules::{Conversions, Losses, admit, contribution_text, report, stands_before};

/// Stable ids and version of the codec, one id for each mode.
pub(super) const CODEC_VERSION: u32 = 1;

pub(super) const fn codec_id(mode: OllamaMode) -> &'static str {
    match mode {
        OllamaMode::Chat => "qitos.ollama.chat",
        OllamaMode::Generate => "qitos.ollama.generate",
    }
}

/// Writes `view` for Ollama.
pub(super) fn encode(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    mode: OllamaMode,
    options: &LocalOptions,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let losses = Losses {
        reasoning: true,
        interleaving: true,
    };
    let lossy_fields = admit(view, capabilities, allow_loss, losses)?;
    let mut head = head(view, options);
    let payload = match mode {
        OllamaMode::Chat => messages(view, head)?,
        OllamaMode::Generate => {
            let (system, prompt) = prompt(view)?;
            if !system.is_empty() {
                head.insert("system".to_owned(), system.into());
            }
            head.insert("prompt".to_owned(), prompt.into());
            WirePayload::of_head(head)
        }
    };
    let conversions = Conversions {
        reasoning: "dropped",
        tool_schemas: "not_present",
    };
    let codec = (codec_id(mode), CODEC_VERSION);
    Ok((payload, report(codec, view, lossy_fields, conversions)))
}

fn head(view: &RequestView, options: &LocalOptions) -> Map<String, Value> {
    let mut head = options.extra_body.clone();
    let mut own = match head.remove("options") {
        Some(Value::Object(own)) => own,
        _ => Map::new(),
    };
    if let Some(limit) = view.max_output_tokens.or(options.max_tokens) {
        own.insert("num_predict".to_owned(), limit.into());
    }
    for (key, value) in [
        ("temperature", options.temperature),
        ("top_p", options.top_p),
    ] {
        if let Some(value) = value {
            own.insert(key.to_owned(), value.into());
        }
    }
    if !own.is_empty() {
        head.insert("options".to_owned(), Value::Object(own));
    }
    head.insert("model".to_owned(), view.target.model().into());
    head.insert("stream".to_owned(), false.into());
    head
}

/// Role and text of one message.
type Message = (&'static str, String);

/// What stands before the history, then what follows it.
fn around(view: &RequestView) -> (Vec<Message>, Vec<Message>) {
    let mut lead: Vec<Message> = view
        .instructions
        .iter()
        .map(|instruction| match instruction.role {
            InstructionRole::System | InstructionRole::Developer => {
                ("system", instruction.text.clone())
            }
            InstructionRole::User => ("user", instruction.text.clone()),
        })
        .collect();
    let mut after = Vec::new();
    for contribution in &view.contributions {
        let text = contribution_text(contribution);
        if !stands_before(contribution) {
            after.push(("user", text));
        } else if is_trusted(contribution) {
            lead.push(("system", text));
        } else {
            lead.push(("user", text));
        }
    }
    (lead, after)
}

fn is_trusted(contribution: &ContextContribution) -> bool {
    matches!(
        contribution.requested_placement,
        Placement::System | Placement::Developer
    )
}

fn messages(view: &RequestView, head: Map<String, Value>) -> Result<WirePayload, CodecError> {
    let written = |(role, text): Message| -> Arc<[u8]> {
        let mut out = Vec::with_capacity(text.len() + 40);
        write_message(role, &text, &mut out);
        out.into()
    };
    let (lead, after) = around(view);
    let mut fragments = view.items.fragments(fragment_key(), &mut |item, out| {
        let (role, text) = message_of(&item.item().body)?;
        write_message(role, &text, out);
        Ok(())
    })?;
    fragments.extend(after.into_iter().map(written));
    Ok(WirePayload::new(head, "messages", fragments)
        .with_lead(lead.into_iter().map(written).collect()))
}

/// The system text, and the conversation as one transcript that ends where the model goes on.
fn prompt(view: &RequestView) -> Result<(String, String), CodecError> {
    let (lead, after) = around(view);
    let (system, lead): (Vec<_>, Vec<_>) =
        lead.into_iter().partition(|(role, _)| *role == "system");
    let system: Vec<String> = system.into_iter().map(|(_, text)| text).collect();
    let mut prompt = String::new();
    let mut say = |role: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = write!(prompt, "{role}: {text}\n\n");
    };
    lead.iter().for_each(|(role, text)| say(role, text));
    for item in view.items.iter() {
        let (role, text) = message_of(&item.item().body)?;
        say(role, &text);
    }
    after.iter().for_each(|(role, text)| say(role, text));
    prompt.push_str("assistant:");
    Ok((system.join("\n\n"), prompt))
}

fn fragment_key() -> FragmentKey {
    let mut hasher = DefaultHasher::new();
    (codec_id(OllamaMode::Chat), CODEC_VERSION).hash(&mut hasher);
    FragmentKey(hasher.finish())
}
