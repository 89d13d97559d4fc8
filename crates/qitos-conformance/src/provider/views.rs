//! Request views as an engine builds them, in every kind that the checks ask about.

use std::sync::Arc;

use qitos_contracts::context::{ContextContribution, Horizon};
use qitos_contracts::digest::Digest;
use qitos_contracts::ids::{AttemptId, BatchId, RequestId, SlotId};
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ContinuationAttachment, ExchangeLog, Item,
    ItemBody, ParseStatus, ReasoningBlock, SteeringItem, ToolCallPart, ToolResultItem, UserItem,
};
use qitos_contracts::model::{
    ContextBudget, Instruction, InstructionRole, PrefixDigests, ProviderCapabilities,
    ReasoningPolicy, RequestView, SelectionReport, SteeringBoundary, Target, ToolSchema,
    ToolSchemas, ToolUsePolicy, ViewSource,
};
use qitos_contracts::tool::result::{AttemptFacts, End, ResultIdentity, ToolResult};
use qitos_contracts::tool::{EffectClass, Returned};
use serde_json::{Map, Value, json};

use crate::check::Failure;

/// The tools of views that offer any.
pub(super) const TOOLS: [&str; 2] = ["add", "multiply"];

/// The batch of the calls in histories.
const BATCH: &str = "batch_request_0";

/// A view for `target` over a history of these bodies, offering `tools`.
pub(super) fn view(
    target: &Arc<Target>,
    bodies: Vec<ItemBody>,
    tools: &[&str],
) -> Result<RequestView, Failure> {
    let mut log = ExchangeLog::new();
    for (index, body) in bodies.into_iter().enumerate() {
        let item_id = format!("item-{index}")
            .parse()
            .map_err(|_| Failure::new("an item id was refused"))?;
        let item = Item {
            item_id,
            exchange_id: log.exchange_for(&body),
            body,
        };
        log.append(item, &mut Vec::new())
            .map_err(|error| Failure::new(format!("a history was refused: {error}")))?;
    }
    let items = log.items().clone();
    let found = items.categories();
    let requirements = [
        ("multimodal", found.multimodal),
        (
            "parallel_tool_calls",
            found.parallel_tool_calls && !tools.is_empty(),
        ),
        ("reasoning", found.reasoning),
        ("tool_calls", !tools.is_empty()),
        ("tool_results", found.tool_results),
        ("tool_schemas", !tools.is_empty()),
    ];
    let schemas = tools
        .iter()
        .map(|name| ToolSchema {
            name: (*name).to_owned(),
            description: format!("does {name}"),
            input_schema: json!({
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            }),
            strict_schema: None,
        })
        .collect();
    Ok(RequestView {
        request_id: RequestId::of_view(&Digest::of(b"conformance")),
        target: Arc::clone(target),
        source: ViewSource {
            exchange_log_id: "log".into(),
            exchange_log_digest: Digest::ZERO,
            first_item: 0,
        },
        items,
        instructions: Arc::new([]),
        tool_schemas: Arc::new(ToolSchemas::new(schemas)),
        contributions: Vec::new(),
        capability_requirements: requirements
            .into_iter()
            .filter(|(_, wanted)| *wanted)
            .map(|(name, _)| name.to_owned())
            .collect(),
        reasoning_policy: ReasoningPolicy::default(),
        continuation: None,
        // No output is reserved: a target may have a capacity that is smaller than any default.
        context_budget: ContextBudget {
            reserved_output_units: 0,
            ..ContextBudget::default()
        },
        selection: SelectionReport::default(),
        compaction_receipts: Vec::new(),
        steering_boundary: SteeringBoundary::default(),
        protocol_id: "native_tool_calls_v1".into(),
        tool_use_policy: ToolUsePolicy::Auto,
        tool_use_satisfied: false,
        max_output_tokens: None,
        prefix_digests: PrefixDigests {
            tools: Digest::ZERO,
            instructions: Digest::ZERO,
            contributions: Digest::ZERO,
            items: Digest::ZERO,
        },
        view_digest: Digest::of(b"conformance"),
    })
}

/// One question and nothing else; tools if the target takes any.
pub(super) fn question(
    target: &Arc<Target>,
    capabilities: &ProviderCapabilities,
) -> Result<RequestView, Failure> {
    let tools: &[&str] = if capabilities.supports_native_tool_calls {
        &TOOLS
    } else {
        &[]
    };
    view(target, vec![user("question")], tools)
}

/// Everything textual that the target can take; each text holds `marker` and a number.
pub(super) fn rich(
    target: &Arc<Target>,
    capabilities: &ProviderCapabilities,
    marker: &str,
) -> Result<(RequestView, Vec<String>), Failure> {
    let mut markers = Vec::new();
    let mut mark = || {
        markers.push(format!("{marker}{}", markers.len()));
        markers.last().cloned().unwrap_or_default()
    };
    let mut bodies = vec![user(&mark())];
    let native = capabilities.supports_native_tool_calls;
    if native {
        bodies.push(assistant(vec![
            text(&mark()),
            call(target, "one", &format!("{{\"a\":2,\"n\":\"{}\"}}", mark()))?,
        ]));
        bodies.push(result(target, "one", json!(mark()))?);
        bodies.push(assistant(vec![text(&mark())]));
    } else {
        bodies.push(assistant(vec![text(&mark())]));
    }
    if capabilities.has("steering") {
        bodies.push(ItemBody::Steering(SteeringItem {
            content: vec![ContentBlock::text(mark())],
            metadata: Map::new(),
        }));
    }
    bodies.push(user(&mark()));
    let mut made = view(target, bodies, if native { &TOOLS } else { &[] })?;
    made.instructions = Arc::new([Instruction {
        role: InstructionRole::System,
        text: mark(),
    }]);
    for horizon in [Horizon::Session, Horizon::Request] {
        let content = Value::String(mark());
        let id = format!("context-{}", made.contributions.len());
        let mut contribution = ContextContribution::new(id, "project:context", content)
            .map_err(|_| Failure::new("a contribution was refused"))?;
        contribution.persistence_horizon = horizon;
        made.contributions.push(Arc::new(contribution));
    }
    Ok((made, markers))
}

/// A user's words.
pub(super) fn user(text: &str) -> ItemBody {
    user_content(vec![ContentBlock::text(text)])
}

/// A user's content.
pub(super) fn user_content(content: Vec<ContentBlock>) -> ItemBody {
    ItemBody::User(UserItem {
        content,
        metadata: Map::new(),
    })
}

/// An earlier answer.
pub(super) fn assistant(parts: Vec<AssistantPart>) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        ..AssistantItem::default()
    })
}

/// An earlier answer whose provider state is kept elsewhere.
pub(super) fn attached(parts: Vec<AssistantPart>, attachment: ContinuationAttachment) -> ItemBody {
    ItemBody::Assistant(AssistantItem {
        parts,
        continuation_attachments: vec![attachment],
        ..AssistantItem::default()
    })
}

/// Text of an earlier answer.
pub(super) fn text(text: &str) -> AssistantPart {
    AssistantPart::Content(ContentBlock::text(text))
}

/// Reasoning of an earlier answer.
pub(super) fn reasoning(target: &Target, block_type: &str, text: &str) -> AssistantPart {
    AssistantPart::ReasoningBlock(ReasoningBlock {
        provider_scope: target.scope().into(),
        reference_id: "reasoning-1".into(),
        attachment_id: None,
        block_type: block_type.into(),
        summary: Some(text.into()),
    })
}

/// An image of one of the kinds of PRV-10a, its content holding `marker`.
pub(super) fn image(kind: &str, marker: &str) -> ContentBlock {
    let mut block = ContentBlock {
        block_type: kind.into(),
        mime_type: Some("image/png".into()),
        ..ContentBlock::default()
    };
    if kind == "image_base64" {
        block.data = Some(marker.into());
    } else {
        block.url = Some(format!("https://images.invalid/{marker}.png").into());
    }
    block
}

/// A call of an earlier answer.
pub(super) fn call(target: &Target, id: &str, arguments: &str) -> Result<AssistantPart, Failure> {
    let refused = |_| Failure::new("an id was refused");
    Ok(AssistantPart::ToolCall(ToolCallPart {
        provider_scope: target.scope().into(),
        call_id: id.parse().map_err(refused)?,
        batch_id: BATCH.parse().map_err(refused)?,
        name: "add".into(),
        raw_arguments: arguments.into(),
        parsed_arguments: serde_json::from_str(arguments).ok().map(Arc::new),
        parse_status: ParseStatus::Parsed,
        parse_error: None,
        metadata: Map::new(),
    }))
}

/// What a call gave.
pub(super) fn result(target: &Target, id: &str, output: Value) -> Result<ItemBody, Failure> {
    let refused = |_| Failure::new("an id was refused");
    let batch_id: BatchId = BATCH.parse().map_err(refused)?;
    let slot_id = SlotId::new(&batch_id, 0);
    let identity = ResultIdentity {
        tool_name: "add".into(),
        call_id: id.parse().map_err(refused)?,
        slot_id: slot_id.clone(),
        owner_generation: 1,
    };
    let facts = AttemptFacts {
        attempt_id: AttemptId::of_slot(&slot_id, 1, 1),
        attempts: 1,
        latency_ms: 1,
    };
    let end = End::Returned(Returned::Value(output));
    let ended = ToolResult::ended(identity, &EffectClass::Pure, end, None, facts);
    Ok(ItemBody::ToolResult(ToolResultItem {
        provider_scope: target.scope().into(),
        call_id: id.parse().map_err(refused)?,
        batch_id,
        result: Arc::new(ended),
        synthetic: false,
        closure_reason: None,
    }))
}
