//! A request view as a Chat Completions body (PRV-12 to PRV-15, section 7).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Placement};
use qitos_contracts::log::FragmentKey;
use qitos_contracts::model::{
    CodecError, CodecReport, InstructionRole, ProviderCapabilities, RequestView, WirePayload,
};
use serde_json::{Map, Value, json};

use super::options::ChatOptions;
use super::profile::ChatProfile;
use super::response::RequestFacts;
use super::write_item::{ItemForm, write_item, write_message};
use crate::request_options::stop_thinking;
use crate::request_rules::{
    Conversions, Losses, admit, contribution_text, must_call, offers_tools, report, stands_before,
};

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
    let form = ItemForm::of(view, capabilities);
    let losses = Losses {
        reasoning: !form.replays_reasoning,
        interleaving: true,
    };
    let lossy_fields = admit(view, capabilities, allow_loss, losses)?;

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
    let report = report(
        (CODEC_ID, CODEC_VERSION),
        view,
        lossy_fields,
        Conversions {
            reasoning: "preserved",
            tool_schemas: "nested",
        },
    );
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

/// A forced choice, if the policy demands one (PRV-83).
fn choice(view: &RequestView, options: &ChatOptions) -> Option<Value> {
    if !must_call(view) {
        return None;
    }
    Some(match &options.forced_tool {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => "required".into(),
    })
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
            let text = contribution_text(contribution);
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
