//! A request view as a Responses body (PRV-12 to PRV-15, PRV-32, section 7).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Placement};
use qitos_contracts::log::{AssistantItem, FragmentKey, ItemBody, SealedItem};
use qitos_contracts::model::{
    CodecError, CodecReport, ContinuationReference, InstructionRole, ProviderCapabilities,
    ReasoningMode, RequestView, Target, WaitingState, WirePayload,
};
use serde_json::{Map, Value, json};

use super::options::ResponsesOptions;
use super::write_item::{ItemForm, write_item, write_message};
use crate::call::TEXT_SCOPE;
use crate::request_options::stop_thinking;
use crate::request_rules::{
    Conversions, Losses, admit, contribution_text, must_call, offers_tools, report, stands_before,
};

/// Stable id and version of the codec.
pub(super) const CODEC_ID: &str = "qitos.openai.responses";
pub(super) const CODEC_VERSION: u32 = 1;

/// Where the state of earlier answers comes from.
#[derive(Clone, Copy, Debug)]
enum StateSource<'a> {
    /// Nowhere: the history goes out as the log has it.
    None,
    /// The server holds everything up to the answer with this reference.
    Server(&'a ContinuationReference),
    /// Each answer's own state, put back into its place.
    Answers,
}

/// Writes `view` for a Responses target.
pub(super) fn encode(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    options: &ResponsesOptions,
) -> Result<(WirePayload, CodecReport), CodecError> {
    let source = StateSource::of(view, options);
    let losses = |reasoning| Losses {
        reasoning,
        interleaving: false,
    };
    let lost = losses(source.loses_reasoning(view));
    let mut lossy_fields = admit(view, capabilities, allow_loss, lost)?;

    let form = ItemForm::of(capabilities, matches!(source, StateSource::Answers));
    let (mut fragments, waiting) = view.items.fragments_with_state(
        fragment_key(&form, &view.target),
        &mut |item, out| write_item(&item.item().body, &form, out),
        &|item| source.state_of(item, view).is_some(),
    )?;
    if matches!(source, StateSource::Server(_)) && waiting.is_empty() {
        // The answer was written without its state before, as history of a view that had none.
        lossy_fields = admit(view, capabilities, allow_loss, losses(true))?;
    }
    let waiting = waiting
        .into_iter()
        .filter_map(|(fragment, item)| {
            let reference = source.state_of(&item, view)?.clone();
            Some(WaitingState {
                fragment,
                item,
                reference,
            })
        })
        .collect();
    let after = |contribution: &&Arc<ContextContribution>| !stands_before(contribution);
    let newest = view.contributions.iter().filter(after);
    fragments.extend(newest.map(|contribution| user_message(&contribution_text(contribution))));
    let payload = WirePayload::new(head(view, options), "input", fragments)
        .with_lead(lead(view))
        .with_waiting(waiting);
    let conversions = Conversions {
        reasoning: "native_item_continuation",
        tool_schemas: "flat",
    };
    let report = report((CODEC_ID, CODEC_VERSION), view, lossy_fields, conversions);
    Ok((payload, report))
}

impl<'a> StateSource<'a> {
    fn of(view: &'a RequestView, options: &ResponsesOptions) -> Self {
        if view.reasoning_policy.mode == ReasoningMode::Drop {
            // Going on from a stored answer would bring its reasoning back.
            return StateSource::None;
        }
        match &view.continuation {
            _ if !options.server_stores() => StateSource::Answers,
            Some(newest) if newest.fits(&view.target) => StateSource::Server(newest),
            _ => StateSource::None,
        }
    }

    /// The state that stands for `item`, or goes back into it.
    fn state_of<'i>(
        &self,
        item: &'i SealedItem,
        view: &RequestView,
    ) -> Option<&'i ContinuationReference> {
        let ItemBody::Assistant(answer) = &item.item().body else {
            return None;
        };
        let mut references = answer
            .continuation_attachments
            .iter()
            .map(|attachment| &attachment.reference);
        match self {
            StateSource::None => None,
            StateSource::Server(newest) => references
                .find(|reference| *reference == *newest)
                .filter(|_| !(offers_tools(view) && is_overruled(answer))),
            StateSource::Answers => references.find(|reference| reference.fits(&view.target)),
        }
    }

    /// Whether reasoning of earlier answers stays behind.
    ///
    /// Looks at items only if some hold reasoning: back to the answer that the server holds, else at each.
    fn loses_reasoning(&self, view: &RequestView) -> bool {
        if !view.items.categories().reasoning {
            return false;
        }
        let mut newest_first = view.items.iter().rev();
        match self {
            StateSource::None => true,
            StateSource::Server(_) => newest_first
                .find_map(|item| match self.state_of(item, view) {
                    Some(_) => Some(false),
                    None => item.categories().reasoning.then_some(true),
                })
                .unwrap_or(true),
            StateSource::Answers => newest_first
                .any(|item| item.categories().reasoning && self.state_of(item, view).is_none()),
        }
    }
}

/// Whether the agent put calls of its own in the place of the model's.
///
/// The server would still wait for results of the calls that it made, so its answer cannot be gone on from.
fn is_overruled(answer: &AssistantItem) -> bool {
    answer
        .calls()
        .any(|call| &*call.provider_scope == TEXT_SCOPE)
}

fn head(view: &RequestView, options: &ResponsesOptions) -> Map<String, Value> {
    let mut head = options.extra_body.clone();
    let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if head.get("chat_template_kwargs").is_some_and(empty) {
        head.remove("chat_template_kwargs");
    }
    head.insert("model".to_owned(), view.target.model().into());
    if let Some(limit) = view.max_output_tokens.or(options.max_tokens) {
        head.insert("max_output_tokens".to_owned(), limit.into());
    }
    for (key, value) in [
        ("temperature", options.temperature),
        ("top_p", options.top_p),
    ] {
        if let Some(value) = value {
            head.insert(key.to_owned(), value.into());
        }
    }
    if !options.server_stores() {
        head.entry("include")
            .or_insert_with(|| json!(["reasoning.encrypted_content"]));
    }
    let instructions = instructions(view);
    if !instructions.is_empty() {
        head.insert("instructions".to_owned(), instructions.into());
    }
    if !offers_tools(view) {
        head.remove("tool_choice");
        return head;
    }
    let tools = view.tool_schemas.tools().iter().map(|tool| {
        let strict = tool.strict_schema.as_ref().filter(|_| options.strict_tools);
        json!({
            "description": tool.description,
            "name": tool.name,
            "parameters": strict.unwrap_or(&tool.input_schema),
            // Always said, because servers rewrite a schema that does not say it.
            "strict": strict.is_some(),
            "type": "function",
        })
    });
    head.insert("tools".to_owned(), tools.collect());
    if must_call(view) {
        let choice = match &options.forced_tool {
            Some(name) => json!({"type": "function", "name": name}),
            None => "required".into(),
        };
        head.insert("tool_choice".to_owned(), choice);
        stop_thinking(&mut head);
    }
    head
}

/// What the platform and the developer say, contributions of theirs included.
///
/// It stands beside the input, because a server that holds the history holds no instructions: each request gives
/// them anew, and none piles up.
fn instructions(view: &RequestView) -> String {
    let own = view
        .instructions
        .iter()
        .filter(|instruction| instruction.role != InstructionRole::User)
        .map(|instruction| instruction.text.clone());
    let contributed = view
        .contributions
        .iter()
        .filter(|contribution| stands_before(contribution) && is_trusted(contribution))
        .map(|contribution| contribution_text(contribution));
    own.chain(contributed).collect::<Vec<_>>().join("\n\n")
}

fn is_trusted(contribution: &ContextContribution) -> bool {
    matches!(
        contribution.requested_placement,
        Placement::System | Placement::Developer
    )
}

/// The messages in front of the history: what the user says first, and lasting context that nobody vouches for.
pub(super) fn lead(view: &RequestView) -> Vec<Arc<[u8]>> {
    let own = view
        .instructions
        .iter()
        .filter(|instruction| instruction.role == InstructionRole::User)
        .map(|instruction| user_message(&instruction.text));
    let contributed = view
        .contributions
        .iter()
        .filter(|contribution| stands_before(contribution) && !is_trusted(contribution))
        .map(|contribution| user_message(&contribution_text(contribution)));
    own.chain(contributed).collect()
}

fn user_message(text: &str) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(text.len() + 40);
    write_message("user", text, &mut out);
    out.into()
}

/// Everything beside the item that changes a fragment's bytes; state belongs to one target.
pub(super) fn fragment_key(form: &ItemForm, target: &Target) -> FragmentKey {
    let mut hasher = DefaultHasher::new();
    let whose = (target.provider(), target.model(), target.api_mode());
    (CODEC_ID, CODEC_VERSION, form, whose).hash(&mut hasher);
    FragmentKey(hasher.finish())
}
