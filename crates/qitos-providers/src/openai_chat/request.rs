//! A request view as a Chat Completions body (PRV-12 to PRV-15, section 7).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::canonical_json;
use qitos_contracts::context::{ContextContribution, Horizon, Placement};
use qitos_contracts::log::{AssistantPart, FragmentKey, ItemBody};
use qitos_contracts::model::{
    CodecError, CodecReport, Fallback, InstructionRole, ProviderCapabilities, ReasoningMode,
    RequestView, ToolUsePolicy, WirePayload,
};
use serde_json::{Map, Value, json};

use super::options::ChatOptions;
use super::profile::ChatProfile;
use super::response::RequestFacts;
use super::write_item::{ItemForm, write_item, write_message};

/// Stable id and version of the codec.
pub(crate) const CODEC_ID: &str = "qitos.openai.chat";
pub(crate) const CODEC_VERSION: u32 = 1;

/// Writes `view` for a Chat target.
pub(crate) fn encode(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    options: &ChatOptions,
    profile: &ChatProfile,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let unsupported = unsupported(view, capabilities);
    if !unsupported.is_empty() {
        return Err(CodecError::CapabilityMismatch { unsupported });
    }
    let starts_with_result = view
        .items
        .get(0)
        .is_some_and(|item| matches!(item.item().body, ItemBody::ToolResult(_)));
    if starts_with_result {
        return Err(CodecError::ClosureViolation);
    }
    let form = ItemForm::of(view, capabilities);
    let lossy_fields = lossy_fields(view, capabilities, &form);
    let reasoning_alone = lossy_fields
        .iter()
        .all(|field| field == "assistant.reasoning");
    let allowed = allow_loss || (reasoning_alone && view.reasoning_policy.allow_loss);
    if !lossy_fields.is_empty() && !allowed {
        return Err(CodecError::LossRejected { lossy_fields });
    }

    let head = head(view, options, profile);
    let mut fragments = view
        .items
        .fragments(fragment_key(&form), &mut |item, out| {
            write_item(&item.item().body, &form, out)
        })?;
    fragments.extend(contributions(view, |contribution| {
        !stands_before(contribution)
    }));
    let mut lead: Vec<Arc<[u8]>> = view
        .instructions
        .iter()
        .map(|instruction| {
            let role = match instruction.role {
                InstructionRole::System | InstructionRole::Developer => "system",
                InstructionRole::User => "user",
            };
            message(role, &instruction.text)
        })
        .collect();
    lead.extend(contributions(view, stands_before));
    let payload = WirePayload::new(head, "messages", fragments).with_lead(lead);
    let report = report(view, lossy_fields, &form);
    Ok((payload, report))
}

/// What the verdict on the answer needs to know, read from the body that was sent.
pub(crate) fn facts_of_payload(payload: &WirePayload) -> RequestFacts {
    let declared_tools = payload
        .head()
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.get("function")?.get("name")?.as_str())
        .map(str::to_owned)
        .collect();
    let forced_tool = match payload.head().get("tool_choice") {
        Some(Value::String(choice)) => choice == "required" || choice == "any",
        Some(Value::Object(_)) => true,
        _ => false,
    };
    RequestFacts {
        declared_tools,
        forced_tool,
    }
}

/// The same facts, from the view.
pub(crate) fn facts_of_view(view: &RequestView, options: &ChatOptions) -> RequestFacts {
    RequestFacts {
        declared_tools: Vec::new(),
        forced_tool: choice(view, options).is_some()
            || options
                .extra_body
                .get("tool_choice")
                .is_some_and(|choice| choice.is_object() || choice == "required"),
    }
}

fn offers_tools(view: &RequestView) -> bool {
    view.tool_use_policy != ToolUsePolicy::Disabled && !view.tool_schemas.is_empty()
}

/// A forced choice, if the policy demands one (PRV-83).
fn choice(view: &RequestView, options: &ChatOptions) -> Option<Value> {
    let demanded = matches!(
        view.tool_use_policy,
        ToolUsePolicy::RequiredForNextDecision | ToolUsePolicy::RequiredBeforeFinal
    ) && !view.tool_use_satisfied;
    if !demanded || !offers_tools(view) {
        return None;
    }
    Some(match &options.forced_tool {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => "required".into(),
    })
}

fn unsupported(view: &RequestView, capabilities: &ProviderCapabilities) -> Vec<String> {
    let mut missing = Vec::new();
    let mut demand = |met: bool, name: &str| {
        if !met && !missing.iter().any(|have| have == name) {
            missing.push(name.to_owned());
        }
    };
    demand(*view.target == capabilities.target, "target");
    if offers_tools(view) {
        demand(capabilities.supports_tool_schemas, "tool_schemas");
        let required = !matches!(view.tool_use_policy, ToolUsePolicy::Auto);
        if required && !view.tool_use_satisfied {
            demand(capabilities.supports_tool_choice, "tool_choice");
        }
    }
    for feature in &view.capability_requirements {
        // These three have rules of their own: the first two are losses, the third follows below.
        let own_rule = matches!(
            feature.as_str(),
            "reasoning" | "multimodal" | "continuation"
        );
        demand(own_rule || capabilities.has(feature), feature);
    }
    let mode = match view.reasoning_policy.mode {
        ReasoningMode::PreserveIfSupported | ReasoningMode::Drop => None,
        ReasoningMode::InlineReplay => Some("inline_replay"),
        ReasoningMode::SignedBlockReplay => Some("signed_block_replay"),
        ReasoningMode::NativeItemContinuation => Some("native_item_continuation"),
    };
    if let Some(mode) = mode {
        let known = capabilities.reasoning_modes.iter().any(|have| have == mode);
        demand(known, "reasoning_mode");
    }
    if let Some(capacity) = capabilities.max_input_units {
        demand(view.selection.selected_units <= capacity, "context_window");
    }
    if let Some(capacity) = capabilities.max_output_units {
        let asked = view.max_output_tokens.unwrap_or(0);
        let reserved = view.context_budget.reserved_output_units.max(asked);
        demand(reserved <= capacity, "output_budget");
    }
    if view.continuation.is_some() {
        demand(capabilities.supports_continuation, "continuation");
    }
    missing
}

/// Every field that the wire form cannot carry, by the names of PRV-14.
fn lossy_fields(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    form: &ItemForm,
) -> Vec<String> {
    let categories = view.items.categories();
    let mut lossy = Vec::new();
    if categories.reasoning && !form.replays_reasoning {
        lossy.push("assistant.reasoning".to_owned());
    }
    if categories.interleaved {
        lossy.push("assistant.ordered_interleaving".to_owned());
    }
    // Walked only if a history holds more than text at all.
    if categories.multimodal {
        for item in view.items.iter() {
            let (prefix, blocks) = match &item.item().body {
                ItemBody::User(user) => ("multimodal", user.content.iter().collect::<Vec<_>>()),
                ItemBody::Steering(steering) => ("multimodal", steering.content.iter().collect()),
                ItemBody::Assistant(assistant) => {
                    let blocks = assistant.parts.iter().filter_map(|part| match part {
                        AssistantPart::Content(block) => Some(block),
                        _ => None,
                    });
                    ("assistant.multimodal", blocks.collect())
                }
                ItemBody::ToolResult(_) => continue,
            };
            for block in blocks {
                let kind = &*block.block_type;
                let carried = kind == "text"
                    || (prefix == "multimodal"
                        && capabilities
                            .multimodal_types
                            .iter()
                            .any(|have| have == kind));
                let name = format!("{prefix}.{kind}");
                if !carried && !lossy.contains(&name) {
                    lossy.push(name);
                }
            }
        }
    }
    lossy
}

fn head(view: &RequestView, options: &ChatOptions, profile: &ChatProfile) -> Map<String, Value> {
    let mut head = options.extra_body.clone();
    head.insert("model".to_owned(), view.target.model().into());
    if let Some(limit) = view.max_output_tokens.or(options.max_tokens) {
        head.insert(profile.limit_key.as_str().to_owned(), limit.into());
    }
    for (key, value) in [
        ("temperature", options.temperature),
        ("top_p", options.top_p),
    ] {
        if let Some(value) = value {
            head.insert(key.to_owned(), value.into());
        }
    }
    if let Some(do_sample) = options.do_sample {
        head.insert("do_sample".to_owned(), do_sample.into());
    }
    match &options.chat_template_kwargs {
        Some(Value::Object(kwargs)) if !kwargs.is_empty() => {
            let value = Value::Object(kwargs.clone());
            head.insert("chat_template_kwargs".to_owned(), value);
        }
        _ => {}
    }
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if head.get("chat_template_kwargs").is_some_and(empty) {
        head.remove("chat_template_kwargs");
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
            let mut function = Map::new();
            function.insert("description".to_owned(), tool.description.as_str().into());
            function.insert("name".to_owned(), tool.name.as_str().into());
            let strict = tool.strict_schema.as_ref().filter(|_| profile.strict_tools);
            if strict.is_some() {
                function.insert("strict".to_owned(), true.into());
            }
            let parameters = strict.unwrap_or(&tool.input_schema).clone();
            function.insert("parameters".to_owned(), parameters);
            let mut entry = Map::new();
            entry.insert("function".to_owned(), Value::Object(function));
            entry.insert("type".to_owned(), "function".into());
            Value::Object(entry)
        })
        .collect();
    head.insert("tools".to_owned(), Value::Array(tools));
    if let Some(choice) = choice(view, options) {
        head.insert("tool_choice".to_owned(), choice);
        stop_thinking(&mut head);
    }
    head
}

/// A forced call cannot be thought about first on servers that have the switch (PRV-83).
fn stop_thinking(head: &mut Map<String, Value>) {
    if let Some(flag) = head.get_mut("enable_thinking") {
        *flag = false.into();
    }
    if let Some(Value::Object(kwargs)) = head.get_mut("chat_template_kwargs")
        && let Some(flag) = kwargs.get_mut("enable_thinking")
    {
        *flag = false.into();
    }
    if let Some(thinking) = head.get_mut("thinking") {
        *thinking = json!({"type": "disabled"});
    }
}

/// Only what keeps its bytes may stand before the history (CTX-50); the rest follows the newest results.
fn stands_before(contribution: &ContextContribution) -> bool {
    contribution.persistence_horizon != Horizon::Request
        && contribution.requested_placement != Placement::AfterTool
}

fn contributions<'a>(
    view: &'a RequestView,
    wanted: impl Fn(&ContextContribution) -> bool + 'a,
) -> impl Iterator<Item = Arc<[u8]>> + 'a {
    view.contributions
        .iter()
        .filter(move |contribution| wanted(contribution))
        .map(|contribution| {
            let trusted = matches!(
                contribution.requested_placement,
                Placement::System | Placement::Developer
            );
            // After the history many servers take no system message.
            let role = if trusted && stands_before(contribution) {
                "system"
            } else {
                "user"
            };
            let body = match &contribution.content {
                Value::String(text) => text.clone(),
                other => {
                    let bytes = canonical_json::to_bytes(other).unwrap_or_default();
                    String::from_utf8(bytes).unwrap_or_default()
                }
            };
            let text = format!("[context {}]\n{body}", contribution.contribution_id);
            message(role, &text)
        })
}

fn message(role: &str, text: &str) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(text.len() + 40);
    write_message(role, text, &mut out);
    out.into()
}

/// Everything beside the item that changes a fragment's bytes.
fn fragment_key(form: &ItemForm) -> FragmentKey {
    let mut hasher = DefaultHasher::new();
    (CODEC_ID, CODEC_VERSION, form).hash(&mut hasher);
    FragmentKey(hasher.finish())
}

fn report(view: &RequestView, lossy_fields: Vec<String>, form: &ItemForm) -> CodecReport {
    let categories = view.items.categories();
    let lost_images = lossy_fields
        .iter()
        .any(|field| field.contains("multimodal."));
    CodecReport {
        schema_version: CodecReport::SCHEMA.to_owned(),
        codec_id: CODEC_ID.to_owned(),
        codec_version: CODEC_VERSION,
        request_id: view.request_id.clone(),
        target: (*view.target).clone(),
        supported: view.capability_requirements.clone(),
        unsupported: Vec::new(),
        reasoning: match (categories.reasoning, form.replays_reasoning) {
            (false, _) => "not_present",
            (true, true) => "preserved",
            (true, false) => "dropped",
        }
        .to_owned(),
        multimodal_conversion: match (categories.multimodal, lost_images) {
            (false, _) => "not_present",
            (true, false) => "converted",
            (true, true) => "partial",
        }
        .to_owned(),
        tool_schema_conversion: if offers_tools(view) {
            "nested"
        } else {
            "not_present"
        }
        .to_owned(),
        continuation: "not_present".to_owned(),
        context_selected: view.selection.selected_context_ids.clone(),
        context_omitted: view.selection.omitted_context_ids.clone(),
        compaction_receipts: view.compaction_receipts.clone(),
        lossy_fields,
        warnings: Vec::new(),
        fallback: Fallback::None,
        protocol_id: view.protocol_id.to_string(),
        tool_use_policy: view.tool_use_policy,
        tool_use_satisfied: view.tool_use_satisfied,
        lossless: true,
    }
    .settled()
}
