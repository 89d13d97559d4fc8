//! A request view as a `generateContent` body (PRV-12 to PRV-15, section 7).

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Placement};
use qitos_contracts::log::{AssistantPart, FragmentKey, ItemBody, SealedItem};
use qitos_contracts::model::{
    CodecError, CodecReport, InstructionRole, ProviderCapabilities, ReasoningMode, RequestView,
    Target, WaitingState, WirePayload,
};
use serde_json::{Map, Value, json};

use super::options::GeminiOptions;
use super::write_item::{Batches, ItemForm, write_item, write_text};
use crate::request_rules::{
    Conversions, Losses, admit, contribution_text, offers_tools, report, stands_before,
};

/// Stable id and version of the codec.
pub(crate) const CODEC_ID: &str = "qitos.google.generate_content";
pub(crate) const CODEC_VERSION: u32 = 1;

/// Writes `view` for a Gemini target.
pub(super) fn encode(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    options: &GeminiOptions,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let losses = Losses {
        reasoning: loses_reasoning(view, capabilities),
        interleaving: false,
    };
    let lossy_fields = admit(view, capabilities, allow_loss, losses)?;

    let form = ItemForm::of(capabilities, reasoning_is_dropped(&lossy_fields));
    let batches = RefCell::new(Batches::new(&view.items));
    let scope = view.target.scope();
    let (mut fragments, waiting) = view.items.fragments_with_state(
        fragment_key(&form, &view.target),
        &mut |item, out| write_item(item, &form, &scope, &mut batches.borrow_mut(), out),
        &|item| reference_of(item, &view.target).is_some(),
    )?;
    batches.into_inner().check_last_is_complete()?;
    let waiting = waiting
        .into_iter()
        .filter_map(|(fragment, item)| {
            let reference = reference_of(&item, &view.target)?.clone();
            Some(WaitingState {
                fragment,
                item,
                reference,
            })
        })
        .collect();
    fragments.extend(
        view.contributions
            .iter()
            .filter(|contribution| !stands_before(contribution))
            .map(|contribution| content("user", &contribution_text(contribution))),
    );
    let mut lead: Vec<Arc<[u8]>> = view
        .instructions
        .iter()
        .filter(|instruction| instruction.role == InstructionRole::User)
        .map(|instruction| content("user", &instruction.text))
        .collect();
    lead.extend(
        view.contributions
            .iter()
            .filter(|contribution| stands_before(contribution) && !is_trusted(contribution))
            .map(|contribution| content("user", &contribution_text(contribution))),
    );
    let payload = WirePayload::new(head(view, options), "contents", fragments)
        .with_lead(lead)
        .with_waiting(waiting);
    let conversions = Conversions {
        reasoning: "preserved",
        tool_schemas: "function_declarations",
    };
    let report = report((CODEC_ID, CODEC_VERSION), view, lossy_fields, conversions);
    Ok((payload, report))
}

/// Whether the request goes out without the thoughts of earlier answers.
pub(super) fn reasoning_is_dropped(lossy_fields: &[String]) -> bool {
    lossy_fields
        .iter()
        .any(|field| field == "assistant.reasoning")
}

/// Thoughts of this target go back as they came; reasoning of any other, or whose signature belongs to another
/// model, cannot (PRV-20, PRV-103).
fn loses_reasoning(view: &RequestView, capabilities: &ProviderCapabilities) -> bool {
    if !capabilities.supports_reasoning_input || view.reasoning_policy.mode == ReasoningMode::Drop {
        return true;
    }
    if !view.items.categories().reasoning {
        return false;
    }
    let scope = view.target.scope();
    let is_lost = |part: &AssistantPart, has_state: bool| match part {
        AssistantPart::ReasoningBlock(block) => {
            *block.provider_scope != *scope
                || &*block.block_type != "thought"
                || (block.attachment_id.is_some() && !has_state)
        }
        AssistantPart::ReasoningReference(_) => true,
        AssistantPart::Content(_) | AssistantPart::ToolCall(_) => false,
    };
    view.items
        .iter()
        .filter(|item| item.categories().reasoning)
        .any(|item| match &item.item().body {
            ItemBody::Assistant(assistant) => {
                let has_state = reference_of(item, &view.target).is_some();
                assistant.parts.iter().any(|part| is_lost(part, has_state))
            }
            _ => false,
        })
}

/// The state of an answer, if this very target gave it.
fn reference_of<'item>(
    item: &'item SealedItem,
    target: &Target,
) -> Option<&'item qitos_contracts::model::ContinuationReference> {
    let ItemBody::Assistant(assistant) = &item.item().body else {
        return None;
    };
    assistant
        .continuation_attachments
        .iter()
        .map(|attachment| &attachment.reference)
        .find(|reference| reference.fits(target))
}

fn head(view: &RequestView, options: &GeminiOptions) -> Map<String, Value> {
    let mut head = options.extra_body.clone();
    let mut config = match head.remove("generationConfig") {
        Some(Value::Object(config)) => config,
        _ => Map::new(),
    };
    if let Some(limit) = view.max_output_tokens.or(options.max_tokens) {
        config.insert("maxOutputTokens".to_owned(), limit.into());
    }
    for (key, value) in [
        ("temperature", options.temperature),
        ("topP", options.top_p),
    ] {
        if let Some(value) = value {
            config.insert(key.to_owned(), value.into());
        }
    }
    if !config.is_empty() {
        head.insert("generationConfig".to_owned(), Value::Object(config));
    }
    let system = system_parts(view);
    if !system.is_empty() {
        head.insert("systemInstruction".to_owned(), json!({"parts": system}));
    }
    if !offers_tools(view) {
        head.remove("toolConfig");
        return head;
    }
    let declarations: Vec<Value> = view
        .tool_schemas
        .tools()
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                // The field for plain JSON Schema; `parameters` takes a dialect of its own.
                "parametersJsonSchema": tool.input_schema,
            })
        })
        .collect();
    let tools = json!([{ "functionDeclarations": declarations }]);
    head.insert("tools".to_owned(), tools);
    head
}

/// Texts that the model is told as rules, in front of everything.
fn system_parts(view: &RequestView) -> Vec<Value> {
    let instructions = view
        .instructions
        .iter()
        .filter(|instruction| instruction.role != InstructionRole::User)
        .map(|instruction| json!({"text": instruction.text}));
    let contributions = view
        .contributions
        .iter()
        .filter(|contribution| stands_before(contribution) && is_trusted(contribution))
        .map(|contribution| json!({"text": contribution_text(contribution)}));
    instructions.chain(contributions).collect()
}

fn is_trusted(contribution: &ContextContribution) -> bool {
    matches!(
        contribution.requested_placement,
        Placement::System | Placement::Developer
    )
}

fn content(role: &str, text: &str) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(text.len() + 40);
    write_text(role, text, &mut out);
    out.into()
}

/// Everything beside the item that changes a fragment's bytes; kept state belongs to one target.
pub(super) fn fragment_key(form: &ItemForm, target: &Target) -> FragmentKey {
    let mut hasher = DefaultHasher::new();
    (CODEC_ID, CODEC_VERSION, form, target).hash(&mut hasher);
    FragmentKey(hasher.finish())
}
