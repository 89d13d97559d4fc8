//! A request view as a Messages body (PRV-12 to PRV-15, section 7).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Placement};
use qitos_contracts::log::{AssistantItem, AssistantPart, FragmentKey, ItemBody, SealedItem};
use qitos_contracts::model::{
    CodecError, CodecReport, ContinuationReference, InstructionRole, ProviderCapabilities,
    RequestView, Target, WaitingState, WirePayload,
};
use serde_json::{Map, Value, json};

use super::batch::Batches;
use super::options::AnthropicOptions;
use super::write_item::{ItemForm, write_item, write_user_text};
use crate::request_rules::{
    Conversions, Losses, admit, contribution_text, must_call, offers_tools, report, stands_before,
};

/// Stable id and version of the codec.
pub(crate) const CODEC_ID: &str = "qitos.anthropic.messages";
pub(crate) const CODEC_VERSION: u32 = 1;

/// Writes `view` for a Messages target.
pub(crate) fn encode(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    options: &AnthropicOptions,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let form = ItemForm::of(view, capabilities);
    let lost = lost(view, &form);
    let losses = Losses {
        reasoning: lost.reasoning,
        interleaving: false,
    };
    let mut lossy_fields = admit(view, capabilities, allow_loss, losses)?;
    if lost.state {
        lossy_fields.push("continuation.state".to_owned());
        if !allow_loss {
            return Err(CodecError::LossRejected { lossy_fields });
        }
    }

    let mut batches = Batches::of(&view.items);
    let (mut fragments, waiting) = view.items.fragments_with_state(
        fragment_key(&form),
        &mut |item, out| write_item(item, &mut batches, &form, out),
        &|item| state_of(item, &view.target, &form).is_some(),
    )?;
    let waiting = waiting
        .into_iter()
        .filter_map(|(fragment, item)| {
            let reference = state_of(&item, &view.target, &form)?.clone();
            Some(WaitingState {
                fragment,
                item,
                reference,
            })
        })
        .collect();
    let spoken = |instruction: &&qitos_contracts::model::Instruction| {
        instruction.role == InstructionRole::User
    };
    let mut lead: Vec<Arc<[u8]>> = view
        .instructions
        .iter()
        .filter(spoken)
        .map(|instruction| user_message(&instruction.text))
        .collect();
    // A paused answer is taken up where it stopped: nothing may stand after it (A14).
    let is_paused = view
        .items
        .last()
        .is_some_and(|item| matches!(item.item().body, ItemBody::Assistant(_)));
    for contribution in &view.contributions {
        if is_system(contribution) {
            continue;
        }
        let message = user_message(&contribution_text(contribution));
        if stands_before(contribution) || is_paused {
            lead.push(message);
        } else {
            fragments.push(message);
        }
    }
    let payload = WirePayload::new(head(view, options), "messages", fragments)
        .with_lead(lead)
        .with_waiting(waiting);
    let conversions = Conversions {
        reasoning: "signed_block_replay",
        tool_schemas: "input_schema",
    };
    let codec = (CODEC_ID, CODEC_VERSION);
    Ok((payload, report(codec, view, lossy_fields, conversions)))
}

fn user_message(text: &str) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(text.len() + 40);
    write_user_text(text, &mut out);
    out.into()
}

/// The state with which an item is written, if it has any that may be used.
fn state_of<'a>(
    item: &'a SealedItem,
    target: &Target,
    form: &ItemForm,
) -> Option<&'a ContinuationReference> {
    let ItemBody::Assistant(assistant) = &item.item().body else {
        return None;
    };
    let reference = fitting(assistant, target)?;
    (form.replays_reasoning || !keeps_reasoning(assistant)).then_some(reference)
}

fn fitting<'a>(assistant: &'a AssistantItem, target: &Target) -> Option<&'a ContinuationReference> {
    assistant
        .continuation_attachments
        .iter()
        .map(|attachment| &attachment.reference)
        .find(|reference| reference.fits(target))
}

/// Whether the state of an item holds reasoning.
fn keeps_reasoning(assistant: &AssistantItem) -> bool {
    assistant.parts.iter().any(is_kept)
}

fn is_kept(part: &AssistantPart) -> bool {
    match part {
        AssistantPart::ReasoningBlock(block) => block.attachment_id.is_some(),
        AssistantPart::ReasoningReference(reference) => reference.attachment_id.is_some(),
        _ => false,
    }
}

/// What goes out without something that an earlier answer held.
struct Lost {
    reasoning: bool,
    /// State that cannot be used, because it would bring back reasoning that may not go back.
    state: bool,
}

/// Walks the history only if it holds reasoning at all.
fn lost(view: &RequestView, form: &ItemForm) -> Lost {
    let mut lost = Lost {
        reasoning: false,
        state: false,
    };
    if !view.items.categories().reasoning {
        return lost;
    }
    for item in view.items.iter().filter(|item| item.categories().reasoning) {
        let ItemBody::Assistant(assistant) = &item.item().body else {
            continue;
        };
        let is_usable = form.replays_reasoning && fitting(assistant, &view.target).is_some();
        lost.reasoning |= assistant.parts.iter().any(|part| match part {
            AssistantPart::ReasoningBlock(_) | AssistantPart::ReasoningReference(_) => {
                !(is_usable && is_kept(part))
            }
            _ => false,
        });
        lost.state |= !form.replays_reasoning
            && keeps_reasoning(assistant)
            && fitting(assistant, &view.target).is_some();
    }
    lost
}

fn head(view: &RequestView, options: &AnthropicOptions) -> Map<String, Value> {
    let mut head = options.extra_body.clone();
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if head.get("chat_template_kwargs").is_some_and(empty) {
        head.remove("chat_template_kwargs");
    }
    head.insert("model".to_owned(), view.target.model().into());
    let limit = view.max_output_tokens.unwrap_or(options.max_tokens);
    head.insert("max_tokens".to_owned(), limit.into());
    for (key, value) in [
        ("temperature", options.temperature),
        ("top_p", options.top_p),
    ] {
        if let Some(value) = value {
            head.insert(key.to_owned(), value.into());
        }
    }
    let system = system(view);
    if !system.is_empty() {
        head.insert("system".to_owned(), Value::Array(system));
    }
    if !offers_tools(view) {
        head.remove("tool_choice");
        return head;
    }
    let tools = view
        .tool_schemas
        .tools()
        .iter()
        .map(|tool| {
            let mut entry = Map::new();
            entry.insert("description".to_owned(), tool.description.as_str().into());
            entry.insert("input_schema".to_owned(), tool.input_schema.clone());
            entry.insert("name".to_owned(), tool.name.as_str().into());
            Value::Object(entry)
        })
        .collect();
    head.insert("tools".to_owned(), Value::Array(tools));
    if must_call(view) {
        let choice = match &options.forced_tool {
            Some(name) => json!({"type": "tool", "name": name}),
            None => json!({"type": "any"}),
        };
        head.insert("tool_choice".to_owned(), choice);
        // The server refuses a forced call that is thought about first (PRV-83).
        if let Some(thinking) = head.get_mut("thinking") {
            *thinking = json!({"type": "disabled"});
        }
    }
    head
}

/// Instructions and trusted contributions: one text block each; the server refuses blank ones.
fn system(view: &RequestView) -> Vec<Value> {
    let instructions = view
        .instructions
        .iter()
        .filter(|instruction| instruction.role != InstructionRole::User)
        .map(|instruction| instruction.text.clone());
    let contributions = view
        .contributions
        .iter()
        .filter(|contribution| is_system(contribution))
        .map(|contribution| contribution_text(contribution));
    instructions
        .chain(contributions)
        .filter(|text| !text.trim().is_empty())
        .map(|text| json!({"type": "text", "text": text}))
        .collect()
}

fn is_system(contribution: &ContextContribution) -> bool {
    let is_trusted = matches!(
        contribution.requested_placement,
        Placement::System | Placement::Developer
    );
    is_trusted && stands_before(contribution)
}

/// Everything beside the item that changes a fragment's bytes.
pub(crate) fn fragment_key(form: &ItemForm) -> FragmentKey {
    let mut hasher = DefaultHasher::new();
    (CODEC_ID, CODEC_VERSION, form).hash(&mut hasher);
    FragmentKey(hasher.finish())
}
