//! What is the same for every codec when a view becomes a body: refusals, losses, report
//! (PRV-13 to PRV-15), and where contributions stand (CTX-50).
//!
//! A codec calls [`admit`] first, writes its payload, and returns it with [`report`].

use serde_json::Value;

use super::{
    CodecError, CodecReport, Fallback, ProviderCapabilities, ReasoningMode, RequestView,
    ToolUsePolicy,
};
use crate::canonical_json;
use crate::context::{ContextContribution, Horizon, Placement};
use crate::log::{AssistantPart, ItemBody};

/// What a codec's wire form cannot carry.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// Reasoning of earlier answers.
    pub reasoning: bool,
    /// The order of text, reasoning and calls inside one answer.
    pub interleaving: bool,
}

/// What became of content that was carried, in the report's words.
#[derive(Clone, Copy, Debug)]
pub struct Conversions {
    /// `preserved`, `signed_block_replay` or `native_item_continuation` (PRV-20).
    pub reasoning: &'static str,
    /// The form of tool schemas.
    pub tool_schemas: &'static str,
}

/// The fields that will be lost, if that and everything else about the request is allowed.
///
/// The refusing half of [`ProviderCodec::encode`](super::ProviderCodec::encode)'s contract: what is unsupported is
/// refused always, what would be lost is refused unless that is allowed (PRV-14, PRV-15).
///
/// # Errors
/// `codec_capability_mismatch`, `request_closure_violation`, `codec_loss_rejected`.
pub fn admit(
    view: &RequestView,
    capabilities: &ProviderCapabilities,
    allow_loss: bool,
    losses: Losses,
) -> Result<Vec<String>, CodecError> {
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
    let lossy_fields = lossy_fields(view, capabilities, losses);
    let reasoning_alone = lossy_fields
        .iter()
        .all(|field| field == "assistant.reasoning");
    let allowed = allow_loss || (reasoning_alone && view.reasoning_policy.allow_loss);
    if !lossy_fields.is_empty() && !allowed {
        return Err(CodecError::LossRejected { lossy_fields });
    }
    Ok(lossy_fields)
}

/// Whether the request shows any tool to the model.
#[must_use]
pub fn offers_tools(view: &RequestView) -> bool {
    view.tool_use_policy != ToolUsePolicy::Disabled && !view.tool_schemas.is_empty()
}

/// Whether the next answer has to call a tool (PRV-83).
#[must_use]
pub fn must_call(view: &RequestView) -> bool {
    let demanded = matches!(
        view.tool_use_policy,
        ToolUsePolicy::RequiredForNextDecision | ToolUsePolicy::RequiredBeforeFinal
    );
    demanded && !view.tool_use_satisfied && offers_tools(view)
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
    losses: Losses,
) -> Vec<String> {
    let categories = view.items.categories();
    let mut lossy = Vec::new();
    if categories.reasoning && losses.reasoning {
        lossy.push("assistant.reasoning".to_owned());
    }
    if categories.interleaved && losses.interleaving {
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

/// Only what keeps its bytes may stand before the history (CTX-50); the rest follows the newest results.
#[must_use]
pub fn stands_before(contribution: &ContextContribution) -> bool {
    contribution.persistence_horizon != Horizon::Request
        && contribution.requested_placement != Placement::AfterTool
}

/// A contribution as the text of one message.
#[must_use]
pub fn contribution_text(contribution: &ContextContribution) -> String {
    let body = match &contribution.content {
        Value::String(text) => text.clone(),
        other => {
            let bytes = canonical_json::to_bytes(other).unwrap_or_default();
            String::from_utf8(bytes).unwrap_or_default()
        }
    };
    format!("[context {}]\n{body}", contribution.contribution_id)
}

/// `qitos.codec_report/v2` of a request that is sent (PRV-13).
#[must_use]
pub fn report(
    codec: (&str, u32),
    view: &RequestView,
    lossy_fields: Vec<String>,
    conversions: Conversions,
) -> CodecReport {
    let categories = view.items.categories();
    let lost_reasoning = lossy_fields
        .iter()
        .any(|field| field == "assistant.reasoning");
    let lost_images = lossy_fields
        .iter()
        .any(|field| field.contains("multimodal."));
    CodecReport {
        schema_version: CodecReport::SCHEMA.to_owned(),
        codec_id: codec.0.to_owned(),
        codec_version: codec.1,
        request_id: view.request_id.clone(),
        target: (*view.target).clone(),
        supported: view.capability_requirements.clone(),
        unsupported: Vec::new(),
        reasoning: match (categories.reasoning, lost_reasoning) {
            (false, _) => "not_present",
            (true, false) => conversions.reasoning,
            (true, true) => "dropped",
        }
        .to_owned(),
        multimodal_conversion: match (categories.multimodal, lost_images) {
            (false, _) => "not_present",
            (true, false) => "converted",
            (true, true) => "partial",
        }
        .to_owned(),
        tool_schema_conversion: if offers_tools(view) {
            conversions.tool_schemas
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
